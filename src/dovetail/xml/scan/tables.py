"""Memory of a running scan: the automaton of its request, tables in one array, bytes of names and columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.memory import Reservation
from dovetail.xml.kernels import codes as code
from dovetail.xml.kernels.codes import MATCH
from dovetail.xml.kernels.names import numbered, rehashed
from dovetail.xml.scan.request import Column, Kept, ScanRequest, Step, expanded

OPENING = 2
"""Flag of a state at which values begin."""

_Place = tuple[int, int]
"""A column (-1: the path itself) and how many of its steps are made."""


@dataclass(frozen=True, slots=True)
class _State:
    places: frozenset[_Place] = frozenset()
    flags: int = 0
    opens: tuple[int, ...] = ()
    attributes: tuple[tuple[Step, int], ...] = ()


@dataclass(slots=True)
class Automaton:
    """States by number (0: nothing can match any more, 1: the document) and where each symbol leads.

    Symbol k + 1 is `names[k]`, symbol 0 any other name.
    """

    names: list[Step]
    states: list[_State] = field(default_factory=list)
    delta: list[list[int]] = field(default_factory=list)


@functools.lru_cache(maxsize=64)
def automaton(request: ScanRequest) -> Automaton:
    """The automaton of a request, with only the states that can be reached."""
    steps = [request.path, *(column.steps for column in request.columns)]
    names = list(dict.fromkeys(name for path in steps for step in path if (name := expanded(step)) is not None))
    made = Automaton(names, [_State(), _State(frozenset({(-1, 0)}))])
    numbers = {state: number for number, state in enumerate(made.states)}
    for state in made.states:  # grows while it is walked
        made.delta.append([])
        for symbol in (None, *names):
            below = _below(state, symbol, request)
            if below not in numbers:
                numbers[below] = len(made.states)
                made.states.append(below)
            made.delta[-1].append(numbers[below])
    return made


def _below(state: _State, name: Step | None, request: ScanRequest) -> _State:
    """The state of a child of this name (None: a name that the request does not mention)."""
    places = set(_moved(state.places, name, request))
    matched = (-1, len(request.path)) in places
    places.discard((-1, len(request.path)))
    flags = MATCH if matched else 0
    if matched:
        places |= {(number, 0) for number in range(len(request.columns))}
    opens, attributes = [], []
    for number, made in sorted(places):
        if number >= 0 and made == len((column := request.columns[number]).steps):
            places.discard((number, made))
            if column.attribute is None:
                opens.append(number)
            elif (wanted := expanded(column.attribute)) is not None:
                attributes.append((wanted, number))
    flags |= OPENING if opens or attributes else 0
    return _State(frozenset(places), flags, tuple(opens), tuple(attributes))


def _moved(places: frozenset[_Place], name: Step | None, request: ScanRequest) -> Iterator[_Place]:
    for number, made in places:
        steps = request.path if number < 0 else request.columns[number].steps
        wanted = expanded(steps[made])
        if wanted is None or wanted == name:
            yield number, made + 1


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
"""Which room an answer of the scanner asks for."""
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
        """Make ready for another document: rooms and names stay, all else is forgotten."""
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
        """Allocate all tables, with what the old ones held; slots are filled from the names."""
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
        """Give twice the room that the scanner asks for by this answer."""
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
        """Let column k hold `capacities[k]` bytes, keeping what it has."""
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
