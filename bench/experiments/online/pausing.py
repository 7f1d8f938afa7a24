"""Joins over streams that pause, in simulated time: results of pauses, and rows that wait when one ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa

from bench.experiments.online.counting import BUCKETS, specification
from bench.experiments.online.shares import BUDGET
from bench.experiments.online.streams import (
    CHAIN,
    DOMAIN,
    RECORDED,
    ROWS,
    Streams,
    chain_relations,
    inputs_of,
    recorded,
    synthetic,
    total,
)
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.kernels.rows import EMIT, RESULTS
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.miner import Miner
from dovetail.joins.online.operators.spec import OnlineSpec
from dovetail.joins.online.sizes import Sizes
from dovetail.workloads import Relation, relations
from dovetail.workloads.arrivals import Poisson

GROUP = 20
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
        for batch in self.operator.idle(lambda: self.waiting() > self.setting.max_new):
            self.reactive += batch.num_rows
        waiting = self.waiting()
        if waiting > self.setting.max_new:  # handed over because input was back, not because nothing was left to do
            self.waited.append(waiting)


def keys_with_pauses(name: str, rows: int, pause: int, seed: int = 1) -> tuple[Streams, list[I64]]:
    """Two streams and when their rows come: "zipf", a stand-in or a recorded set, with pauses of `pause` percent."""
    if name == "zipf":
        streams = synthetic("delays", pause, rows, seed=seed)
    else:
        streams = recorded(name).first(rows) if name in RECORDED else synthetic(name, None, rows, seed=seed)
    return streams, _times(relations("delays", pause, len(streams.left), len(streams.right), seed=seed))


def _times(sides: Iterable[Relation]) -> list[I64]:
    return [int64s(side.table().column("at").cast(pa.int64()).to_numpy()) for side in sides]


@cache
def paused(name: str, keys: str, rows: int, pause: int, setting: Setting, to_the_end: bool = False) -> Paused:
    """One join over one set with pauses; the same figures whenever it is asked again.

    `to_the_end`: everything owed is asked for too, and DataError if the pairs are not as many as the definition says.
    """
    streams, times = keys_with_pauses(keys, rows, pause)
    sizes = {"memory_rows": setting.memory, "block_rows": setting.block, "outer_blocks": setting.outer_blocks}
    spec = specification(name, Sizes(**sizes, partitions=BUCKETS, fan_in=10))
    return _simulated(spec, streams.batches(), times, setting, streams.pairs, to_the_end)


@cache
def miner_paused(inputs: int, rows: int, pause: int, setting: Setting, to_the_end: bool = False) -> Paused:
    """The chain of two to four inputs, each in ten fragments with pauses of `pause` percent of a fragment's time.

    `to_the_end`: all owed combinations are asked for too, and DataError if any is missing or too many.
    """
    steady = chain_relations(inputs, rows, DOMAIN * rows // ROWS, 1)
    sides = {name: replace(side, arrivals=Poisson(1000.0, 10, pause / 100.0)) for name, side in steady.items()}
    batches = inputs_of(sides)
    sizes = Sizes(memory_rows=setting.memory, block_rows=setting.block, outer_blocks=setting.outer_blocks)
    spec = Miner(inputs=tuple(sides), on=CHAIN[: inputs - 1], sizes=sizes)
    return _simulated(spec, batches, _times(sides.values()), setting, total(batches), to_the_end)


def _simulated(
    spec: OnlineSpec,
    inputs: Mapping[str, pa.RecordBatch],
    times: Sequence[I64],
    setting: Setting,
    whole: int,
    to_the_end: bool,
) -> Paused:
    """The results of a join over inputs whose rows come at these times."""
    at, sides = np.concatenate(times), np.repeat(np.arange(len(times)), [len(some) for some in times])
    order = np.argsort(at, kind="stable")
    with spec.open(MemoryBudget(BUDGET), {name: batch.schema for name, batch in inputs.items()}) as operator:
        run = Simulation(operator, setting, int64s(at[order] - int(at.min())), int64s(sides[order]), inputs)
        run.run()
        arriving = run.arriving
        if to_the_end:
            owed = sum(batch.num_rows for batch in operator.finish())
            if arriving + run.reactive + owed != whole:
                parts = f"{arriving} + {run.reactive} + {owed}"
                raise DataError(f"{spec.explain()} with pauses gave {parts} results, not {whole}.")
        step_gaps, waited = run.longest_step / _US, tuple(run.waited)
        return Paused(arriving, run.reactive, whole, waited, step_gaps, run.longest_step_rows)
