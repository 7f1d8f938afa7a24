"""Waiting rows met with the master rows of their segment: a small table over the smaller side, one walk over the other.

One segment is matched after it is loaded alone, several after a round.
Reference: docs/algorithms/semistream.md, 2.0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import place
from dovetail.joins.semistream.kernels.waiting_pool import (
    LOADS,
    NONE,
    Pool,
    admit,
    chain_rows,
    empty_pool,
    pick_round,
    release,
    take_round,
    unlink,
)

INNER, LEFT, SEMI, ANTI, ALL = range(5)
"""The pairs that are given: matches; these and misses; the first match; misses; all of LEFT for a later check."""


class Scratch(NamedTuple):
    """A table of distinct keys: cells name a key's number; per key its code, first master row and waiting rows."""

    cells: I32
    code: I64
    first: I32
    waiting: I32
    following: I32
    probes: I64


def empty_scratch(rows: int) -> Scratch:
    """Scratch memory for segments of at most `rows` master rows."""
    keys = rows + 16
    return Scratch(
        np.zeros(_cells(rows), np.int32),
        np.empty(keys, np.int64),
        np.empty(keys, np.int32),
        np.empty(keys, np.int32),
        np.empty(max(1, rows), np.int32),
        np.zeros(1, np.int64),
    )


def scratch_bytes(rows: int) -> int:
    """Bytes of `empty_scratch(rows)`."""
    return 4 * _cells(rows) + 16 * (rows + 16) + 4 * max(1, rows) + 8


def _cells(rows: int) -> int:
    return 1 << (2 * (rows + 16) - 1).bit_length()


@kernel
def _cell(s: Scratch, mask: int, code: int) -> int:
    at = place(code, mask)
    while s.cells[at] != 0 and s.code[s.cells[at] - 1] != code:
        at = (at + 1) & mask
    return at


@kernel
def _add_key(s: Scratch, at: int, code: int, used: int) -> int:
    s.cells[at] = used + 1
    s.code[used], s.first[used], s.waiting[used] = code, NONE, 0
    return used + 1


@kernel
def _clear(s: Scratch, keys: int) -> int:
    """The mask of a cleared table for this number of keys."""
    size = 8
    while size < 2 * keys and size < len(s.cells):
        size *= 2
    s.cells[:size] = 0
    return size - 1


@kernel
def _index_rows(s: Scratch, mask: int, codes: I64, used: int, adding: bool) -> int:
    """Chain the master rows of each key, first row first; the number of keys afterwards."""
    for row in range(len(codes) - 1, -1, -1):
        at = _cell(s, mask, codes[row])
        if s.cells[at] == 0:
            if not adding:
                continue
            used = _add_key(s, at, codes[row], used)
        key = s.cells[at] - 1
        s.following[row] = s.first[key]
        s.first[key] = row
    s.probes[0] += len(codes)
    return used


@kernel
def _ascending(codes: I64) -> bool:
    falls = 0
    for row in range(1, len(codes)):
        falls += codes[row] < codes[row - 1]
    return falls == 0


@kernel
def _find_rows(s: Scratch, codes: I64, used: int) -> None:
    """Chain the master rows of each key, found by halving, as codes ascend."""
    for key in range(used):
        row = np.searchsorted(codes, s.code[key])
        stop = row
        while stop < len(codes) and codes[stop] == s.code[key]:
            stop += 1
        for at in range(stop - 1, row - 1, -1):
            s.following[at] = s.first[key]
            s.first[key] = at
    s.probes[0] += used


@kernel
def _give(s: Scratch, first: int, ref: int, source: int, how: int, out: tuple[I64, I64], at: int) -> int:
    """Where the next pair goes after those of one stream row."""
    refs, rows = out
    if first < 0:
        if how in (LEFT, ANTI, ALL):
            refs[at], rows[at] = ref, NONE
            at += 1
        return at
    if how == ANTI:
        return at
    row = first
    while row >= 0:
        refs[at], rows[at] = ref, source + row
        at += 1
        row = NONE if how == SEMI else s.following[row]
    return at


@kernel
def _n_matches(s: Scratch, first: int) -> int:
    n, row = 0, first
    while row >= 0:
        n += 1
        row = s.following[row]
    return n


@kernel
def _key_of(s: Scratch, mask: int, code: int, used: int, remember: bool) -> tuple[int, int]:
    """The number of the key, or -1, and the number of keys; an unknown one is added if asked and if there is room."""
    at = _cell(s, mask, code)
    if s.cells[at] != 0:
        return s.cells[at] - 1, used
    if remember and used < len(s.code) and 2 * used < mask:
        return used, _add_key(s, at, code, used)
    return NONE, used


