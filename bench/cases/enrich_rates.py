"""Service rates of the semi-stream joins on a simulated disk, beside our reference counts.

Nothing here is this machine's speed: joins run for real over real keys, and their reads and steps are counted and
priced by the source's disk (4 ms a seek, 0.099 us a byte) and its costs of a step. Times are for a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bench.case import Bound, Case, Outcome, Params, Rival, Run
from bench.context import BenchContext
from bench.simulation import Experiment, service_rate
from dovetail.joins.semistream.options import OLDEST, Lookup
from dovetail.workloads.zipf import ZipfLaw

QUEUES = 10  # how often the rows that can wait are renewed while it is measured: fewer catch the waves of the start
_INLJ_ROWS = 400  # INLJ has no queue; that many rows stand for one
_SEED = 11
HALF, TWO, EIGHT = 500_000, 2_000_000, 8_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: the join, how long it runs before it is measured, and rows a second by master rows.

    Reference: docs/algorithms/semistream.md, 8.3 (exponent 1, 50 MB, rows of 120 bytes).
    """

    name: str
    algorithm: str
    warm: float
    half: float
    two: float
    eight: float
    order: Literal["key", "none"] = "key"
    lookup: Lookup = OLDEST

    def due(self, master_rows: int) -> float:
        """Rows a second of the reference counts."""
        return {HALF: self.half, TWO: self.two, EIGHT: self.eight}[master_rows]

    def rate(self, master_rows: int) -> tuple[int, float]:
        """Queue lengths answered while it was measured, to the nearest whole one, and rows a second."""
        join = Experiment(n=master_rows, order=self.order, lookup=self.lookup).join(self.algorithm)
        law, rng = ZipfLaw(master_rows, 1.0, "integral"), np.random.default_rng(_SEED)
        queue = join.sizes.waiting or _INLJ_ROWS
        found = service_rate(join, lambda n: law.ranks(rng, n) - 1, int(self.warm * queue), QUEUES * queue)
        return round(found.rows_per_load * found.loads / queue), found.per_second


TABLE = (
    Column("INLJ", "inlj", 1, 207, 207, 207),
    Column("MESHJOIN", "meshjoin", 1.1, 26_426, 9_323, 2_602),
    Column("HYBRIDJOIN", "hybridjoin", 10, 27_799, 10_252, 3_448),
    Column("HYBRIDJOIN, alternate", "hybridjoin", 20, 44_989, 23_533, 8_568, lookup=Lookup("alternate")),
    Column("X-HYBRIDJOIN", "x_hybridjoin", 10, 39_534, 15_613, 4_879),
    Column("Optimised X", "optimised_x_hybridjoin", 10, 65_008, 26_852, 7_332),
    Column("CACHEJOIN", "cachejoin", 10, 60_714, 25_328, 7_149, order="none"),
)


def _rival(column: Column) -> Rival:
    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        rows = params["master_rows"]

        def run() -> Outcome:
            queues, rate = bench.once(column.name, lambda: column.rate(rows))  # it is counted: once is enough
            off = abs(rate / column.due(rows) - 1)
            return Outcome(queues, 1e6 / rate, {"rows_per_s": rate, "off_by": off})

        yield run

    return Rival(column.name, prepare)


def _expected(bench: BenchContext, params: Params) -> int:
    return QUEUES


CASES = (
    Case(
        name="enrich-rates",
        question="On the source's disk, simulated: what service rates do the semi-stream joins reach at exponent 1?",
        varies=("master_rows",),
        points={"small": [{"master_rows": HALF}], "full": [{"master_rows": n} for n in (HALF, TWO, EIGHT)]},
        rivals=tuple(map(_rival, TABLE)),
        expected=_expected,
        baseline="HYBRIDJOIN",
        bounds=tuple(Bound("as specified", column.name, 0.1, figure="off_by") for column in TABLE),
        answer="queue lengths of rows",
        rounds=1,
        measures=("engine", "joins/semistream"),
    ),
)
