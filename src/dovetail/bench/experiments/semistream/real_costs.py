"""Costs calculated by the models from this machine's unit costs, against the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dovetail.bench.experiment import Chart, Experiment, Findings
from dovetail.bench.experiments.parts import Part
from dovetail.bench.experiments.semistream.counting import MEASURES, MILLION
from dovetail.bench.experiments.semistream.judging import grid, judged
from dovetail.bench.experiments.semistream.real_rates import (
    CACHE,
    DATABASE,
    DISK,
    HYBRID,
    INLJ,
    JOINS,
    MESH,
    OPTIMISED,
    R_MESH,
    Place,
    X,
)
from dovetail.bench.experiments.semistream.timing import NEEDS_SERVER, Real, Timed, built, run
from dovetail.bench.workbench import Workbench
from dovetail.engine.profile import load_profile
from dovetail.semistream.cost import Policy, Prediction, Setting, Sizes, UnitCosts, Zipf, from_profile, predict
from dovetail.semistream.cost.measure_reads import measured_reads
from dovetail.semistream.master.pages import Pages

_NAMES = (INLJ, MESH, R_MESH, HYBRID, X, OPTIMISED, CACHE)
_MEMORY = (50, 150, 250)
_CLOSE = 0.25
_PLACES = ("figure 3.8", "figure 4.8 (a)", "figure 5.8", "figure 6.9", "figure 7.5", "figure 8.4", "seed 003 figure 8")


def _units(pages: Pages) -> UnitCosts:
    """This machine's costs: reads of this store as they were just timed; rows come from an array, not from the JVM."""
    return replace(from_profile(load_profile(), read=measured_reads(pages)), receive=0.0)


def _predicted(of: Real, pages: Pages, divide: int, costs: UnitCosts) -> Prediction:
    join = built(of, pages, divide)
    rows, n_pages = int(pages.starts[-1]), len(pages.starts) - 1
    each = rows / n_pages
    segment = max(1, round((join.sizes.per_segment or 1) * each))
    kept = join.sizes.cached or round((join.sizes.pinned or 0) * each)
    policy = Policy(lookup="oldest", cache="random", threshold=5)
    order = "none" if of.scattered else "frequency"
    stored = pages.stored_bytes(0, n_pages) / rows
    setting = Setting(2**40, Zipf(rows, of.exponent), costs=costs, order=order, policy=policy, stored_row_bytes=stored)  # type: ignore[arg-type]  # an order
    sizes = Sizes(segment, kept, join.sizes.parts or 1, None if of.algorithm == "inlj" else join.sizes.waiting)
    return predict(of.algorithm, setting, sizes)


def _costs(place: Place) -> Callable[[Workbench], Findings]:
    def run_it(bench: Workbench) -> Findings:
        divide, rows = place.divide(bench), []
        with place.store(bench, 2 * MILLION // divide) as pages:
            costs = _units(pages)
            for name in _NAMES:
                for memory in _MEMORY if name != INLJ else _MEMORY[:1]:
                    of = replace(JOINS[name], memory_mb=memory)
                    found, model = run(of, pages, divide, place.name), _predicted(of, pages, divide, costs)
                    rows.append((name, memory, found, model))
        return _judged(bench, place, rows)

    return run_it


def _judged(bench: Workbench, place: Place, rows: Sequence[tuple[str, float, Timed, Prediction]]) -> Findings:
    table, checks = [], []
    for name, memory, found, model in rows:
        us, calculated = 1e6 / found.per_second, 1e6 / model.mu
        w = 1 / model.loads_per_tuple
        table.append((name, memory, us, calculated, calculated / us - 1, found.rows_per_load, w))
    for name in _NAMES:
        off = [row[4] for row in table if row[0] == name]
        says = f"{name}: {min(off):+.0%} to {max(off):+.0%}" if len(off) > 1 else f"{name}: {off[0]:+.0%}"
        checks.append(Part(says, max(map(abs, off)) <= _CLOSE))
    loads = max(abs(row[6] / row[5] - 1) for row in table)
    note = (
        f"Calculated microseconds a row against the clock; {_CLOSE:.0%} was allowed. Rows per load are predicted "
        f"within {loads:.0%}; the rest is unit costs. {place.note(bench)}"
    )
    lines = {name: [(r[2], r[3]) for r in table if r[0] == name] for name in _NAMES}
    chart = Chart("A stream row", "measured, us", "calculated, us", lines, log_x=True, log_y=True)
    heads = ("join", "memory, MB", "us a row, measured", "calculated", "off by", "rows per load", "calculated")
    return judged(checks, note, [chart], [grid("Exponent 1", heads, table)], sum(row[2].checked for row in rows))


_CLAIM = "Calculated costs are close to measured ones, for every join."
EXPERIMENTS = (
    Experiment("semistream-disk-cost", "semistream", "seed 000", _PLACES, _CLAIM, _costs(DISK), MEASURES, "measured"),
    Experiment(
        "semistream-database-cost",
        "semistream",
        "seed 000",
        _PLACES[2:],
        _CLAIM,
        _costs(DATABASE),
        MEASURES,
        "measured",
        NEEDS_SERVER,
    ),
)
