"""Joins one range inside a task: takes the rows of both sides as one sorted stream of batches, and yields answers.

Rows arrive in packets that are merged by start, or, within keys, as rows that Spark has sorted by (keys, start) over
both sides together: neither side runs far ahead of the other. Codes and key numbers are made batch by batch; rows that
cannot match bypass the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.exchange.delivery import CELL, RowDelivery
from dovetail.engine.exchange.packets import MergedDelivery
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget, format_bytes, suggestion
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.keys import KeyEncoder, bound_codes
from dovetail.engine.storage.spool import Spool
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.interval.operators import OPERATORS
from dovetail.joins.interval.operators.driver import IntervalOperator
from dovetail.joins.interval.operators.spec import END, KEY, START, RowBytes
from dovetail.joins.interval.relation import Relation, SideColumns, classify, encode_stream

_LARGEST_ROW = 32  # a budget of this many times the largest row is always enough
_BATCH_SHARE = 0.5  # share of the budget that is kept free for the current batch, at most


@dataclass(frozen=True, slots=True)
class CellJoin:
    """The specification of the join of one cell.

    `how` is inner, left, right, full, left_semi or left_anti, and concerns this cell alone: a row without a match here
    may match elsewhere, which the caller resolves. `once`: a pair that an earlier cell also has is left to that cell.
    `split_points` are where cells 1, 2, ... begin, in the type of the bounds. `keys` are the positions of the keys,
    which both sides share. `schemas` are the columns of both sides in packets; None for rows.
    """

    algorithm: str
    relation: Relation
    how: str
    left: SideColumns
    right: SideColumns
    memory: int
    keys: tuple[str, ...] = ()
    once: bool = False
    split_points: pa.Array | None = None
    swapped: bool = False
    schemas: Mapping[str, pa.Schema] | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in OPERATORS:
            raise PlanError(f"algorithm={self.algorithm!r} is not one of {', '.join(OPERATORS)}")

    @property
    def semi(self) -> bool:
        """Whether only left rows are output, by whether they matched."""
        return self.how in ("left_semi", "left_anti")

    @property
    def tracked(self) -> tuple[str, ...]:
        """Sides whose rows must be known as matched or not."""
        return {"inner": (), "right": ("right",), "full": ("left", "right")}.get(self.how, ("left",))

    def operator_spec(self, halves: int, shift: int, range_start: int | None) -> Any:
        """The operator's own specification."""
        return OPERATORS[self.algorithm](
            relation=self.relation,
            swapped=self.swapped,
            halves=halves,
            shift=shift,
            range_start=range_start,
            keyed=bool(self.keys),
            emit="count" if self.semi else "rows",
            track=self.tracked,
        )


def join_cell(
    task: CellJoin, batches: Iterable[pa.RecordBatch], metrics: Metrics | None = None
) -> Iterator[pa.RecordBatch]:
    """The answers of one cell: left's columns, then right's, or left's alone for semi and anti joins."""
    run: _Run | None = None
    try:
        for batch in batches:
            if run is None:
                run = _Run(task, batch)
            yield from run.take(batch)
        if run is not None:
            yield from run.finish()
            if metrics is not None:
                metrics.merge(run.measured())
    except BudgetExceeded as error:
        raise BudgetExceeded(f"{_advice(task, run)} The refused request: {error}") from error
    finally:
        if run is not None:
            run.close()


def _advice(task: CellJoin, run: _Run | None) -> str:
    """The memory that rows like those seen need, as an option of the user's request."""
    largest = 0 if run is None else run.largest_row
    enough = suggestion(max(2 * task.memory, _LARGEST_ROW * largest))
    return (
        f"rows of up to {format_bytes(largest)} do not fit an interval join with algorithm={task.algorithm!r} and "
        f'memory={format_bytes(task.memory)} per task; give it memory="{enough}", or use route="native".'
    )


