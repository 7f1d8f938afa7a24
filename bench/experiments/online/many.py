"""Figures 20, 21 and 22: joins of two to four inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid
from bench.experiments.online.judging import experiment
from bench.experiments.online.many_counting import share
from bench.experiments.online.pausing import Paused, Setting, miner_paused, star_proved
from bench.experiments.online.streams import MEMORY, PAUSES, PRINTED_MINER_WAITING, SPECIFIED_MANY
from bench.experiments.parts import Part, judged
from dovetail.errors import DataError
from dovetail.joins.online.kernels.multi_rows import KEY_BYTES
from dovetail.joins.online.kernels.tree import empty_trees

SCALES = {"small": (10_000, 10), "full": (100_000, 50)}
CHAINS = tuple(f"chain of {n}, {how}" for n in (2, 3, 4) for how in ("MINER", "random", "oldest"))
STARS = tuple(f"star of 4, {how}" for how in ("MINER", "MJoin largest", "MJoin smallest", "oldest"))
PRINTED_FOUR, PRINTED_FACTOR, MODEST = (55.0, 80.0), 60.0, 10.0
INPUTS = (2, 3, 4)
TUPLE_BYTES = 200
SHOWN = {"oldest": "oldest first", "random": "random rows leave"}

Found = Mapping[str, Sequence[float]]


def _shares(lines: Sequence[str], rows: int, block: int) -> dict[str, tuple[float, ...]]:
    found = {line: tuple(share(line, percent, rows, block) for percent in MEMORY) for line in lines}
    for line, shares in found.items():
        if not all(0.0 <= each <= 100.0 for each in shares):
            raise DataError(f"{line} gave {shares} percent of the result.")
    return found


def _label(line: str) -> str:
    shape, how = line.split(", ")
    return f"{shape}, {SHOWN.get(how, how)}"


def _grid(title: str, found: Found) -> Grid:
    rows: list[list[Cell]] = []
    for line, shares in found.items():
        rows.append([_label(line), *(round(each, 2) for each in shares)])
        if line in SPECIFIED_MANY:
            rows.append([f"{_label(line)}, reference count", *SPECIFIED_MANY[line]])
    return Grid(title, ["percent online", *(f"{percent} % memory" for percent in MEMORY)], rows)


def _chart(title: str, found: Found) -> Chart:
    lines = {
        _label(line): [(percent, round(each, 3)) for percent, each in zip(MEMORY, shares, strict=True)]
        for line, shares in found.items()
    }
    return Chart(title, "memory, % of all rows", "% of the result while rows arrive", lines)


def chain_parts(found: Found) -> list[Part]:
    """What the source claims of chains, by these shares."""
    two, four = found["chain of 2, MINER"], found["chain of 4, MINER"]
    loss = [a - b for a, b in zip(two, four, strict=True)]
    low, high = PRINTED_FOUR
    return [
        Part(f"4 inputs give {low:g} % at 5 % memory (found {four[0]:.1f}; asked at least 50)", four[0] >= 50),
        Part(f"4 inputs give more than {high:g} % at 20 % memory (found {four[-1]:.1f})", four[-1] > high),
        Part(
            f"from 2 to 4 inputs little is lost ({loss[0]:.1f} points at 5 % memory, {loss[-1]:.1f} at 20 %; asked at "
            f"most {MODEST:g})",
            max(loss) <= MODEST,
        ),
    ]


def star_parts(found: Found) -> list[Part]:
    """What the source claims of stars, by these shares; "up to 60 times" asks for that at some memory."""
    miner = found["star of 4, MINER"]
    parts = []
    for which in ("largest", "smallest"):
        factors = [m / max(j, 1e-9) for m, j in zip(miner, found[f"star of 4, MJoin {which}"], strict=True)]
        text = ", ".join(f"{each:,.1f}" for each in factors)
        says = f"up to {PRINTED_FACTOR:g} times an MJoin that evicts its {which} bucket (found {text} by memory)"
        parts.append(Part(says, max(factors) >= PRINTED_FACTOR))
    return parts


def _index_part(memory: int) -> Part:
    trees = empty_trees(4, 2, memory)
    size = sum(np.asarray(array).nbytes for array in trees) + 2 * KEY_BYTES * memory
    percent = 100.0 * size / (memory * TUPLE_BYTES)
    return Part(
        f"indexes take less than 2 % of memory (found {percent:.1f} % of rows of {TUPLE_BYTES} bytes)", percent < 2
    )


def run_chains(bench: BenchContext) -> Findings:
    """Figure 20."""
    rows, block = SCALES[bench.scale]
    found = _shares(CHAINS, rows, block)
    parts = [*chain_parts(found), _index_part(int(0.2 * 2.2 * rows))]
    gains = [m / max(o, 1e-9) for m, o in zip(found["chain of 4, MINER"], found["chain of 4, oldest"], strict=True)]
    note = (
        f"MINER of 4 inputs gives {min(gains):.1f} to {max(gains):.1f} times what comes if rows leave oldest first. "
        f"{rows:,} rows in the large inputs, blocks of {block}."
    )
    verdict, why = judged(parts, note)
    title = f"Chains of two to four inputs, {rows:,} rows in the large ones"
    miner = {line: shares for line, shares in found.items() if not line.endswith("random")}
    few = Setting(memory=50, block=5, max_new=20, outer_blocks=9)
    checked = sum(miner_paused(n, 500, PAUSES[0], few, to_the_end=True).total for n in INPUTS)
    return Findings(verdict, why, [_chart("Chains", miner)], [_grid(title, found)], checked)


def run_star(bench: BenchContext) -> Findings:
    """Figure 22."""
    rows, block = SCALES[bench.scale]
    found = _shares(STARS, rows, block)
    gains = [m / max(o, 1e-9) for m, o in zip(found["star of 4, MINER"], found["star of 4, oldest"], strict=True)]
    note = (
        f"Over rows that leave oldest first MINER gives {min(gains):.1f} to {max(gains):.1f} times as much. "
        f"{rows:,} rows in the large inputs, blocks of {block}."
    )
    verdict, why = judged(star_parts(found), note)
    grid = _grid(f"A star of four inputs, {rows:,} rows in the large ones", found)
    return Findings(verdict, why, [_chart("A star of four inputs", found)], [grid], star_proved())


def pause_setting(scale: str, inputs: int) -> tuple[int, Setting, tuple[int, ...]]:
    """Rows of the large inputs, memory for 5 % of all rows, and pauses: a tenth of the source's, or some twentieth."""
    rows = 10_000 if scale == "full" else 4_000
    memory = (2 * rows + (inputs - 2) * rows // 10) // 20
    if scale == "full":
        return rows, Setting(memory, 10, 100), PAUSES
    return rows, Setting(memory, 10, 40, outer_blocks=9), PAUSES[::2]


def run_waiting(bench: BenchContext) -> Findings:
    """Figure 21, a table: rows that wait when work on disk stops because more have come than may wait."""
    found: dict[int, dict[int, Paused]] = {}
    checked = 0
    for inputs in INPUTS:
        rows, setting, pauses = pause_setting(bench.scale, inputs)
        found[inputs] = {p: miner_paused(inputs, rows, p, setting, p == pauses[0]) for p in pauses}
        checked += found[inputs][pauses[0]].total
    limit = setting.max_new
    parts = [
        Part(
            f"{n} inputs: never more than the {limit} allowed and what comes during one step (most "
            f"{max(e.most for e in by.values())}, a step is up to {max(e.step_rows for e in by.values())} rows)",
            all(e.most <= limit + e.step_rows for e in by.values()) and any(e.waited for e in by.values()),
        )
        for n, by in found.items()
    ]
    worst = max(each.most for by in found.values() for each in by.values())
    note = (
        f"The most that wait is {worst / limit:.2f} times what may, in the source 1.004: there a step is small beside "
        f"the 1,000 that may wait. {rows:,} rows in the large inputs; {setting}. The figure has no rival."
    )
    verdict, why = judged(parts, note)
    lines = {f"{n} inputs": [(pause, each.most) for pause, each in by.items()] for n, by in found.items()}
    chart = Chart("MINER: most rows waiting", "pause, % of a fragment's time", "rows", lines)
    return Findings(verdict, why, [chart], [_waiting_grid(found, limit)], checked)


def _waiting_grid(found: Mapping[int, Mapping[int, Paused]], limit: int) -> Grid:
    rows: list[list[Cell]] = []
    for n, by in found.items():
        for label, cells in (("max", [e.most for e in by.values()]), ("avg", [e.average for e in by.values()])):
            rows.append([f"{n} inputs, {label}", *cells])
            printed = PRINTED_MINER_WAITING[f"{n} inputs {label}"]
            rows.append([f"{n} inputs, {label}, printed", *(printed[PAUSES.index(pause)] for pause in by)])
        rows.append([f"{n} inputs, % of the result before the last row", *(round(e.share, 1) for e in by.values())])
    title = f"Rows that wait after a pause; {limit} may, in the source 1,000"
    pauses = next(iter(found.values()))
    return Grid(title, ["", *(f"pauses of {pause} %" for pause in pauses)], rows)


EXPERIMENTS = (
    experiment(
        "chains",
        ("figure 20",),
        "Of a chain of four inputs MINER gives 55 % of the result while rows come with 5 % of them in memory, and more "
        "than 80 % with 20 %; that is little less than of two inputs, and its indexes take less than 2 % of memory.",
        run_chains,
    ),
    experiment(
        "miner-handover",
        ("figure 21",),
        "When rows are back after a pause, MINER goes on with them after one small step, with two, three or four "
        "inputs.",
        run_waiting,
    ),
    experiment(
        "star",
        ("figure 22",),
        "Of a star of four inputs MINER gives up to 60 times as much as MJoin while rows come, where memory is short.",
        run_star,
    ),
)
