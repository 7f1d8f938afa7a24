"""Waiting rows of one segment met with its master rows: a small table over the smaller side, one walk over the other.

Reference: docs/algorithms/semistream.md, 2.0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.engine.kernels.hashing import place
from dovetail.joins.semistream.kernels.waiting_pool import LOADS, NONE, Pool, admit, empty_pool, release, unlink

INNER, LEFT, SEMI, ANTI, ALL = range(5)
"""What pairs are given: matches; these and misses; the first match; misses; all of LEFT for a later check."""


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
    """The mask of a cleared table for so many keys."""
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
def resolve(
    p: Pool,
    segment: int,
    codes: I64,
    source: int,
    s: Scratch,
    how: int,
    out: tuple[I64, I64],
    at: int,
    now_ns: int,
    remember: bool,
) -> tuple[int, int, int, int]:
    """Every waiting row of the segment is answered and leaves, in order of admission, as far as `out` has room.

    Gives where the next pair goes, rows answered, rows among them without a match, and keys in the scratch table, whose
    `waiting` counts the rows of each. Call again with more room if rows of the segment still wait.
    """
    waiting = p.held[segment]
    at, done, missed, used = meet(p, segment, waiting, True, codes, source, s, how, out, at, now_ns, remember)
    p.held[segment] -= done
    return at, done, missed, used


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
    """What `resolve` gives, for a chain of rows that are, or are not, in the queue; `held` is the caller's."""
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
        release(p, slot, now_ns)
        slot, done = after, done + 1
        missed += first < 0
    p.head[segment] = slot
    return at, done, missed, used


@kernel
def match_rows(
    wanted: I64, refs: I64, start: int, codes: I64, source: int, s: Scratch, how: int, out: tuple[I64, I64], at: int
) -> tuple[int, int, int]:
    """Stream rows from `start` on met with master rows, in their order, as far as `out` has room.

    Gives where the next pair goes, the first row not answered, and rows without a match.
    """
    mask = _clear(s, len(codes))
    _index_rows(s, mask, codes, 0, True)
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
def candidates(s: Scratch, used: int, threshold: int, misses: bool, out: I32) -> int:
    """How many keys have at least `threshold` waiting rows; their numbers are written in the order of their finding."""
    n = 0
    for key in range(used):
        if s.waiting[key] >= threshold and (misses or s.first[key] >= 0):
            out[n] = key
            n += 1
    return n


@kernel
def group_rows(s: Scratch, keys: I32, sizes: I64, out: I64) -> int:
    """How many master rows these keys have together; each key's number and, as far as there is room, the rows."""
    n = 0
    for at in range(len(keys)):
        row, size = s.first[keys[at]], 0
        while row >= 0:
            if n < len(out):
                out[n] = row
            n += 1
            size += 1
            row = s.following[row]
        sizes[at] = size
    return n


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
    resolve(pool, 0, some, 0, scratch, ALL, out, 0, 2, True)
    candidates(scratch, 1, 1, True, np.empty(8, np.int32))
    group_rows(scratch, np.zeros(1, np.int32), np.empty(1, np.int64), np.empty(1, np.int64))
    match_rows(some, some, 0, some, 0, scratch, INNER, out, 0)
    keep_checked(out[0], out[1], 0, 1, np.ones(1, np.bool_), LEFT)
