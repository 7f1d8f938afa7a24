"""Shares of the result that joins give while rows arrive: swept, proved, and shown beside the reference counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Grid, extent
from bench.experiments.online.counting import BUCKETS, COLUMNS, counted, specification, turns
from bench.experiments.online.streams import SPECIFIED, Row, Streams
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.answers import ARRIVING, PHASE_COLUMN
from dovetail.joins.online.operators.spec import OnlineJoin, OnlineSpec
from dovetail.joins.online.sizes import Sizes

RIVALS = ("HMJ", "RPJ 1.0")
"""The joins that the source compares with in every figure; RPJ as it reads it, which forgets no arrival."""
SHOWN = {"RPJ 1.0": "RPJ", "RPJ 0.9": "RPJ, ageing", "oldest": "oldest first"}
"""Names for readers where those of the counters are short."""
BUDGET = 1 << 27
Shares = Mapping[str, float]
"""Percent of the result that comes while rows arrive, by join."""
Lines = Mapping[str, Shares]
"""Shares by what they are of."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is: rows a side, rows in memory and rows a block."""

    rows: int
    memory: int
    block: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows a side, memory for {self.memory:,}, blocks of {self.block}"

    def shares(self, streams: Streams) -> dict[str, float]:
        """Percent online of all compared joins."""
        return shares_of(streams, self.memory, self.block)


FULL = Size(100_000, 10_000, 50)


def size_of(bench: BenchContext) -> Size:
    """The source's own size, or some quarter of it with as many blocks in memory."""
    return FULL if bench.scale == "full" else Size(24_000, 2_400, 12)


def shares_of(streams: Streams, memory: int, block: int, names: Iterable[str] = COLUMNS) -> dict[str, float]:
    """Percent online of each join."""
    total = streams.pairs
    return {name: 100.0 * counted(name, streams, memory, block).found / total for name in names}


def factor(shares: Shares, over: str) -> float:
    """How many times the pairs of another join DINER gives."""
    return shares["DINER"] / max(shares[over], 1e-9)


def shown(name: str) -> str:
    """A join's name as readers see it."""
    return SHOWN.get(name, name)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Shares of all compared joins over what a set of keys varies; `label` names the line of a value."""

    set: str
    label: str
    found: Mapping[float, Shares]
    size: Size

    @property
    def lines(self) -> dict[str, Shares]:
        """Shares by the label of their line."""
        return {self.label.format(x=x): shares for x, shares in self.found.items()}

    @property
    def reference(self) -> dict[str, Row]:
        """The reference counts that there are, by the label of their line."""
        return {self.label.format(x=x): SPECIFIED[self.set, x] for x in self.found if (self.set, x) in SPECIFIED}

    def factors(self, rival: str) -> list[float]:
        """DINER's factor over a join at every value."""
        return [factor(shares, rival) for shares in self.found.values()]

    def grid(self, title: str, *others: Sweep) -> Grid:
        """Percent online by line and join, DINER's factors, and below each line the reference counts.

        Reference: docs/algorithms/online.md, 6.4.
        """
        names = list(next(iter(self.found.values())))
        heads = ["percent online", *map(shown, names), "DINER / HMJ", "DINER / RPJ", "DINER / oldest first"]
        rows: list[list[Cell]] = []
        for line, shares in (pair for sweep in (self, *others) for pair in sweep.lines.items()):
            rows.append([line, *shares.values(), *(factor(shares, other) for other in (*RIVALS, "oldest"))])
            for specified in (sweep.reference[line] for sweep in (self, *others) if line in sweep.reference):
                by_name = dict(zip(COLUMNS, specified, strict=True))
                rows.append(["reference count", *(by_name.get(name) for name in names), None, None, None])
        return Grid(f"{title}, {self.size}", heads, rows)

    def shares_chart(self, title: str, x: str, log_x: bool = False) -> Chart:
        """One line a join through its shares."""
        names = next(iter(self.found.values()))
        lines = {shown(name): [(at, s[name]) for at, s in self.found.items()] for name in names}
        return Chart(title, x, "% of the result while rows arrive", lines, log_x=log_x)

    def factors_chart(self, x: str, title: str = "DINER's gain", log_x: bool = False) -> Chart:
        """One line a join through DINER's factor over it."""
        some = ("HMJ", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "PMJ")
        lines = {shown(name): list(zip(self.found, self.factors(name), strict=True)) for name in some}
        return Chart(title, x, "pairs of DINER / pairs of the other", lines, log_x=log_x)

    def remarks(self, *others: Sweep) -> str:
        """DINER against the baseline that no source proposes, and against the reference counts."""
        every = (self, *others)
        lines = {line: shares for sweep in every for line, shares in sweep.lines.items()}
        printed = ((line, row[0] or 0.0) for sweep in every for line, row in sweep.reference.items())
        gap = max(abs(lines[line]["DINER"] - diner) for line, diner in printed)
        return (
            f"{beyond(lines)} DINER is at most {gap:.1f} points from the reference counts, which are for 100,000 "
            f"rows a side. {self.size}."
        )


