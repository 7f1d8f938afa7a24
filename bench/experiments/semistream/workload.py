"""Chapter 5's stream: which pages of the master data it uses, how skewed its keys are, how bursty its arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bench.judge import Figures
from dovetail.workloads.arrivals import bursty_counts
from dovetail.workloads.zipf import ZipfLaw

if TYPE_CHECKING:
    from bench.experiments.semistream.media import Runner

_MILLION = 1_000_000
_PAGES, _PARTITION, _PAGE_ROWS = 16_000, 20, 8192 // 120


def page_use(runner: Runner) -> Figures:
    """Figure 5.1: rows of the stream that each partition of 20 pages answers."""
    rows, draws = _PAGES * _PAGE_ROWS, _MILLION
    law = ZipfLaw(rows, 1.0, "integral")
    keys = law.ranks(np.random.default_rng(runner.bench.seed + 1), draws) - 1
    used = np.bincount(keys // (_PARTITION * _PAGE_ROWS), minlength=_PAGES // _PARTITION)
    at = [int(x) for x in np.unique(np.geomspace(1, len(used), 40).astype(int)) if used[x - 1]]
    return Figures({"used": used, "tenths": used.reshape(10, -1).sum(axis=1) / draws, "at": np.array(at)})


def skewed_keys(runner: Runner, exponents: Mapping[str, float]) -> Figures:
    """Figure 5.5: the share of the first fifth of the keys, and how often keys are drawn at exponent 1."""
    n, draws, rows = 2 * _MILLION, 4 * _MILLION, []
    for exponent, due in exponents.items():
        ranks = ZipfLaw(n, float(exponent), "integral").ranks(np.random.default_rng(runner.bench.seed + 2), draws)
        rows.append((float(exponent), float(np.mean(ranks <= n // 5)), due))
    counts = np.bincount(ranks, minlength=n + 1)[1:]
    at = np.unique(np.geomspace(1, 3000, 30).astype(int))
    falls = float(np.polyfit(np.log(at[5:] + 0.5), np.log(counts[at[5:] - 1]), 1)[0])
    return Figures.of(rows, "exponent share due", counts=counts, at=at, falls=falls)


def bursts(runner: Runner) -> Figures:
    """Figure 5.6: arrivals by step, and how their means over more and more steps spread."""
    steps, rows = 200_000 if runner.bench.scale == "full" else 65_536, []
    counts = bursty_counts(steps, runner.bench.seed + 3)
    for block in (1, 4, 16, 64, 256, 1024):
        means = counts[: steps // block * block].reshape(-1, block).mean(axis=1)
        rows.append((block, float(means.std() / means.mean()), float(1 / np.sqrt(counts.mean() * block))))
    return Figures.of(rows, "block spread poisson", counts=counts)
