"""Table 3 of the sources: how many rows wait when control goes back to the arriving phase, in simulated time.

One tenth of the sources' scale: 10,000 rows a side in ten fragments, a pause after each, memory for 1,000 rows, blocks
of 10, `max_new_arrivals` 100. Reading or writing a block takes `BLOCK_GAPS` mean gaps between rows of one side. Within
a fragment rows arrive in groups of 20, left ones first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from tests.online.schedules import EVERY

from dovetail.engine.memory import MemoryBudget
from dovetail.online.operators.base import OnlineOperator
from dovetail.online.operators.spec import OnlineJoin
from dovetail.online.phases import Handover
from dovetail.online.sizes import Sizes
from dovetail.workloads import relations

ROWS, MEMORY, BLOCK, MAX_NEW, WAIT_GAPS = 10_000, 1_000, 10, 100, 8.0
BLOCK_GAPS, GROUP = 0.4, 20
PAUSES = (10, 20, 30, 40, 50)


@dataclass
class Simulation:
    """Virtual time in microseconds, rows in order of arrival, and what was waiting at each hand-over."""

    operator: OnlineOperator
    times: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    sides: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    rows: tuple[pa.RecordBatch, pa.RecordBatch]
    now: float = 0.0
    taken: int = 0
    charged: int = 0
    waited: list[int] = field(default_factory=list)
    longest_step: float = 0.0

    def work(self) -> None:
        """Let time pass for the blocks since the last call."""
        blocks = sum(store.file.blocks_read + len(store) for store in self.operator.blocks)
        self.now += 1000.0 * BLOCK_GAPS * (blocks - self.charged)
        self.charged = blocks

    def waiting(self) -> int:
        """Rows that have arrived and were not taken."""
        before = self.now
        self.work()
        self.longest_step = max(self.longest_step, self.now - before)
        return int(np.searchsorted(self.times, self.now, side="right")) - self.taken

    @property
    def longest_step_rows(self) -> int:
        """The most rows that arrived while one unit of reactive work went on."""
        ends = np.searchsorted(self.times, self.times + self.longest_step, side="right")
        return int((ends - np.arange(len(self.times))).max())

    def run(self) -> None:
        """Arriving rows as they come; the reactive phase when nothing has come for a while."""
        pauses = np.flatnonzero(np.diff(self.times) > 1000.0 * WAIT_GAPS) + 1
        for pause in [*pauses.tolist(), len(self.times)]:
            if pause > self.taken:
                self._take(pause)
            if pause < len(self.times) and self.times[pause] - self.now > 1000.0 * WAIT_GAPS:
                self._react()

    def _take(self, due: int) -> None:
        at = [int(np.count_nonzero(self.sides[: self.taken] == side)) for side in (0, 1)]
        for start in range(self.taken, due, GROUP):
            group = self.sides[start : min(due, start + GROUP)]
            for side in (0, 1):
                n = int(np.count_nonzero(group == side))
                for _ in self.operator.push(("left", "right")[side], self.rows[side].slice(at[side], n)):
                    pass
                at[side] += n
            self.taken = min(due, start + GROUP)
            self.now = max(self.now, float(self.times[self.taken - 1]))
            self.work()

    def _react(self) -> None:
        self.now += 1000.0 * WAIT_GAPS
        handover = Handover(self.waiting, MAX_NEW)
        for _ in self.operator.idle(handover):
            pass
        waiting = self.waiting()
        if waiting > MAX_NEW:  # handed over because input was back, not because nothing was left to do
            self.waited.append(waiting)


def simulate(name: str, pause: int, seed: int = 1) -> Simulation:
    """One run of an algorithm with pauses of so many percent of a fragment's time."""
    spec: OnlineJoin = EVERY[name](
        on=("key",), sizes=Sizes(memory_rows=MEMORY, block_rows=BLOCK, partitions=50, outer_blocks=19, fan_in=10)
    )
    tables = [relation.table().drop_columns(["at"]) for relation in relations("delays", pause, ROWS, seed=seed)]
    ats = [r.table().column("at").cast(pa.int64()).to_numpy() for r in relations("delays", pause, ROWS, seed=seed)]
    times, sides = np.concatenate(ats), np.repeat([0, 1], [len(ats[0]), len(ats[1])])
    order = np.argsort(times, kind="stable")
    batches = [table.combine_chunks().to_batches()[0] for table in tables]
    operator = spec.open(MemoryBudget(1 << 22), {"left": tables[0].schema, "right": tables[1].schema})
    first = int(times.min())
    with operator:
        simulation = Simulation(operator, times[order] - first, sides[order], (batches[0], batches[1]))
        simulation.run()
    return simulation


def handover_table(names: tuple[str, ...] = ("diner", "hmj", "rpj", "xjoin")) -> str:
    """Largest and average number of waiting rows at hand-over, by pause."""
    lines = [f"{'rows waiting at hand-over (max_new_arrivals 100)':50}" + "".join(f"{p:>9} %" for p in PAUSES)]
    for name in names:
        waited = [simulate(name, pause).waited for pause in PAUSES]
        for label, of in (("max", max), ("avg", lambda found: round(sum(found) / len(found)))):
            cells = "".join(f"{of(found) if found else 0:>11}" for found in waited)
            lines.append(f"{name + ' ' + label:50}" + cells)
    return "\n".join(lines)
