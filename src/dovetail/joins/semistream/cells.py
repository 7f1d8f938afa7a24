"""Ranges as keys: master rows laid out in cells of the values that ranges have, and the cell of a stream row's value.

A cell is the key of a page file: an ordinary key, equal on both sides, of which the stream's is found by a search among
the first values of cells. Every range that can have a value is in the cell of the value; whether it has it is checked
on the pairs (`within`).
Reference: docs/algorithms/semistream.md, 6.19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.rows.columns import valid_rows
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.kernels.cells import cut_cells, first_overlap
from dovetail.joins.semistream.keys import (
    KeyForm,
    Normal,
    is_number,
    is_text,
    key_form,
    last_not_above,
    normal_of,
    order_kind,
)
from dovetail.joins.semistream.within import in_unit_of

CELL = "dovetail_cell"
_PART = 32  # bits of the number of a cell within its part
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Ranged:
    """The columns by which ranges are found: those that are equal, and the first and last value."""

    key: tuple[str, ...]
    start: str
    end: str

    @property
    def bounds(self) -> tuple[str, str]:
        """The columns of the first and last value."""
        return self.start, self.end

    @property
    def probed(self) -> tuple[str, ...]:
        """The columns whose values a stream row gives: equal keys, and one that stands for the range."""
        return *self.key, self.start


def check_ranged(schema: pa.Schema, key: Sequence[str], bounds: Sequence[str]) -> Ranged:
    """The columns of ranges; a `PlanError` if they are not there or cannot be ordered."""
    if CELL in schema.names:
        raise PlanError(f"column {CELL!r} is for our own use; rename it.", argument="bounds")
    if isinstance(bounds, str) or len(bounds) != 2:
        raise PlanError(f"bounds={bounds!r}: name two columns, the first and the last value.", argument="bounds")
    for argument, names in (("bounds", bounds), ("key", key)):
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise PlanError(f"{argument}: there is no column {missing}; there are {schema.names}.", argument=argument)
    kinds = [order_kind(schema.field(name).type) for name in bounds]
    if kinds[0] is None or kinds[0] != kinds[1] or schema.field(bounds[0]).type != schema.field(bounds[1]).type:
        raise PlanError(
            f"bounds: columns {list(bounds)} are {[str(schema.field(name).type) for name in bounds]}; cast both to one "
            f"type of whole numbers, floating-point numbers, decimals of at most 18 digits, dates, timestamps, text or "
            f"binary values.",
            argument="bounds",
        )
    twice = [name for name in bounds if name in key]
    if twice or bounds[0] == bounds[1]:
        raise PlanError(f"bounds={list(bounds)} and key={list(key)} have a column twice.", argument="bounds")
    return Ranged(tuple(key), bounds[0], bounds[1])


class RangeForm:
    """How the columns of ranges, and of values, become normal keys: equal keys first, then the first value."""

    def __init__(self, schema: pa.Schema, ranged: Ranged) -> None:
        self.ranged, self.kind = ranged, schema.field(ranged.start).type
        self.types = tuple(schema.field(name).type for name in ranged.key)
        self._key = key_form(schema, ranged.key) if ranged.key else None
        wide = pa.large_string() if is_text(self.kind) else pa.large_binary()
        self._ordered = pa.int64() if is_number(self.kind) else wide
        self._form = KeyForm((*ranged.key, CELL), (*self.types, self._ordered))

    def normal(self, columns: Sequence[pa.Array], lowest: bool = False) -> tuple[Normal, Bool]:
        """Normal keys, and which are valid; with `lowest` a null value is below all others."""
        *keys, value = columns
        ordered = self.ordered(value)
        if lowest and ordered.null_count:
            ordered = ordered.fill_null(_LOWEST if self._ordered == pa.int64() else "" if is_text(self.kind) else b"")
        return self._form.normal([*keys, ordered])

    def ordered(self, value: pa.Array) -> pa.Array:
        """Values in a type that normal keys are made of: numbers that compare like them, or wide text."""
        if self._ordered == pa.int64():
            return pa.array(in_unit_of(value, self.kind), mask=~valid_rows(value))
        return value.cast(self._ordered)

    def equal_keys(self, rows: pa.Table | pa.RecordBatch) -> Normal | None:
        """Normal keys of the equal columns alone; None if there are none."""
        return None if self._key is None else self._key.normal([rows.column(name) for name in self.ranged.key])[0]

    def ranks(self, *columns: pa.Array) -> list[I64]:
        """Numbers that compare like the values of these columns, with each other; nulls give anything."""
        ordered = [self.ordered(column) for column in columns]
        if self._ordered == pa.int64():
            return [np.asarray(column.fill_null(0)) for column in ordered]
        found = np.asarray(pc.rank(pa.chunked_array(ordered), tiebreaker="dense"), np.int64)
        return np.split(found, np.cumsum([len(column) for column in ordered])[:-1])


def parts_reached(rows: pa.RecordBatch, form: RangeForm, splits: pa.RecordBatch) -> tuple[I64, I64]:
    """The first and last part of each range; parts begin at the keys and first values of `splits`, which ascend."""
    keys = [rows.column(name) for name in form.ranged.key]
    fences = _split_keys(form, splits)
    first = last_not_above(form.normal([*keys, rows.column(form.ranged.start)], lowest=True)[0], fences) + 1
    end = rows.column(form.ranged.end)
    last = last_not_above(form.normal([*keys, end], lowest=True)[0], fences) + 1
    mine, theirs = form.equal_keys(rows), form.equal_keys(splits)
    if mine is None or theirs is None:
        farthest = np.full(rows.num_rows, splits.num_rows, np.int64)
    else:
        farthest = last_not_above(mine, theirs) + 1
    return first, np.maximum(first, np.where(valid_rows(end), last, farthest))


def _split_keys(form: RangeForm, splits: pa.RecordBatch) -> Normal:
    return form.normal([splits.column(name) for name in form.ranged.probed], lowest=True)[0]


def split_points(sample: pa.Table, form: RangeForm, parts: int) -> pa.RecordBatch:
    """Rows of a sample at which to begin each part but the first, so that parts have about as many ranges each."""
    batch = pa.Table.combine_chunks(sample.select(list(form.ranged.probed))).to_batches()[0]
    normal = _split_keys(form, batch)
    order = normal.sorted_rows()
    picked = order[np.arange(1, parts) * len(order) // parts]
    steps = normal.take(picked).steps() if len(picked) else np.empty(0, np.int64)
    return batch.take(pa.array(picked[np.append(True, steps > 0)] if len(picked) else picked))


def kept_splits(first: I64, last: I64, counts: I64, parts: int) -> I64:
    """Numbers of the splits to keep, so that in each part as many ranges begin as reach into it from those before.

    Given are numbers of ranges by their first and last part. So ranges are copied to parts as often, at most, as there
    are ranges: those that are open at the end have few parts.
    """
    begin = np.bincount(first, counts, parts)
    reach = np.cumsum(np.bincount(first + 1, counts, parts + 2) - np.bincount(last + 1, counts, parts + 2))
    kept, held, needed = [], 0.0, 0.0
    for part in range(1, parts):
        held += begin[part - 1]
        if held >= needed:
            kept.append(part - 1)
            held, needed = 0.0, float(reach[part])
    if kept and held + begin[parts - 1] < needed:
        kept.pop()
    return np.array(kept, np.int64)


def laid_out(
    table: pa.Table, form: RangeForm, number: int, split: pa.RecordBatch | None, unique: bool, touching: bool = False
) -> tuple[pa.Table, pa.Array]:
    """The rows of a part in the order of cells, with their cell, and the normal keys at which cells begin.

    The part begins at `split`, one row; ranges that reach into it from parts before are among its rows. With `unique`
    two ranges of a key that overlap are a `DataError`, and with `touching` those that share a bound.
    """
    normal = form.normal([_one(table, name) for name in form.ranged.probed], lowest=True)[0]
    order = normal.sorted_rows()
    table, normal = table.take(pa.array(order)).combine_chunks(), normal.take(order)
    start, end, head = form.ranks(
        _one(table, form.ranged.start), _one(table, form.ranged.end), _head(table, form, split)
    )
    start = np.where(valid_rows(_one(table, form.ranged.start)), start, _LOWEST)
    end = np.where(valid_rows(_one(table, form.ranged.end)), end, _HIGHEST)
    before = 0 if split is None else _not_above(normal, _split_keys(form, split))
    start[:before] = head[0] if before else 0
    equal = form.equal_keys(table)
    steps = np.zeros(max(0, table.num_rows - 1), np.int64) if equal is None else equal.steps()
    group = np.concatenate([np.zeros(min(1, table.num_rows), np.int64), np.cumsum(steps != 0)]).astype(np.int64)
    if unique:
        _refuse_overlap(table, form, first_overlap(group, start, end, touching))
    rows, cells, heads = cut_cells(group, start, end)
    fences = normal.take(heads).column()
    if before and split is not None:
        fences = pa.concat_arrays([_split_keys(form, split).column(), fences.slice(1)])
    column = pa.array(cells + (number << _PART))
    return table.take(pa.array(rows)).append_column(CELL, column).combine_chunks(), fences


def _one(table: pa.Table, name: str) -> pa.Array:
    found = table.column(name).combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _head(table: pa.Table, form: RangeForm, split: pa.RecordBatch | None) -> pa.Array:
    """The first value of the part, if it has one."""
    kind = table.schema.field(form.ranged.start).type
    return pa.array([], kind) if split is None else split.column(form.ranged.start).cast(kind)


def _not_above(sorted_keys: Normal, key: Normal) -> int:
    """How many of the keys are not above this one."""
    return int(last_not_above(key, sorted_keys)[0]) + 1 if len(sorted_keys) else 0


def _refuse_overlap(table: pa.Table, form: RangeForm, found: tuple[int, int] | None) -> None:
    if found is not None:
        one, other = (table.select([*form.ranged.key, *form.ranged.bounds]).slice(at, 1).to_pylist()[0] for at in found)
        raise DataError(
            f"ranges overlap: {other} and {one}; correct them, build without unique=True, or with closed='left' if the "
            f"end is not part of a range."
        )


class CellIndex:
    """The cells of a version: for each part the normal keys at which they begin, usually mapped from a file.

    `numbers` are those of the parts, which cells have in front of their own.
    """

    def __init__(self, form: RangeForm, parts: Sequence[Normal], numbers: Sequence[int]) -> None:
        self.form = form
        self._parts = [(part, number) for part, number in zip(parts, numbers, strict=True) if len(part)]
        heads = [part.take(np.zeros(1, np.int64)).column() for part, _ in self._parts]
        self._heads = normal_of(pa.concat_arrays(heads)) if heads else None

    def __len__(self) -> int:
        return sum(len(part) for part, _ in self._parts)

    def find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The cell of each row's keys and value; null for nulls and for values below every range."""
        keys, valid = self.form.normal(columns)
        found = np.full(len(keys), -1, np.int64)
        home = found if self._heads is None else np.where(valid, last_not_above(keys, self._heads), -1)
        for at in np.unique(home[home >= 0]).tolist():
            rows, (cells, number) = np.flatnonzero(home == at), self._parts[at]
            found[rows] = last_not_above(keys.take(rows), cells) + (number << _PART)
        return pa.array(found, mask=found < 0)
