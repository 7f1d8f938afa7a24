"""Joins over Spark tasks, speed-up and scale-up: figures 3.19 to 3.34 and 6.6 to 6.18.

The five joins find overlapping intervals of an input with itself; sort-merge alone finds three relations of two inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.interval.runs import JOINS, Side, best, contacts, flights, pairs, shipping, steady, warm
from bench.experiments.interval.tasks import Lines, Work, over_tasks
from bench.judge import Figures
from dovetail.joins.interval.operators import Frames

RELATIONS = ("overlapping", "covers", "overlaps")
SHORT = Frames(256, 8_192, 2_296)
Sides = tuple[Side, Side]
Shape = Sequence[int]
"""Rate, durations of both inputs, which are one input if these are equal, and tuple width."""


def sides_of(shape: Shape, instants: int) -> Sides:
    """Two inputs of one rate, or one with itself."""
    rate, first, second, width = shape
    left = steady(instants, (rate, first), tuple_bytes=width)
    return left, left if first == second else steady(instants, (rate, second), tuple_bytes=width)


def shipped(bench: BenchContext) -> Sides:
    """TPC-H's shipping with itself, read once."""
    side = bench.once("shipping", lambda: shipping(bench.scratch))
    return side, side


def _lines(relations: bool, work: Callable[[int], Sides], frames: Frames | None = None) -> Lines:
    """All five joins of overlapping intervals, or sort-merge for the three relations; the same inputs for all."""
    made = cache(work)

    def of(relation: str, n: int) -> Work:
        return Work(*made(n), relation, frames)

    if relations:
        return {relation: ("SM", partial(of, relation)) for relation in RELATIONS}
    return {name: (name, partial(of, "overlapping")) for name in JOINS}


def _recorded(bench: BenchContext, data: str) -> list[Sides]:
    """Shipping, or flights and the contacts that stand in for the source's."""
    if data == "shipping":
        return [shipped(bench)]
    some = flights() if bench.scale == "full" else flights(0.5), contacts(400_000)
    return [(side, side) for side in some]


def speed_up(
    bench: BenchContext,
    data: str,
    shape: Shape = (),
    instants: Mapping[str, int] | None = None,
    relations: bool = False,
    alone: bool = False,
    tasks: Sequence[int] = (1, 2),
) -> Figures:
    """The same work over more and more tasks; `alone`: also on one core without Spark, by the name of the data.

    The source has 1,000 instants for one node and 10,000 for the cluster; where that takes milliseconds here, there are
    more, because starting tasks would be all there is to see.
    """
    every = [sides_of(shape, instants[bench.scale])] if instants else _recorded(bench, data)
    lines, found, checked = _lines(relations, lambda _: every[0]), dict[str, dict[str, float]](), 0
    warm()
    tables = list[Grid]()
    for left, right in every if alone else []:
        seconds, counts = found.setdefault(left.name, {}), list[int]()
        for name, (join, work) in lines.items():
            relation = work(1).relation
            counts.append(pairs(left, right, relation))
            seconds[name] = best(3, join, left, right, counts[-1], relation=relation, form="top").seconds
            checked += 3 * counts[-1]
        rows = [(name, n, seconds[name]) for name, n in zip(seconds, counts, strict=True)]
        tables.append(Grid(f"Seconds alone on one core, {left.name}", ("join", "pairs", "seconds"), rows))
    side = every[0][0]
    over = _over_tasks(bench, lines, tasks, f"Seconds, {side.name}, {side.tuple_bytes} bytes")
    chart, table = over.shown
    return Figures({**over.named, "alone": found}, [chart, table, *tables], checked + over.rows)


def scale_up(
    bench: BenchContext,
    shape: Shape,
    instants: Mapping[str, int],
    relations: bool = False,
    short: bool = False,
    durations: Mapping[str, Sequence[int]] | None = None,
    tasks: Sequence[int] = (1, 2),
) -> Figures:
    """As much work for each task, over more and more of them; `short` of memory, and DIP alone over `durations`."""
    each, frames = instants[bench.scale], SHORT if short else None
    lines = _lines(relations, lambda n: sides_of(shape, each * n), frames)
    if durations:

        def dip(duration: int, n: int) -> Work:
            return Work(*sides_of((shape[0], duration, duration, shape[3]), each * n), frames=frames)

        lines = {f"d = {d}": ("DIP", partial(dip, d)) for d in durations[bench.scale]}
    memory = "Seconds in 2 MB a task" if short else "Seconds"
    return _over_tasks(bench, lines, tasks, f"{memory}, {each:,} instants a task")


def _over_tasks(bench: BenchContext, lines: Lines, tasks: Sequence[int], title: str) -> Figures:
    """The times of each line by the number of tasks, and how many times as fast two tasks are as one, four as two."""
    runs = over_tasks(bench, lines, tasks)
    heads = ["join", *(f"{n} tasks, s" for n in tasks), *(f"{n} tasks, join alone, s" for n in tasks)]
    rows: list[list[Cell]] = []
    for name, by in runs.items():
        moved = [cell for ran in by.values() for cell in (ran.spills, ran.frames)]
        rows.append([name, *(r.seconds for r in by.values()), *(r.slowest_join for r in by.values()), *moved])
    heads += [f"{n} tasks, {what}" for n in tasks for what in ("spills", "frames")]
    drawn = {name: [(n, ran.seconds) for n, ran in by.items()] for name, by in runs.items()}
    named: dict[str, Any] = {
        "runs": runs,
        "gain": {name: by[1].seconds / by[2].seconds for name, by in runs.items()},
        "more": {name: by[2].seconds / by[4].seconds for name, by in runs.items() if 4 in by},
    }
    checked = sum(ran.pairs for by in runs.values() for ran in by.values())
    return Figures(named, [Chart(title, "tasks", "seconds", drawn), Grid(title, heads, rows)], checked)
