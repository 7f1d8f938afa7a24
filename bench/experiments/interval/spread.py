"""Joins over Spark tasks, speed-up and scale-up: figures 3.19 to 3.34 and 6.6 to 6.18.

The five joins find overlapping intervals of an input with itself; sort-merge alone finds three relations of two inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from bench.context import BenchContext
from bench.experiment import Cell, Findings, Grid, Part, by_column, judged, listed
from bench.experiments.interval import tasks as over
from bench.experiments.interval.runs import JOINS, Side, best, contacts, flights, pairs, shipping, steady, warm
from bench.experiments.interval.tasks import CORES, Lines, Seconds, Work
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


def _lines(relations: bool, work: Callable[[int], Sides], frames: Frames | None = None) -> Lines:
    """All five joins of overlapping intervals, or sort-merge for the three relations; the same inputs for all."""
    made = cache(work)

    def of(relation: str, n: int) -> Work:
        return Work(*made(n), relation, frames)

    if relations:
        return {relation: ("SM", partial(of, relation)) for relation in RELATIONS}
    return {name: (name, partial(of, "overlapping")) for name in JOINS}


def _itself(side: Side) -> Sides:
    return side, side


def two_inputs(bench: BenchContext, shape: tuple[int, ...], time_range: int) -> Sides:
    """Two inputs of one rate and different durations, made once."""
    rate, long, short, width = shape[:4]

    def make() -> Sides:
        return steady(time_range, (rate, long), tuple_bytes=width), steady(time_range, (rate, short), tuple_bytes=width)

    return bench.once(("sides", shape, time_range), make)


def shipped(bench: BenchContext) -> Sides:
    """TPC-H's shipping with itself, read once."""
    return _itself(bench.once("shipping", lambda: shipping(bench.scratch)))


def _made(bench: BenchContext, data: str, relations: bool) -> Sides:
    full = bench.scale == "full"
    if data.endswith("shipping"):
        return shipped(bench)
    if data == "flights":
        return _itself(flights() if full else flights(0.5))
    if relations:
        return two_inputs(bench, TWO_INPUTS[data], TWO_INPUTS[data][-1] * (10 if full else 1))
    time_range, rate, duration, width, longer = SELF_JOINS[data]
    return _itself(steady(time_range * (longer if full else 1), (rate, duration), tuple_bytes=width))


def speed_up(
    bench: BenchContext, data: str, relations: bool = False, tasks: Sequence[int] = (1, 2), oip: str = ""
) -> Findings:
    """The same work over more and more tasks; for three relations, and where OIP is to be last or first, also alone."""
    sides = _made(bench, data, relations)
    lines = _lines(relations, lambda _: sides)
    warm()
    parts, tables, checked = list[Part](), list[Grid](), 0
    others = [_itself(contacts(400_000))] if data == "flights" else []
    for left, right in [sides, *others] if relations or oip else []:
        counts, seconds = list[Cell](), {}
        for name, (join, work) in lines.items():
            relation = work(1).relation
            expected = pairs(left, right, relation)
            seconds[name] = best(3, join, left, right, expected, relation=relation, form="top").seconds
            checked += 3 * expected
            counts.append(expected)
        parts.append(_oip_is(oip, left.name, seconds) if oip else _overlapping_is_slowest(seconds))
        columns: dict[str, list[Cell]] = {"pairs": counts, "seconds": list(seconds.values())}
        tables.append(by_column(f"Seconds alone on one core, {left.name}", "join", seconds, columns))
    found = over.over_tasks(bench, lines, tasks)
    tables.insert(0, over.table(f"Seconds, {sides[0].name}, {sides[0].tuple_bytes} bytes", found))
    over.judge_speed_up(parts, found)
    chart = over.chart(f"Speed-up, {'sort-merge, ' * relations}{data}", found)
    return judged(parts, CORES, chart, *tables, rows=checked + over.rows_checked(found))


def _oip_is(what: str, data: str, seconds: dict[str, float]) -> Part:
    order = sorted(seconds, key=seconds.__getitem__)
    place = {"fastest": 0, "slowest": -1}[what]
    return f"OIP is the {what} on {data} (from fast to slow: {', '.join(order)})", order[place] == "OIP"


def _overlapping_is_slowest(seconds: dict[str, float]) -> Part:
    shown = listed({relation: 1000 * s for relation, s in seconds.items()}, ".1f")
    return f"overlapping is the slowest of the three (ms: {shown})", seconds["overlapping"] == max(seconds.values())


