"""Kernels beside what Python, NumPy and Arrow do: gathering rows, the hash multimap, and Zipf keys."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.case import Outcome, Params, Run, prepared
from bench.context import BenchContext
from dovetail.calibrate.kernel_costs import wide_batch
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.rows.columns import take_columns
from dovetail.errors import DataError
from dovetail.workloads.zipf import ZipfLaw, zipf_keys

# Gathering result rows by number: the step that decides how fast joins materialise their answers.

RUN_ROWS = 16


def _picked(bench: BenchContext, params: Params) -> tuple[pa.RecordBatch, I64]:
    """Rows of six numbers and two texts, and the starts of what to take: single rows, or the first of runs."""

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


def gathered(bench: BenchContext, params: Params) -> int:
    """From the definition of the columns (n1 is the row number, t1 the word of 8 times it), not by gathering."""
    rows = _indices(bench, params)
    lengths = np.array([len(f"word {i}") for i in range(1000)])[rows * 8 % 1000]
    return int(((rows & 1023) * lengths).sum())


@prepared
def take(bench: BenchContext, params: Params) -> Run:
    """Single rows by our kernel."""
    batch, indices = _picked(bench, params)[0], _indices(bench, params)
    return lambda: _checksum(lambda: take_columns(batch, indices))


@prepared
def arrow_take(bench: BenchContext, params: Params) -> Run:
    """Single rows by Arrow."""
    batch, indices = _picked(bench, params)[0], _indices(bench, params)
    return lambda: _checksum(lambda: batch.take(pa.array(indices)))


# The hash multimap: build a table of one side and find every match of the other.


def _sides(bench: BenchContext, params: Params) -> tuple[I64, I64]:
    """Build and probe keys: every key has `per_key` values on average, and half of the probes match nothing."""

    def make() -> tuple[I64, I64]:
        rng = np.random.default_rng(bench.seed)
        domain = max(1, params["rows"] // params["per_key"])
        return rng.integers(0, domain, params["rows"]), rng.integers(0, 2 * domain, params["rows"])

    return bench.once("sides", make)


def matches(bench: BenchContext, params: Params) -> int:
    """Pairs, by counting each key on both sides."""
    build, probe = _sides(bench, params)
    size = int(max(build.max(), probe.max())) + 1
    return int(np.bincount(build, minlength=size) @ np.bincount(probe, minlength=size))


@prepared
def multimap(bench: BenchContext, params: Params) -> Run:
    """Our hash multimap."""
    build, probe = _sides(bench, params)
    rows = np.arange(len(build))

    def run() -> int:
        table = HashMultimap()
        table.insert(build, rows)
        return len(table.probe(probe)[0])

    return run


@prepared
def by_dict(bench: BenchContext, params: Params) -> Run:
    """A dict of lists."""
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
def arrow_join(bench: BenchContext, params: Params) -> Run:
    """Arrow's hash join on one core."""
    build, probe = _sides(bench, params)
    left = pa.table({"key": probe, "row": np.arange(len(probe))})
    right = pa.table({"key": build, "value": np.arange(len(build))})
    return lambda: int(left.join(right, "key", join_type="inner", use_threads=False).num_rows)


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
def zipf(bench: BenchContext, params: Params) -> Run:
    """Our Zipf keys."""
    seeds: Iterator[int] = count(bench.seed)
    n, domain, exponent = params["n"], params["domain"], params["exponent"]
    return lambda: _by_the_law(params, lambda: zipf_keys(n, domain, exponent, next(seeds)))


@prepared
def choice(bench: BenchContext, params: Params) -> Run:
    """NumPy's choice with the weights of the law."""
    rng, domain = np.random.default_rng(bench.seed), params["domain"]
    weights = np.arange(1, domain + 1, dtype=np.float64) ** -params["exponent"]
    p = weights / weights.sum()
    return lambda: _by_the_law(params, lambda: np.asarray(rng.choice(domain, params["n"], p=p)) + 1)


@prepared
def numpy_zipf(bench: BenchContext, params: Params) -> Run:
    """NumPy's Zipf law."""
    rng, domain, exponent = np.random.default_rng(bench.seed), params["domain"], params["exponent"]

    def redrawn() -> I64:
        """NumPy's law has no end, so keys beyond the domain are drawn again."""
        keys = np.asarray(rng.zipf(exponent, params["n"]))
        while (beyond := np.flatnonzero((keys > domain) | (keys < 1))).size:
            keys[beyond] = rng.zipf(exponent, beyond.size)
        return keys

    return lambda: _by_the_law(params, redrawn)


def zipf_answer(bench: BenchContext, params: Params) -> int:
    """All keys are in the domain."""
    return int(params["n"])
