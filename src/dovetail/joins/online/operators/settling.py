"""All that is owed, from disk: a join of all blocks that keeps of each input only rows that can still match.

Blocks of the first input are held in turn, as many as fit. Of the next input only rows that match what is held are
kept, from as many blocks as fit, and so on: the number of turns follows from rows that match and not, as with nested
loops over blocks, from the product of the numbers of blocks.
Reference: docs/algorithms/online.md, 4.3, step 6, and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.spill import SpillFile
from dovetail.joins.online.blocks import ATS, Blocks, Part, Rule, key_columns, split_off, united
from dovetail.joins.online.kernels.combine import Done, Stretches, combine, pairs_in_range
from dovetail.joins.online.kernels.ranges import BACK, FORTH, WHOLE, key_ranges
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.row_pages import SHIFT, Picks

DTS, BLOCK = "__dovetail_dts", "__dovetail_block"
NONE: I64 = int64s(np.empty(0, np.int64))
_MANY = 4


class Step(NamedTuple):
    """An input at some depth of the join: the depth of its neighbour there, both attributes, the range around a key of
    the neighbour's and the measure that it is in; the same of a band besides, with -1 for the keys if there is none."""

    relation: int
    parent: int
    parent_attribute: int
    attribute: int
    down: int
    up: int
    measure: int = WHOLE
    parent_near: int = -1
    near: int = -1
    near_down: int = 0
    near_up: int = 0
    near_measure: int = WHOLE

    @property
    def down_edge(self) -> Sought:
        """What rows of the neighbour look for in this input."""
        return Sought(self.parent_attribute, self.parent_near, self.attribute, self.near, self[4:7], self[9:12])

    @property
    def up_edge(self) -> Sought:
        """What rows of this input look for in the neighbour."""
        ranges = (_reversed(*self[4:7]), _reversed(*self[9:12]))
        return Sought(self.attribute, self.near, self.parent_attribute, self.parent_near, *ranges)


class Sought(NamedTuple):
    """The keys that rows look with and that they look for, each with the key of a band besides, and the ranges of what
    they look for."""

    mine: int
    my_near: int
    theirs: int
    their_near: int
    around: tuple[int, int, int]
    near_around: tuple[int, int, int]

    def ordered(self, others: Part) -> tuple[I64, I64]:
        """What is looked for, sorted by key and then by that of the band, which without one is the key again."""
        key = others.keys[self.theirs]
        if self.their_near < 0:
            key = np.sort(key)
            return key, key
        order = np.lexsort((others.keys[self.their_near], key))
        return key[order], others.keys[self.their_near][order]

    def matching(self, rows: Part, ordered: tuple[I64, I64]) -> Bool:
        """For each row whether one of the others, which are `ordered`, matches it."""
        low, high = near_low, near_high = key_ranges(rows.keys[self.mine], *self.around)
        if self.my_near >= 0:
            near_low, near_high = key_ranges(rows.keys[self.my_near], *self.near_around)
        found = np.empty(rows.n_rows, np.bool_)
        keys, nears = map(int64s, ordered)
        pairs_in_range(keys, nears, int64s(low), int64s(high), int64s(near_low), int64s(near_high), found)
        return found


def _reversed(down: int, up: int, measure: int) -> tuple[int, int, int]:
    """The range around a key of the other end."""
    return (-up, -down, WHOLE) if measure == WHOLE else (down, up, FORTH + BACK - measure)


def path_of(keys: JoinKeys, order: Sequence[int]) -> list[Step]:
    """The inputs in this order, each of which but the first has a neighbour before it."""
    steps = [Step(order[0], 0, 0, 0, 0, 0)]
    for at in range(1, len(order)):
        for edge, ends in enumerate(keys.ends.tolist()):
            for end in (0, 1):
                if ends[1 - end] == order[at] and ends[end] in order[:at]:
                    attributes, near = keys.attributes[edge].tolist(), keys.near[edge].tolist()
                    reach, beside = keys.around[edge, end].tolist(), keys.near_around[edge, end].tolist()
                    step = Step(order[at], list(order).index(ends[end]), attributes[end], attributes[1 - end], *reach)
                    near_by = {"parent_near": near[end], "near": near[1 - end]}
                    near_by |= dict(zip(("near_down", "near_up", "near_measure"), beside, strict=True))
                    steps.append(step._replace(**near_by))
    return steps


def neighbours(keys: JoinKeys, relation: int) -> list[int]:
    """The inputs that share an edge with one."""
    return [ends[1 - end] for ends in keys.ends.tolist() for end in (0, 1) if ends[end] == relation]


