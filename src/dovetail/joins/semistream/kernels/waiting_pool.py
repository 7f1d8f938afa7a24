"""The arrays of waiting stream rows, and the kernels that admit rows and pick the segments to load.

Every waiting row is a slot: in a queue by order of admission, from which any slot can leave, and in the chain of its
segment, the part of the master data that will settle it. One finger remembers a place in the queue by its number of
newer rows, so that a look-up position is reached by a short walk.

Several segments may be picked for one round. The rows of a picked segment leave the queue at once, so that the next
pick sees what it would see had they been answered. They keep their slots until the round's rows are there.
Reference: docs/algorithms/semistream.md, 2.0 and 2.12.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64, Bool
from dovetail.engine.kernels.compile import kernel, register_warmup


class Pool(NamedTuple):
    """Per slot code, reference, number in order, admission in ns and in loads, segment, links; per segment its chain.

    `head`, `tail` and `held` have one more place than there are segments, for rows that belong to no segment.
    """

    code: I64
    ref: I64
    ticket: I64
    since: I64
    born: I32
    segment: I32
    older: I32
    newer: I32
    follower: I32
    head: I32
    tail: I32
    held: I32
    meta: I64
    residence: I64


FREE, USED, LIVE, OLDEST, NEWEST, TICKET, FINGER, AHEAD, LOADS, PEAK, WORST, TURN = range(12)
"""Places in `meta`: first free slot, slots ever used, waiting rows, oldest and newest slot, next ticket, finger slot,
how many rows are newer than it, loads so far, most rows ever waiting, longest residence in loads, look-ups so far."""

SLOT_BYTES = 8 * 4 + 4 * 5

SEGMENT_BYTES = 4 * 3

BUCKETS = 64

NONE = -1

BY_OLDEST, BY_ALTERNATE, BY_GUARDED, BY_POSITION, BY_GREEDY, BY_GREEDY_OLDEST, BY_SEGMENT = range(7)
"""How `choose` picks; BY_SEGMENT takes the next segment in order that anything waits for."""


def empty_pool(slots: int, segments: int) -> Pool:
    """A pool with room for `slots` rows that wait for one of `segments` segments."""
    c, r, t, s = (np.zeros(slots, np.int64) for _ in range(4))
    b, g, older, newer, f = (np.zeros(slots, np.int32) for _ in range(5))
    head, tail = (np.full(segments + 1, NONE, np.int32) for _ in range(2))
    meta = np.zeros(12, np.int64)
    meta[[FREE, OLDEST, NEWEST, FINGER]] = NONE
    held, residence = np.zeros(segments + 1, np.int32), np.zeros(BUCKETS, np.int64)
    return Pool(c, r, t, s, b, g, older, newer, f, head, tail, held, meta, residence)


def pool_bytes(slots: int, segments: int) -> int:
    """Bytes of a pool's arrays."""
    return slots * SLOT_BYTES + (segments + 1) * SEGMENT_BYTES + 8 * (12 + BUCKETS)


@kernel
def enter(p: Pool, code: int, ref: int, segment: int, now_ns: int) -> None:
    """One row becomes the newest; the caller knows that a slot is free."""
    m = p.meta
    slot = m[FREE]
    if slot >= 0:
        m[FREE] = p.follower[slot]
    else:
        slot = m[USED]
        m[USED] += 1
    p.code[slot], p.ref[slot], p.since[slot] = code, ref, now_ns
    p.born[slot], p.segment[slot] = m[LOADS], segment
    p.ticket[slot] = m[TICKET]
    m[TICKET] += 1
    p.older[slot], p.newer[slot] = m[NEWEST], NONE
    if m[NEWEST] >= 0:
        p.newer[m[NEWEST]] = slot
    else:
        m[OLDEST] = slot
    m[NEWEST] = slot
    p.follower[slot] = NONE
    if p.held[segment] == 0:
        p.head[segment] = slot
    else:
        p.follower[p.tail[segment]] = slot
    p.tail[segment] = slot
    p.held[segment] += 1
    m[LIVE] += 1
    m[PEAK] = max(m[PEAK], m[LIVE])
    if m[FINGER] >= 0:
        m[AHEAD] += 1


@kernel
def unlink(p: Pool, slot: int) -> None:
    """The slot leaves the queue, and its row counts as waiting no more; it keeps its place in the chain."""
    m = p.meta
    finger = m[FINGER]
    if finger == slot:
        if p.older[slot] >= 0:
            m[FINGER] = p.older[slot]
        else:
            m[FINGER] = p.newer[slot]
            m[AHEAD] -= 1
    elif finger >= 0 and p.ticket[slot] > p.ticket[finger]:
        m[AHEAD] -= 1
    older, newer = p.older[slot], p.newer[slot]
    if older >= 0:
        p.newer[older] = newer
    else:
        m[OLDEST] = newer
    if newer >= 0:
        p.older[newer] = older
    else:
        m[NEWEST] = older
    m[WORST] = max(m[WORST], m[LOADS] - p.born[slot])
    m[LIVE] -= 1


