"""Sets of relations for online joins: skewed, shifted, partly sorted, moving and delayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.workloads.arrivals import Arrivals, Poisson
from dovetail.workloads.blocks import BLOCK_ROWS, TIMESTAMP, Workload, require, require_count, require_seed, timestamps
from dovetail.workloads.calls import nearest
from dovetail.workloads.filler import filler
from dovetail.workloads.key_laws import KeyLaw, MovingMean, NormalKeys, SortedRuns, StockPrices, Temperatures
from dovetail.workloads.zipf import ZipfKeys

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
    """What the varied quantity x of a set means, its default, and the key law of each side."""

    x_means: str
    x: float
    law: Callable[[float, Side, int], KeyLaw]


def _normal_means(x: float, side: Side, rows: int) -> KeyLaw:
    return NormalKeys(500.0 + (x if side == "right" else 0.0), 50.0)


def _normal_variances(x: float, side: Side, rows: int) -> KeyLaw:
    return NormalKeys(500.0, 50.0 + (x if side == "right" else 0.0))


def _zipf_one(x: float, side: Side, rows: int) -> KeyLaw:
    return ZipfKeys(999, 1.0)


RELATION_SETS: dict[str, RelationSet] = {
    "zipf": RelationSet("exponent", 1.0, lambda x, side, rows: ZipfKeys(999, x)),
    "normal_means": RelationSet("distance of the means", 10.0, _normal_means),
    "normal_variances": RelationSet("variance added on the right", 50.0, _normal_variances),
    "partly_sorted": RelationSet("number of sorted runs", 10.0, lambda x, side, rows: SortedRuns(rows, int(x))),
    "moving_mean": RelationSet("shift of the mean per period", 10.0, lambda x, side, rows: MovingMean(rows, x)),
    "delays": RelationSet("pause after each of 10 fragments, in % of its time", 10.0, _zipf_one),
    "csco": RelationSet("step of the walk in cents", 0.35, lambda x, side, rows: StockPrices(rows, x, 3.0)),
    "ipix": RelationSet("step of the walk in cents", 0.25, lambda x, side, rows: StockPrices(rows, x, 1.5)),
    "weather": RelationSet(
        "shift of the seasons on the right, in years",
        0.02,
        lambda x, side, rows: Temperatures(rows, x if side == "right" else 0.0),
    ),
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
        raise PlanError(f"unknown relation set {set!r}: {nearest(set, RELATION_SETS)}")
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
