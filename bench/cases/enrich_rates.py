"""Service rates of the semi-stream joins on a simulated disk, beside our reference counts.

Nothing here is this machine's speed: joins run for real over real keys, and their reads and steps are counted and
priced by the source's disk (4 ms a seek, 0.099 us a byte) and its costs of a step. Times are for a million rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.case import Bound, Case, Outcome, Params, Rival, Run, prepared
from bench.context import BenchContext
from bench.experiments.semistream.points import CACHE, HYBRID, INLJ, JOINS, MESH, OPTIMISED, SECOND, X

QUEUES = 10  # how often the rows that can wait are renewed while it is measured: fewer catch the waves of the start
HALF, TWO, EIGHT = 500_000, 2_000_000, 8_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: a join of the experiments, how long it runs before it is measured, and rows a second.

    Reference: docs/algorithms/semistream.md, 8.3 (exponent 1, 50 MB, rows of 120 bytes).
    """

    name: str
    join: str
    warm: float
    rates: tuple[float, float, float]

    def due(self, master_rows: int) -> float:
        """Rows a second of the reference counts."""
        return dict(zip((HALF, TWO, EIGHT), self.rates, strict=True))[master_rows]

    def rate(self, master_rows: int) -> tuple[int, float]:
        """Queue lengths answered while it was measured, to the nearest whole one, and rows a second."""
        point = replace(JOINS[self.join], rows=master_rows)
        found = point.run(self.warm, QUEUES)
        return round(found.rows_per_load * found.loads / point.queue), found.per_second


TABLE = (
    Column("INLJ", INLJ, 1, (207, 207, 207)),
    Column("MESHJOIN", MESH, 1.1, (26_426, 9_323, 2_602)),
    Column("HYBRIDJOIN", HYBRID, 10, (27_799, 10_252, 3_448)),
    Column("HYBRIDJOIN, alternate", SECOND, 20, (44_989, 23_533, 8_568)),
    Column("X-HYBRIDJOIN", X, 10, (39_534, 15_613, 4_879)),
    Column("Optimised X", OPTIMISED, 10, (65_008, 26_852, 7_332)),
    Column("CACHEJOIN", CACHE, 10, (60_714, 25_328, 7_149)),
)


def _rival(column: Column) -> Rival:
    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        rows = params["master_rows"]

        def run() -> Outcome:
            queues, rate = bench.once(column.name, lambda: column.rate(rows))  # it is counted: once is enough
            return Outcome(queues, 1e6 / rate, {"rows_per_s": rate, "off_by": abs(rate / column.due(rows) - 1)})

        return run

    return Rival(column.name, prepare)


CASES = (
    Case(
        name="enrich-rates",
        question="On the source's disk, simulated: what service rates do the semi-stream joins reach at exponent 1?",
        varies=("master_rows",),
        points={"small": [{"master_rows": HALF}], "full": [{"master_rows": n} for n in (HALF, TWO, EIGHT)]},
        rivals=tuple(map(_rival, TABLE)),
        expected=lambda bench, params: QUEUES,
        baseline="HYBRIDJOIN",
        bounds=tuple(Bound("as specified", column.name, 0.1, figure="off_by") for column in TABLE),
        answer="queue lengths of rows",
        rounds=1,
        measures=("engine", "joins/semistream", "bench/simulation.py", "bench/experiments/semistream/points.py"),
    ),
)
