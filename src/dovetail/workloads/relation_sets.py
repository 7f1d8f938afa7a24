"""Sets of relations for online joins, and how their keys are drawn: skewed, shifted, partly sorted, moving, delayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.workloads.arrivals import Arrivals, Poisson
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    F64,
    I64,
    TIMESTAMP,
    Workload,
    filler,
    generator,
    require,
    require_count,
    require_seed,
    timestamps,
    whole,
)
from dovetail.workloads.options import nearest
from dovetail.workloads.zipf import ZipfKeys, ZipfLaw

_VALUES = 999
"""Different keys of the sets with Zipf's law."""


class KeyLaw(Protocol):
    """A sequence of keys; the purpose tells the sides of a join apart."""

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """The first n keys of one block."""
        ...


def nearest_whole(values: F64) -> I64:
    """Each value rounded to the nearest whole number: equality joins need values that can be equal."""
    return whole(np.rint(values))


@dataclass(frozen=True, slots=True)
class NormalKeys:
    """Normal values rounded to whole numbers."""

    mean: float = 500.0
    variance: float = 50.0

    def __post_init__(self) -> None:
        require(self.variance > 0, f"variance must be positive; it is {self.variance}.")

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Independent draws."""
        z = generator(seed, f"{purpose} normal", block).standard_normal(n)
        return nearest_whole(self.mean + z * np.sqrt(self.variance))


@dataclass(frozen=True, slots=True)
class MovingMean:
    """Normal values of variance 15, whose mean of 75 moves up by `shift` in each of ten equal parts of the rows."""

    rows: int
    shift: float

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """In period i = 1, 2, ... the mean is 75 + i * shift."""
        z = generator(seed, f"{purpose} normal", block).standard_normal(n)
        period = 1 + (block * BLOCK_ROWS + np.arange(n)) * 10 // max(1, self.rows)
        return nearest_whole(75.0 + period * self.shift + z * np.sqrt(15.0))


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """Zipf values, sorted, cut into `runs` equal pieces whose order is shuffled.

    Only how often each value occurs is drawn (as one multinomial), so any block can be made without sorting the rest.
    """

    rows: int
    runs: int

    def __post_init__(self) -> None:
        require_count("runs", self.runs, 1)

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Ascending inside a run."""
        counts = _value_counts(self.rows, seed, purpose)
        edges = self.rows * np.arange(self.runs + 1) // self.runs
        order = generator(seed, f"{purpose} runs").permutation(self.runs)
        ends = np.cumsum(np.diff(edges)[order])
        row = block * BLOCK_ROWS + np.arange(n)
        run = np.searchsorted(ends, row, side="right")
        sorted_row = edges[order[run] + 1] - (ends[run] - row)
        return np.searchsorted(np.cumsum(counts), sorted_row, side="right").astype(np.int64) + 1


@lru_cache(maxsize=16)
def _value_counts(rows: int, seed: int, purpose: str) -> I64:
    law = ZipfLaw(_VALUES, 1.0)
    shares = np.diff([law.share(k) for k in range(_VALUES + 1)])
    return generator(seed, f"{purpose} counts").multinomial(rows, shares / shares.sum())


@dataclass(frozen=True, slots=True)
class StockPrices:
    """Prices in cents: one random walk from 2,000 that both sides follow, each trade with its own noise."""

    rows: int
    step: float
    noise: float

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Rounded to whole cents."""
        first = block * BLOCK_ROWS
        walk = _walk(self.rows, seed)[first : first + n] * self.step
        z = generator(seed, f"{purpose} noise", block).standard_normal(n)
        return nearest_whole(2_000.0 + walk + z * self.noise)


@lru_cache(maxsize=8)
def _walk(rows: int, seed: int) -> F64:
    return np.cumsum(generator(seed, "walk").standard_normal(rows))


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Air temperature in tenths of a degree in three years: a yearly and a daily sine, and lasting weather (AR(1))."""

    rows: int
    shift: float = 0.0

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """Rounded to tenths; `shift` moves the seasons by that part of a year."""
        first = block * BLOCK_ROWS
        year = (first + np.arange(n)) * (3.0 / max(1, self.rows))
        seasons = 100.0 * np.sin(2 * np.pi * (year + self.shift)) + 60.0 * np.sin(2 * np.pi * 365.0 * year)
        weather = _persistent(self.rows, seed, purpose)[first : first + n]
        return nearest_whole(150.0 + seasons + weather)


@lru_cache(maxsize=8)
def _persistent(rows: int, seed: int, purpose: str) -> F64:
    """AR(1): each value is 0.995 times the last one plus normal noise of deviation 2; it starts at 0."""
    noise = generator(seed, f"{purpose} weather").standard_normal(rows) * 2.0
    out = np.empty(rows)
    chunk, last = 4096, 0.0  # 0.995**-4096 stays far from overflow
    powers = 0.995 ** np.arange(1, chunk + 1)
    for first in range(0, rows, chunk):
        part = noise[first : first + chunk]
        decay = powers[: part.size]
        out[first : first + chunk] = decay * (np.cumsum(part / decay) + last)
        last = float(out[first + part.size - 1])
    return out


Side = Literal["left", "right"]


_STEADY = Poisson()


