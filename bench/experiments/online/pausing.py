"""Joins over streams that pause, in simulated time: results of pauses, and rows that wait when one ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa

from bench.experiments.online.counting import BUCKETS
from bench.experiments.online.many_counting import CHAIN, DOMAIN, ROWS, TURN, keys_of, total
from bench.experiments.online.shares import numbered, specification
from bench.experiments.online.streams import RECORDED, Streams, recorded, synthetic
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.kernels.rows import EMIT, RESULTS
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.miner import Miner
from dovetail.joins.online.operators.mjoin import MJoin
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.phases import Handover
from dovetail.joins.online.sizes import Sizes
from dovetail.workloads import relations
from dovetail.workloads.arrivals import Poisson
from dovetail.workloads.relation_sets import chain_relations, star_relations

GROUP = 20
BUDGET = 1 << 27
_US = 1000.0  # of a mean gap


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows in memory and a block, rows that may wait before work on disk stops, and costs in mean gaps between rows."""

    memory: int
    block: int
    max_new: int
    wait_gaps: float = 8.0
    block_gaps: float = 0.4
    result_gaps: float = 0.0
    outer_blocks: int = 19

    def __str__(self) -> str:
        return (
            f"memory for {self.memory:,} rows, blocks of {self.block}, work on disk after {self.wait_gaps:g} gaps of "
            f"silence and until more than {self.max_new} rows wait, a block costs {self.block_gaps:g} gaps, a result "
            f"{self.result_gaps:g}"
        )


@dataclass(frozen=True, slots=True)
class Paused:
    """Pairs while rows came, pairs of pauses before the last row, all pairs; rows that waited when a pause was over.

    `step_rows` is the most rows that came during one unit of work on disk.
    """

    arriving: int
    reactive: int
    total: int
    waited: tuple[int, ...]
    step_gaps: float
    step_rows: int

    @property
    def share(self) -> float:
        """Percent of the result before the last row had come."""
        return 100.0 * (self.arriving + self.reactive) / max(1, self.total)

    @property
    def most(self) -> int:
        """The most rows that waited."""
        return max(self.waited, default=0)

    @property
    def average(self) -> int:
        """How many rows waited on average."""
        return round(sum(self.waited) / max(1, len(self.waited)))


@dataclass
class Simulation:
    """Virtual time in microseconds, rows in order of arrival, and what was waiting at each hand-over."""

    operator: OnlineOperator
    setting: Setting
    times: I64
    sides: I64
    rows: Mapping[str, pa.RecordBatch]
    now: float = 0.0
    taken: int = 0
    charged: int = 0
    results: int = 0
    reactive: int = 0
    waited: list[int] = field(default_factory=list)
    longest_step: float = 0.0

    @property
    def arriving(self) -> int:
        """Pairs while rows came."""
        return int(self.operator.rows.meta[RESULTS])

    def work(self) -> None:
        """Let time pass for the blocks and results since the last call."""
        blocks = sum(store.file.blocks_read + store.file.blocks_written for store in self.operator.blocks)
        results = self.arriving + self.reactive
        self.now += _US * self.setting.block_gaps * (blocks - self.charged)
        self.now += _US * self.setting.result_gaps * (results - self.results)
        self.charged, self.results = blocks, results

    def waiting(self) -> int:
        """Rows that have come and were not taken."""
        before = self.now
        self.work()
        self.longest_step = max(self.longest_step, self.now - before)
        return int(np.searchsorted(self.times, self.now, side="right")) - self.taken

    @property
    def longest_step_rows(self) -> int:
        """The most rows that came while one unit of work on disk went on."""
        ends = np.searchsorted(self.times, self.times + self.longest_step, side="right")
        return int((ends - np.arange(len(self.times))).max())

    def run(self) -> None:
        """Rows as they come; work on disk when nothing has come for a while."""
        silence = _US * self.setting.wait_gaps
        pauses = np.flatnonzero(np.diff(self.times) > silence) + 1
        for pause in [*pauses.tolist(), len(self.times)]:
            if pause > self.taken:
                self._take(pause)
            if pause < len(self.times) and self.times[pause] - self.now > silence:
                self._react()

    def _take(self, due: int) -> None:
        at = [int(np.count_nonzero(self.sides[: self.taken] == side)) for side in range(len(self.rows))]
        for start in range(self.taken, due, GROUP):
            group = self.sides[start : min(due, start + GROUP)]
            for side, (name, batch) in enumerate(self.rows.items()):
                n = int(np.count_nonzero(group == side))
                if n == 0:
                    continue
                for _ in self.operator.push(name, batch.slice(at[side], n)):
                    pass
                self.operator.rows.meta[EMIT] = 0  # pairs of arriving rows are counted, not written
                at[side] += n
            self.taken = min(due, start + GROUP)
            self.now = max(self.now, float(self.times[self.taken - 1]))
            self.work()

    def _react(self) -> None:
        self.now += _US * self.setting.wait_gaps
        handover = Handover(self.waiting, self.setting.max_new)
        for batch in self.operator.idle(handover):
            self.reactive += batch.num_rows
        waiting = self.waiting()
        if waiting > self.setting.max_new:  # handed over because input was back, not because nothing was left to do
            self.waited.append(waiting)