@kernel
def _prepare(p: Pool, head: int, n_waiting: int, codes: I64, s: Scratch, remember: bool) -> tuple[int, int]:
    """A table over the smaller side with the master rows of each of its keys; its mask and its number of keys."""
    mask = _clear(s, min(n_waiting, len(codes)) + (8 if remember else 0))
    used, slot = 0, head
    if n_waiting < len(codes):
        while slot >= 0:
            cell = _cell(s, mask, p.code[slot])
            if s.cells[cell] == 0:
                used = _add_key(s, cell, p.code[slot], used)
            slot = p.follower[slot]
        if 16 * used < len(codes) and _ascending(codes):
            _find_rows(s, codes, used)
        else:
            used = _index_rows(s, mask, codes, used, False)
    else:
        used = _index_rows(s, mask, codes, used, True)
    return mask, used


@kernel
def meet(
    p: Pool,
    segment: int,
    waiting: int,
    queued: bool,
    codes: I64,
    source: int,
    s: Scratch,
    how: int,
    out: tuple[I64, I64],
    at: int,
    now_ns: int,
    remember: bool,
) -> tuple[int, int, int, int]:
    """The `waiting` rows of a segment are answered and leave, in order of admission, while `out` has room.

    Rows that are `queued` leave the queue too; those of a round left it when they were picked. Gives where the next
    pair goes, rows answered, rows among them without a match, and keys in the scratch table, whose `waiting` counts the
    rows of each. Call again with more room if rows of the segment still wait.
    """
    mask, used = _prepare(p, p.head[segment], waiting, codes, s, remember)
    s.probes[0] += waiting
    slot, done, missed = p.head[segment], 0, 0
    while slot >= 0:
        key, used = _key_of(s, mask, p.code[slot], used, remember)
        first = s.first[key] if key >= 0 else NONE
        if at + max(1, _n_matches(s, first)) > len(out[0]):
            break
        at = _give(s, first, p.ref[slot], source, how, out, at)
        if key >= 0:
            s.waiting[key] += 1
        after = p.follower[slot]
        if queued:
            unlink(p, slot)
            p.held[segment] -= 1
        release(p, slot, now_ns)
        slot, done = after, done + 1
        missed += first < 0
    p.head[segment] = slot
    return at, done, missed, used


@kernel
def index_rows(codes: I64, s: Scratch) -> int:
    """The scratch as a hash table of these master rows; gives the mask of its cells."""
    mask = _clear(s, len(codes))
    _index_rows(s, mask, codes, 0, True)
    return mask


@kernel
def match_indexed(
    wanted: I64, refs: I64, start: int, mask: int, source: int, s: Scratch, how: int, out: tuple[I64, I64], at: int
) -> tuple[int, int, int]:
    """As `match_rows`, with the master rows that the scratch has indexed."""
    s.probes[0] += len(wanted) - start
    missed = 0
    for row in range(start, len(wanted)):
        cell = _cell(s, mask, wanted[row])
        first = s.first[s.cells[cell] - 1] if s.cells[cell] != 0 else NONE
        if at + max(1, _n_matches(s, first)) > len(out[0]):
            return at, row, missed
        at = _give(s, first, refs[row], source, how, out, at)
        missed += first < 0
    return at, len(wanted), missed


@kernel
def match_rows(
    wanted: I64, refs: I64, start: int, codes: I64, source: int, s: Scratch, how: int, out: tuple[I64, I64], at: int
) -> tuple[int, int, int]:
    """Stream rows from `start` on met with master rows, in their order, as far as `out` has room.

    Gives where the next pair goes, the first row not answered, and rows without a match.
    """
    return match_indexed(wanted, refs, start, index_rows(codes, s), source, s, how, out, at)


@kernel
def keep_checked(refs: I64, rows: I64, start: int, stop: int, right: Bool, how: int) -> int:
    """Pairs from `start` on that are right, moved together; a row whose every pair was wrong becomes a miss.

    `right` tells of each pair from `start` on; pairs of one stream row lie together. Gives the new end.
    """
    to, at = start, start
    while at < stop:
        ref, found = refs[at], 0
        while at < stop and refs[at] == ref:
            if right[at - start] and how != ANTI and not (how == SEMI and found):
                rows[to], refs[to] = rows[at], ref
                to += 1
            found += right[at - start]
            at += 1
        if not found and how in (LEFT, ANTI):
            rows[to], refs[to] = NONE, ref
            to += 1
    return to


@register_warmup
def _warm() -> None:
    pool, scratch = empty_pool(4, 2), empty_scratch(4)
    some = np.arange(2, dtype=np.int64)
    some.flags.writeable = False
    out = np.empty(8, np.int64), np.empty(8, np.int64)
    admit(pool, some, some, some, 0, 1)
    pool.meta[LOADS] += 1
    meet(pool, 0, int(pool.held[0]), True, some, 0, scratch, ALL, out, 0, 2, True)
    noted(scratch, 1, 1, True)
    match_rows(some, some, 0, some, 0, scratch, INNER, out, 0)
    keep_checked(out[0], out[1], 0, 1, np.ones(1, np.bool_), LEFT)


class Met(NamedTuple):
    """Keys that a round met: code, first master row or -1, master rows, waiting rows; `member` has all rows in turn."""

    code: I64
    first: I64
    rows: I64
    waiting: I64
    member: I64