@kernel
def release(p: Pool, slot: int, now_ns: int) -> None:
    """A slot that left the queue is free."""
    p.residence[bucket(now_ns - p.since[slot])] += 1
    p.segment[slot] = NONE
    p.follower[slot] = p.meta[FREE]
    p.meta[FREE] = slot


@kernel
def bucket(ns: int) -> int:
    """The number of bits of a duration: what is in bucket b took less than 2**b ns."""
    bits = 0
    while ns > 0:
        ns >>= 1
        bits += 1
    return bits


@kernel
def admit(p: Pool, codes: I64, segments: I64, refs: I64, start: int, now_ns: int) -> int:
    """How far rows were admitted, from `start` on: all, or until no slot was free."""
    room = len(p.code) - p.meta[LIVE]
    stop: int = min(len(codes), start + room)
    for row in range(start, stop):
        enter(p, codes[row], refs[row], segments[row], now_ns)
    return stop


@kernel
def admit_until(
    p: Pool, codes: I64, segments: I64, refs: I64, start: int, now_ns: int, threshold: int, there: Bool, found: I64
) -> tuple[int, int]:
    """How far rows were taken, and how many of them need not wait, as their segment is there; those are written.

    Stops when no slot is free, and after the row that gives a segment `threshold` waiting rows.
    """
    room, n = len(p.code) - p.meta[LIVE], 0
    for row in range(start, len(codes)):
        segment = segments[row]
        if there[segment]:
            found[n] = row
            n += 1
            continue
        if room == 0:
            return row, n
        enter(p, codes[row], refs[row], segment, now_ns)
        room -= 1
        if p.held[segment] >= threshold:
            return row + 1, n
    return len(codes), n


@kernel
def _at_rank(p: Pool, wanted: int) -> int:
    """The slot that has `wanted` newer ones; the finger ends there."""
    m = p.meta
    if m[FINGER] < 0:
        m[FINGER], m[AHEAD] = m[NEWEST], 0
    slot: int = m[FINGER]
    ahead: int = m[AHEAD]
    while ahead < wanted:
        slot, ahead = p.older[slot], ahead + 1
    while ahead > wanted:
        slot, ahead = p.newer[slot], ahead - 1
    m[FINGER], m[AHEAD] = slot, ahead
    return slot


@kernel
def fullest(held: I32) -> int:
    """The segment with the most waiting rows, the first of several."""
    best = 0
    for segment in range(1, len(held)):
        if held[segment] > held[best]:
            best = segment
    return best


@kernel
def _next_wanted(p: Pool) -> int:
    n = len(p.held)
    at: int = p.meta[TURN] % n
    while p.held[at] == 0:
        at = (at + 1) % n
    p.meta[TURN] = at
    return at


@kernel
def choose(p: Pool, policy: int, position: float, patience: int, before_ns: int) -> int:
    """The segment to load next, or -1 if nothing waits.

    A row that waits for `patience` loads, or since before `before_ns`, is looked up first whatever the policy.
    """
    m = p.meta
    if m[LIVE] == 0:
        return NONE
    oldest = m[OLDEST]
    first: int = p.segment[oldest]
    if policy == BY_SEGMENT:
        return _next_wanted(p)
    even = m[TURN] % 2 == 1
    m[TURN] += 1
    if policy == BY_OLDEST or m[LOADS] - p.born[oldest] >= patience or p.since[oldest] < before_ns:
        return first
    if policy == BY_GREEDY or (policy == BY_GREEDY_OLDEST and even):
        return fullest(p.held)
    if policy == BY_POSITION or (even and policy != BY_GREEDY_OLDEST):
        wanted = min(int(position * m[LIVE]), m[LIVE] - 1)
        other: int = p.segment[_at_rank(p, wanted)]
        if policy != BY_GUARDED or p.held[other] > p.held[first]:
            return other
    return first


@kernel
def waiting_slots(p: Pool, out: I32) -> None:
    """The slots of all waiting rows, oldest first."""
    slot = p.meta[OLDEST]
    for at in range(len(out)):
        out[at] = slot
        slot = p.newer[slot]


@kernel
def slots_from(p: Pool, ticket: int, out: I32) -> int:
    """How many rows were admitted from `ticket` on and still wait; their slots are written, newest first."""
    n, slot = 0, p.meta[NEWEST]
    while slot >= 0 and p.ticket[slot] >= ticket:
        out[n] = slot
        slot = p.older[slot]
        n += 1
    return n


@register_warmup
def _warm() -> None:
    pool = empty_pool(4, 2)
    some = np.arange(2, dtype=np.int64)
    some.flags.writeable = False
    admit(pool, some, some, some, 0, 1)
    admit_until(pool, some, some, some, 0, 1, 2, np.zeros(2, np.bool_), np.empty(2, np.int64))
    for policy in range(7):
        choose(pool, policy, 0.3, 1 << 40, 0)
    fullest(pool.held)
    waiting_slots(pool, np.empty(4, np.int32))
    slots_from(pool, 0, np.empty(4, np.int32))


@kernel
def detach(p: Pool, segment: int) -> int:
    """How many rows waited for the segment; they are out of the queue, in a chain that does not grow."""
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