def beyond(found: Lines) -> str:
    """A sentence on DINER against rows that leave oldest first."""
    factors = extent(factor(shares, "oldest") for shares in found.values())
    return f"Over rows that leave oldest first DINER gives {factors} times the pairs."


def growth(sweep: Sweep, rival: str) -> tuple[float, float]:
    """DINER's factor over a join at the smallest and at the largest value."""
    return factor(sweep.found[min(sweep.found)], rival), factor(sweep.found[max(sweep.found)], rival)


NAMED: dict[str, Any] = {
    "RIVALS": RIVALS,
    "OLDEST": "oldest",
    "factor": factor,
    "shown": shown,
    "growth": growth,
    "beyond": beyond,
}
"""Words that the tables of experiments may use of shares."""


def proofs_of(some: Iterable[Streams]) -> int:
    """Pairs of the first rows of some streams, which were compared with the definition."""
    return sum(proved(streams, ("DINER", "PMJ") if streams.band else COLUMNS) for streams in some)


def proved(streams: Streams, names: Iterable[str], rows: int = 600) -> int:
    """Pairs of the first rows that all these joins gave, to the end, exactly once each; DataError where one did not.

    Also compared: what they gave while rows arrived, with what is counted for them. PMJ joins the rest of its memory
    at the end of the input, so of its count nothing is asked here.
    """
    few = streams.first(rows)
    memory, block = max(20, few.rows // 10), max(2, few.rows // 200)
    match = np.abs(few.left[:, None] - few.right[None, :]) <= few.band
    wanted = np.flatnonzero(match.ravel())  # every pair as left number * rows of the right side + right number
    for name in names:
        spec = specification(name, Sizes(memory_rows=memory, block_rows=block, partitions=BUCKETS), few.band)
        given, online = _run(spec, few)
        if not np.array_equal(np.sort(given), wanted):
            raise DataError(f"{name} over {few.name} gave {len(given)} pairs, not the {len(wanted)} of the definition.")
        if name != "PMJ" and online != (expected := counted(name, few, memory, block).found):
            raise DataError(f"{name} over {few.name} gave {online} pairs while rows came, but {expected} were counted.")
    return len(wanted)


def _run(spec: OnlineJoin, streams: Streams) -> tuple[I64, int]:
    """All pairs of an operator, and how many came while rows arrived."""
    given, online = [np.empty(0, np.int64)], 0
    for batch in everything(spec, streams.batches()):
        left, right = (batch.column(f"{side}_id").to_numpy() for side in ("left", "right"))
        given.append(left * len(streams.right) + right)
        online += sum(phase == ARRIVING for phase in batch.column(PHASE_COLUMN).to_pylist())
    return int64s(np.concatenate(given)), online


def everything(spec: OnlineSpec, inputs: Mapping[str, pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All answers of a join, whose inputs come in turns, to the end."""
    names, schemas = list(inputs), {name: batch.schema for name, batch in inputs.items()}
    with spec.open(MemoryBudget(BUDGET), schemas) as operator:
        for number, start, stop in turns([batch.num_rows for batch in inputs.values()]):
            yield from operator.push(names[number], inputs[names[number]].slice(start, stop - start))
        yield from operator.finish()