class Round(NamedTuple):
    """Segments picked, rows that still wait for each, and where the rows of each begin, with the end of the last."""

    picked: I64
    counts: I64
    offsets: I64


def empty_met(keys: int, rows: int) -> Met:
    """Room for these numbers of keys and of master rows."""
    return Met(*(np.empty(n, np.int64) for n in (keys, keys, keys, keys, rows)))


def met_bytes(keys: int, rows: int) -> int:
    """Bytes of `empty_met(keys, rows)`."""
    return 32 * keys + 8 * rows


@kernel
def _note(s: Scratch, key: int, before: int, met: Met, n: int, m: int) -> tuple[int, int]:
    """How many keys and rows are noted after this key, unless there is no room for all its rows."""
    row, size = s.first[key], 0
    while row >= 0:
        if m + size < len(met.member):
            met.member[m + size] = before + row
        row = s.following[row]
        size += 1
    if m + size > len(met.member):
        return n, m
    met.code[n], met.rows[n], met.waiting[n] = s.code[key], size, s.waiting[key]
    met.first[n] = before + s.first[key] if size else NONE
    return n + 1, m + size


@kernel
def _candidates(s: Scratch, used: int, threshold: int, misses: bool, out: I32) -> tuple[int, int]:
    """How many keys have at least `threshold` waiting rows, and their master rows; the keys' numbers are written."""
    n, rows = 0, 0
    for key in range(used):
        if s.waiting[key] >= threshold and (misses or s.first[key] >= 0):
            out[n] = key
            n += 1
            rows += _n_matches(s, s.first[key])
    return n, rows


@kernel
def _note_all(s: Scratch, keys: I32, met: Met) -> None:
    n, m = 0, 0
    for at in range(len(keys)):
        n, m = _note(s, keys[at], 0, met, n, m)


def noted(s: Scratch, used: int, threshold: int, misses: bool) -> Met:
    """The keys of one segment with at least `threshold` waiting rows, in the order of their master rows."""
    keys = np.empty(used, np.int32)
    n, rows = _candidates(s, used, threshold, misses, keys)
    met = empty_met(n, rows)
    _note_all(s, keys[:n][np.argsort(s.first[keys[:n]], kind="stable")], met)
    return met


@kernel
def resolve_round(
    p: Pool,
    r: Round,
    start: int,
    codes: I64,
    source: int,
    s: Scratch,
    how: int,
    out: tuple[I64, I64],
    at: int,
    now_ns: int,
    remember: bool,
    met: Met,
    threshold: int,
) -> tuple[int, int, int, int, int, int]:
    """The waiting rows of the round's segments from `start` on are answered, each segment by its own rows of `codes`.

    Stops where `out` is full, or `met`, which takes no notes if it has no room at all. Gives the segment to go on with,
    where the next pair goes, rows answered, rows among them without a match, and the keys and rows noted.
    """
    done, missed, n, m, k = 0, 0, 0, 0, start
    while k < len(r.picked) and not _full(r, k, met, n, m):
        place, waiting = r.offsets[k], r.counts[k]
        here, above = codes[place : r.offsets[k + 1]], source + place
        at, some, lacking, used = meet(p, r.picked[k], waiting, False, here, above, s, how, out, at, now_ns, remember)
        done, missed = done + some, missed + lacking
        r.counts[k] -= some
        if r.counts[k] > 0:
            break
        for key in range(used if len(met.code) else 0):
            if s.waiting[key] >= threshold and n < len(met.code) and (s.first[key] >= 0 or remember):
                n, m = _note(s, key, place, met, n, m)
        k += 1
    return k, at, done, missed, n, m


@kernel
def _full(r: Round, k: int, met: Met, n: int, m: int) -> bool:
    """Whether the keys of a segment might not all be noted after those that are."""
    rows = r.offsets[k + 1] - r.offsets[k]
    return n > 0 and (n + r.counts[k] > len(met.code) or m + rows > len(met.member))


@register_warmup
def _warm_round() -> None:
    pool, scratch, met = empty_pool(4, 2), empty_scratch(4), empty_met(4, 4)
    some = np.arange(2, dtype=np.int64)
    some.flags.writeable = False
    offsets = np.arange(3, dtype=np.int64)
    picked, counts, out = np.empty(2, np.int64), np.empty(2, np.int64), (np.empty(8, np.int64), np.empty(8, np.int64))
    for picking in range(2):
        admit(pool, some, some, some, 0, 1)
        if picking:
            n = take_round(pool, some, some, 4, 9, picked, counts)
        else:
            n = pick_round(pool, 0, 0.3, 1 << 40, 0, some, 4, 9, picked, counts)
        offsets.flags.writeable = False
        chain_rows(pool, picked[:n], out[0], out[1])
        resolve_round(pool, Round(picked[:n], counts[:n], offsets), 0, some, 0, scratch, ALL, out, 0, 2, True, met, 1)