class _Run:
    """A cell's join in progress."""

    def __init__(self, task: CellJoin, first: pa.RecordBatch) -> None:
        self.task = task
        self.budget = MemoryBudget(task.memory, "interval join")
        self._delivery = _delivery(task, first, self.budget)
        self.schemas, self._room = self._delivery.schemas, self._delivery.room
        self.largest_row = 0
        self._weights = {side: RowBytes(schema) for side, schema in self.schemas.items()}
        self._keys = _KeyNumbers(task.keys)
        self._spools = {side: self._spool(side) for side in task.tracked}
        self._operator = self._open(first)

    def _open(self, first: pa.RecordBatch) -> IntervalOperator:
        task = self.task
        none = pa.array([], self.schemas["left"].field(task.left.start).type)
        codes = encode_stream(none, none, task.left.closed, task.right.closed)
        cell = int(first[CELL][0].as_py()) if task.once else 0
        begins = None
        if task.once and task.split_points is not None and cell > 0:
            begins = int(bound_codes(task.split_points)[cell - 1]) << codes.h
        extra = [pa.field(START, pa.int64()), pa.field(END, pa.int64())]
        extra += [pa.field(KEY, pa.int64())] if task.keys else []
        schemas = {side: pa.schema([*schema, *extra]) for side, schema in self.schemas.items()}
        spec = task.operator_spec(codes.h, codes.shift, begins)
        limit = task.memory - self._room
        limit = limit * 3 // 4 if task.tracked else limit
        operator: IntervalOperator = spec.open(self.budget.child("operator", limit), schemas)
        return operator

    def _spool(self, side: str) -> Spool:
        room = (self.task.memory - self._room) // (8 * len(self.task.tracked))
        # A block is read when the operator is done and there is no current batch: it may be one row of any size.
        memory, reading = self.budget.child(f"{side} rows", room), self.budget.child(f"{side} reading")
        return Spool(self.schemas[side], memory, reading, room // 4, f"{side} rows")

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Answers that become possible with this batch; rows that cannot match are output or dropped at once."""
        if isinstance(self._delivery, MergedDelivery):
            yield from self._take_merged(self._delivery.take_sorted(batch))
            return
        # In small slices, so that the operator's unread input stays small.
        for piece in self._delivery.take(batch, max(4096, (self.task.memory - self._room) // 32)):
            numbers = self._keys.of(piece)
            for side, rows, chosen in self._delivery.by_side(piece):
                yield from self._take(side, rows, numbers[chosen] if self.task.keys else None)

    def _take_merged(self, delivered: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for side, rows in delivered:
            if rows.num_rows:
                yield from self._take(side, rows, None)

    def _take(self, side: str, rows: pa.RecordBatch, keys: I64 | None) -> Iterator[pa.RecordBatch]:
        own = self.task.left if side == "left" else self.task.right
        self.largest_row = max(self.largest_row, self._weights[side].largest(rows))
        usable = classify(rows[own.start], rows[own.end], own.closed) == 0
        if keys is not None:
            usable &= keys >= 0
        if not usable.all():
            yield from self._unmatched(side, rows.filter(pa.array(~usable)))
            rows, keys = rows.filter(pa.array(usable)), None if keys is None else keys[usable]
        if rows.num_rows:
            yield from self._feed(side, rows, keys)

    def _feed(self, side: str, rows: pa.RecordBatch, keys: I64 | None) -> Iterator[pa.RecordBatch]:
        own, other = (self.task.left, self.task.right)[:: 1 if side == "left" else -1]
        if side in self._spools:
            self._spools[side].append(rows)
        codes = encode_stream(rows[own.start], rows[own.end], own.closed, other.closed)
        arrays = [*rows.columns, pa.array(codes.start), pa.array(codes.end)]
        names = [*rows.schema.names, START, END]
        if keys is not None:
            arrays, names = [*arrays, pa.array(keys)], [*names, KEY]
        coded = pa.RecordBatch.from_arrays(arrays, names=names)
        yield from self._operator.push(side, coded)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The remaining answers: late pairs, then rows that did or did not match, as `how` says."""
        if isinstance(self._delivery, MergedDelivery):
            yield from self._take_merged(self._delivery.finish_sorted())
        yield from self._operator.finish()
        for side, spool in self._spools.items():
            first = 0
            for rows in spool.read():
                matched = self._operator.matched[side].mask(first, rows.num_rows)
                first += rows.num_rows
                wanted = matched if self.task.how == "left_semi" else ~matched
                if wanted.any():
                    chosen = rows.filter(pa.array(wanted))
                    yield chosen if self.task.semi else self._widened(side, chosen)

    def _unmatched(self, side: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if side not in self.task.tracked or self.task.how == "left_semi":
            return
        yield rows if self.task.semi else self._widened(side, rows)

    def _widened(self, side: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with nulls for the other side."""
        other = self.schemas["right" if side == "left" else "left"]
        nulls = [pa.nulls(rows.num_rows, field.type) for field in other]
        arrays = [*rows.columns, *nulls] if side == "left" else [*nulls, *rows.columns]
        return pa.RecordBatch.from_arrays(arrays, names=[*self.schemas["left"].names, *self.schemas["right"].names])

    def measured(self) -> Metrics:
        """The operator's counts with the rows placed in this cell and the memory that was used."""
        metrics = Metrics().include(self._operator.metrics)
        for side in ("left", "right"):  # a range without rows of a side counts for the skew, too
            metrics.add("placed", 0, side=side, per_task=True)
        self._delivery.record(metrics, self.budget)
        for component, held in self.budget.at_peak().items():
            metrics.peak("memory", held, component.removeprefix("operator/"))
        return metrics

    def close(self) -> None:
        """Free memory and remove spill files."""
        self._operator.close()
        self._delivery.close()
        for spool in self._spools.values():
            spool.close()


def _delivery(task: CellJoin, first: pa.RecordBatch, budget: MemoryBudget) -> RowDelivery | MergedDelivery:
    """The delivery of packets, or of rows that Spark has sorted."""
    left, right = task.left, task.right
    if task.schemas is None:
        return RowDelivery(left.columns, right.columns, first, budget, _BATCH_SHARE)
    order = {"left": left.start, "right": right.start}
    return MergedDelivery(task.schemas, order, first, budget, _BATCH_SHARE)


class _KeyNumbers:
    """Numbers for runs of equal keys in the sorted stream, shared by both sides; they grow; -1 where a key is null."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        self._last: list[pa.Array] | None = None
        self._number = 0

    def of(self, batch: pa.RecordBatch) -> I64:
        """The number of each row."""
        if not self._places:
            return np.zeros(0, np.int64)
        columns = [batch[place] for place in self._places]
        before = self._last or [column[:0] for column in columns]
        joined = [pa.concat_arrays([old, new]) for old, new in zip(before, columns, strict=True)]
        codes, valid = KeyEncoder([column.type for column in joined]).encode(joined)
        fresh = np.ones(len(codes), np.bool_)
        fresh[1:] = (codes[1:] != codes[:-1]) | (valid[1:] != valid[:-1])
        seen = len(before[0])
        fresh[0] = seen == 0
        numbers = self._number + np.cumsum(fresh)
        self._number = int(numbers[-1])
        self._last = [column[-1:] for column in joined]
        return np.where(valid, numbers, -1)[seen:]
