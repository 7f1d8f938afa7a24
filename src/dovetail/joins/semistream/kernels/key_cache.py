"""Cached master rows by key code: which keys are in, how often they were asked for, and which make room for others.

Entries are dense, so that a random one is one draw. A key is found by linear probing; removing one shifts its cluster
back.
Reference: docs/algorithms/semistream.md, 2.10, 2.11 and 6.7.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import mixed, place
from dovetail.joins.semistream.kernels.segment_match import ALL, ANTI, LEFT, SEMI
from dovetail.joins.semistream.kernels.waiting_pool import LIVE, Pool, empty_pool, enter


class KeyCache(NamedTuple):
    """Per entry code, first row's reference, rows, hits, bytes and page; `cells` hold entry + 1."""

    cells: I32
    code: I64
    ref: I64
    rows: I32
    hits: I64
    weight: I64
    page: I64
    meta: I64


class Candidates(NamedTuple):
    """Keys that a load met: code, first row's reference, rows, waiting stream rows, bytes and page."""

    code: I64
    ref: I64
    rows: I64
    waiting: I64
    weight: I64
    page: I64


ENTRIES, CAPACITY, BYTES, LIMIT, THRESHOLD, START, RANDOM_STATE, EVICTED, INSERTED = range(9)
"""Places in `meta`: entries now and at most, their bytes now and at most, what a key needs to get in, now and at first,
the state of the random numbers, and how many entries made room and came in so far."""

ENTRY_BYTES = 8 * 5 + 4

TAKES_ANY, TAKES_LEAST, TAKES_SAMPLED = range(3)
"""Which entry makes room: any; the least asked for; the least asked for of a sample, and only for a key above it."""

SAMPLE = 16


def empty_cache(capacity: int, limit: int, start: int) -> KeyCache:
    """A cache of at most `capacity` keys and `limit` bytes of rows; a key needs `start` waiting rows to get in."""
    meta = np.array([0, capacity, 0, limit, start, start, 0x9E3779B9 + 1, 0, 0], np.int64)
    code, ref, hits, weight, page = (np.zeros(capacity, np.int64) for _ in range(5))
    cells = np.zeros(_cells(capacity), np.int32)
    return KeyCache(cells, code, ref, np.zeros(capacity, np.int32), hits, weight, page, meta)


def cache_bytes(capacity: int) -> int:
    """Bytes of a cache's arrays, without the rows."""
    return capacity * ENTRY_BYTES + 4 * _cells(capacity) + 8 * 9


def _cells(capacity: int) -> int:
    return 1 << max(3, (2 * capacity - 1).bit_length())


@kernel
def _cell(c: KeyCache, code: int) -> int:
    mask = len(c.cells) - 1
    at = place(code, mask)
    while c.cells[at] != 0 and c.code[c.cells[at] - 1] != code:
        at = (at + 1) & mask
    return at


@kernel
def _draw(c: KeyCache, below: int) -> int:
    state = np.uint64(c.meta[RANDOM_STATE]) + np.uint64(0x9E3779B97F4A7C15)
    c.meta[RANDOM_STATE] = np.int64(state)
    high = mixed(state) >> np.uint64(32)
    return np.int64((high * np.uint64(below)) >> np.uint64(32))  # type: ignore[return-value]  # one type in a kernel


@kernel
def add(c: KeyCache, code: int, ref: int, rows: int, hits: int, weight: int, page: int) -> int:
    """The new entry's number; the caller knows that there is room and that the key is not in."""
    entry = c.meta[ENTRIES]
    c.cells[_cell(c, code)] = entry + 1
    c.code[entry], c.ref[entry], c.rows[entry], c.hits[entry] = code, ref, rows, hits
    c.weight[entry], c.page[entry] = weight, page
    c.meta[ENTRIES] += 1
    c.meta[BYTES] += weight
    return entry  # type: ignore[no-any-return]  # a number in a kernel


@kernel
def remove(c: KeyCache, entry: int) -> None:
    """The entry leaves; the last entry takes its number."""
    mask = len(c.cells) - 1
    gap = _cell(c, c.code[entry])
    at = (gap + 1) & mask
    while c.cells[at] != 0:
        home = place(c.code[c.cells[at] - 1], mask)
        if ((at - home) & mask) >= ((at - gap) & mask):
            c.cells[gap] = c.cells[at]
            gap = at
        at = (at + 1) & mask
    c.cells[gap] = 0
    c.meta[BYTES] -= c.weight[entry]
    last = c.meta[ENTRIES] - 1
    if entry != last:
        c.cells[_cell(c, c.code[last])] = entry + 1
        c.code[entry], c.ref[entry], c.rows[entry] = c.code[last], c.ref[last], c.rows[last]
        c.hits[entry], c.weight[entry], c.page[entry] = c.hits[last], c.weight[last], c.page[last]
    c.meta[ENTRIES] = last


@kernel
def add_all(c: KeyCache, codes: I64, refs: I64, rows: I64, hits: I64, weights: I64, pages: I64) -> int:
    """How many of these keys, all of them new, came in before the cache was full."""
    n: int = min(len(codes), c.meta[CAPACITY] - c.meta[ENTRIES])
    for key in range(n):
        add(c, codes[key], refs[key], rows[key], hits[key], weights[key], pages[key])
    return n


@kernel
def remove_all(c: KeyCache, entries: I64) -> None:
    """These entries leave; their numbers must be given largest first, as others move down."""
    for at in range(len(entries)):
        remove(c, entries[at])