def keys_with_pauses(name: str, rows: int, pause: int, seed: int = 1) -> tuple[Streams, I64, I64]:
    """Two streams and when their rows come: "zipf", a stand-in or a recorded set, with pauses of so many percent."""
    if name == "zipf":
        streams = synthetic("delays", pause, rows, seed=seed)
    else:
        streams = recorded(name).first(rows) if name in RECORDED else synthetic(name, None, rows, seed=seed)
    both = relations("delays", pause, len(streams.left), len(streams.right), seed=seed)
    left, right = (int64s(side.table().column("at").cast(pa.int64()).to_numpy()) for side in both)
    return streams, left, right


@cache
def paused(name: str, keys: str, rows: int, pause: int, setting: Setting, to_the_end: bool = False) -> Paused:
    """One join over one set with pauses; the same figures whenever it is asked again.

    `to_the_end`: everything owed is asked for too, and DataError if the pairs are not as many as the definition says.
    """
    streams, *ats = keys_with_pauses(keys, rows, pause)
    sizes = Sizes(
        memory_rows=setting.memory,
        block_rows=setting.block,
        partitions=BUCKETS,
        outer_blocks=setting.outer_blocks,
        fan_in=10,
    )
    batches = {"left": numbered(streams.left, "left"), "right": numbered(streams.right, "right")}
    schemas = {side: batch.schema for side, batch in batches.items()}
    with specification(name, sizes).open(MemoryBudget(BUDGET), schemas) as operator:
        return ended(Simulation(operator, setting, *in_order(ats), batches), streams.pairs, to_the_end)


def in_order(ats: Sequence[I64]) -> tuple[I64, I64]:
    """Times from the first row on, ascending, and the input of each row."""
    times, sides = np.concatenate(ats), np.repeat(np.arange(len(ats)), [len(at) for at in ats])
    order = np.argsort(times, kind="stable")
    return int64s(times[order] - int(times.min())), int64s(sides[order])


def ended(simulation: Simulation, total: int, to_the_end: bool) -> Paused:
    """What a simulation gives; DataError if it is asked for everything and gives another number of results."""
    simulation.run()
    arriving = simulation.arriving
    if to_the_end:
        owed = sum(batch.num_rows for batch in simulation.operator.finish())
        if arriving + simulation.reactive + owed != total:
            parts = f"{arriving} + {simulation.reactive} + {owed}"
            raise DataError(f"{simulation.operator.spec.explain()} with pauses gave {parts} results, not {total}.")
    return Paused(
        arriving,
        simulation.reactive,
        total,
        tuple(simulation.waited),
        simulation.longest_step / _US,
        simulation.longest_step_rows,
    )


@cache
def miner_paused(inputs: int, rows: int, pause: int, setting: Setting, to_the_end: bool = False) -> Paused:
    """The chain of two to four inputs, each in ten fragments with pauses of so many percent of a fragment's time.

    `to_the_end`: everything owed is asked for too, and DataError if there are not as many combinations as must be.
    """
    pausing = Poisson(1000.0, 10, pause / 100.0)
    relations = chain_relations(inputs, rows, DOMAIN * rows // ROWS, 1)
    tables = {name: replace(relation, arrivals=pausing).table() for name, relation in relations.items()}
    ats = [int64s(table.column("at").cast(pa.int64()).to_numpy()) for table in tables.values()]
    batches = {name: table.drop_columns(["at"]).combine_chunks().to_batches()[0] for name, table in tables.items()}
    sizes = Sizes(memory_rows=setting.memory, block_rows=setting.block, outer_blocks=setting.outer_blocks)
    spec = Miner(inputs=tuple(tables), on=tuple(CHAIN[i] for i in range(1, inputs)), sizes=sizes)
    whole = total({name: keys_of(table) for name, table in tables.items()})
    with spec.open(MemoryBudget(BUDGET), {name: batch.schema for name, batch in batches.items()}) as operator:
        simulation = Simulation(operator, setting, *in_order(ats), batches)
        return ended(simulation, whole, to_the_end)


def star_proved(rows: int = 400) -> int:
    """Combinations of a small star that MINER and both kinds of MJoin gave, to the end; DataError if not all."""
    domain = DOMAIN * rows // ROWS
    batches = {
        name: relation.table().drop_columns(["at"]).combine_chunks().to_batches()[0]
        for name, relation in star_relations(4, rows, domain, 1).items()
    }
    on = tuple(("R1.key", f"{name}.key") for name in ("R2", "R3", "R4"))
    sizes = Sizes(memory_rows=rows // 5, block_rows=5, partitions=8)
    whole = total({name: keys_of(pa.table(batch)) for name, batch in batches.items()})
    specs: tuple[MultiJoin, ...] = (
        Miner(inputs=tuple(batches), on=on, sizes=sizes),
        MJoin(inputs=tuple(batches), on=on, sizes=sizes, flush="largest"),
        MJoin(inputs=tuple(batches), on=on, sizes=sizes, flush="smallest"),
    )
    for spec in specs:
        if (found := _to_the_end(spec, batches)) != whole:
            raise DataError(f"{spec.explain()} gave {found} combinations of {whole}.")
    return whole


def _to_the_end(spec: MultiJoin, batches: Mapping[str, pa.RecordBatch]) -> int:
    found = 0
    with spec.open(MemoryBudget(BUDGET), {name: batch.schema for name, batch in batches.items()}) as operator:
        for start in range(0, max(batch.num_rows for batch in batches.values()), TURN):
            for name, batch in batches.items():
                found += sum(part.num_rows for part in operator.push(name, batch.slice(start, TURN)))
        found += sum(part.num_rows for part in operator.finish())
    return int(found)
