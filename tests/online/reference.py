"""The arriving phases as plain Python, one tuple after the other: what the kernels must decide, rule by rule.

Rows are numbers in lists; nothing is fast, shared or clever. Each class gives the pairs that come while rows arrive.
Reference: docs/algorithms/online.md, 2.2 to 2.7 and 3.2 to 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

MASK = 2**64 - 1
LOWER, MIDDLE, UPPER = "lower", "middle", "upper"


@dataclass
class Tuple:
    """A row: key, tick of its probe, join bit."""

    key: int
    ats: int
    bit: int = 0


def mixed(word: int) -> int:
    """The mixing function of the hash (MurmurHash3's finalizer)."""
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & MASK
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & MASK
    return word ^ (word >> 33)


class Reference:
    """Two lists of rows in memory, a clock, and pairs."""

    def __init__(self, memory: int, block: int, band: tuple[int, int] = (0, 0)) -> None:
        self.limit, self.block, self.band = memory, block, band
        self.memory: list[list[Tuple]] = [[], []]
        self.clock = 0
        self.pairs: list[tuple[int, int]] = []
        self.flushed: list[tuple[int, int, list[int]]] = []
        self.order: list[int] = []

    @property
    def full(self) -> bool:
        return len(self.memory[0]) + len(self.memory[1]) >= self.limit

    def found(self, side: int, key: int) -> list[Tuple]:
        lo, hi = self.band if side == 0 else (-self.band[1], -self.band[0])
        return [row for row in self.memory[1 - side] if key + lo <= row.key <= key + hi]

    def new(self, key: int) -> Tuple:
        self.clock += 1
        self.order.append(self.clock)
        return Tuple(key, self.clock)

    def probe(self, side: int, key: int) -> Tuple:
        new = self.new(key)
        matches = self.found(side, key)
        for row in matches:
            row.bit = 1
        new.bit = int(bool(matches))
        self.pairs += [(new.ats, row.ats) if side == 0 else (row.ats, new.ats) for row in matches]
        self.count(side, new, matches)
        return new

    def count(self, side: int, new: Tuple, matches: list[Tuple]) -> None:
        """Statistics of the policy."""

    def leave(self, side: int, rows: list[Tuple]) -> None:
        gone = {row.ats for row in rows}
        self.memory[side] = [row for row in self.memory[side] if row.ats not in gone]
        self.flushed.append((side, self.clock, sorted(gone)))

    def larger(self) -> int:
        return 0 if len(self.memory[0]) >= len(self.memory[1]) else 1


class DinerReference(Reference):
    """Probe, count, make room, store."""

    def __init__(self, memory: int, block: int, band: tuple[int, int] = (0, 0), seed: int = 0) -> None:
        super().__init__(memory, block, band)
        self.seed, self.draws = seed, 0
        self.low, self.up = [-(2**63)] * 2, [2**63 - 1] * 2
        self.joins = [dict.fromkeys((LOWER, MIDDLE, UPPER), 0) for _ in range(2)]
        self.first = [True, True]
        self.hand: list[tuple[int, int] | None] = [None, None]

    def region(self, side: int, key: int) -> str:
        return UPPER if key >= self.up[side] else LOWER if key <= self.low[side] else MIDDLE

    def rows_of(self, side: int, region: str) -> list[Tuple]:
        rows = [row for row in self.memory[side] if self.region(side, row.key) == region]
        return sorted(rows, key=lambda row: (row.key, row.ats))

    def count(self, side: int, new: Tuple, matches: list[Tuple]) -> None:
        self.joins[side][self.region(side, new.key)] += len(matches)
        for row in matches:
            self.joins[1 - side][self.region(1 - side, row.key)] += 1

    def arrive(self, side: int, key: int) -> None:
        new = self.probe(side, key)
        while self.full:
            self.flush()
        self.memory[side].append(new)

    def flush(self) -> None:
        side = self.larger()
        need = min(self.block, len(self.memory[side]))
        out: list[Tuple] = []
        held = {region: self.rows_of(side, region) for region in (UPPER, LOWER, MIDDLE)}
        order = [region for region in held if held[region]]
        if self.first[side]:
            order = [MIDDLE]
        else:
            order.sort(key=lambda region: self.joins[side][region] / len(held[region]))
        used = []
        for region in order:
            if len(out) == need:
                break
            used.append(region)
            rows, n = held[region], min(need - len(out), len(held[region]))
            taken = {LOWER: rows[:n], UPPER: rows[len(rows) - n :], MIDDLE: []}[region]
            out += self.clock_takes(side, rows, n) if region == MIDDLE else taken
        self.clock += 1
        self.leave(side, out)
        self.move(side, LOWER in used or self.first[side], UPPER in used or self.first[side])
        self.first[side] = False
        self.joins[side] = dict.fromkeys(self.joins[side], 0)

    def clock_takes(self, side: int, rows: list[Tuple], n: int) -> list[Tuple]:
        hand = self.hand[side]
        if hand is None:
            self.draws += 1
            at = (mixed((self.seed + mixed(self.draws)) & MASK) >> 1) % len(rows)
        else:
            at = next((i for i, row in enumerate(rows) if (row.key, row.ats) >= hand), 0)
        out: list[Tuple] = []
        while len(out) < n:
            row = rows[at % len(rows)]
            if row.bit == 0 and row not in out:
                out.append(row)
            elif row.bit == 1:
                row.bit = 0
            at += 1
        self.hand[side] = (out[-1].key, out[-1].ats + 1)
        return out

    def move(self, side: int, low: bool, up: bool) -> None:
        keys = sorted(row.key for row in self.memory[side])
        if not keys:
            return
        n = min(self.block, len(keys))
        if low:
            wanted = keys[n - 1]
            below = [key for key in keys if key < self.up[side]]
            self.low[side] = wanted if wanted < self.up[side] else below[-1] if below else -(2**63)
        if up:
            wanted = keys[-n]
            above = [key for key in keys if key > self.low[side]]
            self.up[side] = wanted if wanted > self.low[side] else above[0] if above else 2**63 - 1


class HashedReference(Reference):
    """Make room, probe, store, with buckets; `policy` names the flush."""

    def __init__(self, policy: str, memory: int, block: int, buckets: int, ageing: float = 1.0) -> None:
        super().__init__(memory, block)
        self.policy, self.buckets, self.ageing = policy, buckets, ageing
        self.seen = {(side, b): 0.0 for side in (0, 1) for b in range(buckets)}
        self.frozen: set[tuple[int, int]] = set()
        self.waiting: list[list[Tuple]] = [[], []]
        self.received = [0, 0]

    @property
    def full(self) -> bool:
        return sum(map(len, self.memory)) + sum(map(len, self.waiting)) >= self.limit

    def bucket(self, key: int) -> int:
        return (mixed(key & MASK) >> 32) * self.buckets >> 32

    def held(self, side: int, bucket: int) -> list[Tuple]:
        return [row for row in self.memory[side] if self.bucket(row.key) == bucket]

    def arrive(self, side: int, key: int) -> None:
        while self.full:
            self.flush()
        bucket = self.bucket(key)
        met = self.policy not in ("DPHJ", "EHJ") or (1 - side, bucket) not in self.frozen
        new = self.probe(side, key) if met else self.new(key)
        self.seen[side, bucket] += 1
        self.received[side] += 1
        (self.waiting if (side, bucket) in self.frozen else self.memory)[side].append(new)

    def flush(self) -> None:
        queues = [(side, b) for side in (0, 1) for b in range(self.buckets)]
        if sum(map(len, self.waiting)) >= max(1, self.limit // 10):
            self.write_waiting(queues)
            return
        self.clock += 1
        if not getattr(self, f"flush_{self.policy}")(queues):
            self.clock -= 1
            self.write_waiting(queues)

    def write_waiting(self, queues: list[tuple[int, int]]) -> None:
        def rows(queue: tuple[int, int]) -> list[Tuple]:
            return [row for row in self.waiting[queue[0]] if self.bucket(row.key) == queue[1]]

        side, bucket = max(queues, key=lambda queue: len(rows(queue)))
        self.waiting[side] = [row for row in self.waiting[side] if self.bucket(row.key) != bucket]
        self.clock += 1

    def flush_oldest(self, queues: Any) -> bool:
        side = self.larger()
        self.leave(side, self.memory[side][: self.block])
        return True

    def flush_XJoin(self, queues: list[tuple[int, int]]) -> bool:  # noqa: N802  (the policy's name)
        side, bucket = max(queues, key=lambda queue: len(self.held(*queue)))
        self.leave(side, self.held(side, bucket))
        return True

    def _pair(self, bucket: int) -> None:
        for side in (0, 1):
            self.leave(side, self.held(side, bucket))

    def flush_DPHJ(self, queues: Any) -> bool:  # noqa: N802  (the policy's name)
        sizes = [len(self.held(0, b)) + len(self.held(1, b)) for b in range(self.buckets)]
        if max(sizes) == 0:
            return False
        bucket = sizes.index(max(sizes))
        self._pair(bucket)
        self.frozen |= {(0, bucket), (1, bucket)}
        return True

    def flush_HMJ(self, queues: Any) -> bool:  # noqa: N802  (the policy's name)
        a, b = len(self.memory[0]), len(self.memory[1])
        sizes = [(len(self.held(0, i)), len(self.held(1, i))) for i in range(self.buckets)]
        some = [i for i in range(self.buckets) if sum(sizes[i])]
        gap = {i: abs((a - sizes[i][0]) - (b - sizes[i][1])) for i in some}
        alike = [i for i in some if gap[i] <= 0.05 * (a + b)]
        self._pair(max(alike, key=lambda i: sum(sizes[i])) if alike else min(some, key=lambda i: gap[i]))
        return True

    def flush_RPJ(self, queues: list[tuple[int, int]]) -> bool:  # noqa: N802  (the policy's name)
        need = self.block
        while need and any(self.memory):
            some = [(side, b) for side, b in queues if self.held(1 - side, b)]
            side, bucket = min(some, key=lambda queue: self.seen[queue])
            rows = self.held(1 - side, bucket)[:need]
            self.leave(1 - side, rows)
            need -= len(rows)
        for queue in self.seen:
            self.seen[queue] *= self.ageing
        return True

    def flush_EHJ(self, queues: Any) -> bool:  # noqa: N802  (the policy's name)
        larger = 0 if self.received[0] >= self.received[1] else 1
        own = [(len(self.held(larger, b)), -b) for b in range(self.buckets)]
        other = [(len(self.held(1 - larger, b)), b) for b in range(self.buckets)]
        if max(own)[0]:
            side, bucket = larger, -max(own)[1]
        elif any(n for n, _ in other):
            side, bucket = 1 - larger, min((n, b) for n, b in other if n)[1]
        else:
            return False
        self.leave(side, self.held(side, bucket))
        self.frozen.add((side, bucket))
        return True


def random_arrivals(rng: np.random.Generator, rows: int, domain: int, skew: float) -> list[tuple[int, int]]:
    """Sides and keys in order of arrival."""
    weights = 1.0 / np.arange(1, domain + 1) ** skew
    keys = rng.choice(domain, rows, p=weights / weights.sum())
    return list(zip(rng.integers(0, 2, rows).tolist(), keys.tolist(), strict=True))
