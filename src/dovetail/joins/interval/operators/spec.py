"""The specification of an interval join operator: its memory, the relation as a rule for pairs, and checks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, Bool, int64s, readonly
from dovetail.engine.memory import MemoryBudget, format_bytes
from dovetail.engine.rows.columns import nbytes
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep import (
    ALWAYS,
    ANY,
    R_FIRST,
    R_FIRST_STRICT,
    S_FIRST,
    S_FIRST_STRICT,
    Rule,
)
from dovetail.joins.interval.relation import GREATER, LESS, Relation, sign

OVERHEAD_BYTES = 64
"""Per row beside its columns: ordinal, weight, and its places in active lists and heap."""


class RowBytes:
    """The bytes that one row of a schema takes, its bookkeeping included.

    Fixed-width columns, strings and binaries are exact; a nested or encoded column counts with the mean of its batch.
    """

    def __init__(self, schema: pa.Schema) -> None:
        kinds = [field.type for field in schema]
        self.fixed = OVERHEAD_BYTES + sum(_fixed_bytes(kind) for kind in kinds)
        self._text = [i for i, kind in enumerate(kinds) if _is_text(kind)]
        self._other = [i for i, kind in enumerate(kinds) if not _is_text(kind) and not _is_fixed(kind)]

    def of(self, batch: pa.RecordBatch) -> I64:
        """The weight of each row, or an empty array if every row weighs `fixed`."""
        if not (self._text or self._other):
            return int64s([])
        weights = np.full(batch.num_rows, self.fixed, np.int64)
        for i in self._text:
            lengths = pc.binary_length(batch.column(i))
            weights += (pc.fill_null(lengths, 0) if lengths.null_count else lengths).to_numpy()
        for i in self._other:
            weights += -(-batch.column(i).nbytes // max(1, batch.num_rows))
        return int64s(weights)

    def fitting(self, batch: pa.RecordBatch, room: int) -> int:
        """How many rows from the first on weigh no more than `room`."""
        weights = self.of(batch)
        if weights.size:
            return int(np.searchsorted(np.cumsum(weights), room, side="right"))
        return int(min(batch.num_rows, max(0, room) // self.fixed))

    def each(self, batch: pa.RecordBatch) -> I64:
        """The weight of each row, one number a row even if all are the same."""
        weights = self.of(batch)
        return weights if weights.size else np.full(batch.num_rows, self.fixed, np.int64)

    def largest(self, batch: pa.RecordBatch) -> int:
        """The weight of the heaviest of some rows."""
        weights = self.of(batch)
        return int(weights.max()) if weights.size else self.fixed

    def total(self, batch: pa.RecordBatch) -> int:
        """The weight of all rows together."""
        weights = self.of(batch)
        return int(weights.sum()) if weights.size else self.fixed * batch.num_rows


def stretches(weights: I64, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Rows of these weights in stretches, first and last row, of at most `rows` and `size`; no row is cut."""
    ends = np.cumsum(weights)
    first = 0
    while first < weights.size:
        room = size + (int(ends[first - 1]) if first else 0)
        last = max(first + 1, min(first + rows, int(np.searchsorted(ends, room, side="right"))))
        last = min(last, int(weights.size))
        yield first, last
        first = last


def rows_within(batch: pa.RecordBatch, size: int) -> int:
    """How many rows from the first on take about `size` bytes, bookkeeping included: at least one, at most all."""
    weight = nbytes(batch) + OVERHEAD_BYTES * batch.num_rows
    rows = min(batch.num_rows, max(1, batch.num_rows * size // max(1, weight)))
    while rows > 1 and nbytes(batch.slice(0, rows)) > 2 * size:
        rows //= 2
    return int(rows)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind) or pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind))


