"""HYBRIDJOIN over a stream that arrives at a given rate, in virtual time: how long each row stays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from bench.experiments.semistream.counting import Point
from bench.simulation import SOURCE_UNITS
from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.workloads.zipf import ZipfLaw

_SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("key", pa.int64(), nullable=False)])


@dataclass(frozen=True, slots=True)
class Stays:
    """Mean and longest seconds from arrival to answer, and rows per load."""

    mean_s: float
    longest_s: float
    rows_per_load: float


@lru_cache(maxsize=256)
def stays(point: Point, arrivals_per_s: float, seconds: float) -> Stays:
    """What rows of a stream of so many a second go through in so many seconds, of which the first half warms up."""
    join = point.join()
    clock = join.pages.device.clock
    if not isinstance(clock, VirtualClock):
        raise DataError("times at a rate of arrival need a simulated disk.")
    n = int(arrivals_per_s * seconds)
    law = ZipfLaw(point.master_rows, point.exponent, "integral")
    keys = law.ranks(np.random.default_rng(7), n) - 1
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": _SCHEMA}) as operator:
        waited = _paced(operator, clock, keys, 1e9 / arrivals_per_s, point.segment)
        late = waited[n // 2 :] / 1e9
        if late.min() < 0:
            raise DataError(f"{int((late < 0).sum())} rows of {n} were never answered.")
        return Stays(float(late.mean()), float(late.max()), n / operator.counts["loads"])


def _paced(operator: SemiStreamOperator, clock: VirtualClock, keys: I64, gap_ns: float, segment: int) -> I64:
    """Nanoseconds that each row stayed: rows that have arrived are taken in between two loads."""
    due = (np.arange(len(keys)) * gap_ns).astype(np.int64)
    waited, taken = np.full(len(keys), -1, np.int64), 0
    load_ns = round(segment * SOURCE_UNITS.probe * 1e9)
    while taken < len(keys) or operator.waiting_rows:
        if not operator.waiting_rows and clock.now_ns() < due[min(taken, len(due) - 1)]:
            clock.advance_ns(int(due[taken]) - clock.now_ns())
        stop = int(np.searchsorted(due, clock.now_ns(), side="right"))
        answers = []
        if stop > taken:
            ids = pa.array(np.arange(taken, stop))
            answers += list(operator.push("stream", pa.record_batch([ids, pa.array(keys[taken:stop])], schema=_SCHEMA)))
            taken = stop
        answers += [*operator.work(), *operator.answers.flush()]
        done = np.concatenate([np.asarray(batch.column(0)) for batch in answers]) if answers else np.zeros(0, np.int64)
        clock.advance_ns(load_ns + round(len(done) * SOURCE_UNITS.stay * 1e9))
        waited[done] = clock.now_ns() - due[done]
    return waited
