"""Pairs of row numbers on their way out: as rows, as ordinals, or only counted; and which rows found a partner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dovetail.engine.columns import take_columns
from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.sweep import set_bits
from dovetail.joins.interval.operators.memory import Shares
from dovetail.joins.interval.operators.spec import END, KEY, ROW, START, Emit


class Matched:
    """A bitmap over the ordinals of one side, charged to the budget; rows never seen are unmatched.

    Bits are numbered as Arrow numbers them, lowest first.
    """

    def __init__(self, side: str, budget: MemoryBudget) -> None:
        self.side = side
        self.bits: U8 = np.zeros(0, np.uint8)
        self._memory = budget.reserve(f"{side} matched")

    def add(self, ordinals: I64) -> None:
        """Mark these rows."""
        if ordinals.size:
            self._reach(int(ordinals.max()) // 8 + 1)
            set_bits(self.bits, ordinals)

    def mask(self, first: int, count: int) -> npt.NDArray[np.bool_]:
        """Whether each of the `count` rows from ordinal `first` on has matched."""
        mask = np.zeros(count, np.bool_)
        known = self.bits[first // 8 : (first + count + 7) // 8]
        found = np.unpackbits(known, bitorder="little")[first % 8 :][:count]
        mask[: found.size] = found
        return mask

    def close(self) -> None:
        """Give the memory back; the bitmap is gone."""
        self.bits = np.zeros(0, np.uint8)
        self._memory.close()

    def _reach(self, size: int) -> None:
        if size > self.bits.size:
            size = max(size, self.bits.size * 3 // 2)
            self._memory.grow(size)
            grown = np.zeros(size, np.uint8)
            grown[: self.bits.size] = self.bits
            self.bits = grown
            self._memory.resize(size)


PAIR_SCHEMA = pa.schema([("left", pa.int64()), ("right", pa.int64())])
_CODES = (START, END, KEY, ROW)


def output_schema(emit: Emit, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """What a join of these inputs gives: left's payload then right's, or pairs of ordinals, or nothing but a count."""
    if emit == "count":
        return pa.schema([])
    if emit == "pairs":
        return PAIR_SCHEMA
    fields = [field for schema in (left, right) for field in schema if field.name not in _CODES]
    if not fields:
        raise PlanError('neither input has a payload column to give out; use emit="pairs" or emit="count".')
    return pa.schema(fields)


class Window(Protocol):
    """Rows that the kernels number, with their ordinals in the input."""

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows."""
        ...

    @property
    def ordinals(self) -> I64:
        """Their positions in the input."""
        ...

    def bytes_of(self, rows: I64) -> I64:
        """What each of these rows weighs, in bytes."""
        ...


class Output:
    """Collects pairs that the kernels find and turns them into batches of bounded size.

    The kernels write row numbers of the two windows into `out_r` and `out_s`; `take` must come before a window changes.
    With `exchange` R is the right input, and left comes first in the answers all the same.
    """

    def __init__(
        self,
        emit: Emit,
        schema: pa.Schema,
        windows: tuple[Window, Window],
        exchange: bool,
        track: tuple[str, ...],
        shares: Shares,
        budget: MemoryBudget,
    ) -> None:
        self.schema, self.emit = schema, emit
        self.stores = emit != "count" or bool(track)
        self._exchange, self._batch_bytes = exchange, shares.output // 2
        self.show(windows)
        self.matched = {side: Matched(side, budget) for side in track}
        self._memory = budget.reserve("output")
        pairs = shares.pairs if self.stores else 0
        self._memory.grow(32 * pairs)  # the numbers, and their ordinals
        self.out_r, self.out_s = np.empty(pairs, np.int64), np.empty(pairs, np.int64)

    def show(self, windows: tuple[Window, Window]) -> None:
        """From now on R and S row numbers mean rows of these windows."""
        self._left, self._right = windows[::-1] if self._exchange else windows

    def take(self, n: int) -> Iterator[pa.RecordBatch]:
        """The answers of the first `n` pairs in the buffers."""
        if n == 0:
            return
        found = (self.out_s[:n], self.out_r[:n]) if self._exchange else (self.out_r[:n], self.out_s[:n])
        if self.matched or self.emit == "pairs":
            left, right = self._left.ordinals[found[0]], self._right.ordinals[found[1]]
            for side, ordinals in (("left", left), ("right", right)):
                if side in self.matched:
                    self.matched[side].add(ordinals)
            if self.emit == "pairs":
                yield pa.RecordBatch.from_arrays([pa.array(left), pa.array(right)], schema=self.schema)
        if self.emit == "rows":
            yield from self._rows(*found)

    def _rows(self, left: I64, right: I64) -> Iterator[pa.RecordBatch]:
        held = self._memory.used
        ends = np.cumsum(self._left.bytes_of(left) + self._right.bytes_of(right))
        first = 0
        while first < left.size:
            before = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + self._batch_bytes, side="right")))
            self._memory.grow(int(ends[last - 1] - before))
            yield self._gathered(left[first:last], right[first:last])
            self._memory.resize(held)
            first = last

    def _gathered(self, left: I64, right: I64) -> pa.RecordBatch:
        columns = [*_payload(self._left.batch, left), *_payload(self._right.batch, right)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def close(self) -> None:
        """Give the buffers back; `matched` stays until closed by itself."""
        self._memory.close()
        for matched in self.matched.values():
            matched.close()


def _payload(batch: pa.RecordBatch, rows: I64) -> list[pa.Array]:
    wanted = batch.select([name for name in batch.schema.names if name not in _CODES])
    return list(take_columns(wanted, rows).columns)