def _fixed_bytes(kind: pa.DataType) -> int:
    validity = 1
    if _is_text(kind):
        return validity + (8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 4)
    return validity + (-(-kind.bit_width // 8) if _is_fixed(kind) and not pa.types.is_null(kind) else 0)


_BASE_BYTES = 16 * 1024
_ROWS_AT_LEAST = 64
_SEGMENT_LIMIT = 4 * 2**20
_OUTPUT_LIMIT = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes for the output, for one segment of input, and for everything else.

    A window is rewritten when it is refilled: remaining rows are copied, then the old one is freed. So active tuples
    need their bytes twice, and segments exist once per window, once more while one is replaced, and once serialised.
    """

    limit: int
    output: int
    segment: int

    @classmethod
    def of(cls, budget: MemoryBudget, left: pa.Schema, right: pa.Schema) -> Shares:
        """The division of what `budget` has left; `PlanError` below the minimum."""
        limit, least = budget.available, minimum_bytes(left, right)
        if limit < least:
            raise PlanError(
                f"an interval join over these rows needs at least {format_bytes(least)} ({least} bytes) of memory; "
                f"{budget.name!r} has {format_bytes(limit)} ({limit} bytes). Give it more."
            )
        return cls.within(limit)

    @classmethod
    def within(cls, limit: int) -> Shares:
        """The division of `limit` bytes, whatever the rows."""
        return cls(limit, min(limit // 8, _OUTPUT_LIMIT), min(limit // 16, _SEGMENT_LIMIT))

    def without(self, elsewhere: int) -> Shares:
        """The same division when `elsewhere` bytes are used beside the join itself."""
        return replace(self, limit=self.limit - elsewhere)

    def active(self, waiting: int) -> int:
        """Bytes that active tuples may weigh while `waiting` bytes of input wait in memory."""
        return max(0, (self.limit - self.output - 4 * self.segment - waiting) // 2)

    def blocking(self, waiting: int) -> int:
        """Bytes that rows of a partitioned join may weigh: ordering them by partition needs two copies beside them.

        They may exceed it by one segment before they are written, and containers add to the size of rows.
        """
        return max(0, (self.limit - self.output - 4 * self.segment - waiting) // 5)

    @property
    def pairs(self) -> int:
        """How many pairs of row numbers are collected before they are output."""
        return max(16, min(self.output // 64, 2**17))


def minimum_bytes(left: pa.Schema, right: pa.Schema) -> int:
    """The smallest budget with which a join of rows of these schemas opens."""
    return _BASE_BYTES + _ROWS_AT_LEAST * (RowBytes(left).fixed + RowBytes(right).fixed)


@dataclass(frozen=True, slots=True)
class Frames:
    """`count` frames of `frame_bytes`, for tuples of `tuple_bytes`: how many tuples the active sets may hold.

    `reserved` frames (inputs, output, spill) are deducted; 0 is the reading in which every frame holds data. Bytes are
    still charged to the budget as they are; only the capacity comes from here.
    Reference: Carman 2020, table 3.3; docs/algorithms/interval.md, 5.1.

    >>> Frames(256, 8192, 2296).tuples
    768
    """

    count: int = 256
    frame_bytes: int = 8192
    tuple_bytes: int = 2296
    reserved: int = 0

    def __post_init__(self) -> None:
        if min(self.count, self.frame_bytes, self.tuple_bytes) < 1 or self.reserved < 0:
            raise PlanError(f"{self} needs positive sizes and a reserve of 0 frames or more")
        if self.tuple_bytes > self.frame_bytes:
            raise PlanError(f"a tuple of {self.tuple_bytes} bytes does not fit a frame of {self.frame_bytes} bytes")
        if self.reserved >= self.count:
            raise PlanError(f"{self.reserved} reserved of {self.count} frames leave no frame for data")

    @property
    def tuples_per_frame(self) -> int:
        """T_f of the cost model."""
        return self.frame_bytes // self.tuple_bytes

    @property
    def tuples(self) -> int:
        """T_M of the cost model, reserved frames deducted."""
        return self.tuples_per_frame * (self.count - self.reserved)


Signs = tuple[int, int, int, int]
_ORDER_NAMES = {
    ANY: "any order",
    R_FIRST: "outer first",
    R_FIRST_STRICT: "outer strictly first",
    S_FIRST: "inner first",
    S_FIRST_STRICT: "inner strictly first",
}


@functools.lru_cache(maxsize=256)
def pair_rule(relation: Relation, halves: int, shift: int, range_start: int | None, exchange: bool) -> Rule:
    """The rule by which a sweep decides pairs; with `exchange` the right input is R and the left one S.

    `PlanError` if the relation holds for intervals that share no point: a sweep never compares those.
    """
    seen = relation.swapped() if exchange else relation
    outcomes = [(seen.holds(*signs), shares, signs) for signs, shares in _outcomes(seen, halves, shift)]
    if any(holds and not shares for holds, shares, _ in outcomes):
        raise PlanError(
            f"relation {relation} also holds between intervals that share no point, which the interval operators never "
            f"compare; use a nested-loop, inequality or equality join for it."
        )
    check = any(shares and not holds for holds, shares, _ in outcomes)
    order = _order([signs[0] for holds, _, signs in outcomes if holds])
    start = ALWAYS if range_start is None else range_start
    return Rule(readonly(seen.table(), np.bool_), halves, shift, check, start, order)


def sweepable(relation: Relation) -> bool:
    """Whether the operators can find every pair of the relation: it holds only for intervals that share a point.

    With mixed `closed` even `covered_by` may: [5, 5] lies within the bounds of (5, 9) but shares no point with it.
    """
    mixed = relation.left_closed != relation.right_closed
    try:
        pair_rule(relation, int(mixed), int(not mixed and relation.left_closed == "both"), None, False)
    except PlanError:
        return False
    return True


@functools.lru_cache(maxsize=256)
def slot_tests(relation: Relation, halves: int, shift: int, exchange: bool) -> Bool:
    """The relation's conditions on the slots of a pair beyond overlap: which side starts first, and which ends first.

    In the order R starts, S starts, S ends, R ends no later than the other. Ends are left untested with half steps,
    where equal bounds may have different last instants.
    """
    seen = relation.swapped() if exchange else relation
    signs = [signs for signs, shares in _outcomes(seen, halves, shift) if shares and seen.holds(*signs)]
    starts, ends = {ss for ss, _, _, _ in signs}, {ee for _, _, _, ee in signs}
    tests = [
        GREATER not in starts,
        LESS not in starts,
        LESS not in ends and not halves,
        GREATER not in ends and not halves,
    ]
    return readonly(np.array(tests), np.bool_)


def order_name(order: int) -> str:
    """How explain() words which side starts first."""
    return _ORDER_NAMES[order]


def _outcomes(relation: Relation, halves: int, shift: int) -> Iterator[tuple[Signs, bool]]:
    """How the bounds of two non-empty intervals can compare, and whether their codes then overlap.

    Without half steps a code is a raw bound, ends moved by `shift`, so codes decide. With them, the caller's codes
    overlap exactly when the intervals share a point as `closed` says.
    """
    points = range(-1, 5)
    for a, b, c, d in itertools.product(points, repeat=4):
        if halves == 0:
            if a < b + shift and c < d + shift:
                yield _signs(a, b, c, d), a < d + shift and c < b + shift
        elif _holds_a_point(a, b, relation.left_closed) and _holds_a_point(c, d, relation.right_closed):
            signs = _signs(a, b, c, d)
            yield signs, relation.shares_point(signs[1], signs[2])


def _holds_a_point(start: int, end: int, closed: str) -> bool:
    return start < end or (start == end and closed == "both")


def _signs(a: int, b: int, c: int, d: int) -> Signs:
    return sign(a, c), sign(a, d), sign(b, c), sign(b, d)


def _order(starts: list[int]) -> int:
    if all(sign == LESS for sign in starts):
        return R_FIRST_STRICT
    if all(sign == GREATER for sign in starts):
        return S_FIRST_STRICT
    if all(sign != GREATER for sign in starts):
        return R_FIRST
    return S_FIRST if all(sign != LESS for sign in starts) else ANY


START, END, KEY, ROW = "_start", "_end", "_key", "_row"
"""Columns of codes that operators read beside the payload: bounds, key, and the position in the input."""
Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
Emit = Literal["rows", "pairs", "count"]
EMITS: tuple[Emit, ...] = get_args(Emit)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSpec:
    """A join of two sides, each sorted by `_start`, `_end` (after `_key`, if keyed), of half-open int64 codes.

    Codes keep the order of the bounds, and start < end in every row. The raw bounds that the relation compares
    are `_start >> halves` and `(_end - shift) >> halves`. With half steps, codes overlap exactly when the intervals
    share a point. `range_start` is where this partition begins: a pair that starts before it belongs to another.
    `keyed`: rows must also agree in `_key`; the sweep starts again at each key, and no two keys are ever compared.

    `emit` says what comes out: rows (left's columns, then right's), pairs of ordinals (positions in the two input
    streams), or nothing, only counts. `track` names sides whose matched rows are recorded, one bit each. `frames`
    sets the memory of the active tuples in the source's units instead of bytes. `swapped` exchanges the roles of the
    two inputs inside; answers keep left first. Inputs that are not sorted give wrong answers; the order of answers is
    unspecified.
    """

    relation: Relation
    swapped: bool = False
    halves: int = 0
    shift: int = 0
    range_start: int | None = None
    keyed: bool = False
    emit: Emit = "rows"
    track: tuple[Side, ...] = ()
    frames: Frames | None = None

    operator: ClassVar[type[Any]]

    def __post_init__(self) -> None:
        if self.halves not in (0, 1) or self.shift not in (0, 1):
            raise PlanError(f"halves={self.halves}, shift={self.shift}: each must be 0 or 1")
        if self.emit not in EMITS:
            raise PlanError(f"emit={self.emit!r} is not one of {', '.join(EMITS)}")
        if any(side not in SIDES for side in self.track):
            raise PlanError(f"track={self.track!r} may name only {SIDES}")
        self.rule()

    @property
    def sides(self) -> tuple[str, ...]:
        """The two inputs."""
        return SIDES

    @property
    def exchange(self) -> bool:
        """Whether the right input plays R inside."""
        return self.swapped

    def rule(self) -> Rule:
        """The pair rule for R and S inside the operator."""
        return pair_rule(self.relation, self.halves, self.shift, self.range_start, self.exchange)

    def explain(self) -> str:
        """The specification in one line."""
        parts = [f"relation={self.relation}", f"outer={SIDES[self.exchange]}", order_name(self.rule().order)]
        parts += [f"range from {self.range_start}"] if self.range_start is not None else []
        parts += ["keyed"] if self.keyed else []
        parts += [f"emit={self.emit}"]
        parts += [f"track={'+'.join(self.track)}"] if self.track else []
        parts += [f"capacity={self.frames.tuples} tuples"] if self.frames else []
        return f"{type(self).__name__}: {', '.join(parts)}"

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> Any:
        """The running join."""
        return self.operator(self, budget, schemas, spill_dir)

    def shares(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema]) -> Shares:
        """How this join divides the budget; `PlanError` if a schema lacks a code column or memory is too small."""
        if set(schemas) != set(SIDES):
            raise PlanError(f"schemas are given for {sorted(schemas)}; this join takes {list(SIDES)}.")
        for side, schema in schemas.items():
            for name in (START, END, KEY) if self.keyed else (START, END):
                kinds = [field.type for field in schema if field.name == name]
                if kinds != [pa.int64()]:
                    raise PlanError(f"{side} input needs one int64 column {name!r}; it has {schema.names}.")
        return Shares.of(budget, schemas["left"], schemas["right"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstIsOuterSpec(IntervalSpec):
    """A specification whose kernels need R to start first: inputs are exchanged when the relation says that S does."""

    @property
    def exchange(self) -> bool:
        """Whether the right input plays R inside."""
        order = pair_rule(self.relation, self.halves, self.shift, self.range_start, False).order
        return self.swapped if order == ANY else order in (S_FIRST, S_FIRST_STRICT)
