"""Shares of the result that joins give while rows arrive: swept, proved, and shown beside the reference counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid, Part, extent, judged
from bench.experiments.online.counting import BUCKETS, COLUMNS, TURN, counted, turns
from bench.experiments.online.streams import SPECIFIED, Row, Streams
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.operators import ALGORITHMS, BASELINES
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.phases import ARRIVING, PHASE_COLUMN
from dovetail.joins.online.sizes import Sizes

RIVALS = ("HMJ", "RPJ 1.0")
"""The joins that the source compares with in every figure; RPJ as it reads it, which forgets no arrival."""
SHOWN = {"RPJ 1.0": "RPJ", "RPJ 0.9": "RPJ, ageing", "oldest": "oldest first"}
"""Names for readers where those of the counters are short."""
_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "HMJ smallest": ("hmj", {"flush": "smallest"}),
    "RPJ 1.0": ("rpj", {"ageing": 1.0}),
    "RPJ 0.9": ("rpj", {"ageing": 0.9}),
}
"""How joins are called in the registry, and what they are told, where it is more than their name."""
_BUDGET = 1 << 22
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


def reference(set_name: str, xs: Iterable[float], label: str) -> dict[str, Row]:
    """The reference counts of a set, by the label of its line."""
    return {label.format(x=x): SPECIFIED[set_name, x] for x in xs if (set_name, x) in SPECIFIED}


def labelled(found: Mapping[float, Shares], label: str) -> dict[str, Shares]:
    """Shares by the label of their line."""
    return {label.format(x=x): shares for x, shares in found.items()}


def shares_grid(title: str, found: Lines, specified: Mapping[str, Row]) -> Grid:
    """Percent online by line and join, DINER's factors, and below each line the reference counts.

    Reference: docs/algorithms/online.md, 6.4.
    """
    names = list(next(iter(found.values())))
    heads = ["percent online", *map(shown, names), "DINER / HMJ", "DINER / RPJ", "DINER / oldest first"]
    rows: list[list[Cell]] = []
    for line, shares in found.items():
        rows.append([line, *shares.values(), *(factor(shares, other) for other in (*RIVALS, "oldest"))])
        if line in specified:
            by_name = dict(zip(COLUMNS, specified[line], strict=True))
            rows.append(["reference count", *(by_name.get(name) for name in names), None, None, None])
    return Grid(title, heads, rows)


def shares_chart(title: str, x: str, found: Mapping[float, Shares], log_x: bool = False) -> Chart:
    """One line a join through its shares."""
    lines = {shown(name): [(at, s[name]) for at, s in found.items()] for name in next(iter(found.values()))}
    return Chart(title, x, "% of the result while rows arrive", lines, log_x=log_x)


def factors_chart(title: str, x: str, found: Mapping[float, Shares], log_x: bool = False) -> Chart:
    """One line a join through DINER's factor over it."""
    some = ("HMJ", "RPJ 1.0", "RPJ 0.9", "XJoin", "oldest", "PMJ")
    lines = {shown(name): [(at, factor(s, name)) for at, s in found.items()] for name in some}
    return Chart(title, x, "pairs of DINER / pairs of the other", lines, log_x=log_x)


def remarks(found: Lines, specified: Mapping[str, Row], size: Size) -> str:
    """DINER against the baseline that no source proposes, and against the reference counts."""
    gaps = [abs(found[line]["DINER"] - (row[0] or 0.0)) for line, row in specified.items() if line in found]
    return (
        f"{beyond(found)} DINER is at most {max(gaps):.1f} points from the reference counts, which are for 100,000 "
        f"rows a side. {size}."
    )


def beyond(found: Lines) -> str:
    """A sentence on DINER against rows that leave oldest first."""
    factors = extent(factor(shares, "oldest") for shares in found.values())
    return f"Over rows that leave oldest first DINER gives {factors} times the pairs."


def findings(
    parts: Sequence[Part], note: str, charts: Sequence[Chart], tables: Sequence[Grid], proofs: Sequence[Streams]
) -> Findings:
    """What was found, with the pairs of the first rows of some streams compared with the definition."""
    rows = sum(proved(streams, ("DINER", "PMJ") if streams.band else COLUMNS) for streams in proofs)
    return judged(parts, note, charts, tables, rows)


def specification(name: str, sizes: Sizes, band: int = 0) -> OnlineJoin:
    """One of the compared joins, on the columns `key` of both sides."""
    kind, options = _OPTIONS.get(name, (name.lower(), {}))
    predicate: dict[str, Any] = {"within": ("key", "key", -band, band)} if band else {"on": ("key",)}
    return (ALGORITHMS | BASELINES)[kind](**predicate, sizes=sizes, with_phase=True, **options)


def numbered(keys: I64, side: str) -> pa.RecordBatch:
    """Rows of one side with these keys: `key`, and a number of its own for each."""
    return pa.record_batch({"key": keys, f"{side}_id": np.arange(len(keys))})


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
    sides = {"left": numbered(streams.left, "left"), "right": numbered(streams.right, "right")}
    given, online = [np.empty(0, np.int64)], 0
    with spec.open(MemoryBudget(_BUDGET), {name: side.schema for name, side in sides.items()}) as operator:
        for batch in _everything(operator, sides, turns(streams.left, streams.right, TURN)):
            left, right = (batch.column(f"{side}_id").to_numpy() for side in sides)
            given.append(left * len(streams.right) + right)
            online += sum(phase == ARRIVING for phase in batch.column(PHASE_COLUMN).to_pylist())
    return int64s(np.concatenate(given)), online


def _everything(
    operator: OnlineOperator, sides: Mapping[str, pa.RecordBatch], chunks: list[tuple[int, I64]]
) -> Iterator[pa.RecordBatch]:
    at, names = [0, 0], list(sides)
    for side, keys in chunks:
        yield from operator.push(names[side], sides[names[side]].slice(at[side], len(keys)))
        at[side] += len(keys)
    yield from operator.finish()
