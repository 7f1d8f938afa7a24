"""Runs over one, two and four Spark tasks: the machinery of the speed-up and scale-up experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.interval.data import Side, pairs
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.spark_runs import Spread, frame, place, spread
from dovetail.joins.interval.operators import Frames

CORES = "Two cores of one machine stand for the source's nodes and threads."
Seconds = dict[str, dict[int, Spread]]


@dataclass(frozen=True, slots=True)
class Work:
    """Two inputs and the relation and memory of their join."""

    left: Side
    right: Side
    relation: str = "overlapping"
    frames: Frames | None = None


def points(work: Work, tasks: int) -> list[int]:
    """Split points between tasks, so that as many starts fall to each."""
    starts = work.left.starts
    return [int(starts[starts.size * i // tasks]) for i in range(1, tasks)]


def speed_up(bench: BenchContext, work: Work, names: Sequence[str], tasks: Sequence[int] = (1, 2)) -> Seconds:
    """The same work over more and more tasks, for each join."""
    expected = pairs(work.left, work.right, work.relation)
    found: Seconds = {name: {} for name in names}
    times = 2 if bench.scale == "full" or len(names) == 1 else 1
    for n in tasks:
        left, right = (frame(bench, side, n) for side in (work.left, work.right))  # read by as many tasks as join
        placed = place(left, right, points(work, n), work.relation)
        for name in names if times == 1 and n == tasks[0] else names[:1]:  # Spark compiles, workers start and load
            run = partial(spread, placed, name, expected, work.frames, times=1)
            bench.once(("warm", name, id(work.left), n), run)
        for name in names:
            found[name][n] = spread(placed, name, expected, work.frames, times)
    return found


def scale_up(bench: BenchContext, make: Callable[[int], Work], names: Sequence[str], tasks: Sequence[int]) -> Seconds:
    """As much work for each task, over more and more tasks; `make` gives the work of so many."""
    found: Seconds = {name: {} for name in names}
    for n in tasks:
        for name, by_tasks in speed_up(bench, make(n), names, (n,)).items():
            found[name] |= by_tasks
    return found


def rows_checked(found: Mapping[str, Mapping[int, Spread]]) -> int:
    """Pairs of all runs."""
    return sum(run.pairs for runs in found.values() for run in runs.values())


def table(title: str, found: Mapping[str, Mapping[int, Spread]]) -> Grid:
    """Seconds of every run, and each over that of one task."""
    tasks = list(next(iter(found.values())))
    heads = ["join", *(f"{n} tasks, s" for n in tasks), *(f"{n} tasks, join alone, s" for n in tasks)]
    rows: list[list[Cell]] = [
        [name, *(round(r.seconds, 3) for r in runs.values()), *(round(r.slowest_join, 3) for r in runs.values())]
        for name, runs in found.items()
    ]
    return Grid(title, heads, rows)


def chart(title: str, found: Mapping[str, Mapping[int, Spread]]) -> Chart:
    """Seconds over tasks."""
    lines = {name: [(n, run.seconds) for n, run in runs.items()] for name, runs in found.items()}
    return Chart(title, "tasks", "seconds", lines)


def judge_speed_up(checks: Checks, found: Seconds, least: float = 1.4) -> None:
    """Two tasks on two cores are so much faster than one, join by join; four are no faster by more than a quarter."""
    twice = {name: runs[1].seconds / runs[2].seconds for name, runs in found.items()}
    _judge_each(checks, f"two tasks are at least {least} times as fast as one", twice, lambda gain: gain >= least)
    if all(4 in runs for runs in found.values()):
        more = {name: runs[2].seconds / runs[4].seconds for name, runs in found.items()}
        _judge_each(checks, "four tasks on two cores gain nothing more", more, lambda gain: gain < 1.25)


def judge_scale_up(checks: Checks, found: Seconds, tasks: int = 2, most: float = 1.35) -> None:
    """So many tasks with as much work each take at most so much longer than one, join by join."""
    longer = {name: runs[tasks].seconds / runs[1].seconds for name, runs in found.items()}
    says = f"{tasks} tasks with as much work each take at most {most} times as long as one"
    _judge_each(checks, says, longer, lambda ratio: ratio <= most)


def _judge_each(checks: Checks, says: str, by_join: Mapping[str, float], fits: Callable[[float], bool]) -> None:
    """One statement of the joins of which it is true, and one of the others."""
    for wanted in (True, False):
        some = {name: value for name, value in by_join.items() if fits(value) is wanted}
        if some:
            checks.add(wanted, f"{says} ({', '.join(f'{name} {value:.2f}' for name, value in some.items())})")
