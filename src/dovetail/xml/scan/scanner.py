"""Drives the XML scanner: its memory, its input blocks, its output batches and errors.

The memory of a running scan is the automaton of its request, tables in one array, and the bytes of names and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.errors import BudgetExceeded, DataError
from dovetail.xml.kernels import codes as code
from dovetail.xml.kernels.names import numbered, rehashed
from dovetail.xml.kernels.scan import scanned
from dovetail.xml.scan.files import as_utf8
from dovetail.xml.scan.request import ROW, Automaton, Column, Kept, ScanRequest, automaton, count_name

_GROWING = {
    code.STACK: (code.DEPTHS, code.ELEMENT),
    code.BOUND: (code.BINDING_ROOM, code.BINDING),
    code.ATTRIBUTE: (code.ATTRIBUTE_ROOM, code.ATTR),
    code.NAMED: (code.NAME_ROOM, code.WORD),
    code.SLOTS: (code.NAME_ROOM, 2),
}
"""Tables with the place of their number of records, and the size of a record."""
_GROWN_BY = {
    code.DEPTH: code.DEPTHS,
    code.BINDINGS: code.BINDING_ROOM,
    code.ATTRIBUTES: code.ATTRIBUTE_ROOM,
    code.VALUES: code.VALUE_ROOM,
    code.NAMES: code.NAME_ROOM,
}
"""The buffer that an answer of the scanner asks to enlarge."""
_OF_DOCUMENT = (
    code.N_DEPTH, code.N_BINDINGS, code.N_ATTRIBUTES, code.N_TEXT, code.N_XML, code.N_ROWS, code.DROPPED, code.ROW_OPEN,
    code.PENDING, code.ROOM, code.VALUES_LEFT, code.LAST_NAME, code.SEEN_ROOT, code.SEEN_DOCTYPE, code.BINDING_BYTES,
)  # fmt: skip
"""Numbers that are reset for every document."""


class Tables:
    """The tables of one scan; they grow on demand, each byte of them taken from a reservation first."""

    def __init__(
        self, machine: Automaton, columns: tuple[Column, ...], rows: int, held: Reservation, kept: Kept = ()
    ) -> None:
        self.columns, self._held = columns, held
        self._fixed = _fixed_tables(machine, columns, len(kept))
        self._shapes: dict[int, tuple[int, ...]] = {}
        self.mem: I64 = np.zeros(code.HEAD, np.int64)
        for place, room in zip(_GROWN_BY.values(), (64, 64, 64, rows + 4, 256), strict=True):
            self.mem[place] = room
        self.mem[[code.N_COLUMNS, code.N_WANTED, code.ROW_ROOM]] = len(columns), len(machine.names), rows
        self.mem[[code.SYMBOLS, code.N_KEPT]] = len(machine.names) + 1, len(kept)
        self.book: U8 = self._bytes(8192)
        self.data: U8 = self._bytes(0)
        self._lay_out({})
        for text in code.FIRST_NAMES:
            self._number(text)
        self._name(machine, kept)

    def restart(self) -> None:
        """Reset for another document: buffers and names are kept, all else is dropped."""
        self.mem[list(_OF_DOCUMENT)] = 0
        records = self.table(code.COLUMN)
        records[:, code.C_FILL], records[:, code.C_VALUES] = records[:, code.C_START], 0

    def _bytes(self, n: int) -> U8:
        self._held.grow(n)
        return np.empty(n, np.uint8)

    def _sections(self) -> dict[int, tuple[int, ...]]:
        """The shape of every table."""
        mem, n = self.mem, len(self.columns)
        shapes: dict[int, tuple[int, ...]] = {t: (int(mem[room]), size) for t, (room, size) in _GROWING.items()}
        shapes |= {table: values.shape for table, values in self._fixed.items()}
        shapes |= {code.COLUMN: (n, code.COL), code.ENDS: (n, int(mem[code.VALUE_ROOM]))}
        return shapes | {
            code.COUNTS: (n, int(mem[code.ROW_ROOM])),
            code.OPEN_TEXT: (n, 2),
            code.OPEN_XML: (n, 2),
        }

    def _lay_out(self, old: dict[int, I64]) -> None:
        """Allocate all tables, with the content of the old ones; slots are filled from the names."""
        shapes = self._sections()
        total = code.HEAD + sum(math.prod(shape) for shape in shapes.values())
        self._held.grow(8 * total)
        before, self.mem = self.mem, np.zeros(total, np.int64)
        self.mem[: code.HEAD] = before[: code.HEAD]
        self._shapes = shapes
        at = code.HEAD
        for table, shape in shapes.items():
            self.mem[table] = at
            at += math.prod(shape)
            if (kept := old.get(table, self._fixed.get(table))) is not None and table != code.SLOTS:
                self.table(table)[tuple(slice(n) for n in kept.shape)] = kept
        self.mem[code.SLOT_MASK] = 2 * self.mem[code.NAME_ROOM] - 1
        rehashed(self.mem, self.book)
        if old:
            self._held.shrink(before.nbytes)

    def table(self, which: int) -> I64:
        """A view of one table, one record a row."""
        shape, start = self._shapes[which], int(self.mem[which])
        return self.mem[start : start + math.prod(shape)].reshape(shape)

    def grow(self, answer: int) -> None:
        """Double the buffer that this answer of the scanner asks for."""
        old = {table: self.table(table) for table in self._shapes}
        self.mem[_GROWN_BY[answer]] *= 2
        self.mem[code.VALUES_LEFT] = 0
        try:
            self._lay_out(old)
        except BaseException:
            self.mem[_GROWN_BY[answer]] //= 2
            raise
        if answer == code.NAMES:
            self._grow_book()

    def _grow_book(self) -> None:
        grown = self._bytes(2 * len(self.book))
        grown[: len(self.book)] = self.book
        self._held.shrink(len(self.book))
        self.book = grown

    def _number(self, text: bytes) -> int:
        source = np.frombuffer(text, np.uint8).copy()
        while (number := numbered(source, self.mem, self.book)) == code.NAMES:
            self.grow(code.NAMES)
        return number

    def _name(self, machine: Automaton, kept: Kept) -> None:
        """Replace the names of a request by their numbers in this scan."""
        wanted = [[self._number(part.encode()) for part in name] for name in machine.names]
        attributes = [(name, column) for state in machine.states for name, column in state.attributes]
        found = [[*(self._number(part.encode()) for part in name), column] for name, column in attributes]
        places = {column.name: place for place, column in enumerate(self.columns)}
        keep = [[places[column], self._number(text.encode())] for column, text in kept]
        for table, rows in ((code.WANTED, wanted), (code.ATTRIBUTE_OPENS, found), (code.KEPT, keep)):
            if rows:
                self.table(table)[...] = rows
                self._fixed[table] = self.table(table).copy()

    def make_room(self, capacities: list[int]) -> None:
        """Let column k hold `capacities[k]` bytes, keeping its content."""
        grown = self._bytes(sum(capacities) + 16)
        at = 0
        for record, capacity in zip(self.table(code.COLUMN), capacities, strict=True):
            start, filled = int(record[code.C_START]), int(record[code.C_FILL] - record[code.C_START])
            grown[at : at + filled] = self.data[start : start + filled]
            record[[code.C_START, code.C_STOP, code.C_FILL]] = at, at + capacity, at + filled
            at += capacity
        self._held.shrink(len(self.data))
        self.data = grown
        self.mem[code.ROOM] = 0


def _fixed_tables(machine: Automaton, columns: tuple[Column, ...], kept: int) -> dict[int, I64]:
    """The tables that follow from the request alone; names are numbered later."""
    opens = [number for state in machine.states for number in state.opens]
    attributes = sum(len(state.attributes) for state in machine.states)
    records = np.zeros((len(columns), code.COL), np.int64)
    for record, column in zip(records, columns, strict=True):
        record[code.C_KIND] = code.XML_KIND if column.kind == "xml" else code.TEXT_KIND
        record[code.C_MANY] = column.many
    return {
        code.WANTED: np.full((len(machine.names), 2), -1, np.int64),
        code.DELTA: np.array(machine.delta, np.int64),
        code.FLAGGED: np.array([state.flags for state in machine.states], np.int64),
        code.FIRST: np.cumsum([0, *(len(state.opens) for state in machine.states)], dtype=np.int64),
        code.OPENS: np.array(opens, np.int64),
        code.FIRST_ATTRIBUTE: np.cumsum([0, *(len(state.attributes) for state in machine.states)], dtype=np.int64),
        code.ATTRIBUTE_OPENS: np.full((attributes, 3), -1, np.int64),
        code.COLUMN: records,
        code.KEPT: np.full((kept, 2), -1, np.int64),
    }


_PADDING = 16
_LINE_END = 10


class Window:
    """Bytes of a document from the first that is not consumed on; they end in a zero byte and room for 15 more."""

    def __init__(self, chunks: Iterator[bytes], block: int, held: Reservation) -> None:
        self._chunks, self._block, self._held = chunks, block, held
        self._waiting = memoryview(b"")
        self._raw = bytearray(0)
        self._view: U8 = np.empty(0, np.uint8)
        self.size, self._lines, self._start = 0, 1, 0
        self._make(block)

    @property
    def bytes(self) -> U8:
        """The bytes that the scanner may read."""
        return self._view[self._start :]

    def _make(self, size: int) -> None:
        if size + _PADDING >= 2**31:
            raise BudgetExceeded("one tag, comment or CDATA section is larger than 2 GiB")
        self._held.grow(size + _PADDING)
        raw = bytearray(size + _PADDING)
        raw[: self.size] = self._raw[self._start : self._start + self.size]
        self._held.shrink(len(self._raw))
        self._raw, self._start = raw, 0
        self._view = np.frombuffer(raw, np.uint8)

    def drop(self, n: int) -> None:
        """The first `n` bytes are consumed."""
        # NumPy counts the many line ends of XML three times as fast as bytearray.count.
        self._lines += int(np.count_nonzero(self._view[self._start : self._start + n] == _LINE_END))
        self._start += n
        self.size -= n

    def line(self, at: int) -> int:
        """The number of the line in which byte `at` of the window lies, from 1 on."""
        return self._lines + self._raw.count(b"\n", self._start, self._start + at)

    def fill(self) -> bool:
        """Add a block, or twice the remaining bytes, so that a long token is not read too often; whether bytes were
        added."""
        wanted, before = max(self._block, 2 * self.size), self.size
        if wanted + _PADDING > len(self._raw):
            self._make(wanted)
        elif self._start:
            self._view[: self.size] = self._view[self._start : self._start + self.size].copy()
            self._start = 0
        while self.size < wanted and self._next():
            piece = self._waiting[: wanted - self.size]
            self._raw[self.size : self.size + len(piece)] = piece
            self.size += len(piece)
            self._waiting = self._waiting[len(piece) :]
        self._raw[self.size] = 0
        return self.size > before

    def _next(self) -> bool:
        while not self._waiting:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._waiting = memoryview(chunk)
        return True


def schema_of(request: ScanRequest) -> pa.Schema:
    """The columns of a scan: the row's number, then for each column its value and their number, or a list of them."""
    fields = [pa.field(ROW, pa.int64(), nullable=False)]
    for column in request.columns:
        if column.many:
            fields.append(pa.field(column.name, pa.list_(pa.string()), nullable=False))
        else:
            fields += [
                pa.field(column.name, pa.string()),
                pa.field(count_name(column.name), pa.int32(), nullable=False),
            ]
    return pa.schema(fields)


