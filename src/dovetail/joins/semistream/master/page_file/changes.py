"""Changes of stored rows: what the rows of some pages are after insertions, updates and deletions, on arrays alone.

Reference: docs/algorithms/semistream.md, 6.20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.rows.columns import valid_rows
from dovetail.errors import DataError
from dovetail.joins.semistream.keys import KeyForm, Normal, key_form

PAGE, OPERATION = "dovetail_page", "dovetail_operation"  # of change rows: the page that they touch, and what to do


@dataclass(frozen=True, slots=True)
class ChangeForm:
    """How changes are applied to rows of a page file: by its key, the last one in the order of `sequence` wins.

    With `history`, columns of the first time and the end of validity, each change begins a new row of its key at the
    first sequence column, and ends the one before; a deletion only ends it. Further sequence columns are stored.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    sequence_types: tuple[pa.DataType, ...]
    operations: tuple[tuple[str, str], ...]
    history: tuple[str, str] | None = None

    @property
    def form(self) -> KeyForm:
        """How keys become normal keys."""
        return key_form(self.schema, self.key)

    @property
    def order(self) -> KeyForm:
        """How the order of changes becomes normal keys."""
        return KeyForm(self.sequence, self.sequence_types)

    @property
    def columns(self) -> pa.Schema:
        """The columns of change rows in tasks."""
        given = [field for field in self.schema if field.name not in (self.history or ())]
        known = {field.name for field in given}
        more = zip(self.sequence, self.sequence_types, strict=True)
        fields = [pa.field(f.name, f.type) for f in given] + [pa.field(n, kind) for n, kind in more if n not in known]
        return pa.schema([pa.field(PAGE, pa.int32()), pa.field(OPERATION, pa.string()), *fields])

    @property
    def keeps_sequence(self) -> bool:
        """Whether stored rows tell which change they come from."""
        return self.history is None and all(name in self.schema.names for name in self.sequence)

    def keys(self, rows: pa.Table) -> Normal:
        """The normal keys of rows."""
        return self.form.normal([rows.column(name) for name in self.key])[0]

    def times(self, rows: pa.Table) -> Normal:
        """The place of changes in their order."""
        return self.order.normal([rows.column(name) for name in self.sequence])[0]

    def checked(self, changes: pa.Table) -> pa.Table:
        """The changes with what they do as their operation; a `DataError` for one without key, place or operation."""
        for name in (*self.key, *self.sequence):
            if changes.column(name).null_count:
                row = changes.filter(pc.is_null(changes.column(name))).slice(0, 1).to_pylist()[0]
                raise DataError(
                    f"a change has no value in column {name!r}: {_shown(row)}; every change needs its key and its "
                    f"place in the order. Filter such rows out of the stream, or fill the column."
                )
        changes = self._with_meaning(changes)
        stored = changes.filter(pa.array(~self.deletes(changes)))
        for name in [f.name for f in self.schema if not f.nullable and f.name not in (self.history or ())]:
            if stored.column(name).null_count:
                row = stored.filter(pc.is_null(stored.column(name))).slice(0, 1).to_pylist()[0]
                raise DataError(
                    f"a change sets column {name!r} to null, which the page file was built without: {_shown(row)}; "
                    f"correct the row, or build the page file from a column that may be null."
                )
        return changes

    def _with_meaning(self, changes: pa.Table) -> pa.Table:
        known, meant = (pa.array(values, pa.string()) for values in zip(*self.operations, strict=True))
        at = pc.index_in(changes.column(OPERATION), value_set=known)
        if at.null_count:
            row = changes.filter(pc.is_null(at)).slice(0, 1).to_pylist()[0]
            raise DataError(
                f"a change has the operation {row[OPERATION]!r}, which is none of {known.to_pylist()}: {_shown(row)}; "
                f"say what it does with operations={{{row[OPERATION]!r}: 'upsert' | 'delete' | 'ignore'}}."
            )
        place = changes.schema.get_field_index(OPERATION)
        return changes.set_column(place, changes.schema.field(place), meant.take(at.combine_chunks()))

    def deletes(self, changes: pa.Table) -> Bool:
        """Which changes are deletions."""
        return np.asarray(pc.equal(changes.column(OPERATION), "delete"), np.bool_)

    def newest(self, changes: pa.Table) -> pa.Table:
        """The last change of each key, with history of each key and time, in their order.

        Two changes of a key at one place of the order that differ are a `DataError`.
        """
        if not changes.num_rows:
            return changes
        keys, times = _ranks(self.keys(changes)), _ranks(self.times(changes))
        order = np.lexsort((times, keys))
        same = (np.diff(keys[order]) == 0) & (np.diff(times[order]) == 0)
        self._refuse_conflict(changes, order[:-1][same], order[1:][same])
        if self.history is not None:
            ties = _ranks(key_form(changes.schema, self.sequence[0]).normal([changes.column(self.sequence[0])])[0])
        else:
            ties = np.zeros(changes.num_rows, np.int64)
        return changes.take(pa.array(order[_lasts(keys[order], ties[order])])).combine_chunks()

    def _refuse_conflict(self, changes: pa.Table, left: I64, right: I64) -> None:
        one, other = (changes.take(pa.array(at)) for at in (left, right))
        if one.equals(other):
            return
        for mine, theirs in zip(one.to_pylist(), other.to_pylist(), strict=True):
            gone = mine[OPERATION] == theirs[OPERATION] == "delete"
            if not gone and repr(mine) != repr(theirs):  # by their text, in which NaN equals NaN
                raise DataError(
                    f"two changes of one key {list(self.key)} have the same place {list(self.sequence)} in the order, "
                    f"and differ: {_shown(mine)} and {_shown(theirs)}; name further columns in sequence= that tell "
                    f"which is the later one."
                )

    def merged(self, old: pa.Table, changes: pa.Table, homes: I64) -> tuple[pa.Table, I64]:
        """The rows after these changes, of `newest`, in key order, and the page of each.

        `homes` are the pages of the old rows and then of the changes.
        """
        rows = pa.concat_tables([old, _as_rows(changes, self.schema)])
        keys = _ranks(self.keys(rows))
        if self.history is not None:
            found, picked = self._periods(old, changes, rows, keys, self.history)
            return found, homes[picked]
        picked = self._latest(old, changes, rows, keys)
        return rows.take(pa.array(picked)).combine_chunks(), homes[picked]

    def _latest(self, old: pa.Table, changes: pa.Table, rows: pa.Table, keys: I64) -> I64:
        """Numbers of the rows that stay: the last of each key, unless it is a deletion."""
        n, place = old.num_rows, np.zeros(rows.num_rows, np.int64)
        if self.keeps_sequence:
            normal, valid = self.order.normal([rows.column(name) for name in self.sequence])
            place = np.where(valid, _ranks(normal), -1)
        order = np.lexsort((np.arange(rows.num_rows) >= n, place, keys))
        found = order[_lasts(keys[order], np.zeros(len(order), np.int64))]
        gone = np.concatenate([np.zeros(n, np.bool_), self.deletes(changes)])
        stays: I64 = found[~gone[found]]
        return stays

    def _places_in_time(self, rows: pa.Table) -> I64:
        """The place of rows among those of their time, by the further sequence columns; -1 where one is null."""
        if len(self.sequence) == 1:
            return np.zeros(rows.num_rows, np.int64)
        further = KeyForm(self.sequence[1:], self.sequence_types[1:])
        normal, valid = further.normal([rows.column(name) for name in further.names])
        return np.where(valid, _ranks(normal), -1)

    def _periods(
        self, old: pa.Table, changes: pa.Table, rows: pa.Table, keys: I64, history: tuple[str, str]
    ) -> tuple[pa.Table, I64]:
        """The rows that begin a period of their key, in order, with their periods; and the numbers of these rows.

        Old rows are changes at their first time, and deletions at their end; of several at one time the last one by
        the further sequence columns counts, of equal ones a new change, and an end least. Rows of keys without a change
        stay as they are.
        """
        n, more = old.num_rows, changes.num_rows
        idle = np.flatnonzero(~np.isin(keys[:n], keys[n:]))
        first, end = (_whole(old.column(name)) for name in history)
        closed = np.setdiff1d(np.flatnonzero(valid_rows(end)), idle)
        new = _whole(changes.column(self.sequence[0]).cast(first.type))
        times = pa.concat_arrays([first, new, end.take(pa.array(closed))])
        moment = np.where(valid_rows(times), _ranks(KeyForm(("t",), (first.type,)).normal([times])[0]), -1)
        row = np.concatenate([np.arange(n + more), closed])
        moment[idle] = idle  # each a period of its own
        place = np.append(self._places_in_time(rows), np.full(len(closed), -2))
        strength = np.repeat([1, 2, 0], [n, more, len(closed)])
        gone = np.concatenate([np.zeros(n, np.bool_), self.deletes(changes), np.ones(len(closed), np.bool_)])
        order = np.lexsort((strength, place, moment, keys[row]))
        order = order[_lasts(keys[row][order], moment[order])]
        ends = ~np.append(np.diff(keys[row][order]) == 0, False)[: len(order)]
        begins, until = pa.array(order), pa.array(np.append(order[1:], 0)[: len(order)], mask=ends)
        stays = ~gone[order]
        picked = row[order[stays]]
        found = rows.take(pa.array(picked)).combine_chunks()
        for name, at in zip(history, (begins, until), strict=True):
            column = times.take(at.filter(pa.array(stays)))
            column = pc.if_else(pa.array(np.isin(picked, idle)), rows.column(name).take(pa.array(picked)), column)
            found = found.set_column(found.schema.get_field_index(name), self.schema.field(name), column)
        return found, picked


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in (PAGE, OPERATION)}


def _as_rows(changes: pa.Table, schema: pa.Schema) -> pa.Table:
    """The changes with the columns of stored rows; those that they do not have are null."""
    columns = [
        changes.column(f.name) if f.name in changes.schema.names else pa.nulls(changes.num_rows, f.type) for f in schema
    ]
    return pa.table(columns, schema=schema)


def _ranks(keys: Normal) -> I64:
    """Numbers that compare like the keys."""
    order, found = keys.sorted_rows(), np.empty(len(keys), np.int64)
    found[order] = np.concatenate([np.zeros(min(1, len(keys)), np.int64), np.cumsum(keys.take(order).steps() != 0)])
    return found


def _lasts(*sorted_by: I64) -> Bool:
    """Which rows are the last of those that have the same numbers."""
    steps = np.logical_or.reduce([np.diff(numbers) != 0 for numbers in sorted_by])
    return np.append(steps, True) if len(sorted_by[0]) else np.empty(0, np.bool_)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])