def reduced(parts: Sequence[Part], steps: Sequence[Step]) -> list[Part]:
    """The parts of a path without rows that the last part rules out, up to the first one; empty where nothing is left.

    Parts before the last are already reduced by each other in this way.
    """
    out, at = list(parts), len(parts) - 1
    near = steps[at].up_edge
    out[at] = out[at].only(near.matching(out[at], near.ordered(out[steps[at].parent])))
    while at > 0:
        near, parent = steps[at].down_edge, steps[at].parent
        out[parent] = out[parent].only(near.matching(out[parent], near.ordered(out[at])))
        at = parent
    return out


def stretches_of(parts: Sequence[Part], steps: Sequence[Step]) -> Stretches:
    """All rows in the form that kernels take."""
    start = np.concatenate([[0], np.cumsum([part.n_rows for part in parts])]).astype(np.int64)
    most = max(len(part.keys) for part in parts)
    key = np.zeros((most, start[-1]), np.int64)
    facing, at = np.empty(start[-1], np.int64), np.empty(start[-1], np.int64)
    beside = facing if all(step.near < 0 for step in steps) else np.empty(start[-1], np.int64)
    for depth, (part, step) in enumerate(zip(parts, steps, strict=True)):
        first, last = start[depth], start[depth + 1]
        key[: len(part.keys), first:last] = part.keys
        mine, near = part.keys[step.attribute], part.keys[step.attribute if step.near < 0 else step.near]
        order = np.argsort(mine, kind="stable") if step.near < 0 else np.lexsort((near, mine))
        facing[first:last], beside[first:last], at[first:last] = mine[order], near[order], order + first
    ats, dts, block = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    plan = np.array([[*s[:3], *s[4:8], *s[9:]] for s in steps], np.int64)
    return Stretches(*map(int64s, (start, key, ats, dts, block, facing, beside, at, plan)))


def nothing_done(relations: int) -> Done:
    """No combination of blocks was joined before."""
    zeros = int64s(np.zeros(relations, np.int64))
    return Done(zeros, int64s(np.zeros(3, np.int64)), NONE, NONE)


class Stored(Protocol):
    """Rows on disk in numbered pieces."""

    beside: int

    def bytes_of(self, number: int) -> int:
        """Memory that loading one piece takes."""
        ...

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """One piece; the caller has reserved its `bytes_of`."""
        ...


class Source(NamedTuple):
    """Some pieces of one input."""

    store: Stored
    numbers: Sequence[int]


