"""Stores rows in chunks, each row named by one number; collects answers by these names and gathers them in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.rows.columns import held_bytes, nbytes, take_columns, taken_bytes
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.rows.named_rows import PLACE, SHIFT, NamedRows, Picks, as_picked, refs_of
from dovetail.errors import PlanError
from dovetail.joins.semistream.cells import CELL
from dovetail.joins.semistream.kernels.segment_match import ALL, ANTI, INNER, LEFT, SEMI, keep_checked
from dovetail.joins.semistream.keys import key_columns
from dovetail.joins.semistream.request import How
from dovetail.joins.semistream.sizes import PAIR_BYTES
from dovetail.joins.semistream.within import PairCheck

CHECKED = 1 << 16  # pairs that are checked at a time, at most
COPIED_WHOLE = 128 << 10  # chunks of fewer bytes are copied whole, which is faster than picking rows from each


class RowStore:
    """Chunks of rows; a row's name is its chunk and its place in it. Only owned chunks are charged."""

    def __init__(self, schema: pa.Schema, reservation: Reservation, floor: int = 0) -> None:
        self.schema, self.reservation, self.floor = schema, reservation, floor
        self._chunks: dict[int, pa.RecordBatch] = {}
        self._bytes: dict[int, int] = {}
        self._payers: dict[int, Reservation] = {}
        self._next = 0
        self.rows = 0  # in all chunks, live or not
        self._content = 0  # bytes of all chunks, borrowed ones too

    def __len__(self) -> int:
        return len(self._chunks)

    def __contains__(self, chunk: object) -> bool:
        return chunk in self._chunks

    @property
    def charged(self) -> int:
        """Bytes of the owned chunks that are charged here."""
        return self.reservation.used

    def chunk(self, chunk: int) -> pa.RecordBatch:
        """The rows of one chunk."""
        return self._chunks[chunk]

    def chunk_rows(self, chunk: int) -> int:
        """Rows of one chunk, live or not."""
        return int(self._chunks[chunk].num_rows)

    def chunks(self) -> list[int]:
        """The numbers of all chunks, oldest first."""
        return list(self._chunks)

    def lend(self, batch: pa.RecordBatch) -> int:
        """Register a chunk that the caller owns and is charged for; returns its number."""
        return self._keep(batch, 0)

    def try_reserve(self, n: int) -> bool:
        """Try to reserve `n` more bytes, leaving `floor` bytes of the budget for others."""
        return self.reservation.budget.available >= n + self.floor and self.reservation.try_grow(n)

    def add(self, batch: pa.RecordBatch) -> int | None:
        """Store a batch as an owned chunk; returns its number, None if there is no room."""
        size = held_bytes(batch)
        return self._keep(batch, size) if self.try_reserve(size) else None

    def add_charged(self, batch: pa.RecordBatch, size: int, reservation: Reservation | None = None) -> int:
        """Store a batch of `size` bytes as an owned chunk; returns its number; `BudgetExceeded` if there is no room."""
        (reservation or self.reservation).grow(size)
        number = self._keep(batch, size)
        if reservation is not None:
            self._payers[number] = reservation
        return number

    def copied(self, refs: I64) -> I64 | None:
        """Copy these rows, all of one chunk, to an owned chunk; returns their new names, None if there is no room."""
        batch, rows = self._chunks[int(refs[0]) >> SHIFT], refs & PLACE
        need = taken_bytes(batch, rows) + 128 * batch.num_columns
        if not self.try_reserve(need):
            return None
        copy = take_columns(batch, rows)
        self.reservation.shrink(need)
        new = self.add(copy)
        return None if new is None else refs_of(new, np.arange(len(rows)))

    def moved(self, refs: I64, worn: list[int]) -> I64:
        """The new names of these rows, all of the worn chunks; a new chunk replaces those if there is room for both."""
        copies = 1 if len(worn) == 1 else 3  # rows of several chunks pass through copies of their own
        need = int(copies * 1.25 * len(refs) * self.row_bytes()) + 128 * len(self.schema)
        if not len(refs) or not self.reservation.try_grow(need):
            return refs
        joined = self.gather(refs)
        self.reservation.shrink(need)
        size = held_bytes(joined)
        if size > self.reservation.budget.available:
            return refs
        new = self.add_charged(joined, size)
        self.drop(worn)
        return refs_of(new, np.arange(len(refs)))

    def _keep(self, batch: pa.RecordBatch, size: int) -> int:
        number = self._next
        self._next += 1
        self._chunks[number] = batch
        self._bytes[number] = size
        self.rows += batch.num_rows
        self._content += size or nbytes(batch)
        return number

    def charge_to(self, chunk: int, reservation: Reservation) -> None:
        """Charge this chunk to another reservation; `BudgetExceeded` leaves it as it was."""
        size = self._bytes[chunk]
        self._payers.get(chunk, self.reservation).shrink(size)
        reservation.grow(size)
        self._payers[chunk] = reservation

    def drop(self, chunks: Iterable[int]) -> None:
        """Drop these chunks."""
        for chunk in chunks:
            batch, size = self._chunks.pop(chunk), self._bytes.pop(chunk)
            self.rows -= batch.num_rows
            self._content -= size or nbytes(batch)
            self._payers.pop(chunk, self.reservation).shrink(size)

    def row_bytes(self) -> float:
        """Bytes of an average row in here."""
        return self._content / self.rows if self.rows else 0.0

    def gather(self, refs: I64, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of these names, in this order; a row of nulls for each -1."""
        rows, picks = NamedRows(self._chunks, self.schema), Picks.of(refs)
        return rows.take(picks, self._part) if columns is None else rows.take_columns(columns, picks, self._part)

    def _part(self, chunk: int, batch: pa.RecordBatch, places: I64) -> tuple[pa.RecordBatch, I64]:
        whole = 2 * len(places) >= batch.num_rows or 0 < self._bytes[chunk] < COPIED_WHOLE
        return (batch, places) if whole else as_picked(chunk, batch, places)

    def close(self) -> None:
        """Drop every chunk."""
        self.drop(list(self._chunks))
        self.reservation.close()


def _runs(refs: I64) -> int:
    """How many different names there are; equal ones lie together."""
    return int(np.count_nonzero(refs[1:] != refs[:-1])) + 1 if len(refs) else 0


HOWS: dict[str, int] = {"inner": INNER, "left": LEFT, "left_semi": SEMI, "left_anti": ANTI}


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of the answers: all of the stream's, then the requested ones of the master rows.

    A master key column is left out where the stream's has the same name. Other names that both sides have get the
    suffixes, stream first. `tells_match`: a further column says whether there is a master row. `tells_first`: the last
    column says whether the pair is the first of its stream row, whose pairs are consecutive.
    """

    schema: pa.Schema
    stream: tuple[str, ...]
    master: tuple[str, ...]
    tells_match: bool = False
    tells_first: bool = False

    @classmethod
    def of(
        cls,
        stream: pa.Schema,
        master: pa.Schema,
        on: Sequence[str],
        key: Sequence[str],
        how: How,
        columns: Sequence[str] | None = None,
        suffixes: tuple[str, str] = ("", "_master"),
    ) -> Shape:
        """The columns for these schemas; `PlanError` for columns that are not there and names that still clash."""
        same_key = {name for name, other in zip(on, key, strict=True) if name == other}
        wanted = _wanted(master, columns) if how in ("inner", "left") else []
        given = [name for name in wanted if name not in same_key]
        clash = set(given) & set(stream.names)
        mine = [f.with_name(f.name + suffixes[0]) if f.name in clash else f for f in stream]
        theirs = [master.field(name) for name in given]
        named = [f.with_name(f.name + suffixes[1]) if f.name in clash else f for f in theirs]
        if how == "left":
            named = [f.with_nullable(True) for f in named]
        names = [f.name for f in (*mine, *named)]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise PlanError(f"columns {twice} appear twice in the answer; rename them or give other suffixes.")
        return cls(pa.schema([*mine, *named]), tuple(stream.names), tuple(given))

    def with_match(self, name: str) -> Shape:
        """The same with a last column of this name that says whether there is a master row."""
        if name in self.schema.names:
            raise PlanError(f"matched={name!r}: the answers have a column of this name; give another.")
        return replace(self, schema=self.schema.append(pa.field(name, pa.bool_(), False)), tells_match=True)

    def with_first(self, name: str) -> Shape:
        """The same with a last column of this name that marks the first pair of each stream row."""
        return replace(self, schema=self.schema.append(pa.field(name, pa.bool_(), False)), tells_first=True)


def _wanted(master: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    names = list(master.names) if columns is None else list(columns)
    missing = [name for name in names if name not in master.names]
    if missing:
        raise PlanError(f"the master data has no column {missing}; it has {master.names}.")
    return names


class Answers:
    """Pairs of a stream row and a master row, collected by name and turned into batches some thousands at a time.

    `refs` and `rows` are where kernels write pairs, from `n` on; master row -1 means none. Pairs come out in the order
    in which they were written. Stored rows that pairs name must stay until `flush`. `key_of` gives the key of stream
    rows in the types of the master data, `check` is what pairs of equal key must fulfil.
    """

    def __init__(
        self,
        shape: Shape,
        how: How,
        codes: KeyCodes,
        on: Sequence[str],
        key: Sequence[str],
        budget: MemoryBudget,
        stores: tuple[RowStore, RowStore],
        capacity: int,
        key_of: Callable[[pa.RecordBatch], list[pa.Array]],
        check: PairCheck | None = None,
    ) -> None:
        self.shape, self.codes, self._on, self._key = shape, codes, tuple(on), tuple(key)
        self._key_of = key_of
        self.how, self._check = HOWS[how], check
        self.checked = check is not None or not codes.exact
        self.written_how = ALL if self.checked else self.how
        self.stream, self.master = stores
        self._budget = budget
        self._held = budget.reserve("answer pairs")
        self._built = budget.reserve("output buffer")
        self._held.grow(PAIR_BYTES * capacity)
        self.refs, self.rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        self.n, self.emitted = 0, 0
        self._before = -1
        self._after_flush: list[Callable[[], None]] = []

    def after_flush(self, then: Callable[[], None]) -> None:
        """Call `then` after every flush, when no answer refers to a row."""
        self._after_flush.append(then)

    @property
    def out(self) -> tuple[I64, I64]:
        """Where kernels write pairs."""
        return self.refs, self.rows

    @property
    def capacity(self) -> int:
        """The most pairs that are collected."""
        return len(self.refs)

    def reserve(self, capacity: int) -> None:
        """Reserve room for at least `capacity` pairs; no pair may be collected."""
        if capacity > self.capacity:
            self._held.resize(PAIR_BYTES * capacity)
            self.refs, self.rows = np.empty(capacity, np.int64), np.empty(capacity, np.int64)

    def wrong(self, start: int) -> int:
        """Remove pairs from `start` on that do not match; returns how many stream rows have no match left."""
        if not self.checked or self.n == start:
            return 0
        refs, rows = self.refs[start : self.n], self.rows[start : self.n]
        right = self.right_pairs(refs, rows)
        seemed, found = _runs(refs[rows >= 0]), _runs(refs[right])
        self.n = keep_checked(self.refs, self.rows, start, self.n, right, self.how)
        return seemed - found

    def right_pairs(self, refs: I64, rows: I64) -> Bool:
        """For each pair whether the real keys are equal and it passes the check; pairs of one row lie together."""
        return self.passing(refs, rows, self.same_keys(refs, rows))

    def passing(self, refs: I64, rows: I64, right: Bool) -> Bool:
        """Of the pairs that are `right` those that pass the check; `DataError` if a row may not have that many."""
        check = self._check
        if check is None:
            return right
        some = np.flatnonzero(right)
        held = self._built.budget.available // 2
        row_bytes = int(self.stream.row_bytes() + self.master.row_bytes()) + 64
        step = max(32, min(CHECKED, held // row_bytes))
        for start in range(0, len(some), step):
            part = some[start : start + step]
            self._built.grow(min(held, row_bytes * len(part)))
            mine, theirs = self.stream.gather(refs[part], check.stream), self.master.gather(rows[part], check.master)
            right[part] = check.holds(mine, theirs)
            self._built.resize(0)
        refs, rows = refs[right], rows[right]
        self.refuse(refs, rows, refs[1:][refs[1:] == refs[:-1]])
        return right

    def refuse(self, refs: I64, rows: I64, twice: I64) -> None:
        """`DataError` with the pairs of the first of these stream rows, which match `twice`; none if all are wanted."""
        check = self._check
        if len(twice) and check is not None and check.overlap == "error":
            one, some = twice[:1], rows[refs == twice[0]]
            keys = zip(self._key, self.keys_of(one), strict=True)
            key = {name: column[0].as_py() for name, column in keys if name != CELL}
            raise check.refuse(key, self.stream.gather(one, check.stream), self.master.gather(some, check.master))

    def same_keys(self, refs: I64, rows: I64) -> Bool:
        """For each pair whether the real keys are equal."""
        right = rows >= 0
        if self.codes.exact:
            return right
        some = np.flatnonzero(right)
        if len(some):
            mine = self.keys_of(refs[some])
            theirs = key_columns(self.master.gather(rows[some], self._key), self._key, self.codes.types)
            right[some] = self.codes.same(mine, theirs)
        return right

    def keys_of(self, refs: I64) -> list[pa.Array]:
        """The keys of these stream rows, in the types of the master data."""
        return self._key_of(self.stream.gather(refs, self._on))

    def different_keys(self, codes: I64, refs: I64) -> list[pa.Array]:
        """The different keys of these stream rows."""
        if self.codes.exact:
            return self.keys_of(refs[np.unique(codes, return_index=True)[1]])
        keys = self.keys_of(refs)
        if not len(keys[0]):
            return keys
        names = [f"k{at}" for at in range(len(keys))]
        different = pa.table(keys, names).group_by(names).aggregate([]).combine_chunks()
        return [different[name].chunk(0) for name in names]

    def misses(self, refs: I64) -> Iterator[pa.RecordBatch]:
        """Collect stream rows without a match; yields batches if there is no room to collect them."""
        if self.how not in (LEFT, ANTI):
            return
        for start in range(0, len(refs), self.capacity):
            some = refs[start : start + self.capacity]
            if self.n + len(some) > self.capacity:
                yield from self.flush()
            self.refs[self.n : self.n + len(some)] = some
            self.rows[self.n : self.n + len(some)] = -1
            self.n += len(some)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """All collected answers, in batches that fit the free budget; the caller owns each batch."""
        row_bytes = 3 * (self.stream.row_bytes() + self.master.row_bytes() + 2)
        start, whole = 0, self.master.charged if self.shape.master else 0  # pages may be copied whole
        while start < self.n:
            stop = min(self.n, start + max(1, int((self._budget.available - whole - 1024) / row_bytes)))
            need = int((stop - start) * row_bytes) + whole
            self._built.grow(min(need, self._budget.available) if stop - start == 1 else need)
            batch = self._batch(self.refs[start:stop], self.rows[start:stop])
            self._built.resize(nbytes(batch))
            self.emitted += batch.num_rows
            start = stop
            yield batch
            self._built.resize(0)
        self.n = 0
        for then in self._after_flush:
            then()

    def _batch(self, refs: I64, rows: I64) -> pa.RecordBatch:
        columns = list(self.stream.gather(refs).columns)
        if self.shape.master:
            columns += self.master.gather(rows, self.shape.master).columns
        if self.shape.tells_match:
            columns.append(pa.array(rows >= 0))
        if self.shape.tells_first:
            columns.append(pa.array(np.diff(refs, prepend=self._before) != 0))
            self._before = int(refs[-1])
        return pa.RecordBatch.from_arrays(columns, schema=self.shape.schema)

    def close(self) -> None:
        """Release all memory."""
        self._built.close()
        self._held.close()
