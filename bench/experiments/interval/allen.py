"""Sort-merge for covers and overlaps beside overlapping: figures 6.6 to 6.18."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import Side, pairs, shipping, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import Ran, best, run, warm
from bench.experiments.interval.speeds import (
    CORES,
    Seconds,
    Work,
    chart,
    judge_scale_up,
    judge_speed_up,
    rows_checked,
    scale_up,
    speed_up,
    table,
)
from dovetail.joins.interval.operators import Frames

RELATIONS = ("overlapping", "covers", "overlaps")
Shape = tuple[int, int, int, int]
SETS: dict[str, Shape] = {
    "base": (10, 20, 10, 74),
    "cardinality": (100, 20, 10, 74),
    "duration": (10, 200, 100, 74),
    "record": (10, 20, 10, 2_296),
}
"""Rate, durations of R and S, and tuple width."""
LONGER = {"base": 20, "cardinality": 0.5, "duration": 4, "record": 2}
"""How many thousand instants at small scale on Spark: the source's thousand where the join then takes long enough."""
SHORT = Frames(256, 8_192, 2_296)


def _work(bench: BenchContext, shape: Shape, time_range: int, relation: str, frames: Frames | None = None) -> Work:
    """The work of a relation; all relations have the same inputs."""
    rate, long, short, width = shape

    def make() -> tuple[Side, Side]:
        return steady(time_range, (rate, long), tuple_bytes=width), steady(time_range, (rate, short), tuple_bytes=width)

    return Work(*bench.once(("sides", shape, time_range), make), relation, frames)


def _counts(bench: BenchContext) -> Findings:
    """Comparisons, tuples held and pairs of the three relations on all the data sets."""
    rows: list[list[Cell]] = []
    checked = 0
    fewer_held = fewer_compared = n = 0
    held_lines: dict[str, list[tuple[str, float]]] = {relation: [] for relation in RELATIONS}
    for which in (*SETS, "shipping"):
        works = {relation: _any_work(bench, which, relation) for relation in RELATIONS}
        ran = {relation: _sort_merge(work) for relation, work in works.items()}
        base = ran["overlapping"]
        for relation, one in ran.items():
            rows.append([which, relation, one.pairs, one.compared, one.compared - one.pairs, one.peak])
            held_lines[relation].append((which, float(one.peak)))
            checked += one.pairs
            if relation != "overlapping":
                n += 1
                fewer_held += one.peak < base.peak
                fewer_compared += one.compared < base.compared
    checks = Checks()
    checks.add(fewer_held == n, f"covers and overlaps hold fewer tuples than overlapping in {fewer_held} of {n} cases")
    checks.add(fewer_compared == n, f"and make fewer comparisons in {fewer_compared} of {n}")
    strict = _equal_lengths()
    checks.add(
        strict == (0, 10_000), "intervals of one length cover nothing strictly, and with Table 6.2 only equal ones"
    )
    heads = ["data", "relation", "pairs", "comparisons", "without a pair", "tuples held at most"]
    grid = Grid("Sort-merge, one partition", heads, rows)
    return checks.findings([Chart("Tuples held at most", "", "tuples", held_lines, "bar", log_y=True)], [grid], checked)


def _any_work(bench: BenchContext, which: str, relation: str) -> Work:
    if which == "shipping":
        side = bench.once("shipping", lambda: shipping(bench.scratch))
        return Work(side, side, relation)
    return _work(bench, SETS[which], 1_000, relation)


def _sort_merge(work: Work) -> Ran:
    expected = pairs(work.left, work.right, work.relation)
    return run("SM", work.left, work.right, expected, relation=work.relation, frames=work.frames)


def _equal_lengths() -> tuple[int, int]:
    """Pairs of a self-join of 1,000 intervals of one length, ten at an instant: strictly covering, and covering."""
    side = steady(1_000, (1, 20))
    ten = steady(1_000, (10, 20))
    strict = run("SM", side, side, 0, relation="covers", strict=True).pairs
    return strict, run("SM", side, ten, pairs(side, ten, "covers"), relation="covers").pairs


def _speed(which: str, bench: BenchContext) -> Findings:
    span = int(1_000 * LONGER.get(which, 1)) * (10 if bench.scale == "full" else 1)
    found: Seconds = {}
    alone: dict[str, float] = {}
    warm()
    for relation in RELATIONS:
        work = _any_work(bench, which, relation) if which == "shipping" else _work(bench, SETS[which], span, relation)
        found[relation] = speed_up(bench, work, ("SM",))["SM"]
        expected = pairs(work.left, work.right, relation)
        alone[relation] = best(3, "SM", work.left, work.right, expected, relation=relation, form="top").seconds
    checks = Checks()
    judge_speed_up(checks, found)
    _judge_slower(checks, alone)
    rows: list[list[Cell]] = [
        [relation, found[relation][1].pairs, round(seconds, 4)] for relation, seconds in alone.items()
    ]
    tables = [
        table(f"Seconds, {which}", found),
        Grid("Seconds of the join alone, on one core", ["relation", "pairs", "seconds"], rows),
    ]
    charts = [chart(f"Speed-up of sort-merge, {which}", found)]
    return checks.findings(charts, tables, rows_checked(found) + 3 * sum(r[1].pairs for r in found.values()), CORES)


