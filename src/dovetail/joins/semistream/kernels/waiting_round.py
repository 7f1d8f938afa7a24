"""Several segments served in one round: what the look-up policy picks one after the other, and all that waits for it.

A picked segment's rows leave the queue at once, so that the next pick sees what it would see had they been answered;
they keep their slots until the round's rows are there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel, register_warmup
from dovetail.joins.semistream.kernels.segment_match import ALL, Scratch, empty_scratch, meet
from dovetail.joins.semistream.kernels.waiting_pool import (
    AHEAD,
    FINGER,
    LIVE,
    LOADS,
    NEWEST,
    NONE,
    OLDEST,
    TURN,
    USED,
    Pool,
    admit,
    choose,
    empty_pool,
    unlink,
)


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
    """Room for so many keys with so many master rows together."""
    return Met(*(np.empty(n, np.int64) for n in (keys, keys, keys, keys, rows)))


def met_bytes(keys: int, rows: int) -> int:
    """Bytes of `empty_met(keys, rows)`."""
    return 32 * keys + 8 * rows


@kernel
def detach(p: Pool, segment: int) -> int:
    """How many rows waited for the segment; they are out of the queue, in a chain that nobody is added to."""
    slot, n = p.head[segment], 0
    while slot >= 0:
        unlink(p, slot)
        slot = p.follower[slot]
        n += 1
    p.held[segment] = 0
    return n


@kernel
def pick_round(
    p: Pool,
    policy: int,
    position: float,
    patience: int,
    before_ns: int,
    rows: I64,
    most: int,
    enough: int,
    picked: I64,
    counts: I64,
) -> int:
    """How many segments the policy picks until `picked` is full or they have more than `most` rows; at least one.

    `rows` has the master rows of each segment; where it is empty, waiting rows are counted instead. Picking also ends
    when `enough` rows waited for what was picked.
    """
    m, n, total, answered = p.meta, 0, 0, 0
    while n < len(picked) and m[LIVE] > 0 and answered < enough:
        turn = m[TURN]
        segment = choose(p, policy, position, patience, before_ns)
        weight = rows[segment] if len(rows) else p.held[segment]
        if n > 0 and total + weight > most:
            m[TURN] = turn
            break
        m[LOADS] += 1
        picked[n], counts[n] = segment, detach(p, segment)
        answered += counts[n]
        total += weight
        n += 1
    return n


@kernel
def take_round(p: Pool, order: I64, rows: I64, most: int, enough: int, picked: I64, counts: I64) -> int:
    """As `pick_round`, for segments in a given order, which ends where nothing waits."""
    n, total, answered = 0, 0, 0
    for at in range(min(len(order), len(picked))):
        segment = order[at]
        weight = rows[segment] if len(rows) else p.held[segment]
        if p.held[segment] == 0 or answered >= enough or (n > 0 and total + weight > most):
            break
        p.meta[LOADS] += 1
        picked[n], counts[n] = segment, detach(p, segment)
        answered += counts[n]
        total += weight
        n += 1
    return n


def reattach(p: Pool, picked: I64, counts: I64) -> None:
    """Rows of segments that were picked but not served wait again, each in its old place; their loads do not count."""
    some = counts > 0
    p.held[picked[some]] = counts[some]
    p.meta[LOADS] -= int(some.sum())
    slots = np.flatnonzero(p.segment[: int(p.meta[USED])] >= 0)
    slots = slots[p.held[p.segment[slots]] > 0]  # what other segments of the round still have is not theirs
    slots = slots[np.argsort(p.ticket[slots])]
    p.older[slots], p.newer[slots] = np.append(NONE, slots)[: len(slots)], np.append(slots, NONE)[1:]
    p.meta[LIVE], p.meta[FINGER], p.meta[AHEAD] = len(slots), NONE, 0
    p.meta[OLDEST], p.meta[NEWEST] = (slots[0], slots[-1]) if len(slots) else (NONE, NONE)


@kernel
def chain_rows(p: Pool, picked: I64, codes: I64, refs: I64) -> int:
    """How many rows wait for the picked segments; the code and name of each are written."""
    n = 0
    for at in range(len(picked)):
        slot = p.head[picked[at]]
        while slot >= 0:
            codes[n], refs[n] = p.code[slot], p.ref[slot]
            slot = p.follower[slot]
            n += 1
    return n


@kernel
def _note(
    s: Scratch, used: int, threshold: int, misses: bool, before: int, met: Met, n: int, m: int
) -> tuple[int, int]:
    """How many keys and rows are noted after those of one segment with at least `threshold` waiting rows."""
    for key in range(used):
        if s.waiting[key] < threshold or n == len(met.code) or (s.first[key] < 0 and not misses):
            continue
        row, size = s.first[key], 0
        while row >= 0:
            if m + size < len(met.member):
                met.member[m + size] = before + row
            row = s.following[row]
            size += 1
        if m + size > len(met.member):
            continue
        met.code[n], met.rows[n], met.waiting[n] = s.code[key], size, s.waiting[key]
        met.first[n] = before + s.first[key] if size else NONE
        n, m = n + 1, m + size
    return n, m


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
        if len(met.code):
            n, m = _note(s, used, threshold, remember, place, met, n, m)
        k += 1
    return k, at, done, missed, n, m


@kernel
def _full(r: Round, k: int, met: Met, n: int, m: int) -> bool:
    """Whether the keys of a segment might not all be noted after those that are."""
    rows = r.offsets[k + 1] - r.offsets[k]
    return n > 0 and (n + r.counts[k] > len(met.code) or m + rows > len(met.member))


@register_warmup
def _warm() -> None:
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