@kernel
def _victim(c: KeyCache, policy: int) -> int:
    used = c.meta[ENTRIES]
    if policy == TAKES_ANY:
        return _draw(c, used)
    best = _draw(c, used) if policy == TAKES_SAMPLED else 0
    for at in range(1, SAMPLE if policy == TAKES_SAMPLED else used):
        other = _draw(c, used) if policy == TAKES_SAMPLED else at
        if c.hits[other] < c.hits[best]:
            best = other
    return best


@kernel
def _make_room(c: KeyCache, policy: int, waiting: int, weight: int) -> bool:
    """Whether there is room now for an entry; each entry that left raised the threshold."""
    while c.meta[ENTRIES] == c.meta[CAPACITY] or c.meta[BYTES] + weight > c.meta[LIMIT]:
        if c.meta[ENTRIES] == 0:
            return False
        victim = _victim(c, policy)
        if policy == TAKES_SAMPLED and waiting <= c.hits[victim]:
            return False
        remove(c, victim)
        c.meta[THRESHOLD] += 1
        c.meta[EVICTED] += 1
    return True


@kernel
def promote(c: KeyCache, policy: int, keys: Candidates, took: I64) -> int:
    """How many of these keys came in; their numbers are written. A key needs as many waiting rows as the threshold."""
    n = 0
    for key in range(len(keys.code)):
        waiting, weight = keys.waiting[key], keys.weight[key]
        known = c.cells[_cell(c, keys.code[key])] != 0
        if known or waiting < c.meta[THRESHOLD] or weight > c.meta[LIMIT]:
            continue
        if _make_room(c, policy, waiting, weight):
            add(c, keys.code[key], keys.ref[key], keys.rows[key], waiting, weight, keys.page[key])
            took[n] = key
            n += 1
    c.meta[INSERTED] += n
    return n


@kernel
def age(c: KeyCache, times: int) -> None:
    """Halve the hits `times` times, at most 62; a key needs one row less each time, though not less than at first."""
    for entry in range(c.meta[ENTRIES]):
        c.hits[entry] >>= times
    c.meta[THRESHOLD] = max(c.meta[START], c.meta[THRESHOLD] - times)


@kernel
def find(c: KeyCache, code: int) -> int:
    """The key's entry, or -1."""
    return c.cells[_cell(c, code)] - 1  # type: ignore[no-any-return]  # a number in a kernel


@kernel
def entries_of(c: KeyCache, codes: I64, out: I64) -> None:
    """The entry of each key, or -1."""
    for row in range(len(codes)):
        out[row] = find(c, codes[row])


@kernel
def probe_admit(
    c: KeyCache,
    p: Pool,
    codes: I64,
    segments: I64,
    refs: I64,
    start: int,
    stop: int,
    hits: tuple[I64, I64],
    now_ns: int,
) -> tuple[int, int]:
    """The stream-probing phase: rows in the cache are written as (row, entry), the others wait, until no slot is free.

    Gives the first row not looked at and the number of hits.
    """
    room, n, row = len(p.code) - p.meta[LIVE], 0, start
    while row < stop and n < len(hits[0]):
        entry = find(c, codes[row])
        if entry >= 0:
            hits[0][n], hits[1][n] = row, entry
            c.hits[entry] += 1
            n += 1
        elif room > 0:
            enter(p, codes[row], refs[row], segments[row], now_ns)
            room -= 1
        else:
            break
        row += 1
    return row, n


@kernel
def hit_pairs(
    c: KeyCache, refs: I64, hits: tuple[I64, I64], start: int, n: int, how: int, out: tuple[I64, I64], at: int
) -> tuple[int, int]:
    """The first hit not given and where the next pair goes: one pair a cached row, -1 for a key known to be missing."""
    for hit in range(start, n):
        row, entry = hits[0][hit], hits[1][hit]
        rows = c.rows[entry]
        if at + max(1, rows) > len(out[0]):
            return hit, at
        if rows == 0:
            if how in (LEFT, ANTI, ALL):
                out[0][at], out[1][at] = refs[row], -1
                at += 1
        elif how != ANTI:
            for k in range(1 if how == SEMI else rows):
                out[0][at], out[1][at] = refs[row], c.ref[entry] + k
                at += 1
    return n, at


@register_warmup
def _warm() -> None:
    cache, pool = empty_cache(2, 100, 1), empty_pool(4, 2)
    some = np.arange(3, dtype=np.int64)
    some.flags.writeable = False
    one = np.full(3, 10, np.int64)
    one.flags.writeable = False
    for policy in range(3):
        promote(cache, policy, Candidates(some, some, one, one, one, some), np.empty(3, np.int64))
    age(cache, 1)
    entries_of(cache, some, np.empty(3, np.int64))
    remove_all(cache, some[:1])
    add_all(cache, some[2:], some[2:], some[2:], some[2:], some[2:], some[2:])
    hits = np.empty(3, np.int64), np.empty(3, np.int64)
    frozen = np.minimum(some, 1)
    frozen.flags.writeable = False
    probe_admit(cache, pool, some, frozen, some, 0, 0, hits, 0)
    hit_pairs(cache, some, hits, 0, 0, 0, (np.empty(3, np.int64), np.empty(3, np.int64)), 0)


@kernel
def hits_until(pages: I64, start: int, place: I32, used: I64, now: int) -> int:
    """The first request, from `start` on, whose page has no place; those before mark theirs as used now, one by one."""
    for row in range(start, len(pages)):
        at = place[pages[row]]
        if at < 0:
            return row
        used[at] = now + row - start
    return len(pages)


@register_warmup
def _warm_pages() -> None:
    some = np.arange(2, dtype=np.int64)
    some.flags.writeable = False
    hits_until(some, 0, np.full(2, -1, np.int32), np.zeros(2, np.int64), 0)
