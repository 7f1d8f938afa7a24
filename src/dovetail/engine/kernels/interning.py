"""Interns byte strings and pairs of int64 as dense codes: equal values get equal codes, others never do.

The hash only finds the cell; values are compared before a code is returned.
"""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import (
    I64,
    NO_BYTES,
    U8,
    Bool,
    Offsets,
    enlarged,
    grown_capacity,
    int64s,
    raw_bytes,
    readonly,
)
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.gather import O, checked_offsets
from dovetail.engine.kernels.hashing import bytes_hash, pair_hash, same_bytes


@kernel
def _reinsert(cells: I64, out: I64) -> None:
    mask = len(out) - 1
    for old in range(len(cells)):
        if cells[old, 1] != 0:
            at = cells[old, 0] & mask
            while out[at, 1] != 0:
                at = (at + 1) & mask
            out[at, 0] = cells[old, 0]
            out[at, 1] = cells[old, 1]


@kernel
def _byte_codes(
    cells: I64,
    ends: I64,
    store: U8,
    n: int,
    offsets: Offsets,
    data: U8,
    valid: Bool,
    codes: I64,
    start: int,
    adding: bool,
) -> tuple[int, int]:
    """Rows done and values known; fewer rows than there are when an array must grow first."""
    mask = len(cells) - 1
    for row in range(start, len(codes)):
        codes[row] = -1
        if len(valid) and not valid[row]:
            continue
        first, last = int(offsets[row]), int(offsets[row + 1])
        code = bytes_hash(data, first, last)
        at = code & mask
        while cells[at, 1] != 0:
            known = cells[at, 1] - 1
            length = ends[known + 1] - ends[known]
            if cells[at, 0] == code and length == last - first and same_bytes(store, ends[known], data, first, length):
                codes[row] = known
                break
            at = (at + 1) & mask
        if codes[row] < 0 and adding:
            if n >= len(cells) >> 1 or n + 1 >= len(ends) or ends[n] + last - first > len(store):
                return row, n
            for byte in range(last - first):
                store[ends[n] + byte] = data[first + byte]
            ends[n + 1] = ends[n] + last - first
            cells[at, 0] = code
            n += 1
            cells[at, 1] = n
            codes[row] = n - 1
    return len(codes), n


class ByteInterner:
    """Codes 0, 1, 2 ... for byte strings, in order of first occurrence.

    Null gets -1. Cost O(length) a row. Codes are valid until `clear`.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget every value."""
        self._cells = np.zeros((16, 2), np.int64)
        self._ends = np.zeros(9, np.int64)
        self._store = np.empty(64, np.uint8)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return self._cells.nbytes + self._ends.nbytes + self._store.nbytes

    def nbytes_after(self, n_rows: int, n_bytes: int) -> int:
        """The most that `nbytes` can be once `n_rows` more values of `n_bytes` in all were interned."""
        store = _limit(len(self._store), int(self._ends[self._n]) + n_bytes)
        return (
            16 * _cells_for(len(self._cells), self._n + n_rows)
            + 8 * _limit(len(self._ends), self._n + n_rows + 1)
            + store
        )

    def intern(self, offsets: O, data: U8, valid: Bool | None = None) -> I64:
        """For each value its code, new or known; `offsets` are Arrow's, one more than the rows."""
        return self._codes(offsets, data, valid, adding=True)

    def find(self, offsets: O, data: U8, valid: Bool | None = None) -> I64:
        """For each value its code, or -1 where it is null or was never interned."""
        return self._codes(offsets, data, valid, adding=False)

    def _codes(self, offsets: O, data: U8, valid: Bool | None, *, adding: bool) -> I64:
        data = raw_bytes(data)
        offsets = checked_offsets(offsets, len(data))
        known = _mask(valid, len(offsets) - 1)
        codes = np.empty(len(offsets) - 1, np.int64)
        done = 0
        while True:
            done, self._n = _byte_codes(
                self._cells, self._ends, self._store, self._n, offsets, data, known, codes, done, adding
            )
            if done == len(codes):
                return codes
            self._make_room(int(offsets[done + 1]) - int(offsets[done]))

    def _make_room(self, length: int) -> None:
        self._cells = _roomier(self._cells, self._n + 1)
        if self._n + 1 >= len(self._ends):
            self._ends = enlarged(self._ends, grown_capacity(len(self._ends), self._n + 2))
        used = int(self._ends[self._n])
        if used + length > len(self._store):
            self._store = enlarged(self._store, grown_capacity(len(self._store), used + length, limit=2**62))


