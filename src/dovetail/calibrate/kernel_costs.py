"""What unit work costs on one core: insert, probe, evict, emit, compare, sort, and segments of master data."""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import numpy as np
import pyarrow as pa

from dovetail.calibrate.segment_costs import load_step_s, small_store, visit_step_s
from dovetail.calibrate.unit_cost import Effort, repeated, timed
from dovetail.engine.columns import take_columns
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.profile import Cost


def insert(effort: Effort) -> Cost:
    """One row into a hash multimap that grows from empty, keys in no order, each a few times."""
    keys, rows = _keys(effort.rows), np.arange(effort.rows)

    def once() -> float:
        table = HashMultimap()
        return timed(lambda: table.insert(keys, rows)) / effort.rows

    return repeated(once, effort.repeats)


def probe(effort: Effort) -> Cost:
    """One look-up in such a table with the matches that it finds, half of the keys being there."""
    table = _filled(effort.rows)
    asked = np.random.default_rng(1).integers(0, effort.rows, effort.rows)
    return repeated(lambda: timed(lambda: table.probe(asked)) / effort.rows, effort.repeats)


def evict(effort: Effort) -> Cost:
    """One row out of such a table, in no order."""
    order = np.random.default_rng(2).permutation(effort.rows)

    def once() -> float:
        table = _filled(effort.rows)
        return timed(lambda: table.delete_slots(order)) / effort.rows

    return repeated(once, effort.repeats)


def emit(effort: Effort) -> Cost:
    """One result row of eight columns, two of them text, gathered from rows in no order."""
    batch = wide_batch(effort.rows)
    order = np.random.default_rng(3).integers(0, effort.rows, effort.rows)
    return repeated(lambda: timed(lambda: take_columns(batch, order)) / effort.rows, effort.repeats)


def compare(effort: Effort) -> Cost:
    """One overlap test on two rows, in a loop that keeps what matches."""
    side = max(64, int(effort.rows**0.5) * 4)
    starts = np.sort(np.random.default_rng(4).integers(0, 100 * side, side))
    ends, found = starts + 150, np.empty(side * side, np.int64)
    return repeated(lambda: timed(lambda: _overlapping(starts, ends, starts, ends, found)) / side**2, effort.repeats)


def sort(effort: Effort) -> Cost:
    """One row and one level of an indirect sort: n rows cost n * log2(n) of them."""
    keys = np.random.default_rng(5).integers(0, 2**60, effort.rows)
    levels = effort.rows * log2(effort.rows)
    return repeated(lambda: timed(lambda: np.argsort(keys, kind="stable")) / levels, effort.repeats)


def segment_load(effort: Effort) -> Cost:
    """One segment in a round of loads of a semi-stream join, beside its read."""
    with small_store(max(64, effort.rows // 100)) as pages:
        return repeated(lambda: load_step_s(pages), effort.repeats)


def segment_visit(effort: Effort) -> Cost:
    """One resident segment that rows of a semi-stream join meet, beside a table over its rows."""
    table = probe(effort).seconds
    with small_store(max(64, effort.rows // 2000)) as pages:
        return repeated(lambda: visit_step_s(pages, table), effort.repeats)


def wide_batch(rows: int) -> pa.RecordBatch:
    """Rows of six numbers and two short texts: the width that per-row costs are stated for."""
    numbers = {f"n{i}": np.arange(rows) * i for i in range(6)}
    words = pa.array([f"word {i}" for i in range(1000)])
    texts = {f"t{i}": words.take(pa.array(np.arange(rows) * (i + 7) % 1000)) for i in range(2)}
    return pa.RecordBatch.from_pydict({**numbers, **texts})


def _keys(rows: int) -> I64:
    return np.random.default_rng(0).integers(0, max(1, rows // 2), rows)


def _filled(rows: int) -> HashMultimap:
    table = HashMultimap()
    table.insert(_keys(rows), np.arange(rows))
    return table


@kernel
def _overlapping(l_start: I64, l_end: I64, r_start: I64, r_end: I64, found: I64) -> int:
    n = 0
    for i in range(len(l_start)):
        for j in range(len(r_start)):
            if l_start[i] < r_end[j] and r_start[j] < l_end[i]:
                found[n] = j
                n += 1
    return n


KERNEL_COSTS: dict[str, Callable[[Effort], Cost]] = {
    "insert": insert,
    "probe": probe,
    "evict": evict,
    "emit": emit,
    "compare": compare,
    "sort": sort,
    "segment_load": segment_load,
    "segment_visit": segment_visit,
}