def _moved(found: Seconds) -> Grid:
    heads = ("join", "spills, 1 task", "frames, 1 task", "spills, 2 tasks", "frames, 2 tasks")
    rows = [(name, r[1].spills, r[1].frames, r[2].spills, r[2].frames) for name, r in found.items()]
    return Grid("What one task and two moved", heads, rows)


def _shown(title: str, what: str, parts: list[Part], found: Seconds, *more: Grid) -> Findings:
    """Scale-up: seconds over tasks, and a table of them."""
    return judged(parts, CORES, over.chart(title, found), over.table(what, found), *more, rows=over.rows_checked(found))


def in_memory(bench: BenchContext) -> Findings:
    """Figures 3.29 and 3.30."""
    each = 200_000 if bench.scale == "full" else 10_000
    found = over.over_tasks(bench, _lines(False, lambda n: _itself(steady(each * n, (10, 10)))), (1, 2, 4))
    doubled = {name: runs[4].seconds / runs[2].seconds for name, runs in found.items()}
    fits = min(doubled.values()) >= 1.5 and max(doubled.values()) <= 2.5
    parts = [(f"beyond the cores it doubles ({listed(doubled)})", fits)]
    over.judge_scale_up(parts, found)
    return _shown("Scale-up in memory", f"Seconds, {each:,} instants of 10 intervals a task", parts, found)


def _short_of_memory(each: int, duration: int, tasks: int) -> Sides:
    return _itself(steady(each * tasks, (10, duration), tuple_bytes=2_296))


def spilling(bench: BenchContext) -> Findings:
    """Figures 3.32 and 3.33."""
    each = 10_000 if bench.scale == "full" else 600
    found = over.over_tasks(bench, _lines(False, partial(_short_of_memory, each, 100), SHORT), (1, 2))
    worst, dip = max(found, key=lambda name: found[name][2].seconds), found["DIP"]
    longer = dip[2].seconds / dip[1].seconds
    parts = [
        (f"the slowest is {worst}", worst == "DIP"),
        (f"DIP does not scale ({longer:.2f} times as long on two tasks)", longer > 1.35),
    ]
    over.judge_scale_up(parts, {name: runs for name, runs in found.items() if name != "DIP"})
    what = f"Seconds in 2 MB a task, {each:,} instants of 10 intervals of 100 instants, 2,296 bytes"
    return _shown("Scale-up when spilling", what, parts, found, _moved(found))


def dip_scale_up(bench: BenchContext) -> Findings:
    """Figure 3.34."""
    each, some = (1_000, DURATIONS) if bench.scale == "full" else (400, DURATIONS[1::2])

    def work(duration: int, tasks: int) -> Work:
        return Work(*_short_of_memory(each, duration, tasks), frames=SHORT)

    found = over.over_tasks(bench, {f"d = {d}": ("DIP", partial(work, d)) for d in some}, (1, 2))
    longer = {name: runs[2].seconds / runs[1].seconds for name, runs in found.items()}
    short, long = (
        [ratio for name, ratio in longer.items() if (name in ("d = 10", "d = 20")) is few] for few in (True, False)
    )
    parts = [
        (f"it scales up to duration 20 (two tasks take {max(short):.2f} times as long as one)", max(short) <= 1.35),
        (f"and worse above ({listed(longer)})", min(long) > max(short)),
    ]
    return _shown("Scale-up of DIP", f"Seconds in 2 MB a task, {each:,} instants a task", parts, found)


def relations_scale_up(bench: BenchContext, spilling: bool) -> Findings:
    """Figures 6.15 to 6.18."""
    each = (1_000, 10_000) if spilling else (10_000, 200_000)
    instants, shape = each[bench.scale == "full"], (10, 200, 100, 2_296) if spilling else TWO_INPUTS["base"]
    lines = _lines(True, lambda n: two_inputs(bench, shape, instants * n), SHORT if spilling else None)
    found, parts = over.over_tasks(bench, lines, (1, 2) if spilling else (1, 2, 4)), list[Part]()
    over.judge_scale_up(parts, found)
    parts.append(_overlapping_is_slowest({relation: runs[1].slowest_join for relation, runs in found.items()}))
    if spilling:
        spills = found["overlapping"][1].spills
        parts.append((f"overlapping spills {spills} times", spills > 0))
    else:
        doubled = max(runs[4].seconds / runs[2].seconds for runs in found.values())
        parts.append((f"from two tasks to four on two cores the time doubles ({doubled:.2f})", 1.5 <= doubled <= 2.5))
    more = [_moved(found)] if spilling else []
    return _shown("Scale-up of sort-merge", f"Seconds, {instants:,} instants a task", parts, found, *more)