class LongBlocks:
    """Small blocks of one input written together as long ones, for work that reads them again and again.

    Each row keeps its ticks and the number of its block.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.schema, self.keys, self.beside = blocks.schema, blocks.keys, blocks.beside
        names = [*key_columns(self.keys), ATS, DTS, BLOCK]
        extra = [pa.field(name, pa.int64()) for name in names]
        self.file = SpillFile(pa.schema([*self.schema, *extra]), blocks.file.directory, f"{blocks.file.name}-runs")
        self._rows: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, part: Part) -> None:
        """One more run."""
        numbers = [*part.keys, part.ats, part.dts, part.block]
        columns = [
            *part.rows.take(Picks.of(part.refs)).columns,
            *(pa.array(np.ascontiguousarray(each)) for each in numbers),
        ]
        self.file.append(pa.RecordBatch.from_arrays(columns, schema=self.file.schema))
        self._rows.append(part.n_rows)

    def bytes_of(self, number: int) -> int:
        """Memory that loading one run takes."""
        return self.file.size_of(number) + self.beside * self._rows[number]

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """One run, with the ticks that its rows were given when it was written."""
        batch = self.file.read(number)
        rows = split_off(batch, self.schema, self.keys)
        dts, block = (batch.column(name).to_numpy() for name in (DTS, BLOCK))
        refs = (number << SHIFT) + np.arange(batch.num_rows)
        return Part(rows.keys, rows.ats, dts, block, refs, {number: rows.batch}, self.schema)

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


class Combinations:
    """The new combinations of rows that are loaded, or of any blocks of all inputs.

    `rule` says which rows met before they left.
    """

    def __init__(self, join: OnlineOperator, rule: Rule = "ticks") -> None:
        self.join, self.blocks, self.keys, self._rule = join, join.blocks, join.keys, rule

    def of(self, parts: Sequence[Part], steps: Sequence[Step], done: Done) -> Iterator[pa.RecordBatch]:
        """New combinations of loaded rows."""
        n = len(parts)
        stretches, starts = stretches_of(parts, steps), np.cumsum([0, *(part.n_rows for part in parts)])
        cursor, rows = np.full(n + 2, -1, np.int64), np.zeros(n, np.int64)
        cursor[n:] = 0
        out = np.empty((max(8, self.join.fitted.combinations // 2), n), np.int64)  # and as many names of rows
        by_relation = [parts[depth].rows for depth in np.argsort([step.relation for step in steps])]
        while cursor[n] >= 0:
            found = combine(stretches, done, cursor, rows, out)
            refs = [NONE] * n
            for depth, (part, step) in enumerate(zip(parts, steps, strict=True)):
                refs[step.relation] = part.refs[out[:found, depth] - starts[depth]]
            yield from self.join.answers.batches(by_relation, refs, self.join.phase)
        self.join.compared(int(cursor[n + 1]))

    def settle(self, numbers: Sequence[Sequence[int]], done: Done) -> Iterator[pa.RecordBatch]:
        """Every combination of these blocks, given by input, that was not produced before."""
        if not all(len(some) for some in numbers):
            return
        steps = path_of(self.keys, self._short_path([len(some) for some in numbers]))
        share = self.join.block_room // (len(steps) + 2)
        with ExitStack() as files:
            sources = [Source(store, some) for store, some in zip(self.blocks, numbers, strict=True)]
            for step in steps[1:]:
                sources[step.relation] = self._in_runs(step.relation, numbers[step.relation], share // 2, files)
            yield from self._deeper([], steps, sources, done, share)

    def _in_runs(self, r: int, numbers: Sequence[int], size: int, files: ExitStack) -> Source:
        """The blocks themselves, or where they are many and small, runs of about this size."""
        store = self.blocks[r]
        if len(numbers) < _MANY or size < 2 * store.largest:
            return Source(store, numbers)
        runs = LongBlocks(store)
        files.callback(runs.close)
        for part in self._survivors([], [Step(r, 0, 0, 0, 0, 0)], Source(store, numbers), size):
            copies = 2 * part.nbytes
            self.join.reserve_blocks(copies)
            runs.append(part)
            self.join.let_blocks_go(copies)
        self.join.metrics.add("runs_written", len(runs), self.join.names[r], unit="runs")
        return Source(runs, range(len(runs)))

    def _short_path(self, blocks: Sequence[int]) -> list[int]:
        """Inputs with few blocks first, each next to one before it: what comes late is read again and again."""
        order = [int(np.argmin(blocks))]
        while len(order) < len(blocks):
            near = {q for r in order for q in neighbours(self.keys, r)} - set(order)
            order.append(min(near, key=lambda r: (blocks[r], r)))
        return order

    def _deeper(
        self, parts: list[Part], steps: list[Step], sources: Sequence[Source], done: Done, share: int
    ) -> Iterator[pa.RecordBatch]:
        """All combinations of the parts held with blocks of the inputs that follow."""
        depth = len(parts)
        if depth == len(steps):
            yield from self.of(parts, steps, done)
            return
        for part in self._survivors(parts, steps[: depth + 1], sources[steps[depth].relation], share):
            kept = reduced([*parts, part], steps[: depth + 1]) if depth else [part]
            if all(each.n_rows for each in kept):
                yield from self._deeper(kept, steps, sources, done, share)

    def _survivors(self, parts: list[Part], steps: Sequence[Step], source: Source, share: int) -> Iterator[Part]:
        """Rows of one input that match their neighbour, as many at a time as the share has room for."""
        step, store = steps[-1], source.store
        edge = step.up_edge
        near = edge.ordered(parts[step.parent]) if parts else None
        held: list[Part] = []
        size = 0
        for number in source.numbers:
            if held and size + store.bytes_of(number) > share:
                yield united(held)
                self.join.let_blocks_go(size)
                held, size = [], 0
            reading = store.bytes_of(number)
            self.join.reserve_blocks(reading)
            part, kept = store.load(number, self._rule), reading
            if near is not None:
                wanted = edge.matching(part, near)
                part = part.only(wanted).compact(number) if wanted.any() else part.only(wanted)
                kept = min(reading, part.nbytes + store.beside * part.n_rows) if part.n_rows else 0
            self.join.let_blocks_go(reading - kept)
            size += kept
            held += [part] if part.n_rows else []
        if held:
            yield united(held)
        self.join.let_blocks_go(size)