def taken(tables: Tables, first_row: int, schema: pa.Schema) -> pa.RecordBatch:
    """The complete rows, taken out of the tables; a row that is still open stays in them."""
    rows = int(tables.mem[code.N_ROWS])
    counts = tables.table(code.COUNTS)
    arrays: list[pa.Array] = [pa.array(np.arange(first_row, first_row + rows))]
    for number, column in enumerate(tables.columns):
        arrays += _arrays(tables, number, column, counts[number, :rows])
        shown = counts[number, :rows] if column.many else np.minimum(counts[number, :rows], 1)
        _forget(tables, number, int(shown.sum()))
    if tables.mem[code.ROW_OPEN]:
        counts[:, 0] = counts[:, rows]
    tables.mem[[code.N_ROWS, code.ROOM, code.VALUES_LEFT]] = 0
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrays(tables: Tables, number: int, column: Column, counts: I64) -> list[pa.Array]:
    ends, start = tables.table(code.ENDS)[number], int(tables.table(code.COLUMN)[number, code.C_START])
    shown = counts if column.many else np.minimum(counts, 1)
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(shown)])
    offsets = ends[: upto[-1] + 1] if column.many else ends[upto]
    data = pa.py_buffer(tables.data[start : start + int(offsets[-1])].tobytes())
    text_offsets = pa.py_buffer(offsets.astype(np.int32))
    if column.many:
        values = pa.StringArray.from_buffers(len(offsets) - 1, text_offsets, data)
        return [pa.ListArray.from_arrays(pa.array(upto.astype(np.int32)), values)]
    missing = int((counts == 0).sum())
    valid = pa.py_buffer(np.packbits(counts > 0, bitorder="little")) if missing else None
    value = pa.StringArray.from_buffers(len(counts), text_offsets, data, valid, missing)
    return [value, pa.array(counts.astype(np.int32))]


