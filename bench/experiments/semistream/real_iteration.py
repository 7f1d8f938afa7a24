"""The tables of chapters 3 to 5 by the clock: what memory is used for, and what an iteration costs here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid
from bench.experiments.parts import Part
from bench.experiments.semistream.counting import MB
from bench.experiments.semistream.judging import grid, judged
from bench.experiments.semistream.media import ClockRunner, on_stores
from bench.experiments.semistream.real_rates import HYBRID, JOINS, MESH, R_MESH
from bench.experiments.semistream.timing import built, check, law_keys
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget

_NAMES = (MESH, R_MESH, HYBRID)
_SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])
_BATCH = 1 << 15
_W = 109
_BUFFERS = ("disk buffer", "disk buffer keys")


@dataclass(frozen=True, slots=True)
class _Iteration:
    """Bytes by component at the peak, rows that could wait, and what one load and all that follows it took."""

    memory: dict[str, int]
    waiting: int
    rows: float
    seconds: float
    reading: float

    @property
    def buffer_share(self) -> float:
        """The share of the disk buffer in all memory."""
        return sum(self.memory.get(name, 0) for name in _BUFFERS) / sum(self.memory.values())


def _iteration(runner: ClockRunner, name: str) -> _Iteration:
    """The join with as many waiting rows as fit in the memory in our bytes."""
    point = replace(JOINS[name], divide=max(1, runner.divide // 4))
    pages = runner.pages(point.master_rows)
    join, budget = built(point, pages), MemoryBudget(int(point.memory_mb * MB) // point.divide, "bench")
    join = replace(join, sizes=replace(join.sizes, waiting=None))
    keys = law_keys(point.master_rows, point.exponent, scattered=False, seed=5)
    rounds, asked, answers = 2 if point.mesh else 4, list[I64](), list[pa.RecordBatch]()
    with join.open(budget, {"stream": _SCHEMA}) as operator:
        queue = operator.sizes.waiting or 1

        def push(rows: int) -> None:
            for start in range(0, rows, _BATCH):
                asked.append(keys(min(_BATCH, rows - start)))
                answers.extend(operator.push("stream", pa.record_batch([pa.array(asked[-1])], schema=_SCHEMA)))

        push(rounds * queue)
        loads, busy, started = operator.counts["loads"], pages.device.busy_ns, time.perf_counter()
        push(rounds * queue)
        seconds, did = time.perf_counter() - started, max(1, operator.counts["loads"] - loads)
        reading = (pages.device.busy_ns - busy) / 1e9
        answers += operator.finish()
        check(np.concatenate(asked), answers)
        runner.checked += sum(map(len, asked))
        return _Iteration(budget.at_peak(), queue, rounds * queue / did, seconds / did, reading / did)


def _tables(bench: BenchContext, runner: ClockRunner) -> Findings:
    found = {name: _iteration(runner, name) for name in _NAMES}
    hybrid = found[HYBRID]
    shares = {name: of.reading / of.seconds for name, of in found.items()}
    buffers = {name: of.buffer_share for name, of in found.items()}
    checks = [
        Part(f"HYBRIDJOIN finishes {hybrid.rows:,.0f} rows an iteration, printed {_W}", hybrid.rows >= _W),
        Part(f"HYBRIDJOIN reads for {shares[HYBRID]:.0%} of an iteration, printed 77 %", shares[HYBRID] > 0.5),
        Part(f"R-MESHJOIN for {shares[R_MESH]:.1%}, printed below 1 %", shares[R_MESH] < 0.02),
        Part(f"disk buffers take {_listed(buffers)} of the memory of {', '.join(_NAMES)}; printed 2 to 16, 0.3 to 0.6 "
              "and 0.1 %", buffers[HYBRID] < 0.05),
    ]  # fmt: skip
    steps = [(name, of.rows, 1e6 * of.seconds, 1e6 * of.reading, of.reading / of.seconds, of.rows / of.seconds)
             for name, of in found.items()]  # fmt: skip
    heads = ("join", "rows", "us", "us of reading", "share", "rows a second")
    tables = [grid("An iteration", heads, steps), _memory(found)]
    bars = {"reading": [(name, 1e6 * of.reading) for name, of in found.items()],
            "everything else": [(name, 1e6 * (of.seconds - of.reading)) for name, of in found.items()]}  # fmt: skip
    chart = Chart("An iteration", "join", "us", bars, kind="bar")
    note = (
        f"50 MB and 2 million rows, both divided by {max(1, runner.divide // 4)}, over the {runner.medium.name}; bytes "
        f"are what our joins reserve, {_per_row(found)} a waiting row in all, where the source's maps need 164 to 172. "
        "Every answer was checked."
    )
    return judged(checks, note, [chart], tables)


def _memory(found: dict[str, _Iteration]) -> Grid:
    names: Sequence[str] = sorted({name for of in found.values() for name in of.memory})
    rows: list[list[Cell]] = [[name, *(of.memory.get(name, 0) / MB for of in found.values())] for name in names]
    rows.append(["in all", *(sum(of.memory.values()) / MB for of in found.values())])
    rows.append(["rows that can wait", *(of.waiting for of in found.values())])
    return grid("Memory at its peak, MB", ("component", *found), rows)


def _listed(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.1%}" for share in shares.values())


def _per_row(found: dict[str, _Iteration]) -> str:
    each = [sum(of.memory.values()) / of.waiting for of in found.values()]
    return f"{min(each):.0f} to {max(each):.0f}"


EXPERIMENTS = on_stores(
    "iteration",
    ("table 3.2", "table 4.2", "table 4.3", "table 5.1", "table 5.2"),
    "How memory is shared by buffer, hash table and queue, and what an iteration costs: HYBRIDJOIN finishes 109 rows "
    "and spends most of it on reading, R-MESHJOIN, whose file is in memory, next to nothing.",
    _tables,
)
