"""Outer, semi and anti joins, formed from the pairs of an inner join.

Rows of a preserved side get numbers in the order in which they arrive. The operator joins them with that number as a
column, so every algorithm works, and each pair names its rows. `RowBits` remembers which rows were in a pair. A row
without a pair comes alone when it leaves, after all owed pairs; a semi join gives a row at its first pair.
Reference: docs/algorithms/online.md, 7.6.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, U8, Bool
from dovetail.engine.rows.layout import How
from dovetail.engine.rows.named_rows import picked
from dovetail.engine.rows.packing import as_schema
from dovetail.engine.storage.spill import spill_directory
from dovetail.joins.online.graph import SIDES, pair_graph
from dovetail.joins.online.keys import JoinKeys

if TYPE_CHECKING:
    from dovetail.joins.online.bucket_join import BucketJoin

UNMATCHED = "unmatched"
"""The phase of rows that come without a partner."""
PRESERVED: Mapping[How, tuple[int, ...]] = {
    "inner": (), "left": (0,), "right": (1,), "full": (0, 1), "left_semi": (0,), "left_anti": (0,),
}  # fmt: skip
"""The sides whose rows are numbered: whether they have a partner decides what comes out."""
ROW = "__dovetail_row_of_"
_CHUNK = 4096
_SHIFT = 15  # a chunk has the bits of 32,768 rows


def is_row_number(name: str) -> bool:
    """Whether a column of the join has the numbers of rows."""
    return name.startswith(ROW)


def with_number(schema: pa.Schema, side: int) -> pa.Schema:
    """The columns of a side, and the numbers of its rows."""
    return schema.append(pa.field(ROW + SIDES[side], pa.int64(), nullable=False))


class ChunkStore(Protocol):
    """Where the bits of rows are kept that do not fit in memory."""

    def load(self, chunk: int) -> bytes | None:
        """A chunk as it was saved; None if it never was."""
        ...

    def save(self, chunk: int, data: bytes) -> None:
        """Keep a chunk."""
        ...


class ChunkFile:
    """Chunks in a temporary file, opened with the first one."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._saved: set[int] = set()

    def load(self, chunk: int) -> bytes | None:
        """A chunk as it was saved; None if it never was."""
        return os.pread(self._file, _CHUNK, chunk * _CHUNK) if self._file is not None and chunk in self._saved else None

    def save(self, chunk: int, data: bytes) -> None:
        """Write a chunk."""
        if self._file is None:
            self._file, name = tempfile.mkstemp(prefix="dovetail-matched-", dir=spill_directory())
            Path(name).unlink()  # the file is gone with its process
        os.pwrite(self._file, data, chunk * _CHUNK)
        self._saved.add(chunk)

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class RowBits:
    """A bit for each row number; at most `room` bytes of them are in memory, and one chunk at least."""

    def __init__(self, store: ChunkStore, room: int) -> None:
        self._store, self._most = store, max(1, room // _CHUNK)
        self._held: dict[int, U8] = {}
        """Chunks in memory, least recently used first."""
        self._changed: set[int] = set()

    def mark(self, numbers: I64) -> Bool:
        """Mark these rows; for each number, whether the row was not marked before."""
        from dovetail.joins.online.kernels.rows import mark_bits  # workers that only pack rows do not need the kernels

        fresh = np.empty(len(numbers), np.bool_)
        for chunk, at, places in _by_chunk(numbers):
            fresh[at] = mark_bits(self._chunk(chunk), places)
            if fresh[at].any():
                self._changed.add(chunk)
        return fresh

    def unmarked(self, numbers: I64) -> Bool:
        """Which of these rows were never marked."""
        found = np.empty(len(numbers), np.bool_)
        for chunk, at, places in _by_chunk(numbers):
            found[at] = (self._chunk(chunk)[places >> 3] >> (places & 7).astype(np.uint8) & 1) == 0
        return found

    def flush(self) -> None:
        """Save the chunks that changed."""
        for chunk in sorted(self._changed):
            self._store.save(chunk, self._held[chunk].tobytes())
        self._changed.clear()

    def forget(self, first: int, until: int) -> range:
        """Drop the bits of the rows from `first` to before `until`; returns the chunks that are no longer needed."""
        gone = range(first >> _SHIFT, until >> _SHIFT)
        for chunk in [chunk for chunk in self._held if chunk in gone]:
            del self._held[chunk]
            self._changed.discard(chunk)
        return gone

    def _chunk(self, number: int) -> U8:
        found = self._held.pop(number, None)
        if found is None:
            while len(self._held) >= self._most:
                self._evict(next(iter(self._held)))
            data = self._store.load(number)
            found = np.zeros(_CHUNK, np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
        self._held[number] = found
        return found

    def _evict(self, chunk: int) -> None:
        if chunk in self._changed:
            self._store.save(chunk, self._held[chunk].tobytes())
            self._changed.discard(chunk)
        del self._held[chunk]


def _by_chunk(numbers: I64) -> Iterator[tuple[int, I64, I64]]:
    """Chunks, which of the numbers are in each, and their places there."""
    chunks, places = numbers >> _SHIFT, numbers & ((1 << _SHIFT) - 1)
    order = np.argsort(chunks, kind="stable")
    found, starts = np.unique(chunks[order], return_index=True)
    stops = np.append(starts, len(order))[1:]
    for chunk, start, stop in zip(found.tolist(), starts.tolist(), stops.tolist(), strict=True):
        at = order[start:stop]
        yield chunk, at, places[at]


class Outer:
    """Turns pairs of a bucket into the answers of its join, and gives the rows that have none.

    `pairs` must have got all pairs of a row before `alone` is asked for it.
    """

    def __init__(self, join: BucketJoin, output: pa.Schema, bits: RowBits) -> None:
        pair = join.pair
        self._how, self._output, self.bits = pair.how, output, bits
        self._preserved, self.sides = PRESERVED[pair.how], pair.alone_sides
        taken = join.spec().answer(join.stored).taken
        columns = [(side, name) for side, names in enumerate(taken) for name in names]
        self._numbers = [at for at, (_, name) in enumerate(columns) if is_row_number(name)]
        shows_right = pair.how not in ("left_semi", "left_anti")
        kept = [at for at, (side, name) in enumerate(columns) if not is_row_number(name) and (side == 0 or shows_right)]
        self._columns = [columns[at] for at in kept]
        self._phased = join.with_phase
        self._kept = kept + ([len(columns)] if self._phased else [])
        self._shared = {key for key in pair.on if isinstance(key, str)}
        self._keys = JoinKeys(pair_graph(pair.predicate), join.schemas)

    def split(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The rows that can match something, and the others."""
        _, valid = self._keys.encode(side, batch)
        if valid.all():
            return batch, batch.slice(0, 0)
        return picked(batch, np.flatnonzero(valid)), picked(batch, np.flatnonzero(~valid))

    def numbered(self, side: int, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Rows with their numbers from `first` on, if their side is preserved."""
        if side not in self._preserved:
            return batch
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        return pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=with_number(batch.schema, side))

    def pairs(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """The answers of pairs of the operator."""
        fresh = [self.bits.mark(_int64s(pairs.column(at))) for at in self._numbers]
        if self._how == "left_anti":
            return pa.RecordBatch.from_pylist([], self._output)
        found = as_schema(pairs.select(self._kept), self._output)
        return found if self._how != "left_semi" else found.filter(pa.array(fresh[0]))

    def unmatched(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of numbered rows to which nothing is owed those without a pair, as answers."""
        numbers = _int64s(batch.column(ROW + SIDES[side]))
        return self.alone(side, picked(batch, np.flatnonzero(self.bits.unmarked(numbers))))

    def give(self, side: int, batch: pa.RecordBatch, chosen: Bool) -> pa.RecordBatch:
        """Of numbered rows the unmatched ones among those chosen, as answers; they count as matched from now on."""
        rows = picked(batch, np.flatnonzero(chosen))
        fresh = self.bits.mark(_int64s(rows.column(ROW + SIDES[side])))
        return self.alone(side, picked(rows, np.flatnonzero(fresh)))

    def alone(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a side as answers without a partner: columns of the other side are null, shared keys are not."""
        n, columns = batch.num_rows, []
        for (of, name), field in zip(self._columns, self._output, strict=False):
            is_known = of == side or name in self._shared
            columns.append(batch.column(name).cast(field.type) if is_known else pa.nulls(n, field.type))
        if self._phased:
            columns.append(pa.repeat(pa.scalar(UNMATCHED), n))
        return pa.RecordBatch.from_arrays(columns, schema=self._output)


def _int64s(column: pa.Array) -> I64:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