def _forget(tables: Tables, number: int, values: int) -> None:
    """Drop the first values of a column; the rest belongs to the open row and moves to the front."""
    record, ends = tables.table(code.COLUMN)[number], tables.table(code.ENDS)[number]
    start, fill, known = (int(record[place]) for place in (code.C_START, code.C_FILL, code.C_VALUES))
    gone = int(ends[values])
    tables.data[start : fill - gone] = tables.data[start + gone : fill].copy()
    ends[: known - values + 1] = ends[values : known + 1] - gone
    record[[code.C_FILL, code.C_VALUES, code.C_ROW_FILL, code.C_ROW_VALUES]] = fill - gone, known - values, 0, 0


_ROWS, _BATCH, _BLOCK, _NAMES = 1 << 13, 1 << 20, 1 << 18, 1 << 10
_NOTHING = ScanRequest(("*",), ())


def check(chunks: Iterable[bytes], budget: MemoryBudget, name: str = "document") -> None:
    """Raise the `DataError` that a scan of this document would raise, without building any row."""
    with closing(Scanner(_NOTHING, budget)) as scanner:
        for _ in scanner.batches(chunks, name):
            pass


class Scanner:
    """Scans documents one after the other by one request; buffers and names are kept, so that small files cost little.

    `dropped` counts the elements on the path that were left out because a text is not the one that the request keeps.
    """

    def __init__(self, request: ScanRequest, budget: MemoryBudget) -> None:
        self.request, self.dropped, self._budget = request, 0, budget
        self._tables: Tables | None = None
        self._room: Reservation | None = None

    def batches(self, chunks: Iterable[bytes], name: str = "document") -> Iterator[pa.RecordBatch]:
        """Batches of about a megabyte at most, one row an element on the request's path, in document order.

        The whole document is checked: anything that is not well-formed is a `DataError` with `name` and the line,
        raised when the scan arrives there, after the rows before it were output. To get all rows of a
        file or none, call `check` first. No document type is read: one that declares
        anything is refused, so nothing is fetched and nothing expands. A row that needs more than the budget is
        `BudgetExceeded`.
        """
        tables = self._taken_tables(name)
        with self._budget.reserve("xml scan") as held:
            yield from _Scan(chunks, self.request, tables, held, name).batches()
        self.dropped += int(tables.mem[code.DROPPED])
        self._tables = tables

    def close(self) -> None:
        """Release the buffers that are kept for the next document."""
        if self._room is not None:
            self._room.close()
        self._tables = self._room = None

    def _taken_tables(self, name: str) -> Tables:
        """Tables for a document: those of the last one, if it was complete and had not too many names."""
        tables, self._tables = self._tables, None
        if tables is not None and tables.mem[code.N_NAMES] <= _NAMES:
            tables.restart()
            return tables
        self.close()
        self._room = self._budget.reserve("xml tables")
        try:
            return _new_tables(self.request, self._room)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"{name}: the scan does not fit into its budget; give more memory ({error})."
            ) from error


