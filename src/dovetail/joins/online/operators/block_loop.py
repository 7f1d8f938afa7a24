"""Joins blocks of all inputs in nested loops that stop after each block and change roles: the disk phases of DINER,
MINER and oldest-first.

`Odometer` is the position of the loops: a box of block combinations that are done, and the current batch. Blocks 0 to
joined[r] - 1 of all inputs have been joined with each other. A batch joins the next blocks of the outer input with all
of these of the others, counted like the digits of an odometer. Sizes are given each time, as blocks may be added at any
moment.
Reference: Bornea 2010, algorithm 4 and 4.2; docs/algorithms/online.md, 3.5, 3.6 and 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.operator import Until
from dovetail.engine.rows.named_rows import SHIFT
from dovetail.joins.online.blocks import Part, Rule
from dovetail.joins.online.kernels.match import NEVER
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.combinations import Combinations, Done, Rules, Source, Step, neighbours, reduced
from dovetail.joins.online.operators.ended import Produced, Reloaded, room_to_reload
from dovetail.joins.online.operators.parts import Disk

Arrange = Callable[[int], list[int]]
"""Orders the other inputs for an outer one, each after its neighbour on the path to it; the last changes fastest."""


@dataclass(slots=True)
class Odometer:
    """Positions of the reactive phase."""

    joined: list[int]
    started: bool = False
    in_flight: bool = False
    outer: int = 0
    outer_blocks: int = 0
    digits: list[int] = field(default_factory=list)
    current: list[int] = field(default_factory=list)

    def ready(self, sizes: Sequence[int], blocks: Callable[[int], int], arrange: Arrange) -> bool:
        """Start a batch if there is none; whether there is one. `blocks` gives the outer blocks that fit in memory."""
        if not self.started:
            self.started = True
            self.outer = min(range(len(sizes)), key=lambda r: sizes[r])
            self.joined = [0 if r == self.outer else size for r, size in enumerate(sizes)]
        while not self.in_flight:
            # Checked before a batch: otherwise the loop would never end when the outer side has no new block.
            if self.joined[self.outer] == sizes[self.outer]:
                behind = [r for r, size in enumerate(sizes) if self.joined[r] < size]
                if not behind:
                    return False
                self.outer = behind[0]
            self._begin(min(sizes[self.outer] - self.joined[self.outer], blocks(self.outer)), arrange)
        return True

    def _begin(self, blocks: int, arrange: Arrange) -> None:
        self.outer_blocks, self.digits = blocks, arrange(self.outer)
        self.current, self.in_flight = [0] * len(self.digits), True
        if any(self.joined[r] == 0 for r in self.digits):
            self._complete()

    def _complete(self) -> None:
        self.joined[self.outer] += self.outer_blocks
        self.in_flight = False

    @property
    def batch(self) -> range:
        """The outer blocks of the current batch."""
        first = self.joined[self.outer]
        return range(first, first + self.outer_blocks)

    def advance(self, digit: int) -> int:
        """Advance one digit, and reset those after it; returns the first changed digit, -1 at the end of the batch."""
        self.current[digit + 1 :] = [0] * (len(self.digits) - digit - 1)
        self.current[digit] += 1
        while self.current[digit] >= self.joined[self.digits[digit]]:
            self.current[digit] = 0
            digit -= 1
            if digit < 0:
                self._complete()
                return -1
            self.current[digit] += 1
        return digit


def _never() -> bool:
    return False


class BlockLoop(Disk):
    """Nested loops over the blocks of all inputs; a combination is new if its rows were never in memory together.

    The unit of work is one inner block against the loaded blocks of the inputs before it, after which `until` is
    called. If there is no room for blocks, rows are flushed, and the new blocks are joined later. Owed results are
    found by a join of all blocks if `settles`, else by the rest of the loops; with `reacts` there is work in pauses.
    When one input is left, memory is filled with rows of the others.
    """

    def __init__(self, join: OnlineOperator, reacts: bool = True, settles: bool = True) -> None:
        super().__init__(join)
        self.combinations, self._reacts, self._settles = Combinations(join), reacts, settles
        self.odometer = Odometer([0] * len(join.names))
        self._reloaded: Reloaded | None = None

    # ------------------------------------------------------------------ one input is left

    def reload(self, arriving: int) -> bool:
        """Whether rows of ended inputs fill memory; they do once rows are on disk, if blocks of each fit."""
        join = self.join
        if self._reloaded is None and join.is_spilled:
            each = max(store.largest for store in self.blocks) * (len(join.names) - 1)
            if room_to_reload(join) > 2 * each:
                join.empty_memory()
                self._reloaded = Reloaded(join, arriving, self.combinations)
        return self._reloaded is not None

    def receive_last(self, chunk: pa.RecordBatch, keys: I64) -> Iterator[pa.RecordBatch]:
        """Answers of rows of the last input with reloaded rows."""
        assert self._reloaded is not None  # noqa: S101  (for the type checker: `reload` said so)
        return self._reloaded.receive(chunk, keys)

    def release(self) -> None:
        """Free the memory of reloaded rows; what they have met stays known until all rows have met."""
        if self._reloaded is not None:
            self._reloaded.close()

    # ------------------------------------------------------------------ nested loops

    def react(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nested loops over blocks, from where they stopped."""
        while self._reacts and self.odometer.ready(self.sizes(), self._outer_blocks, self._inner_inputs):
            if (yield from self._batch(until)):
                return

    def sizes(self) -> list[int]:
        """Blocks of each input."""
        return [len(store) for store in self.blocks]

    def _outer_blocks(self, r: int) -> int:
        """As printed, but at most half of the room that two blocks of each other input leave."""
        join, store, first = self.join, self.blocks[r], self.odometer.joined[r]
        most = len(store) - first if join.finished else min(len(store) - first, join.spec.sizes.outer_blocks)
        others = sum(other.largest for other in self.blocks) - store.largest
        room, n = (join.buffer.room - 2 * others) * 3 // (4 if join.finished else 8), 0
        while n < most and (room := room - store.bytes_of(first + n)) > 0:
            n += 1
        return max(1, n)

    def _inner_inputs(self, outer: int) -> list[int]:
        """The branches of the join tree at the outer input, those with few blocks first, neighbours before the
        rest."""
        sequences = [self._sequence(outer, near) for near in neighbours(self.join.keys, outer)]
        sequences.sort(key=lambda some: (max(len(self.blocks[r]) for r in some), some[0]))
        return [r for some in sequences for r in some]

    def _sequence(self, before: int, first: int) -> list[int]:
        further = [self._sequence(first, near) for near in neighbours(self.join.keys, first) if near != before]
        return [first, *(r for some in further for r in some)]

    def _batch(self, until: Until) -> Generator[pa.RecordBatch, None, bool]:
        """Steps of the current batch, until it is complete or `until()`; returns the latter.

        `levels` are the parts that are loaded of the outer input alone, then with one more input each. A prefix of
        digits without partial combinations is skipped.
        """
        odometer, join = self.odometer, self.join
        steps = self.combinations.path([odometer.outer, *odometer.digits])
        held = [join.buffer.hold(odometer.outer, odometer.batch)]
        levels = [[self.combinations.load(odometer.outer, odometer.batch)]]
        stop = False
        while odometer.in_flight and not stop:
            parts, digit = levels[-1], len(levels) - 1
            goes_on = bool(parts) and digit < len(odometer.digits)
            if goes_on and self._can_match(parts, steps[digit + 1], odometer.current[digit]):
                held.append(join.buffer.hold(odometer.digits[digit], [odometer.current[digit]]))
                levels.append(self._extended(parts, steps, odometer.current[digit]))
                continue
            if parts and not goes_on:
                yield from self.combinations.of(parts, steps, self._reloaded.met if self._reloaded else None)
            changed = odometer.advance(digit if goes_on else digit - 1)
            while len(levels) > changed + 1 and len(levels) > 1:
                levels.pop()
                join.buffer.release(held.pop())
            stop = not goes_on and until()
        join.buffer.release(sum(held))
        return stop

    def _can_match(self, parts: list[Part], step: Step, number: int) -> bool:
        return self.combinations.can_match(step, parts[step.parent], number)

    def _extended(self, parts: list[Part], steps: list[Step], number: int) -> list[Part]:
        """These parts with a block of the next input, without rows that cannot match; empty if none can."""
        found = [*parts, self.combinations.load(steps[len(parts)].relation, [number])]
        if len(steps) > 2:
            found = reduced(found, steps[: len(found)])
        return found if all(part.n_rows for part in found) else []

    def settle_all(self) -> Iterator[pa.RecordBatch]:
        """Every combination of blocks that nested loops have not produced."""
        if not self._settles:
            return self.react(_never)
        return self.combinations.settle([store.living().tolist() for store in self.blocks], done=self.done())

    def settle(self) -> Iterator[pa.RecordBatch]:
        """All owed results: of new rows beside those in memory if they are few, else of all rows from disk."""
        if room := makes_room(self.join):
            return settle_new(self.combinations, self.done(), room)
        return super().settle()

    def note_met(self) -> None:
        """Rows that leave memory later are not new then."""
        for store in self.blocks:
            store.drained = self.join.clock

    def done(self) -> Done | Produced:
        """The combinations that nested loops and reloaded rows have produced so far."""
        o = self.odometer
        done = Done(o.joined, (o.in_flight, o.outer, o.outer_blocks), o.digits, o.current)
        return done if self._reloaded is None else Produced((done, self._reloaded.met))

    def renumber(self) -> None:
        """Mark all remaining blocks as joined; roles are unchanged."""
        self.odometer = Odometer(self.sizes(), started=True, outer=self.odometer.outer)
        self._reloaded = None


