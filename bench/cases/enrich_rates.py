"""Service rates of the semi-stream joins on a simulated disk, beside our reference counts.

Nothing here is this machine's speed: joins run for real over real keys, and their reads and steps are counted and
priced by the source's disk (4 ms a seek, 0.099 us a byte) and its costs of a step. Times are for a million rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.case import Outcome, Params, Prepare, Run, prepared
from bench.context import BenchContext
from bench.experiments.semistream.points import JOINS

QUEUES = 10  # how often the rows that can wait are renewed while it is measured: fewer catch the waves of the start
SIZES = (500_000, 2_000_000, 8_000_000)


def rate(join: str, warm: float, master_rows: int) -> tuple[int, float]:
    """Queue lengths answered while it was measured, to the nearest whole one, and rows a second."""
    point = replace(JOINS[join], rows=master_rows)
    found = point.run(warm, QUEUES)
    return round(found.rows_per_load * found.loads / point.queue), found.per_second


def counted(join: str, warm: float, rates: Sequence[float]) -> Prepare:
    """A join of the experiments, how long it runs before it is measured, and the reference counts of rows a second.

    Reference: docs/algorithms/semistream.md, 8.3 (exponent 1, 50 MB, rows of 120 bytes).
    """

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        rows = params["master_rows"]
        due = rates[SIZES.index(rows)]

        def run() -> Outcome:
            queues, found = bench.once(join, lambda: rate(join, warm, rows))  # it is counted: once is enough
            return Outcome(queues, 1e6 / found, {"rows_per_s": found, "off_by": abs(found / due - 1)})

        return run

    return prepare


def expected(bench: BenchContext, params: Params) -> int:
    """As many queue lengths as were asked for."""
    return QUEUES
