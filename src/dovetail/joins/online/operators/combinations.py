"""Finds new combinations of rows on disk, of any number of inputs: blocks are loaded within the budget, and loaded
rows are joined along the join tree, one input after the other.

Blocks of the first input are held in turn, as many as fit, then those of the next that can match them, and so on. If
another input follows, rows without a match so far are dropped at once. So the number of rounds depends on matching
rows, not on the product of the numbers of blocks. Two large inputs with equal keys are first split into ranges of the
key, so that the time grows with the rows, and not with the product of both inputs.
Reference: docs/algorithms/online.md, 3.6, 4.3, step 6, and 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.joins.online.blocks import Blocks, Face, LongBlocks, Part, Rule, Sought, united
from dovetail.joins.online.kernels.match import NEVER, Visits, match, matched
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.base import OnlineOperator

NONE: I64 = int64s(np.empty(0, np.int64))
NOWHERE = Visits(NONE, NONE)
_MANY = 4
_MOST_RANGES = 16
_PASSES = 3  # over both inputs that a split adds: they are read, written and read again
_SAMPLED_BLOCKS, _SAMPLED_ROWS = 32, 64
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


class Rules(Protocol):
    """The combinations that were produced from disk, or from blocks in memory."""

    def has(self, blocks: Sequence[I64]) -> Bool:
        """Which combinations of blocks, given by relation, were produced."""
        ...


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

    @property
    def nbytes(self) -> int:
        """Memory that loading all of them takes."""
        return sum(map(self.store.bytes_of, self.numbers))


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
        self._growth = 0

    def path(self, order: Sequence[int]) -> list[Step]:
        """The inputs in this order, as steps along the join tree."""
        if self._growth != self.keys.growth:
            self._paths, self._growth = {}, self.keys.growth
        if tuple(order) not in self._paths:
            self._paths[tuple(order)] = path_of(self.keys, order)
        return self._paths[tuple(order)]

    # ------------------------------------------------------------------ loaded rows

    def of(
        self,
        parts: Sequence[Part],
        steps: Sequence[Step],
        done: Rules | None = None,
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
        self, numbers: Sequence[Sequence[int]], rule: Rule = "ticks", done: Rules | None = None,
        visits: Sequence[Visits] = (),
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Every combination of these blocks, given by input, that was not produced before.

        `rule` says which rows were joined before they left.
        """
        sources = [Source(store, some) for store, some in zip(self.blocks, numbers, strict=True)]
        return self.join_sources(sources, rule, done, visits)

    def join_sources(
        self, sources: list[Source], rule: Rule, done: Rules | None, visits: Sequence[Visits], room: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `settle`, of any pieces of the inputs, which have `room` bytes if given."""
        if not all(len(source.numbers) for source in sources):
            return
        sizes = [source.nbytes for source in sources]
        steps = self.path(self._short_path(sizes))
        shares = self._shares(steps, room)
        with ExitStack() as files:
            if self._is_split(sources, sizes, steps, shares[0], rule):
                cuts = self._cuts(sources[steps[0].relation], steps[1].down.key, rule)
                if len(cuts):
                    for some in self._ranges(sources, steps, cuts, rule, files):
                        yield from self.join_sources(some, rule, done, visits, room)
                    return
            for before, step in pairwise(steps):
                if sizes[before.relation] > 2 * shares[0]:  # else it is read once or twice
                    sources[step.relation] = self._in_runs(
                        sources[step.relation], step.relation, shares[-1], rule, files
                    )
            for parts in self._held([], steps, sources, shares, rule):
                yield from self.of(parts, steps, done, visits)

    def _shares(self, steps: Sequence[Step], given: int | None) -> list[int]:
        """Bytes that parts of each depth may have: most are for the first ones, against which the last is read.

        While rows are in memory, which would have to be spilled, they are some blocks.
        """
        room, last = given or self.join.buffer.room, self.blocks[steps[-1].relation].largest
        if given is None and self.join.rows.held.any():
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
            self._append(runs, part, np.arange(part.n_rows), [0, part.n_rows])
        return Source(runs, range(len(runs)))

    def _append(self, runs: LongBlocks, part: Part, order: I64, edges: Sequence[int]) -> None:
        """Write a part as runs; for a moment its rows are in memory three times."""
        copies = 2 * part.nbytes
        self.join.buffer.reserve(copies)
        runs.append(part, order, edges)
        self.join.buffer.release(copies)

    # ------------------------------------------------------------------ ranges of keys

    def _is_split(
        self, sources: Sequence[Source], sizes: Sequence[int], steps: Sequence[Step], share: int, rule: Rule
    ) -> bool:
        """Whether to split two inputs with equal keys into ranges: it costs less than to read one input once for each
        part of the other. Blocks that were joined before a drain are not read for each other."""
        if len(steps) != 2 or not steps[1].down.is_equal or self.join.rows.held.any():
            return False
        first, last = steps[0].relation, steps[1].relation
        if sizes[first] <= 2 * share or any(
            _MANY * store.largest > self.join.buffer.room // 4 for store in self.blocks
        ):
            return False
        fresh = [self._fresh_bytes(source, store, rule) for source, store in zip(sources, self.blocks, strict=True)]
        met = (sizes[first] - fresh[first]) * fresh[last] + fresh[first] * sizes[last]
        return met > _PASSES * sum(sizes) * share

    def _fresh_bytes(self, source: Source, store: Blocks, rule: Rule) -> int:
        """Bytes of the pieces with rows that were not joined before a drain."""
        if source.store is not store or rule != "ticks":
            return source.nbytes
        newest = store.column("newest")
        return Source(store, [number for number in source.numbers if newest[number] > store.drained]).nbytes

    def _cuts(self, source: Source, key: int, rule: Rule) -> I64:
        """The first key of each range except the lowest, from a sample; none if all sampled keys are equal.

        A range of one input fits in memory, unless that would make pieces tiny.
        """
        most = max(1, min(_SAMPLED_ROWS, self.join.buffer.room // (256 * _SAMPLED_BLOCKS)))  # a 32nd of the room
        size = 8 * _SAMPLED_BLOCKS * most
        self.join.buffer.reserve(size)
        found = []
        for number in source.numbers[:: -(-len(source.numbers) // _SAMPLED_BLOCKS)]:
            reading = source.store.bytes_of(number)
            self.join.buffer.reserve(reading)
            keys = source.store.load(number, rule).keys[key]
            found.append(keys[:: max(1, -(-len(keys) // most))])
            self.join.buffer.release(reading)
        sample = np.sort(np.concatenate(found))
        wanted = 4 * source.nbytes // self.join.buffer.room + 1
        ranges = wanted if wanted <= _MOST_RANGES else min(_MOST_RANGES, math.isqrt(wanted) + 1)
        cuts = np.unique(sample[len(sample) * np.arange(1, ranges) // ranges])
        self.join.buffer.release(size)
        return int64s(cuts[cuts > sample[0]])

    def _ranges(
        self, sources: Sequence[Source], steps: Sequence[Step], cuts: I64, rule: Rule, files: ExitStack
    ) -> Iterator[list[Source]]:
        """Both inputs written again by ranges of their key, and then the pieces of each range."""
        size = self.join.buffer.room // 4
        keys = {steps[0].relation: steps[1].down.key, steps[1].relation: steps[1].up.key}
        split = []
        for r, source in enumerate(sources):
            runs, numbers = LongBlocks(self.blocks[r]), [list[int]() for _ in range(len(cuts) + 1)]
            files.callback(self._close, runs, self.join.names[r])
            for part in self._survivors([], [Step(r)], source, size, rule, False):
                key = part.keys[keys[r]]
                order = np.argsort(key, kind="stable")
                edges = np.unique([0, *np.searchsorted(key[order], cuts), part.n_rows])
                for n, at in enumerate(np.searchsorted(cuts, key[order[edges[:-1]]], "right"), len(runs)):
                    numbers[at].append(n)
                self._append(runs, part, order, edges.tolist())
            split.append((runs, numbers))
        return ([Source(runs, numbers[at]) for runs, numbers in split] for at in range(len(cuts) + 1))

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
            is_block = number >= 0 and not isinstance(store, LongBlocks)
            if parts and is_block and self._is_done(parts, steps, number, rule):
                continue
            if held and size + store.bytes_of(number) > share:
                yield self._united(held, reduces)
                self.join.buffer.release(size)
                held, size = [], 0
            reading = store.bytes_of(number)
            self.join.buffer.reserve(reading)
            part, kept = store.load(number, rule), reading
            if parts and reduces:
                part = matching(part, step.up, parts[step.parent], step.down)
                part = part.compact(number) if part.n_rows and number >= 0 else part  # the columns of others stay
                kept = min(reading, part.nbytes + store.beside * part.n_rows) if part.n_rows else 0
            self.join.buffer.release(reading - kept)
            size += kept
            held += [part] if part.n_rows else []
        if held:
            yield self._united(held, reduces)
        self.join.buffer.release(size)

    def _united(self, held: Sequence[Part], reduces: bool) -> Part:
        """All these rows; in one page, from which answers are gathered fast, if there is room to copy them."""
        part = united(held)
        copies = part.nbytes
        if len(held) == 1 or reduces or self.join.rows.held.any() or not self.join.buffer.try_reserve(copies):
            return part
        part = part.in_one_page()
        self.join.buffer.release(copies)
        return part

    def _is_done(self, parts: list[Part], steps: Sequence[Step], number: int, rule: Rule) -> bool:
        """Whether a block need not be read: it matches no loaded row, or was joined with all of them before a drain."""
        if not self.can_match(steps[-1], parts[steps[-1].parent], number):
            return True
        store = self.blocks[steps[-1].relation]
        if rule != "ticks" or len(steps) < len(self.blocks) or store.directory[number].newest > store.drained:
            return False
        return all(part.ats.max() == 0 for part in parts)  # as rows have that came before a drain