@kernel
def _pair_codes(
    cells: I64, pairs: I64, n: int, first: I64, second: I64, valid: Bool, codes: I64, start: int, adding: bool
) -> tuple[int, int]:
    """Rows done and pairs known; fewer rows than there are when an array must grow first."""
    mask = len(cells) - 1
    for row in range(start, len(codes)):
        codes[row] = -1
        if len(valid) and not valid[row]:
            continue
        code = pair_hash(first[row], second[row])
        at = code & mask
        while cells[at, 1] != 0:
            known = cells[at, 1] - 1
            if cells[at, 0] == code and pairs[known, 0] == first[row] and pairs[known, 1] == second[row]:
                codes[row] = known
                break
            at = (at + 1) & mask
        if codes[row] < 0 and adding:
            if n >= len(cells) >> 1 or n >= len(pairs):
                return row, n
            pairs[n, 0] = first[row]
            pairs[n, 1] = second[row]
            cells[at, 0] = code
            n += 1
            cells[at, 1] = n
            codes[row] = n - 1
    return len(codes), n


class PairInterner:
    """Codes 0, 1, 2 ... for pairs of int64, in order of first occurrence; for keys of several columns.

    A row that is not valid gets -1. Cost O(1) a row. Codes are valid until `clear`.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget every pair."""
        self._cells = np.zeros((16, 2), np.int64)
        self._pairs = np.empty((8, 2), np.int64)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return self._cells.nbytes + self._pairs.nbytes

    def nbytes_after(self, n_rows: int) -> int:
        """The most that `nbytes` can be once `n_rows` more pairs were interned."""
        return 16 * _cells_for(len(self._cells), self._n + n_rows) + 16 * _limit(len(self._pairs), self._n + n_rows)

    def intern(self, first: I64, second: I64, valid: Bool | None = None) -> I64:
        """For each row's pair its code, new or known."""
        return self._codes(first, second, valid, adding=True)

    def find(self, first: I64, second: I64, valid: Bool | None = None) -> I64:
        """For each row's pair its code, or -1 where it is not valid or was never interned."""
        return self._codes(first, second, valid, adding=False)

    def _codes(self, first: I64, second: I64, valid: Bool | None, *, adding: bool) -> I64:
        first, second = int64s(first), int64s(second)
        if len(first) != len(second):
            raise ValueError(f"{len(first)} first but {len(second)} second parts; each pair needs both")
        known = _mask(valid, len(first))
        codes = np.empty(len(first), np.int64)
        done = 0
        while True:
            done, self._n = _pair_codes(self._cells, self._pairs, self._n, first, second, known, codes, done, adding)
            if done == len(codes):
                return codes
            self._cells = _roomier(self._cells, self._n + 1)
            if self._n >= len(self._pairs):
                self._pairs = enlarged(self._pairs, grown_capacity(len(self._pairs), self._n + 1))


def _mask(valid: Bool | None, rows: int) -> Bool:
    if valid is None:
        return readonly(NO_BYTES.view(np.bool_), np.bool_)
    if len(valid) != rows:
        raise ValueError(f"{len(valid)} marks of validity for {rows} rows")
    return readonly(valid, np.bool_)


def _cells_for(cells: int, values: int) -> int:
    """The cells that a table of half load needs for `values`, never fewer than it has."""
    while cells >> 1 < values:
        cells *= 2
    return cells


def _roomier(cells: I64, values: int) -> I64:
    n_cells = _cells_for(len(cells), values)
    if n_cells == len(cells):
        return cells
    out = np.zeros((n_cells, 2), np.int64)
    _reinsert(cells, out)
    return out


def _limit(capacity: int, needed: int) -> int:
    """The most that an array grown step by step to `needed` can hold."""
    return max(capacity, needed + needed // 2)


@register_warmup
def _warm() -> None:
    some = np.arange(20, dtype=np.int64)
    PairInterner().intern(some, some)
    strings = ByteInterner()
    strings.intern(some, some.view(np.uint8))
    strings.find(some.astype(np.int32), some.view(np.uint8), some[1:] > 3)
