"""Kernels beside what Python, NumPy and Arrow do: gathering rows, the hash multimap, and Zipf keys."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.case import Bound, Case, Outcome, Params, Rival, Run, prepared
from bench.context import BenchContext
from dovetail.calibrate.kernel_costs import wide_batch
from dovetail.engine.columns import take_columns, take_runs
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.errors import DataError
from dovetail.workloads.zipf import ZipfLaw, zipf_keys

# Gathering result rows by number: the step that decides how fast joins materialise their answers.

RUN_ROWS = 16


def _picked(bench: BenchContext, params: Params) -> tuple[pa.RecordBatch, I64]:
    """Rows of six numbers and two texts, and the starts of what to take: single rows, or runs of them."""

    def make() -> tuple[pa.RecordBatch, I64]:
        rows = params["rows"]
        long = RUN_ROWS if params["order"] == "runs" else 1
        return wide_batch(rows), np.random.default_rng(bench.seed).integers(0, rows - long + 1, rows // long)

    return bench.once("picked", make)


def _indices(bench: BenchContext, params: Params) -> I64:
    starts = _picked(bench, params)[1]
    return (starts[:, None] + np.arange(RUN_ROWS)).ravel() if params["order"] == "runs" else starts


def _checksum(take: Callable[[], pa.RecordBatch]) -> Outcome:
    """Time the gathering only; the checksum is of a number and a text column, so that rows out of step would show."""
    began = time.perf_counter()
    batch = take()
    seconds = time.perf_counter() - began
    lengths = pc.cast(pc.binary_length(batch["t1"]), pa.int64())
    return Outcome(int(pc.sum(pc.multiply(pc.bit_wise_and(batch["n1"], 1023), lengths)).as_py()), seconds)


def _gathered(bench: BenchContext, params: Params) -> int:
    """From the definition of the columns (n1 is the row number, t1 the word of 8 times it), not by gathering."""
    rows = _indices(bench, params)
    lengths = np.array([len(f"word {i}") for i in range(1000)])[rows * 8 % 1000]
    return int(((rows & 1023) * lengths).sum())


@prepared
def _take(bench: BenchContext, params: Params) -> Run:
    batch, indices = _picked(bench, params)[0], _indices(bench, params)
    return lambda: _checksum(lambda: take_columns(batch, indices))


@prepared
def _arrow_take(bench: BenchContext, params: Params) -> Run:
    batch, indices = _picked(bench, params)[0], _indices(bench, params)
    return lambda: _checksum(lambda: batch.take(pa.array(indices)))


@prepared
def _runs(bench: BenchContext, params: Params) -> Run:
    batch, starts = _picked(bench, params)
    lengths = np.full(len(starts), RUN_ROWS)
    return lambda: _checksum(lambda: take_runs(batch, starts, lengths))


def _gather_points(rows: int) -> list[Params]:
    return [{"rows": rows, "order": order} for order in ("random", "runs")]


GATHER = Case(
    name="gather",
    question="How fast are rows of six numbers and two texts gathered, beside Arrow's take?",
    varies=("rows", "order"),
    points={"small": _gather_points(200_000), "full": _gather_points(2_000_000)},
    rivals=(
        Rival("dovetail take", _take),
        Rival("dovetail runs", _runs, sits_out=lambda at: None if at["order"] == "runs" else "takes runs only"),
        Rival("pyarrow take", _arrow_take),
    ),
    expected=_gathered,
    baseline="pyarrow take",
    bounds=(
        Bound("no slower than Arrow", "dovetail take", 1.0, against="pyarrow take"),
        Bound("runs pay", "dovetail runs", 0.7, against="pyarrow take", where={"order": "runs"}),
    ),
    answer="(checksum)",
)

# The hash multimap: build a table of one side and find every match of the other.


def _sides(bench: BenchContext, params: Params) -> tuple[I64, I64]:
    """Build and probe keys: every key has `per_key` values on average, and half of the probes match nothing."""

    def make() -> tuple[I64, I64]:
        rng = np.random.default_rng(bench.seed)
        domain = max(1, params["rows"] // params["per_key"])
        return rng.integers(0, domain, params["rows"]), rng.integers(0, 2 * domain, params["rows"])

    return bench.once("sides", make)


def _matches(bench: BenchContext, params: Params) -> int:
    """Pairs, by counting each key on both sides."""
    build, probe = _sides(bench, params)
    size = int(max(build.max(), probe.max())) + 1
    return int(np.bincount(build, minlength=size) @ np.bincount(probe, minlength=size))


@prepared
def _multimap(bench: BenchContext, params: Params) -> Run:
    build, probe = _sides(bench, params)
    rows = np.arange(len(build))

    def run() -> int:
        table = HashMultimap()
        table.insert(build, rows)
        return len(table.probe(probe)[0])

    return run


@prepared
def _dict(bench: BenchContext, params: Params) -> Run:
    build, probe = (side.tolist() for side in _sides(bench, params))

    def run() -> int:
        table = defaultdict(list)
        for row, key in enumerate(build):
            table[key].append(row)
        left: list[int] = []
        right: list[int] = []
        for row, key in enumerate(probe):
            if (matches := table.get(key)) is not None:
                left.extend([row] * len(matches))
                right.extend(matches)
        return len(right)

    return run


@prepared
def _arrow_join(bench: BenchContext, params: Params) -> Run:
    build, probe = _sides(bench, params)
    left = pa.table({"key": probe, "row": np.arange(len(probe))})
    right = pa.table({"key": build, "value": np.arange(len(build))})
    return lambda: int(left.join(right, "key", join_type="inner", use_threads=False).num_rows)


def _multimap_points(rows: int) -> list[Params]:
    return [{"rows": rows, "per_key": per_key} for per_key in (1, 10)]


MULTIMAP = Case(
    name="multimap",
    question="How fast are inserts and probes, beside a dict of lists and Arrow's hash join on one core?",
    varies=("rows", "per_key"),
    points={"small": _multimap_points(200_000), "full": _multimap_points(2_000_000)},
    rivals=(
        Rival("dovetail", _multimap),
        Rival("python dict", _dict),
        Rival("pyarrow join", _arrow_join, requires=("pyarrow",)),
    ),
    expected=_matches,
    baseline="dovetail",
    bounds=(
        Bound("three times a dict", "dovetail", 0.33, against="python dict", where={"per_key": 1}),
        Bound("faster than a dict with many values", "dovetail", 1.0, against="python dict", where={"per_key": 10}),
    ),
    answer="pairs",
)

# Zipf keys: how fast they are made, and that they follow the law.


def _by_the_law(params: Params, make: Callable[[], I64]) -> Outcome:
    """Time the making only; then every key must be in the domain and the first ten must have their share."""
    began = time.perf_counter()
    keys = make()
    seconds = time.perf_counter() - began
    due = ZipfLaw(params["domain"], params["exponent"]).share(10)
    got = float((keys <= 10).mean())
    if abs(got - due) > 6 * (due * (1 - due) / len(keys)) ** 0.5:
        raise DataError(f"the ten most frequent keys have a share of {got:.5f}; the law says {due:.5f}.")
    return Outcome(int(((keys >= 1) & (keys <= params["domain"])).sum()), seconds)


@prepared
def _zipf(bench: BenchContext, params: Params) -> Run:
    seeds: Iterator[int] = count(bench.seed)
    n, domain, exponent = params["n"], params["domain"], params["exponent"]
    return lambda: _by_the_law(params, lambda: zipf_keys(n, domain, exponent, next(seeds)))


@prepared
def _choice(bench: BenchContext, params: Params) -> Run:
    rng, domain = np.random.default_rng(bench.seed), params["domain"]
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -params["exponent"]
    p = weights / weights.sum()
    return lambda: _by_the_law(params, lambda: np.asarray(rng.choice(domain, params["n"], p=p)) + 1)


@prepared
def _numpy_zipf(bench: BenchContext, params: Params) -> Run:
    rng, domain, exponent = np.random.default_rng(bench.seed), params["domain"], params["exponent"]

    def redrawn() -> I64:
        """NumPy's law has no end, so keys beyond the domain are drawn again."""
        keys = np.asarray(rng.zipf(exponent, params["n"]))
        while (beyond := np.flatnonzero((keys > domain) | (keys < 1))).size:
            keys[beyond] = rng.zipf(exponent, beyond.size)
        return keys

    return lambda: _by_the_law(params, redrawn)


def _needs_a_tail(params: Params) -> str | None:
    return None if params["exponent"] > 1 else "defined for exponents above 1 only"


def _zipf_points(n: int) -> list[Params]:
    return [{"n": n, "domain": 1_000_000, "exponent": exponent} for exponent in (0.5, 1.0, 1.5)]


ZIPF = Case(
    name="zipf",
    question="How fast are Zipf keys made, beside NumPy?",
    varies=("n", "domain", "exponent"),
    points={"small": _zipf_points(1_000_000), "full": _zipf_points(10_000_000)},
    rivals=(
        Rival("dovetail", _zipf),
        Rival("numpy choice", _choice),
        Rival("numpy zipf", _numpy_zipf, sits_out=_needs_a_tail),
    ),
    expected=lambda bench, params: int(params["n"]),
    baseline="dovetail",
    bounds=(
        Bound("ten million keys in three seconds", "dovetail", 3.0, scale="full"),
        Bound("not slower than choice", "dovetail", 1.0, against="numpy choice"),
    ),
    answer="keys in the domain",
)
CASES = (GATHER, MULTIMAP, ZIPF)