def _judge_slower(checks: Checks, seconds: dict[str, float]) -> None:
    shown = ", ".join(f"{relation} {1000 * s:.1f} ms" for relation, s in seconds.items())
    slowest = seconds["overlapping"] == max(seconds.values())
    checks.add(slowest, f"overlapping is the slowest of the three ({shown})")


def _scale(which: str, frames: Frames | None, bench: BenchContext) -> Findings:
    full = bench.scale == "full"
    spilling = frames is not None
    each = (10_000 if full else 1_000) if spilling else (200_000 if full else 10_000)
    tasks = (1, 2) if spilling else (1, 2, 4)
    made = {"spilling": (10, 200, 100, 2_296), "base": SETS["base"]}[which]
    found: Seconds = {}

    def work(relation: str, tasks: int) -> Work:
        return _work(bench, made, each * tasks, relation, frames)

    for relation in RELATIONS:
        found[relation] = scale_up(bench, partial(work, relation), ("SM",), tasks)["SM"]
    checks = Checks()
    judge_scale_up(checks, found)
    seconds = {relation: runs[1].slowest_join for relation, runs in found.items()}
    _judge_slower(checks, seconds)
    tables = [table(f"Seconds, {each:,} instants a task", found)]
    if spilling:
        checks.add(found["overlapping"][1].spills > 0, f"overlapping spills {found['overlapping'][1].spills} times")
        heads = ["relation", "spills, 1 task", "frames, 1 task", "spills, 2 tasks", "frames, 2 tasks"]
        rows: list[list[Cell]] = [
            [name, r[1].spills, r[1].frames, r[2].spills, r[2].frames] for name, r in found.items()
        ]
        tables.append(Grid("What one task and two moved", heads, rows))
    else:
        doubled = max(runs[4].seconds / runs[2].seconds for runs in found.values())
        checks.add(1.5 <= doubled <= 2.5, f"from two tasks to four on two cores the time doubles ({doubled:.2f})")
    return checks.findings([chart("Scale-up of sort-merge", found)], tables, rows_checked(found), CORES)


def _experiment(name: str, places: tuple[str, ...], claim: str, run: Callable[[BenchContext], Findings]) -> Experiment:
    measures = ("engine", "joins/interval", "spark", "bench/experiments/interval")
    return Experiment(f"interval-allen-{name}", "interval", "Carman 2020", places, claim, run, measures, "measured")


_SPEED = "Sort-merge for covers and overlaps speeds up as for overlapping, and both are faster than overlapping"
EXPERIMENTS = (
    Experiment(
        "interval-allen-counts",
        "interval",
        "Carman 2020",
        ("figure 6.6", "figure 6.7", "figure 6.8", "figure 6.9", "figure 6.10"),
        "Covers and overlaps need fewer tuples in memory and fewer comparisons than overlapping and a filter; "
        "intervals of one length cover nothing.",
        _counts,
        ("engine", "joins/interval", "bench/experiments/interval"),
    ),
    _experiment("speed-up-base", ("figure 6.6", "figure 6.11"), f"{_SPEED}.", partial(_speed, "base")),
    _experiment(
        "speed-up-cardinality",
        ("figure 6.7", "figure 6.12"),
        f"{_SPEED}, with ten times the rows at an instant.",
        partial(_speed, "cardinality"),
    ),
    _experiment(
        "speed-up-duration",
        ("figure 6.8", "figure 6.13"),
        f"{_SPEED}, with intervals ten times as long.",
        partial(_speed, "duration"),
    ),
    _experiment(
        "speed-up-record",
        ("figure 6.9", "figure 6.14"),
        f"{_SPEED}, with records of 2,296 bytes.",
        partial(_speed, "record"),
    ),
    _experiment("speed-up-shipping", ("figure 6.10",), f"{_SPEED}, on TPC-H's shipping.", partial(_speed, "shipping")),
    _experiment(
        "scale-up",
        ("figure 6.15", "figure 6.16"),
        "With as much work for each task all three relations scale up to the number of cores; beyond, time doubles.",
        partial(_scale, "base", None),
    ),
    _experiment(
        "scale-up-spilling",
        ("figure 6.17", "figure 6.18"),
        "When memory is short, sort-merge scales up for all three relations, and overlapping is the slowest.",
        partial(_scale, "spilling", SHORT),
    ),
)