def _new_tables(request: ScanRequest, held: Reservation) -> Tables:
    free = held.budget.available
    rows = max(16, min(_ROWS, free // (256 * (len(request.columns) + 1))))
    tables = Tables(automaton(request), request.columns, rows, held, request.keep)
    each = max(64, min(_BATCH // 16, free // (16 * (len(request.columns) + 1))))
    tables.make_room([each] * len(request.columns))
    tables.mem[code.BATCH_BYTES] = max(64, min(_BATCH, free // 8))
    return tables


class _Scan:
    """The scan of one document."""

    def __init__(
        self, chunks: Iterable[bytes], request: ScanRequest, tables: Tables, held: Reservation, name: str
    ) -> None:
        self.request, self.name, self._tables = request, name, tables
        self._schema, self._given = schema_of(request), 0
        self._window = Window(as_utf8(chunks, name), max(1, min(_BLOCK, held.budget.available // 16)), held)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows."""
        while True:
            answer = self._step()
            mem = self._tables.mem
            if answer == code.MORE and not self._more():
                break
            if answer == code.FAULT:
                raise self._fault()
            if answer == code.FULL or (answer == code.OUTPUT and self._worth_giving()):
                yield self._batch()
            elif answer not in (code.MORE, code.FULL):
                yield from self._enlarged(answer)
        if mem[code.N_DEPTH] or not mem[code.SEEN_ROOT] or self._window.size:
            raise DataError(f"{self._place(self._window.size)}: the document ends too early.")
        if mem[code.N_ROWS]:
            yield self._batch()

    def _step(self) -> int:
        window, tables = self._window, self._tables
        answer = scanned(window.bytes, 0, window.size, tables.mem, tables.book, tables.data)
        self._fault_at = int(tables.mem[code.FAULT_AT])
        if answer != code.FAULT:
            window.drop(int(tables.mem[code.AT]))
        return answer

    def _more(self) -> bool:
        try:
            return self._window.fill()
        except UnicodeDecodeError as error:
            raise DataError(f"{self._place(self._window.size)}, or soon after it: {error}.") from error
        except BudgetExceeded as error:
            raise self._too_large(error) from error

    def _worth_giving(self) -> bool:
        mem = self._tables.mem
        filled = self._tables.table(code.COLUMN)[:, code.C_FILL] - self._tables.table(code.COLUMN)[:, code.C_START]
        return bool(mem[code.N_ROWS] and 2 * filled.sum() >= mem[code.BATCH_BYTES])

    def _batch(self) -> pa.RecordBatch:
        rows = int(self._tables.mem[code.N_ROWS])
        batch = taken(self._tables, self._given, self._schema)
        self._given += rows
        return batch

    def _enlarged(self, answer: int) -> Iterator[pa.RecordBatch]:
        """Enlarge the scanner's buffers; if the budget is exhausted, after the complete rows were output."""
        try:
            self._enlarge(answer)
        except BudgetExceeded as error:
            if not self._tables.mem[code.N_ROWS]:
                raise self._too_large(error) from error
            yield self._batch()

    def _enlarge(self, answer: int) -> None:
        tables = self._tables
        if answer != code.OUTPUT:
            tables.grow(answer)
            return
        needed = int(tables.mem[code.NEEDED])
        capacities = []
        for record in tables.table(code.COLUMN):
            capacity, filled = (int(record[at] - record[code.C_START]) for at in (code.C_STOP, code.C_FILL))
            capacities.append(capacity if capacity - filled >= needed else max(filled + needed, 2 * capacity))
        if max(capacities) >= 2**31:
            raise BudgetExceeded(
                f"a column of one batch would have {format_bytes(max(capacities))}, 2 GiB is the limit"
            )
        tables.make_room(capacities)

    def _place(self, at: int) -> str:
        return f"{self.name}, line {self._window.line(at)}"

    def _fault(self) -> DataError:
        kind = code.FAULTS[int(self._tables.mem[code.FAULT_KIND])]
        near = bytes(self._window.bytes[self._fault_at : min(self._fault_at + 40, self._window.size)])
        return DataError(f"{self._place(self._fault_at)}: {kind}, at {near.decode(errors='replace')!r}.")

    def _too_large(self, error: BudgetExceeded) -> BudgetExceeded:
        return BudgetExceeded(
            f"{self._place(0)}: what matches {self.request.explain()!r} here, or one tag or comment, does not fit into "
            f"the budget; give more memory, or scan a longer path with fewer columns ({error})."
        )
