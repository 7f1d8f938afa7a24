"""Zipf keys: how fast they are made, and that they follow the law."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt

from bench.case import Bound, Case, Outcome, Params, Rival, Run
from bench.context import BenchContext
from dovetail.errors import DataError
from dovetail.workloads.zipf import ZipfLaw, zipf_keys

I64 = npt.NDArray[np.int64]


def _checked(params: Params, make: Callable[[], I64]) -> Outcome:
    """Time the making only; then every key must be in the domain and the first ten must have their share."""
    began = time.perf_counter()
    keys = make()
    seconds = time.perf_counter() - began
    due = ZipfLaw(params["domain"], params["exponent"]).share(10)
    got = float((keys <= 10).mean())
    if abs(got - due) > 6 * (due * (1 - due) / len(keys)) ** 0.5:
        raise DataError(f"the ten most frequent keys have a share of {got:.5f}; the law says {due:.5f}.")
    return Outcome(int(((keys >= 1) & (keys <= params["domain"])).sum()), seconds)


@contextmanager
def _dovetail(bench: BenchContext, params: Params) -> Iterator[Run]:
    seeds = iter(range(bench.seed, bench.seed + 1_000_000))
    yield lambda: _checked(params, lambda: zipf_keys(params["n"], params["domain"], params["exponent"], next(seeds)))


@contextmanager
def _choice(bench: BenchContext, params: Params) -> Iterator[Run]:
    rng = np.random.default_rng(bench.seed)
    weights = np.arange(1, params["domain"] + 1, dtype=np.float64) ** -params["exponent"]
    p = weights / weights.sum()
    yield lambda: _checked(params, lambda: np.asarray(rng.choice(params["domain"], params["n"], p=p)) + 1)


@contextmanager
def _numpy_zipf(bench: BenchContext, params: Params) -> Iterator[Run]:
    rng = np.random.default_rng(bench.seed)
    yield lambda: _checked(params, partial(_redrawn, rng, params))


def _redrawn(rng: np.random.Generator, params: Params) -> I64:
    """NumPy's law has no end, so keys beyond the domain are drawn again."""
    keys = np.asarray(rng.zipf(params["exponent"], params["n"]))
    while (beyond := np.flatnonzero((keys > params["domain"]) | (keys < 1))).size:
        keys[beyond] = rng.zipf(params["exponent"], beyond.size)
    return keys


def _needs_a_tail(params: Params) -> str | None:
    return None if params["exponent"] > 1 else "defined for exponents above 1 only"


def _expected(bench: BenchContext, params: Params) -> int:
    return int(params["n"])


def _points(n: int) -> list[Params]:
    return [{"n": n, "domain": 1_000_000, "exponent": exponent} for exponent in (0.5, 1.0, 1.5)]


CASE = Case(
    name="zipf",
    question="How fast are Zipf keys made, beside NumPy?",
    varies=("n", "domain", "exponent"),
    points={"small": _points(1_000_000), "full": _points(10_000_000)},
    rivals=(
        Rival("dovetail", _dovetail),
        Rival("numpy choice", _choice),
        Rival("numpy zipf", _numpy_zipf, sits_out=_needs_a_tail),
    ),
    expected=_expected,
    baseline="dovetail",
    bounds=(
        Bound("ten million keys in three seconds", "dovetail", 3.0, scale="full"),
        Bound("not slower than choice", "dovetail", 1.0, against="numpy choice"),
    ),
    answer="keys in the domain",
)
