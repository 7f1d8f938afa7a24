"""Figures 16, 17, 19 and 21 and table 3: streams that pause, of two inputs and of more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid
from bench.experiments.online.pausing import Paused, Setting, miner_paused, paused
from bench.experiments.online.shares import NAMED, RIVALS, shown
from bench.experiments.online.streams import PAUSES, PRINTED, SOURCE_ROWS, Row, recorded
from bench.judge import Figures

NAMES = ("DINER", "HMJ", "RPJ 1.0", "XJoin", "oldest")
OUTER, INPUTS = (9, 19, 39, 59), (2, 3, 4)
_PAUSE, _BEFORE_LAST = "pause, % of a fragment's time", "% of the result before the last row"
Runs = Mapping[str, Mapping[int, Paused]]
"""The counts of each join, or number of inputs, at each pause."""


def setting_of(bench: BenchContext) -> tuple[int, Setting, tuple[int, ...]]:
    """Rows a side, setting and pauses: the source's, and at small scale less of all.

    Every flush and every block that is read is done by the operators.
    """
    if bench.scale == "full":
        return 100_000, Setting(10_000, 50, 1_000), PAUSES
    return 4_000, Setting(400, 10, 40), (PAUSES[0], PAUSES[-1])


def _all(
    keys: str, rows: int, setting: Setting, pauses: tuple[int, ...], names: tuple[str, ...] = NAMES
) -> dict[str, dict[int, Paused]]:
    """Each join at each pause; those of the shortest one are asked for everything, and it must be right."""
    return {
        name: {pause: paused(name, keys, rows, pause, setting, to_the_end=pause == pauses[0]) for pause in pauses}
        for name in names
    }


def _checked(found: Runs) -> int:
    """Pairs that were asked for to the end."""
    return sum(each[min(each)].total for each in found.values())


def _gains(found: Runs, rival: str) -> list[float]:
    return [found["DINER"][pause].share / max(1e-9, each.share) for pause, each in found[rival].items()]


def _grid(title: str, found: Runs, lines: Callable[[str, list[Paused]], list[list[Cell]]]) -> Grid:
    """Some lines a join, or number of inputs, with a column for each pause."""
    rows = [line for name, by in found.items() for line in lines(name, list(by.values()))]
    return Grid(title, ["", *(f"pauses of {pause} %" for pause in next(iter(found.values())))], rows)


def _share_grid(title: str, found: Runs) -> Grid:
    def lines(name: str, every: list[Paused]) -> list[list[Cell]]:
        cells: list[list[Cell]] = [
            [f"{shown(name)}, % of the result", *(each.share for each in every)],
            [f"{shown(name)}, in pauses", *(100.0 * each.reactive / each.total for each in every)],
        ]
        return cells if name == "DINER" else [*cells, [f"DINER / {shown(name)}", *_gains(found, name)]]

    return _grid(title, found, lines)


def _waiting_grid(title: str, found: Runs, printed: Mapping[str, Row]) -> Grid:
    """The most rows that waited and their average, beside what the source prints."""
    pauses = list(next(iter(found.values())))

    def lines(name: str, every: list[Paused]) -> list[list[Cell]]:
        cells: list[list[Cell]] = []
        for label, waited in (("max", [e.most for e in every]), ("avg", [e.average for e in every])):
            cells.append([f"{shown(name)}, {label}", *waited])
            if (row := printed.get(f"{name.removesuffix(' 1.0')} {label}")) is not None:
                cells.append([f"{shown(name)}, {label}, printed", *(row[PAUSES.index(pause)] for pause in pauses)])
        return cells

    return _grid(title, found, lines)


def _chart(title: str, y: str, found: Runs, figure: str, log_y: bool = False) -> Chart:
    lines = {shown(name): [(p, getattr(each, figure)) for p, each in by.items()] for name, by in found.items()}
    return Chart(title, _PAUSE, y, lines, log_y=log_y)


def _sized(bench: BenchContext, keys: str) -> tuple[int, Setting]:
    """Rows a side and the setting of a set: a tenth of memory is for rows that wait, a tenth for outer blocks."""
    most, setting, _ = setting_of(bench)
    if keys == "zipf":
        return most, setting
    there = SOURCE_ROWS[keys] if keys in SOURCE_ROWS else len(recorded(keys).left)
    rows = min(most if bench.scale == "full" else 3_000, there)
    memory = 2 * rows // 20
    return rows, Setting(memory, 10, memory // 10, outer_blocks=max(1, memory // 100))


def with_pauses(bench: BenchContext, sets: Sequence[str], costly: bool = False) -> Figures:
    """Figures 16 and 17: each join at each pause, by the set of keys; `dear` is with costlier blocks and results."""
    pauses, runs, drawn = setting_of(bench)[2], dict[str, Runs](), list[Chart | Grid]()
    for keys in sets:
        rows, setting = _sized(bench, keys)
        runs[keys] = _all(keys, rows, setting, pauses)
        title = "Zipf keys" if keys == "zipf" else keys
        drawn.append(_chart(f"{title} with pauses", _BEFORE_LAST, runs[keys], "share"))
        drawn.append(_share_grid(f"{title}, {rows:,} rows a side, {setting}", runs[keys]))
    named: dict[str, Any] = {"runs": runs, "gains": _gains, "rows": rows, "setting": setting}
    if costly:
        dearer = replace(setting, block_gaps=1.5, result_gaps=0.005)
        dear = named["dear"] = _all("zipf", rows, dearer, pauses[:1], ("DINER", *RIVALS))
        drawn.append(_share_grid(f"Costlier: {dearer}", dear))
        return Figures(NAMED | named, drawn, sum(map(_checked, runs.values())) + _checked(dear))
    return Figures(NAMED | named, drawn, sum(map(_checked, runs.values())))


def handover(bench: BenchContext) -> Figures:
    """Table 3: rows that wait when work on disk stops because more have come than may wait."""
    rows, setting, pauses = setting_of(bench)
    found = _all("zipf", rows, setting, pauses)
    table = _waiting_grid(f"Rows that wait; {setting.max_new} may, in the source 1,000", found, PRINTED["waiting"])
    chart = _chart("Most rows waiting", "rows", found, "most", log_y=True)
    named = {"found": found, "diner": list(found["DINER"].values()), "rows": rows, "setting": setting}
    return Figures(NAMED | named, [chart, table], _checked(found))


def outer_blocks(bench: BenchContext) -> Figures:
    """Figure 19: blocks that the nested loop of pauses holds, of two hundred that fit in memory, as in the source."""
    full = bench.scale == "full"
    rows, base = (100_000, Setting(10_000, 50, 1_000)) if full else (10_000, Setting(1_000, 5, 100))
    pauses = (10, 30, 50) if full else (20,)

    def runs(name: str, setting: Setting) -> dict[int, Paused]:
        return {pause: paused(name, "zipf", rows, pause, setting) for pause in pauses}

    diner = {blocks: runs("DINER", replace(base, outer_blocks=blocks)) for blocks in OUTER}
    lines = {f"pauses of {p} %": [(blocks, by[p].share) for blocks, by in diner.items()] for p in pauses}
    spread = max(max(s for _, s in each) - min(s for _, s in each) for each in lines.values())
    found = {f"DINER, {blocks} blocks": by for blocks, by in diner.items()}
    found[f"oldest first, {base.outer_blocks} blocks"] = runs("oldest", base)
    grid: list[list[Cell]] = []
    for label, by in found.items():
        cells = [value for each in by.values() for value in (each.share, 100 * each.reactive / each.total)]
        grid.append([label, *cells, max(each.most for each in by.values())])
    heads = [head for pause in pauses for head in (f"% online, pauses of {pause} %", "of which in pauses")]
    chart = Chart("DINER by outer blocks", "outer blocks in memory", _BEFORE_LAST, lines)
    table = Grid(f"Outer blocks, {base}", ["", *heads, "most rows waiting"], grid)
    return Figures({"spread": spread, "rows": rows, "setting": base}, [chart, table])


def miner_handover(bench: BenchContext) -> Figures:
    """Figure 21, a table: rows that wait when work on disk stops because more have come than may wait."""
    full = bench.scale == "full"
    rows, limit, blocks, pauses = (100_000, 1_000, 19, PAUSES) if full else (4_000, 40, 9, PAUSES[::2])
    found: dict[str, dict[int, Paused]] = {}
    for inputs in INPUTS:
        memory = (2 * rows + (inputs - 2) * rows // 10) // 20  # 5 % of all rows
        setting = Setting(memory, 50 if full else 10, limit, outer_blocks=blocks)
        found[f"{inputs} inputs"] = {p: miner_paused(inputs, rows, p, setting, p == pauses[0]) for p in pauses}
    shares = _grid(_BEFORE_LAST, found, lambda name, every: [[name, *(e.share for e in every)]])
    title = f"Rows that wait after a pause; {limit} may, in the source 1,000"
    chart = _chart("MINER: most rows waiting", "rows", found, "most")
    waiting = _waiting_grid(title, found, PRINTED["miner_waiting"])
    named = {"found": {n: list(by.values()) for n, by in found.items()}, "rows": rows, "setting": setting}
    return Figures(named, [chart, waiting, shares], _checked(found))
