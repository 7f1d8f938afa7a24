"""The hash multimap: build a table of one side and find every match of the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from bench.case import Bound, Case, Params, Rival, Run
from bench.context import BenchContext
from dovetail.engine.kernels.multimap import HashMultimap

I64 = npt.NDArray[np.int64]


def _sides(bench: BenchContext, params: Params) -> tuple[I64, I64]:
    """Build and probe keys: every key has `per_key` values on average, and half of the probes match nothing."""

    def make() -> tuple[I64, I64]:
        rng = np.random.default_rng(bench.seed)
        domain = max(1, params["rows"] // params["per_key"])
        return rng.integers(0, domain, params["rows"]), rng.integers(0, 2 * domain, params["rows"])

    return bench.once("sides", make)


def _expected(bench: BenchContext, params: Params) -> int:
    """Pairs, by counting each key on both sides."""
    build, probe = _sides(bench, params)
    size = int(max(build.max(), probe.max())) + 1
    return int(np.bincount(build, minlength=size) @ np.bincount(probe, minlength=size))


@contextmanager
def _multimap(bench: BenchContext, params: Params) -> Iterator[Run]:
    build, probe = _sides(bench, params)
    rows = np.arange(len(build))

    def run() -> int:
        table = HashMultimap()
        table.insert(build, rows)
        return len(table.probe(probe)[0])

    yield run


@contextmanager
def _dict(bench: BenchContext, params: Params) -> Iterator[Run]:
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

    yield run


@contextmanager
def _pyarrow(bench: BenchContext, params: Params) -> Iterator[Run]:
    import pyarrow as pa

    build, probe = _sides(bench, params)
    left = pa.table({"key": probe, "row": np.arange(len(probe))})
    right = pa.table({"key": build, "value": np.arange(len(build))})
    yield lambda: int(left.join(right, "key", join_type="inner", use_threads=False).num_rows)


def _points(rows: int) -> list[Params]:
    return [{"rows": rows, "per_key": per_key} for per_key in (1, 10)]


CASE = Case(
    name="multimap",
    question="How fast are inserts and probes, beside a dict of lists and Arrow's hash join on one core?",
    varies=("rows", "per_key"),
    points={"small": _points(200_000), "full": _points(2_000_000)},
    rivals=(
        Rival("dovetail", _multimap),
        Rival("python dict", _dict),
        Rival("pyarrow join", _pyarrow, requires=("pyarrow",)),
    ),
    expected=_expected,
    baseline="dovetail",
    bounds=(
        Bound("three times a dict", "dovetail", 0.33, against="python dict", where={"per_key": 1}),
        Bound("faster than a dict with many values", "dovetail", 1.0, against="python dict", where={"per_key": 10}),
    ),
    answer="pairs",
)
