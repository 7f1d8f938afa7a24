"""Gathering result rows by number: the step that decides how fast joins materialise their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run
from bench.context import BenchContext
from dovetail.calibrate.kernel_costs import wide_batch
from dovetail.engine.columns import take_columns, take_runs
from dovetail.engine.kernels.arrays import I64

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


def _checked(take: Callable[[], pa.RecordBatch]) -> Outcome:
    """Time the gathering only; the checksum is of a number and a text column, so that rows out of step would show."""
    began = time.perf_counter()
    batch = take()
    seconds = time.perf_counter() - began
    lengths = pc.cast(pc.binary_length(batch["t1"]), pa.int64())
    return Outcome(int(pc.sum(pc.multiply(pc.bit_wise_and(batch["n1"], 1023), lengths)).as_py()), seconds)


def _expected(bench: BenchContext, params: Params) -> int:
    """From the definition of the columns (n1 is the row number, t1 the word of 8 times it), not by gathering."""
    rows = _indices(bench, params)
    lengths = np.array([len(f"word {i}") for i in range(1000)])[rows * 8 % 1000]
    return int(((rows & 1023) * lengths).sum())


def _taking(take: Callable[[pa.RecordBatch, I64], pa.RecordBatch]) -> Prepare:
    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        batch, indices = _picked(bench, params)[0], _indices(bench, params)
        yield lambda: _checked(lambda: take(batch, indices))

    return prepare


@contextmanager
def _runs(bench: BenchContext, params: Params) -> Iterator[Run]:
    batch, starts = _picked(bench, params)
    lengths = np.full(len(starts), RUN_ROWS)
    yield lambda: _checked(lambda: take_runs(batch, starts, lengths))


def _arrow_take(batch: pa.RecordBatch, indices: I64) -> pa.RecordBatch:
    return batch.take(pa.array(indices))


def _points(rows: int) -> list[Params]:
    return [{"rows": rows, "order": order} for order in ("random", "runs")]


CASE = Case(
    name="gather",
    question="How fast are rows of six numbers and two texts gathered, beside Arrow's take?",
    varies=("rows", "order"),
    points={"small": _points(200_000), "full": _points(2_000_000)},
    rivals=(
        Rival("dovetail take", _taking(take_columns)),
        Rival("dovetail runs", _runs, sits_out=lambda at: None if at["order"] == "runs" else "takes runs only"),
        Rival("pyarrow take", _taking(_arrow_take)),
    ),
    expected=_expected,
    baseline="pyarrow take",
    bounds=(
        Bound("no slower than Arrow", "dovetail take", 1.0, against="pyarrow take"),
        Bound("runs pay", "dovetail runs", 0.7, against="pyarrow take", where={"order": "runs"}),
    ),
    answer="(checksum)",
)
