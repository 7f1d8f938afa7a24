"""The redundancy rule on loaded rows, R1 and R2 of docs/algorithms/online.md, 5.3, against its definition by rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.joins.online.blocks import Part, Sought
from dovetail.joins.online.operators.combinations import Done, Matching, Step, reduced

NEVER = 2**63 - 1
SAME = (0, 0, 0)
STEPS = [
    Step(1),
    Step(0, 0, Sought(0, -1, (-1, 2, 0), SAME), Sought(0, -1, (-2, 1, 0), SAME)),
    Step(2, 0, Sought(1, -1, SAME, SAME), Sought(0, -1, SAME, SAME)),
]
"""A chain of three that starts at its middle, with a band on one edge."""


def random_part(rng: np.random.Generator, attributes: int) -> Part:
    n = int(rng.integers(1, 9))
    ats = rng.permutation(40)[:n].astype(np.int64)
    block = rng.integers(-1, 4, n)  # -1 is in memory
    dts = np.where(block < 0, NEVER, ats + rng.integers(1, 25, n))
    return Part(rng.integers(0, 4, (attributes, n)), ats, dts, block, np.arange(n), {}, pa.schema([]))


def random_done(rng: np.random.Generator) -> Done:
    flight = (bool(rng.integers(2)), 1, int(rng.integers(1, 3)))
    return Done(rng.integers(0, 5, 3).tolist(), flight, [0, 2], rng.integers(0, 4, 2).tolist())


def is_old(done: Done, rows: dict[int, tuple[int, int, int]]) -> bool:
    """Rows as (arrival, departure, block) by relation."""
    if max(a for a, _, _ in rows.values()) < min(d for _, d, _ in rows.values()):
        return True
    blocks = {r: b for r, (_, _, b) in rows.items()}
    if min(blocks.values()) >= 0:
        if all(blocks[r] < done.box[r] for r in rows):
            return True
        first, outer = done.box[done.flight[1]], blocks[done.flight[1]]
        inner = tuple(blocks[r] for r in done.digits)
        inside = all(blocks[r] < done.box[r] for r in done.digits)
        batch = first <= outer < first + done.flight[2]
        if done.flight[0] and batch and inside and inner < tuple(done.current):
            return True
    return False


def model(parts: list[Part], done: Done) -> list[tuple[int, ...]]:
    middle, left, right = parts
    found = []
    for m, a, c in product(*(range(part.n_rows) for part in parts)):
        matches = -1 <= left.keys[0, a] - middle.keys[0, m] <= 2 and right.keys[0, c] == middle.keys[1, m]
        rows = {1: ticks(middle, m), 0: ticks(left, a), 2: ticks(right, c)}
        if matches and not is_old(done, rows):
            found.append((m, a, c))
    return found


def ticks(part: Part, at: int) -> tuple[int, int, int]:
    return int(part.ats[at]), int(part.dts[at]), int(part.block[at])


def combined(parts: list[Part], done: Done, room: int) -> list[tuple[Any, ...]]:
    found = []
    for rows in Matching(parts, STEPS, (), room, lambda _: None).rows():
        new = ~done.has([parts[depth].block[rows[depth]] for depth in (1, 0, 2)])
        found += list(zip(*(some[new].tolist() for some in rows), strict=True))
    return found


def test_combinations_come_unless_one_of_the_two_rules_says_they_came() -> None:
    rng = np.random.default_rng(4)
    total = 0
    for _ in range(600):
        parts, done = [random_part(rng, 2 if at == 0 else 1) for at in range(3)], random_done(rng)
        want = model(parts, done)
        assert sorted(combined(parts, done, int(rng.integers(1, 20)))) == sorted(want)
        total += len(want)
    assert total > 3000


def test_parts_are_reduced_to_rows_that_take_part() -> None:
    rng = np.random.default_rng(5)
    nothing = Done([0, 0, 0], (False, 0, 0), [], [])
    for _ in range(300):
        parts = [random_part(rng, 2 if at == 0 else 1) for at in range(3)]
        parts = [replace(part, dts=np.zeros(part.n_rows, np.int64)) for part in parts]
        want = model(parts, nothing)
        two = reduced(parts[:2], STEPS[:2])
        three = reduced([*two, parts[2]], STEPS) if all(part.n_rows for part in two) else two
        assert set(three[0].refs.tolist()) == {m for m, _, _ in want} or len(three) == 2
        assert bool(want) == (len(three) == 3 and all(part.n_rows for part in three))