# ------------------------------------------------------------------ owed results beside rows in memory
#
# Rows up to the last drain have met each other. So each owed combination has a row that is newer: the new rows of each
# input are joined with all rows of the others, and those of earlier inputs are left out that are new themselves.
# Reference: docs/algorithms/online.md, 7.5.

_EARLY, _NEW = -2, -1
"""Pieces of rows in memory: those that had come before the last drain, and the others."""
_OFFSET = 1 << 30  # of page numbers, above those of blocks
_SHARE = 8  # of the budget that loaded blocks have while rows stay in memory
_ROUNDS = 4  # reads of the others that new rows may take; beyond, memory is emptied and holds more blocks


class WithMemory:
    """The blocks of one input, and its rows in memory as two more pieces; no row may move meanwhile."""

    def __init__(self, join: OnlineOperator, r: int) -> None:
        self.blocks, self.beside = join.blocks[r], join.blocks[r].beside
        self._join, self._r = join, r
        slots = join.pages[r].slots()
        early = join.rows.ats[slots] <= self.blocks.drained
        self._slots: dict[int, I32] = {_EARLY: slots[early], _NEW: slots[~early]}
        living, held = self.blocks.living(), [number for number, some in self._slots.items() if len(some)]
        met = self.blocks.column("newest")[living] <= self.blocks.drained
        self.early = [*living[met].tolist(), *(number for number in held if number == _EARLY)]
        self.new = [*living[~met].tolist(), *(number for number in held if number == _NEW)]

    def bytes_of(self, number: int) -> int:
        """Memory that loading one piece takes; the columns of rows in memory are there."""
        return self.blocks.bytes_of(number) if number >= 0 else self.beside * len(self._slots[number])

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """One piece; the caller has reserved its `bytes_of`."""
        if number >= 0:
            return self.blocks.load(number, rule)
        join, r, slots = self._join, self._r, self._slots[number]
        rows, pages, n = join.rows, join.pages[r], len(slots)
        refs: I64 = rows.ref[slots] + (_OFFSET << SHIFT)
        used = {page: pages.page(page - _OFFSET) for page in np.unique(refs >> SHIFT).tolist()}
        ats = np.zeros(n, np.int64) if number == _EARLY else rows.ats[slots]
        keys, dts, block = rows.keys[: join.keys.widths[r], slots], np.full(n, NEVER), np.full(n, -1)
        return Part(keys, ats, dts, block, refs, used, join.schemas[r])


