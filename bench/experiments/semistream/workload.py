"""Chapter 5's stream: which pages of the master data it uses, how skewed its keys are, how bursty its arrivals."""

from __future__ import annotations

import numpy as np

from bench.experiment import Chart, Findings, Grid, close, judged
from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import MILLION
from dovetail.workloads.arrivals import bursty_counts
from dovetail.workloads.zipf import ZipfLaw

_PAGES, _PARTITION, _PAGE_ROWS = 16_000, 20, 8192 // 120
_EXPONENTS = {0.0: 0.2, 0.5: 0.447, 0.8614: 0.769, 1.0: 0.889}


def page_use(runner: Runner) -> Findings:
    """Figure 5.1."""
    rows, draws = _PAGES * _PAGE_ROWS, MILLION
    law = ZipfLaw(rows, 1.0, "integral")
    keys = law.ranks(np.random.default_rng(runner.bench.seed + 1), draws) - 1
    used = np.bincount(keys // (_PARTITION * _PAGE_ROWS), minlength=_PAGES // _PARTITION)
    tenths = used.reshape(10, -1).sum(axis=1) / draws
    checks = [
        (f"the first tenth of the pages answers {tenths[0]:.0%} of the stream, the last {tenths[-1]:.1%}",
              bool(np.all(np.diff(tenths) < 0.001)) and tenths[0] > 20 * tenths[-1]),
        (f"one read of the first partition answers {used[0] / used[-1]:,.0f} times the rows that the last does",
              used[0] > 100 * used[-1]),
    ]  # fmt: skip
    at = [int(x) for x in np.unique(np.geomspace(1, len(used), 40).astype(int))]
    title, x = "Rows answered per partition of 20 pages, exponent 1", "partition of the master data"
    lines = {"used": [(n, int(used[n - 1])) for n in at if used[n - 1]]}
    chart = Chart(title, x, "rows of a million", lines, log_x=True, log_y=True)
    return judged(checks, "Master data in the order of its use.", chart)


def skewed_keys(runner: Runner) -> Findings:
    """Figure 5.5."""
    n, draws, checks, rows = 2 * MILLION, 4 * MILLION, [], []
    for exponent, due in _EXPONENTS.items():
        ranks = ZipfLaw(n, exponent, "integral").ranks(np.random.default_rng(runner.bench.seed + 2), draws)
        share = float(np.mean(ranks <= n // 5))
        rows.append((exponent, share, due))
        checks.append(close(f"share of the first fifth at exponent {exponent:g}", share, due, 0.005))
    counts = np.bincount(ranks, minlength=n + 1)[1:]
    at = np.unique(np.geomspace(1, 3000, 30).astype(int))
    slope = float(np.polyfit(np.log(at[5:] + 0.5), np.log(counts[at[5:] - 1]), 1)[0])
    checks.append((f"frequency falls with rank to the power {slope:.2f} at exponent 1", abs(slope + 1) < 0.05))
    lines = {"drawn": [(int(r), int(counts[r - 1])) for r in at]}
    chart = Chart("Exponent 1: how often a key is drawn in 4 million", "rank", "rows", lines, log_x=True, log_y=True)
    note = "The source calls exponent 1 about the 80/20 rule; that is exponent 0.86."
    return judged(checks, note, chart, Grid("First fifth of the keys", ("exponent", "share", "by the law"), rows))


def bursts(runner: Runner) -> Findings:
    """Figure 5.6."""
    steps = 200_000 if runner.bench.scale == "full" else 65_536
    counts = bursty_counts(steps, runner.bench.seed + 3)
    rows = []
    for block in (1, 4, 16, 64, 256, 1024):
        means = counts[: steps // block * block].reshape(-1, block).mean(axis=1)
        spread = float(means.std() / means.mean())
        rows.append((block, spread, float(1 / np.sqrt(counts.mean() * block))))
    ratio = [row[1] / row[2] for row in rows]
    checks = [
        (f"{counts.min()} to {counts.max()} rows a step, {counts.mean():.0f} on average",
              int(counts.min()) >= 0 and int(counts.max()) <= 2046 and abs(counts.mean() / 1023 - 1) < 0.1),
        (f"means of 64 steps still spread by {rows[3][1]:.0%}, where a Poisson stream's would by "
              f"{rows[3][2]:.1%}", ratio[3] > 10),
    ]  # fmt: skip
    chart = Chart("Arrivals", "step", "rows", {"a step": [(i, int(c)) for i, c in enumerate(counts[:600])]})
    note = "By the corrected generator. Bursts reach over 2 to 1,024 steps; beyond, the stream is not self-similar."
    heads = ("steps together", "spread of their mean", "of a Poisson stream")
    return judged(checks, note, chart, Grid("Spread by time scale", heads, rows))