@dataclass(frozen=True, slots=True)
class Relation(Workload):
    """Rows `id`, `at` (Poisson arrivals, 1 ms apart on average) and one column for each named key law.

    With tuple_bytes above the width of these, a `payload` fills the row up (the sources use 200).
    """

    rows: int
    name: str
    laws: tuple[tuple[str, KeyLaw], ...]
    seed: int = 0
    arrivals: Arrivals = _STEADY
    tuple_bytes: int = 0

    def __post_init__(self) -> None:
        require_count("rows", self.rows)
        require_count("tuple_bytes", self.tuple_bytes)
        require_seed(self.seed)
        require(len(self.laws) > 0, "a relation needs at least one key column.")

    @property
    def schema(self) -> pa.Schema:
        """id, at, the key columns, and payload if the tuple is wider than these."""
        fields = [("id", pa.int64()), ("at", TIMESTAMP)] + [(column, pa.int64()) for column, _ in self.laws]
        return pa.schema(fields + ([("payload", pa.string())] if self._payload_bytes else []))

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        at = self.arrivals.times_us(self.seed, f"{self.name} arrival", block, n, self.rows)
        keys = [law.keys(self.seed, f"{self.name} {column}", block, n) for column, law in self.laws]
        arrays = [pa.array(ids), timestamps(at), *(pa.array(column) for column in keys)]
        return arrays + ([filler(keys[0], self._payload_bytes)] if self._payload_bytes else [])

    @property
    def _payload_bytes(self) -> int:
        return max(0, self.tuple_bytes - 16 - 8 * len(self.laws))


class RelationSet(NamedTuple):
    """The default of a set's varied quantity x, and the key law of each side."""

    x: float
    law: Callable[[float, Side, int], KeyLaw]


def _normal_means(x: float, side: Side, rows: int) -> KeyLaw:
    return NormalKeys(500.0 + (x if side == "right" else 0.0), 50.0)


def _normal_variances(x: float, side: Side, rows: int) -> KeyLaw:
    return NormalKeys(500.0, 50.0 + (x if side == "right" else 0.0))


def _zipf_one(x: float, side: Side, rows: int) -> KeyLaw:
    return ZipfKeys(_VALUES, 1.0)


RELATION_SETS: dict[str, RelationSet] = {
    "zipf": RelationSet(1.0, lambda x, side, rows: ZipfKeys(_VALUES, x)),  # exponent
    "normal_means": RelationSet(10.0, _normal_means),  # distance of the means
    "normal_variances": RelationSet(50.0, _normal_variances),  # variance added on the right
    "partly_sorted": RelationSet(10.0, lambda x, side, rows: SortedRuns(rows, int(x))),  # number of sorted runs
    "moving_mean": RelationSet(10.0, lambda x, side, rows: MovingMean(rows, x)),  # shift of the mean per period
    "delays": RelationSet(10.0, _zipf_one),  # pause after each of 10 fragments, in % of its time
    "csco": RelationSet(0.35, lambda x, side, rows: StockPrices(rows, x, 3.0)),  # step of the walk in cents
    "ipix": RelationSet(0.25, lambda x, side, rows: StockPrices(rows, x, 1.5)),  # step of the walk in cents
    # shift of the seasons on the right, in years
    "weather": RelationSet(0.02, lambda x, side, rows: Temperatures(rows, x if side == "right" else 0.0)),
}
"""The sets of Bornea 2010, 5; csco, ipix and weather are stand-ins for its recorded data.

Reference: docs/algorithms/online.md, 6.2.
"""


def relation(
    set: str = "zipf",  # noqa: A002  (the word of the sources, and the option of the Spark source)
    side: Side = "left",
    x: float | None = None,
    rows: int = 100_000,
    seed: int = 0,
    tuple_bytes: int = 0,
) -> Relation:
    """One side of a two-relation set: columns `id`, `at`, `key`; x is what the experiment varies (None: its default).

    Both sides come from the same seed. Reference: Bornea 2010, 5.1 to 5.3; docs/algorithms/online.md, 6.2.
    """
    if set not in RELATION_SETS:
        raise PlanError(f"unknown relation set {set!r}: {nearest(set, RELATION_SETS)}", argument="set")
    require(side in ("left", "right"), f"side must be 'left' or 'right', not {side!r}.")
    chosen = RELATION_SETS[set]
    value = chosen.x if x is None else x
    arrivals = Poisson(1000.0, 10, value / 100.0) if set == "delays" else _STEADY
    law = chosen.law(value, side, rows)
    return Relation(rows, f"{set} {side}", (("key", law),), seed, arrivals, tuple_bytes)


def relations(
    set: str = "zipf",  # noqa: A002  (as in `relation`)
    x: float | None = None,
    rows: int = 100_000,
    right_rows: int | None = None,
    seed: int = 0,
    tuple_bytes: int = 0,
) -> tuple[Relation, Relation]:
    """Both sides of a two-relation set; the right side may have another number of rows.

    >>> left, right = relations("normal_means", x=20, rows=1000)
    >>> right.table().schema.names
    ['id', 'at', 'key']
    """
    right = rows if right_rows is None else right_rows
    return relation(set, "left", x, rows, seed, tuple_bytes), relation(set, "right", x, right, seed, tuple_bytes)
