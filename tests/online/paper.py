"""Online shares and hand-over at the scale of the sources: 100,000 rows a side, memory for 10,000, blocks of 50.

Run it to see all tables: `python -m tests.online.paper`. Pairs are counted by the kernels of the operators, not
written: one of these results has nine thousand million rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.kernels.arrays import I64, int64s
from dovetail.kernels.online_flush import DPHJ, EHJ, HMJ, HMJ_SMALLEST, OLDEST, RPJ, XJOIN
from dovetail.kernels.online_hashed import arrive_hashed
from dovetail.kernels.online_regions import empty_regions
from dovetail.kernels.online_rows import (
    DONE,
    GONE,
    HEADS,
    INDEX_FULL,
    MATCHES,
    Outcome,
    Rows,
    empty_outcome,
    empty_rows,
    release,
)
from dovetail.kernels.online_sorted import arrivals, arrive_sorted
from dovetail.kernels.online_table import empty_table
from dovetail.kernels.sorted_leaves import empty_leaves
from dovetail.workloads import relations

ROWS, MEMORY, BLOCK, BUCKETS = 100_000, 10_000, 50, 50
TURN = 20  # rows of one side, then of the other: the two streams never drift apart by more
HASHED = {
    "HMJ": (HMJ, 1.0),
    "HMJ smallest": (HMJ_SMALLEST, 1.0),
    "RPJ 1.0": (RPJ, 1.0),
    "RPJ 0.9": (RPJ, 0.9),
    "XJoin": (XJOIN, 1.0),
    "oldest": (OLDEST, 1.0),
    "EHJ": (EHJ, 1.0),
    "DPHJ": (DPHJ, 1.0),
}
COLUMNS = ("DINER", "HMJ", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "EHJ", "PMJ")
# specs/online.md, 6.4, in the order of COLUMNS
PUBLISHED: dict[tuple[str, float], tuple[float, ...]] = {
    ("zipf", 1): (38.7, 2.8, 35.8, 35.8, 2.8, 9.7, 16.1, 5.0),
    ("zipf", 2): (14.5, 1.9, 14.4, 14.4, 2.0, 9.7, 1.4, 5.0),
    ("zipf", 5): (10.1, 3.9, 10.0, 10.0, 4.7, 9.7, 0.7, 5.0),
    ("moving_mean", 0): (13.1, 6.4, 10.7, 10.7, 6.6, 9.7, 5.8, 5.0),
    ("moving_mean", 2): (22.6, 11.4, 13.1, 19.3, 11.6, 17.8, 8.4, np.nan),
    ("moving_mean", 5): (41.5, 19.6, 14.4, 37.5, 20.0, 35.4, 10.1, np.nan),
    ("moving_mean", 10): (63.0, 31.6, 17.9, 58.7, 31.1, 58.8, 11.3, np.nan),
    ("moving_mean", 20): (82.1, 35.3, 19.6, 76.3, 33.9, 74.7, 13.2, np.nan),
}


def keys_of(name: str, x: float, rows: int = ROWS, seed: int = 1) -> tuple[I64, I64]:
    """The keys of both sides of one set, in order of arrival."""
    left, right = (relation.table().column("key").to_numpy() for relation in relations(name, x, rows, seed=seed))
    return int64s(left), int64s(right)


def pairs_in_all(left: I64, right: I64, band: int = 0) -> int:
    """The size of the join of keys up to a distance of `band`."""
    mine = np.sort(left)
    found = np.searchsorted(mine, right + band, side="right") - np.searchsorted(mine, right - band, side="left")
    return int(found.sum())


def share(name: str, left: I64, right: I64, memory: int = MEMORY, block: int = BLOCK, turn: int = TURN) -> float:
    """Percent of the result that comes in the arriving phase."""
    if name == "PMJ":
        found = _pmj(left, right, memory)
    elif name == "DINER":
        found = diner_online(left, right, memory, block, turn)
    else:
        found = _hashed(name, left, right, memory, block, turn)
    return 100.0 * found / pairs_in_all(left, right)


def turns(left: I64, right: I64, turn: int) -> list[tuple[int, I64]]:
    """Both sides in turn, in proportion to their sizes."""
    n = max(1, -(-max(len(left), len(right)) // turn))
    edges = [np.linspace(0, len(keys), n + 1).astype(int) for keys in (left, right)]
    return [(s, keys[edges[s][i] : edges[s][i + 1]]) for i in range(n) for s, keys in ((0, left), (1, right))]


def diner_online(left: I64, right: I64, memory: int, block: int, turn: int, seed: int = 0, band: int = 0) -> int:
    """Pairs that DINER gives while rows arrive; keys match up to a distance of `band`."""
    slots = memory + max(64, block)
    rows, out = empty_rows(slots, memory, 2**62, coded=False, emit=False), empty_outcome(1, slots, 64)
    regions = empty_regions(block, seed)
    left_index, right_index = (empty_leaves(4 * slots // 64 + 4, 64) for _ in range(2))
    one, other = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for side, keys in turns(left, right, turn):
        low, high = int64s(keys - band), int64s(keys + band)
        new = arrivals(side, 0, keys, keys, low, high, int64s(np.ones(len(keys), np.int64)))
        while (status := arrive_sorted(rows, regions, left_index, right_index, new, out, one, other)) != DONE:
            assert status != INDEX_FULL
            _free(rows, out)
        _free(rows, out)
    return int(rows.meta[MATCHES])


def _hashed(name: str, left: I64, right: I64, memory: int, block: int, turn: int) -> int:
    policy, ageing = HASHED[name]
    buckets = 1 if policy == OLDEST else BUCKETS
    slots = memory + max(64, block)
    rows, out = empty_rows(slots, memory, 2**62, coded=False, emit=False), empty_outcome(1, slots, 512)
    table = empty_table(slots, buckets, policy, block, memory // 10, -1)
    knobs = np.array([ageing, float(block), 0.05])
    for side, keys in turns(left, right, turn):
        new = arrivals(side, 0, keys, keys, keys, keys, int64s(np.ones(len(keys), np.int64)))
        while arrive_hashed(rows, table, new, out, knobs) != DONE:
            _free(rows, out)
        _free(rows, out)
    return int(rows.meta[MATCHES])


def _free(rows: Rows, out: Outcome) -> None:
    release(rows, out.gone[: out.n[GONE]])
    out.n[GONE] = out.n[HEADS] = 0


def _pmj(left: I64, right: I64, memory: int, band: int = 0) -> int:
    half = memory // 2
    loads = [slice(i * half, (i + 1) * half) for i in range(min(len(left), len(right)) // half)]
    return sum(pairs_in_all(left[load], right[load], band) for load in loads)


# Rows a side, band on whole keys, and the specification's shares of DINER and PMJ at 5 and 20 % memory (single runs)
BANDS: dict[str, tuple[int, int, tuple[float, ...]]] = {
    "csco": (10_355, 4, (36.6, 79.4, 19.9, 48.9)),
    "ipix": (22_784, 4, (23.6, 51.3, 13.0, 29.5)),
    "weather": (45_000, 49, (16.3, 43.4, 8.0, 22.9)),
}


def band_shares(name: str) -> tuple[float, ...]:
    """Percent online of a band join: DINER at 5 and 20 % memory, then PMJ."""
    rows, band, _ = BANDS[name]
    left, right = (relation.table().column("key").to_numpy() for relation in relations(name, None, rows, seed=1))
    total = pairs_in_all(left, right, band)
    memories = [2 * rows * percent // 100 for percent in (5, 20)]
    diner = [diner_online(int64s(left), int64s(right), m, max(10, m // 200), TURN, band=band) for m in memories]
    return tuple(100.0 * found / total for found in (*diner, *(_pmj(left, right, m, band) for m in memories)))


def bands_table() -> str:
    """Measured shares of band joins with those of the specification beside them."""
    lines = [f"{'percent online':18}" + "".join(f"{c:>16}" for c in ("DINER 5 %", "DINER 20 %", "PMJ 5 %", "PMJ 20 %"))]
    for name, (_, _, printed) in BANDS.items():
        cells = [f"{found:7.1f} ({wanted:4.1f})" for found, wanted in zip(band_shares(name), printed, strict=True)]
        lines.append(f"{name:18}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def shares_table(columns: Sequence[str] = COLUMNS, rows: int = ROWS) -> str:
    """Measured shares with those of the specification beside them."""
    lines = [f"{'percent online':18}" + "".join(f"{column:>16}" for column in columns)]
    for (name, x), printed in PUBLISHED.items():
        left, right = keys_of(name, x, rows)
        cells = []
        for column in columns:
            wanted = printed[COLUMNS.index(column)]
            cells.append(f"{share(column, left, right, rows // 10):7.1f} ({wanted:4.1f})")
        lines.append(f"{name + ' ' + format(x, 'g'):18}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    from tests.online.handover import handover_table

    print(shares_table())
    print(bands_table())
    print(handover_table())
