"""The semi-stream algorithms once more, slow and plain, row by row as docs/algorithms/semistream.md says.

A twin sees stream rows as (id, key) and master data as segments of (key, row). It gives answers as (id, row or None)
and the sequence of loads. Rows whose key has no home are answered when they come.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Pair = tuple[int, Any]


class Twin:
    """What all twins share; `homes` gives a key's segment or -1, `segments` the rows of each as (key, row)."""

    def __init__(self, segments: list[list[tuple[Any, int]]], homes: Any) -> None:
        self.segments, self.homes = segments, homes
        self.loads: list[int] = []
        self.answers: list[Pair] = []

    def push(self, rows: list[tuple[int, Any]]) -> None:
        known = []
        for number, key in rows:
            if key is None or self.homes(key) < 0:
                self.answers.append((number, None))
            else:
                known.append((number, key))
        self.take(known)

    def take(self, rows: list[tuple[int, Any]]) -> None:
        raise AssertionError

    def drain(self) -> None:
        raise AssertionError

    def load(self, segment: int) -> list[tuple[Any, int]]:
        self.loads.append(segment)
        return self.segments[segment]

    def answer(self, number: int, key: Any, rows: list[tuple[Any, int]]) -> None:
        found = [row for other, row in rows if other == key]
        self.answers += [(number, row) for row in found] or [(number, None)]


class InljTwin(Twin):
    def __init__(self, segments: Any, homes: Any, pages: int = 0) -> None:
        super().__init__(segments, homes)
        self.pages, self.kept = pages, OrderedDict()

    def take(self, rows: list[tuple[int, Any]]) -> None:
        for number, key in rows:
            page = self.homes(key)
            if page in self.kept:
                self.kept.move_to_end(page)
            else:
                self.load(page)
                if self.pages:
                    self.kept[page] = True
                    if len(self.kept) > self.pages:
                        self.kept.popitem(last=False)
            self.answer(number, key, self.segments[page])

    def drain(self) -> None:
        pass


class MeshTwin(Twin):
    """`parts[segment]` are its logical parts, lists of (key, row)."""

    def __init__(self, parts: list[list[list[tuple[Any, int]]]], chunk: int) -> None:
        super().__init__([[pair for part in p for pair in part] for p in parts], lambda key: 0)
        self.parts, self.chunk = parts, chunk
        self.n_chunks = len(parts) * (len(parts[0]) if parts else 1)
        self.gathered: list[list[Any]] = []
        self.queue: list[list[list[Any]]] = []
        self.position = self.part = 0

    def take(self, rows: list[tuple[int, Any]]) -> None:
        for number, key in rows:
            self.gathered.append([number, key, False, 0])
            if len(self.gathered) == self.chunk:
                self.iterate()

    def iterate(self) -> None:
        if not self.parts:
            self.answers += [(number, None) for number, *_ in self.gathered]
            self.gathered = []
            return
        if self.part == 0:
            self.load(self.position)
        self.queue.append(self.gathered)
        self.gathered = []
        for chunk in self.queue:
            for waiting in chunk:
                waiting[3] += 1
                for key, row in self.parts[self.position][self.part]:
                    if key == waiting[1]:
                        self.answers.append((waiting[0], row))
                        waiting[2] = True
        self.part = (self.part + 1) % len(self.parts[0])
        if self.part == 0:
            self.position = (self.position + 1) % len(self.parts)
        if len(self.queue) == self.n_chunks:
            for number, _, matched, met in self.queue.pop(0):
                assert met == self.n_chunks
                if not matched:
                    self.answers.append((number, None))

    def drain(self) -> None:
        while self.gathered or any(self.queue):
            self.iterate()


class HybridTwin(Twin):
    """The queue is a list of [id, key, segment, loads at admission], oldest first."""

    def __init__(self, segments: Any, homes: Any, slots: int, lookup: str = "oldest", position: float = 0.3) -> None:
        super().__init__(segments, homes)
        self.slots, self.lookup, self.position, self.turn = slots, lookup, position, 0
        self.queue: list[list[Any]] = []
        self.worst = 0

    def take(self, rows: list[tuple[int, Any]]) -> None:
        rows = list(rows)
        while rows:
            while rows and len(self.queue) < self.slots:
                self.admit(*rows.pop(0))
            if rows:
                self.step()

    def admit(self, number: int, key: Any) -> None:
        self.queue.append([number, key, self.homes(key), len(self.loads)])

    def step(self) -> None:
        self.serve(self.choose())

    def held(self, segment: int) -> int:
        return sum(waiting[2] == segment for waiting in self.queue)

    def fullest(self) -> int:
        return max(range(len(self.segments)), key=lambda segment: (self.held(segment), -segment))

    def choose(self) -> int:
        even = self.turn % 2 == 1
        self.turn += 1
        oldest = self.queue[0][2]
        if self.lookup == "greedy" or (self.lookup == "greedy_oldest" and even):
            return self.fullest()
        if self.lookup == "position" or (even and self.lookup in ("alternate", "guarded")):
            newer = min(int(self.position * len(self.queue)), len(self.queue) - 1)
            other = self.queue[len(self.queue) - 1 - newer][2]
            if self.lookup != "guarded" or self.held(other) > self.held(oldest):
                return other
        return oldest

    def serve(self, segment: int) -> None:
        self.settle(segment, self.load(segment))

    def settle(self, segment: int, rows: list[tuple[Any, int]]) -> list[list[Any]]:
        mine = [waiting for waiting in self.queue if waiting[2] == segment]
        self.queue = [waiting for waiting in self.queue if waiting[2] != segment]
        for number, key, _, born in mine:
            self.answer(number, key, rows)
            self.worst = max(self.worst, len(self.loads) - born)
        return mine

    def drain(self) -> None:
        while self.queue:
            self.step()