def makes_room(join: OnlineOperator) -> int:
    """Bytes for blocks beside the rows in memory, some of which may leave for them; 0 if memory must be emptied."""
    stores = [WithMemory(join, r) for r in range(len(join.names))]
    new = sum(store.bytes_of(number) for store in stores for number in store.new)
    held = sum(store.beside * int(n) for store, n in zip(stores, join.rows.held, strict=True))
    largest = sum(store.largest for store in join.blocks)
    room = max(8 * largest, min(join.fitted.limit // _SHARE, 2 * new))
    needed = 2 * room + 4 * largest + held
    if not join.rows.held.any() or 4 * needed > 3 * join.buffer.room or new > _ROUNDS * room:
        return 0
    while join.budget.available < needed:
        if not join.squeeze_or_flush():
            return 0
    return room


def settle_new(combinations: Combinations, done: Rules, room: int) -> Iterator[pa.RecordBatch]:
    """Every owed combination; `room` is what `makes_room` found."""
    join = combinations.join
    stores = [WithMemory(join, r) for r in range(len(join.names))]
    for r, own in enumerate(stores):
        sources = [
            Source(store, own.new if q == r else store.early if q < r else [*store.early, *store.new])
            for q, store in enumerate(stores)
        ]
        if own.new:
            yield from combinations.join_sources(sources, "ticks", done, (), room)
