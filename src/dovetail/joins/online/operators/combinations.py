"""Finds new combinations of rows on disk, of any number of inputs: blocks are loaded within the budget, and loaded
rows are joined along the join tree, one input after the other.

Blocks of the first input are held in turn, as many as fit, then those of the next that can match them, and so on. If
another input follows, rows without a match so far are dropped at once. So the number of rounds depends on matching
rows, not on the product of the numbers of blocks.
Reference: docs/algorithms/online.md, 4.3, step 6, and 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.spill import SpillFile
from dovetail.joins.online.blocks import ATS, Blocks, Face, Part, Rule, Sought, key_columns, split_off, united
from dovetail.joins.online.kernels.match import NEVER, Visits, match, matched
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.row_pages import SHIFT, Picks

DTS, BLOCK = "__dovetail_dts", "__dovetail_block"
NONE: I64 = int64s(np.empty(0, np.int64))
NOWHERE = Visits(NONE, NONE)
_MANY = 4
_FOUND_BYTES = 8 * 9  # of a combination to extend: its ticks, and its rows prepared for the next input


class Step(NamedTuple):
    """An input at some depth of the join: the depth of its neighbour, and how both are matched."""

    relation: int
    parent: int = 0
    down: Sought = Sought(0, -1, (0, 0, 0), (0, 0, 0))
    up: Sought = Sought(0, -1, (0, 0, 0), (0, 0, 0))


def path_of(keys: JoinKeys, order: Sequence[int]) -> list[Step]:
    """The inputs in this order, as steps; each input except the first has a neighbour before it."""
    steps = [Step(order[0])]
    for at in range(1, len(order)):
        for edge, ends in enumerate(keys.ends.tolist()):
            for end in (0, 1):
                if ends[1 - end] == order[at] and ends[end] in order[:at]:
                    down, up = _sought(keys, edge, end), _sought(keys, edge, 1 - end)
                    steps.append(Step(order[at], list(order).index(ends[end]), down, up))
    return steps


def _sought(keys: JoinKeys, edge: int, end: int) -> Sought:
    ranges = (tuple(around[edge, end].tolist()) for around in (keys.around, keys.near_around))
    return Sought(int(keys.attributes[edge, end]), int(keys.near[edge, end]), *ranges)


def neighbours(keys: JoinKeys, relation: int) -> list[int]:
    """The inputs that share an edge with one."""
    return [ends[1 - end] for ends in keys.ends.tolist() for end in (0, 1) if ends[end] == relation]


def reduced(parts: Sequence[Part], steps: Sequence[Step]) -> list[Part]:
    """The parts of a path without rows that the last part rules out, up to the first one; empty if no rows are left.

    Parts before the last are already reduced by each other in this way.
    """
    out, at = list(parts), len(parts) - 1
    out[at] = matching(out[at], steps[at].up, out[steps[at].parent], steps[at].down)
    while at > 0:
        step = steps[at]
        out[step.parent] = matching(out[step.parent], step.down, out[at], step.up)
        at = step.parent
    return out


def matching(part: Part, sought: Sought, others: Part, theirs: Sought) -> Part:
    """The rows of a part that match some of the others."""
    mine, wanted = part.facing(sought), np.empty(part.n_rows, np.bool_)
    found = np.empty(part.n_rows, np.bool_)
    matched(others.facing(theirs).stretch, mine.stretch, sought.coded, found)
    wanted[mine.rows] = found
    return part.only(wanted)


class Done(NamedTuple):
    """The combinations that nested loops produced from disk: by relation the blocks of the finished box; the current
    batch as (is there one, outer relation, its blocks); the relation and block of each digit."""

    box: Sequence[int]
    flight: tuple[bool, int, int]
    digits: Sequence[int]
    current: Sequence[int]

    def has(self, blocks: Sequence[I64]) -> Bool:
        """R2: which combinations of blocks, given by relation, were produced."""
        stored = np.logical_and.reduce([block >= 0 for block in blocks])
        in_box: Bool = stored & np.logical_and.reduce([b < n for b, n in zip(blocks, self.box, strict=True)])
        under_way, outer, n = self.flight
        if not under_way:
            return in_box
        first = self.box[outer]
        met = stored & (blocks[outer] >= first) & (blocks[outer] < first + n)
        earlier, same = np.zeros(len(met), np.bool_), np.ones(len(met), np.bool_)
        for r, current in zip(self.digits, self.current, strict=True):
            met &= blocks[r] < self.box[r]
            earlier |= same & (blocks[r] < current)
            same &= blocks[r] == current
        found: Bool = in_box | (met & earlier)
        return found


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


class Found(NamedTuple):
    """Combinations of rows of the first inputs of a path: row numbers by depth, and ticks as `Stretch` has them."""

    rows: tuple[I64, ...]
    ats: I64
    dts: I64


def _met(ats: I64, dts: I64, other_ats: I64, other_dts: I64) -> tuple[I64, I64]:
    """Latest arrival and earliest departure if rows were in memory together, else ticks of an empty interval."""
    latest, earliest = np.maximum(ats, other_ats), np.minimum(dts, other_dts)
    met = latest < earliest
    return np.where(met, latest, NEVER), np.where(met, earliest, 0)


class Matching(NamedTuple):
    """Loaded rows that are joined step by step, with a bounded number of combinations per depth at a time.

    `visits` are those of the disk parts of two inputs. `compared` is called with the number of compared rows.
    """

    parts: Sequence[Part]
    steps: Sequence[Step]
    visits: Sequence[Visits]
    most: int
    compared: Callable[[int], None]

    def rows(self, before: Found | None = None) -> Iterator[tuple[I64, ...]]:
        """Row numbers by depth of complete new combinations; `before` has partial ones to extend."""
        depth = 1 if before is None else len(before.rows)
        step, part, complete = self.steps[depth], self.parts[depth], depth == len(self.steps) - 1
        parent, first = self.parts[step.parent], self.parts[0] if before is None else before
        if before is None:
            mine = parent.facing(step.down)
        else:
            mine = step.down.face(parent.keys[:, before.rows[step.parent]], before.ats, before.dts)
        for a, b in self._pairs(mine, part.facing(step.up), step, complete):
            rows = (a, b) if before is None else (*(some[a] for some in before.rows), b)
            if complete:
                yield rows
            else:
                yield from self.rows(Found(rows, *_met(first.ats[a], first.dts[a], part.ats[b], part.dts[b])))

    def _pairs(self, mine: Face, theirs: Face, step: Step, complete: bool) -> Iterator[tuple[I64, I64]]:
        """Numbers of matching rows; rows of the smaller side are looked up in the larger."""
        flipped = len(mine.rows) <= len(theirs.rows)
        larger, smaller = (theirs, mine) if flipped else (mine, theirs)
        relations = (step.relation, self.steps[0].relation) if flipped else (self.steps[0].relation, step.relation)
        one, other = (self.visits[r] if self.visits else NOWHERE for r in relations)
        cursor = np.array([0, 0, -1, 0], np.int64)
        of_larger, of_smaller = np.empty(self.most, np.int64), np.empty(self.most, np.int64)
        while cursor[0] < len(smaller.rows):
            stretches = (larger.stretch, smaller.stretch)
            n = match(*stretches, step.down.coded, complete, one, other, cursor, of_larger, of_smaller)
            found = larger.rows[of_larger[:n]], smaller.rows[of_smaller[:n]]
            yield found[::-1] if flipped else found
        self.compared(int(cursor[3]))


class Combinations:
    """The new combinations of rows that are loaded, or of any blocks of all inputs."""

    def __init__(self, join: OnlineOperator) -> None:
        self.join, self.blocks, self.keys = join, join.blocks, join.keys
        n, combinations = len(join.names), join.fitted.combinations
        each = _FOUND_BYTES * (n - 2) + 8 * sum(range(3, n)) + 16 * n  # of all depths together, and names of rows
        self._most = max(8, 8 * n * combinations // each)
        self._paths: dict[tuple[int, ...], list[Step]] = {}

    def path(self, order: Sequence[int]) -> list[Step]:
        """The inputs in this order, as steps along the join tree."""
        if tuple(order) not in self._paths:
            self._paths[tuple(order)] = path_of(self.keys, order)
        return self._paths[tuple(order)]

    # ------------------------------------------------------------------ loaded rows

    def of(
        self,
        parts: Sequence[Part],
        steps: Sequence[Step],
        done: Done | None = None,
        visits: Sequence[Visits] = (),
        phase: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """New combinations of loaded rows, a part for each step; `visits` are those of the disk parts of two inputs."""
        depths = np.argsort([step.relation for step in steps]).tolist()
        rows = [parts[depth].rows for depth in depths]
        for found in Matching(parts, steps, visits, self._most, self.join.compared).rows():
            by_relation = [found[depth] for depth in depths]
            if done is not None:
                blocks = [parts[depth].block[some] for depth, some in zip(depths, by_relation, strict=True)]
                new = np.flatnonzero(~done.has(blocks))
                by_relation = [some[new] for some in by_relation]
            refs = [parts[depth].refs[some] for depth, some in zip(depths, by_relation, strict=True)]
            yield from self.join.answers.batches(rows, refs, phase or self.join.phase)

    # ------------------------------------------------------------------ blocks

    def load(self, r: int, numbers: Sequence[int], rule: Rule = "ticks") -> Part:
        """Blocks of one input; the caller has reserved their `bytes_of`."""
        return united([self.blocks[r].load(number, rule) for number in numbers])

    def can_match(self, step: Step, parent: Part, number: int) -> bool:
        """Whether the directory lets a block of the step's input match rows of its neighbour."""
        store = self.blocks[step.relation]
        by = self.join.index.sorted_by(step.relation, store.directory[number].bucket) % store.keys
        return by != step.up.last or store.meets(number, parent.facing(step.down).reach)

    def buckets(self) -> list[int]:
        """Buckets with blocks of all inputs."""
        held = [set(store.column("bucket")[store.living()].tolist()) for store in self.blocks]
        return sorted(set.intersection(*held))

    def of_bucket(self, bucket: int, rule: Rule, visits: Sequence[Visits] = ()) -> Iterator[pa.RecordBatch]:
        """New combinations of all blocks of a bucket."""
        return self.settle([store.of_bucket(bucket).tolist() for store in self.blocks], rule, visits=visits)

    def settle(
        self, numbers: Sequence[Sequence[int]], rule: Rule = "ticks", done: Done | None = None,
        visits: Sequence[Visits] = (),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Every combination of these blocks, given by input, that was not produced before.

        `rule` says which rows were joined before they left.
        """
        if not all(len(some) for some in numbers):
            return
        sizes = [sum(map(store.bytes_of, some)) for store, some in zip(self.blocks, numbers, strict=True)]
        steps = self.path(self._short_path(sizes))
        shares = self._shares(steps)
        with ExitStack() as files:
            sources = [Source(store, some) for store, some in zip(self.blocks, numbers, strict=True)]
            for before, step in pairwise(steps):
                if sizes[before.relation] > 2 * shares[0]:  # else it is read once or twice
                    sources[step.relation] = self._in_runs(
                        sources[step.relation], step.relation, shares[-1], rule, files
                    )
            for parts in self._held([], steps, sources, shares, rule):
                yield from self.of(parts, steps, done, visits)

    def _shares(self, steps: Sequence[Step]) -> list[int]:
        """Bytes that parts of each depth may have: most are for the first ones, against which the last is read.

        While rows are in memory, which would have to be spilled, they are some blocks.
        """
        room, last = self.join.block_room, self.blocks[steps[-1].relation].largest
        if self.join.rows.held.any():
            room = min(room, self.join.spec.sizes.outer_blocks * max(store.largest for store in self.blocks) * 4 // 3)
        first = (room - 2 * last) * 3 // (4 * (len(steps) - 1))
        return [first] * (len(steps) - 1) + [room // 8]

    def _short_path(self, sizes: Sequence[int]) -> list[int]:
        """Small inputs first, each adjacent to one before it: late inputs are read repeatedly."""
        order = [int(np.argmin(sizes))]
        while len(order) < len(sizes):
            near = {q for r in order for q in neighbours(self.keys, r)} - set(order)
            order.append(min(near, key=lambda r: (sizes[r], r)))
        return order

    def _in_runs(self, source: Source, r: int, size: int, rule: Rule, files: ExitStack) -> Source:
        """The blocks themselves, or runs of about this size if blocks are many and small."""
        store = self.blocks[r]
        if len(source.numbers) < _MANY or size < 2 * store.largest:
            return source
        runs = LongBlocks(store)
        files.callback(self._close, runs, self.join.names[r])
        for part in self._survivors([], [Step(r)], source, size, rule, False):
            copies = 2 * part.nbytes
            self.join.reserve_blocks(copies)
            runs.append(part)
            self.join.let_blocks_go(copies)
        return Source(runs, range(len(runs)))

    def _close(self, runs: LongBlocks, name: str) -> None:
        self.join.metrics.add("runs_written", len(runs), name, unit="runs")
        self.join.metrics.add("run_bytes_read", runs.file.bytes_read, name, unit="bytes")
        runs.close()

    def _held(
        self, parts: list[Part], steps: list[Step], sources: Sequence[Source], shares: Sequence[int], rule: Rule
    ) -> Iterator[list[Part]]:
        """Parts of all inputs that are loaded together, by depth; `parts` are those of the first inputs."""
        depth = len(parts)
        if depth == len(steps):
            yield parts
            return
        reduces = len(steps) > 2  # a join along one edge is done as soon as its rows are compared
        source = sources[steps[depth].relation]
        for part in self._survivors(parts, steps[: depth + 1], source, shares[depth], rule, reduces):
            kept = reduced([*parts, part], steps[: depth + 1]) if depth and reduces else [*parts, part]
            if all(each.n_rows for each in kept):
                yield from self._held(kept, steps, sources, shares, rule)

    def _survivors(
        self, parts: list[Part], steps: Sequence[Step], source: Source, share: int, rule: Rule, reduces: bool
    ) -> Iterator[Part]:
        """Rows of one input that can match their neighbour, as many at a time as the share has room for."""
        step, store = steps[-1], source.store
        held: list[Part] = []
        size = 0
        for number in source.numbers:
            if parts and store is self.blocks[step.relation] and self._is_done(parts, steps, number, rule):
                continue
            if held and size + store.bytes_of(number) > share:
                yield united(held)
                self.join.let_blocks_go(size)
                held, size = [], 0
            reading = store.bytes_of(number)
            self.join.reserve_blocks(reading)
            part, kept = store.load(number, rule), reading
            if parts and reduces:
                part = matching(part, step.up, parts[step.parent], step.down)
                part = part.compact(number) if part.n_rows else part
                kept = min(reading, part.nbytes + store.beside * part.n_rows) if part.n_rows else 0
            self.join.let_blocks_go(reading - kept)
            size += kept
            held += [part] if part.n_rows else []
        if held:
            yield united(held)
        self.join.let_blocks_go(size)

    def _is_done(self, parts: list[Part], steps: Sequence[Step], number: int, rule: Rule) -> bool:
        """Whether a block need not be read: it matches no loaded row, or was joined with all of them before a drain."""
        if not self.can_match(steps[-1], parts[steps[-1].parent], number):
            return True
        if rule != "ticks" or len(steps) < len(self.blocks) or number >= self.blocks[steps[-1].relation].drained_blocks:
            return False
        held = zip(parts, steps, strict=False)
        return all(part.block.max() < self.blocks[step.relation].drained_blocks for part, step in held)