class XHybridTwin(HybridTwin):
    """The last segment is the pinned one, if `pinned`."""

    pinned = True

    def take(self, rows: list[tuple[int, Any]]) -> None:
        rows = list(rows)
        while rows:
            while rows and len(self.queue) < self.slots:
                self.admit(*rows.pop(0))
            if self.pinned:
                self.settle(len(self.segments) - 1, self.segments[-1])
            if rows and len(self.queue) == self.slots:
                self.step()


class CacheTwin(HybridTwin):
    """`cache` is an ordered map of key to its rows; `promote` says what a load may bring in."""

    def __init__(self, *arguments: Any, max_probe: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.cache: dict[Any, list[int]] = {}
        self.max_probe = max_probe or self.slots
        self.left = self.max_probe
        self.by_cache = 0

    def take(self, rows: list[tuple[int, Any]]) -> None:
        rows = list(rows)
        while rows:
            while rows and self.left and (rows[0][1] in self.cache or len(self.queue) < self.slots):
                number, key = rows.pop(0)
                self.left -= 1
                if key in self.cache:
                    self.hit(number, key)
                else:
                    self.admit(number, key)
            if rows:
                if self.queue:
                    self.step()
                self.left = self.max_probe

    def hit(self, number: int, key: Any) -> None:
        self.by_cache += 1
        self.answers += [(number, row) for row in self.cache[key]] or [(number, None)]

    def serve(self, segment: int) -> None:
        rows = self.load(segment)
        mine = self.settle(segment, rows)
        self.promote(rows, [waiting[1] for waiting in mine])

    def promote(self, rows: list[tuple[Any, int]], keys: list[Any]) -> None:
        pass


class SscjTwin(CacheTwin):
    """The printed threshold rule with the least frequent key, the one that came first among equals, making room."""

    def __init__(self, *arguments: Any, capacity: int, threshold: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.capacity, self.threshold = capacity, threshold
        self.order: list[Any] = []
        self.hits: dict[Any, int] = {}

    def hit(self, number: int, key: Any) -> None:
        super().hit(number, key)
        self.hits[key] += 1

    def promote(self, rows: list[tuple[Any, int]], keys: list[Any]) -> None:
        for key in dict.fromkeys(key for key, _ in rows):
            waiting = keys.count(key)
            if not waiting or waiting < self.threshold or key in self.cache:
                continue
            if len(self.order) == self.capacity:
                gone = min(range(self.capacity), key=lambda at: (self.hits[self.order[at]], at))
                del self.cache[self.order[gone]]
                last = self.order.pop()
                if gone < len(self.order):
                    self.order[gone] = last
                self.threshold += 1
            self.order.append(key)
            self.cache[key] = [row for other, row in rows if other == key]
            self.hits[key] = waiting


class ResidentTwin(HybridTwin):
    """Resident segments by requests."""

    def __init__(self, segments: Any, homes: Any, slots: int, resident: int) -> None:
        super().__init__(segments, homes, slots)
        self.most, self.resident = resident, []
        self.requests = [0.0] * len(segments)

    def serve(self, segment: int) -> None:
        self.requests[segment] += self.held(segment)
        super().serve(segment)
        if not self.most or segment in self.resident:
            return
        if len(self.resident) >= self.most:
            least = min(self.resident, key=lambda number: (self.requests[number], number))
            if self.requests[segment] <= self.requests[least]:
                return
            self.resident.remove(least)
        self.resident.append(segment)

    def online(self, number: int, key: Any) -> None:
        self.requests[self.homes(key)] += 1
        self.answer(number, key, self.segments[self.homes(key)])


class SsijTwin(ResidentTwin):
    def take(self, rows: list[tuple[int, Any]]) -> None:
        for number, key in rows:
            if self.homes(key) in self.resident:
                self.online(number, key)
                continue
            if len(self.queue) == self.slots:
                self.drain()
                if self.homes(key) in self.resident:
                    self.online(number, key)
                    continue
            self.admit(number, key)

    def step(self) -> None:
        start = self.loads[-1] if self.loads else 0
        n = len(self.segments)
        wanted = {waiting[2] for waiting in self.queue}
        self.serve(next(s % n for s in range(start, start + n) if s % n in wanted))

    def drain(self) -> None:
        while self.queue:
            self.step()
            if not self.queue:
                self.requests = [n / 2 for n in self.requests]


class PartitionedTwin(ResidentTwin):
    def __init__(self, *arguments: Any, threshold: int, low_water: float) -> None:
        super().__init__(*arguments)
        self.threshold, self.low_water = threshold, low_water

    def take(self, rows: list[tuple[int, Any]]) -> None:
        for number, key in rows:
            if self.homes(key) not in self.resident and len(self.queue) == self.slots:
                self.step()
                while len(self.queue) > self.low_water * self.slots:
                    self.step()
            segment = self.homes(key)
            if segment in self.resident:
                self.online(number, key)
                continue
            self.admit(number, key)
            if self.held(segment) >= self.threshold:
                self.serve(segment)

    def choose(self) -> int:
        return self.fullest()

    def serve(self, segment: int) -> None:
        super().serve(segment)
        if len(self.loads) % max(1, len(self.segments)) == 0:
            self.requests = [n / 2 for n in self.requests]
