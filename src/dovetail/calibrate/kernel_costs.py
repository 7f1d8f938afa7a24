"""Measures unit work on one core: insert, probe, evict, emit, compare, sort, and segments of master data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log2
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.calibrate.unit_cost import Effort, repeated, worked
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.profile import Cost
from dovetail.engine.rows.columns import take_columns
from dovetail.joins.semistream.master.page_file.reader import PageFile, PageFileSource
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.cachejoin import CacheJoin
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.operators.resident import Ssij
from dovetail.joins.semistream.sizes import Sizes


def insert(effort: Effort) -> Cost:
    """One row into a hash multimap that grows from empty, keys in no order, each a few times."""
    keys, rows = _keys(effort.rows), np.arange(effort.rows)

    def once() -> float:
        table = HashMultimap()
        return worked(lambda: table.insert(keys, rows)) / effort.rows

    return repeated(once, effort.repeats)


def probe(effort: Effort) -> Cost:
    """One look-up in such a table with its matches; half of the keys are in the table."""
    table = _filled(effort.rows)
    asked = np.random.default_rng(1).integers(0, effort.rows, effort.rows)
    return repeated(lambda: worked(lambda: table.probe(asked)) / effort.rows, effort.repeats)


def evict(effort: Effort) -> Cost:
    """One row out of such a table, in no order."""
    order = np.random.default_rng(2).permutation(effort.rows)

    def once() -> float:
        table = _filled(effort.rows)
        return worked(lambda: table.delete_slots(order)) / effort.rows

    return repeated(once, effort.repeats)


def emit(effort: Effort) -> Cost:
    """One result row of eight columns, two of them text, gathered from rows in no order."""
    batch = wide_batch(effort.rows)
    order = np.random.default_rng(3).integers(0, effort.rows, effort.rows)
    return repeated(lambda: worked(lambda: take_columns(batch, order)) / effort.rows, effort.repeats)


def compare(effort: Effort) -> Cost:
    """One overlap test on two rows, in a loop that keeps what matches."""
    side = max(64, int(effort.rows**0.5) * 4)
    starts = np.sort(np.random.default_rng(4).integers(0, 100 * side, side))
    ends, found = starts + 150, np.empty(side * side, np.int64)
    return repeated(lambda: worked(lambda: _overlapping(starts, ends, starts, ends, found)) / side**2, effort.repeats)


def sort(effort: Effort) -> Cost:
    """One row and one level of an indirect sort: n rows cost n * log2(n) of them."""
    keys = np.random.default_rng(5).integers(0, 2**60, effort.rows)
    levels = effort.rows * log2(effort.rows)
    return repeated(lambda: worked(lambda: np.argsort(keys, kind="stable")) / levels, effort.repeats)


def segment_load(effort: Effort) -> Cost:
    """One segment in a round of loads of a semi-stream join, beside its read."""
    with small_store(max(64, effort.rows // 100)) as pages:
        return repeated(lambda: load_step_s(pages), effort.repeats)


def segment_visit(effort: Effort) -> Cost:
    """The fixed cost of one resident segment that rows of a semi-stream join probe, beside a table over its rows."""
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


_MEMORY = "256MB"
_PAGE = "4KB"
_ATTEMPTS = 3
_ROOM = 1 << 20  # bytes of pages held at a time
_LEAST_S = 1e-7  # a difference of times that leaves less was not measured well enough
_SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64())])


@contextmanager
def small_store(segments: int) -> Iterator[PageFile]:
    """A temporary page file of `segments` pages of some thirty rows."""
    with tempfile.TemporaryDirectory(prefix="dovetail-calibrate-") as directory:
        keys = np.arange(32 * segments)
        text = pa.array(["x" * 100] * 64).take(pa.array(keys % 64))
        write_pages(Path(directory) / "m.pages", pa.table({"key": keys, "text": text}), "key", page=_PAGE, unique=True)
        pages = PageFileSource(str(Path(directory) / "m.pages")).open()
        try:
            yield pages
        finally:
            pages.close()


def load_step_s(pages: PageFile) -> float:
    """Seconds of a segment in a round of loads beside its look-up and its waiting rows, in a join with a cache.

    From two batches of as many rows: one in which every row asks for another page, and one in which eight share it.
    """
    n = len(pages.starts) - 1
    sizes = Sizes(waiting=2 * n, per_segment=1, cached=1)
    with CacheJoin(pages=pages, on=("key",), how="left", sizes=sizes).open(
        MemoryBudget(_MEMORY), {"stream": _SCHEMA}
    ) as operator:
        scattered = _firsts(pages, np.arange(n))
        shared = np.repeat(_firsts(pages, np.arange(0, n, 8)), 8)[:n]
        _served_s(operator, scattered)  # kernels are loaded, and pages in the system's cache
        apart, together = _served_s(operator, scattered), _served_s(operator, shared)
    reads = _look_up_s(pages, scattered) - _look_up_s(pages, shared)
    return max(_LEAST_S, (apart - together - reads) / (n - len(range(0, n, 8))))


def visit_step_s(pages: Pages, probe_s: float) -> float:
    """Fixed seconds to probe one resident segment, beside a table over its rows.

    From two batches of as many rows, for all segments, which are resident, and for one of them.
    """
    n = len(pages.starts) - 1
    sizes = Sizes(waiting=4 * n, per_segment=1, resident=n)
    with Ssij(pages=pages, on=("key",), how="left", sizes=sizes).open(
        MemoryBudget(_MEMORY), {"stream": _SCHEMA}
    ) as operator:
        everywhere = np.repeat(_firsts(pages, np.arange(n)), 2)
        _served_s(operator, everywhere)
        _served_s(operator, everywhere)
        all_of_them, one = _served_s(operator, everywhere), _served_s(operator, np.full(2 * n, everywhere[0]))
    table_s = probe_s * float(pages.starts[-1]) / n
    return max(_LEAST_S, (all_of_them - one) / (n - 1) - table_s)


def _firsts(pages: Pages, which: I64) -> I64:
    """A key of each of these pages: rows are numbered as keys are."""
    return int64s(pages.starts[which])


def _served_s(operator: SemiStreamOperator, keys: I64) -> float:
    """Seconds to answer a batch of these keys."""
    batch = pa.record_batch([pa.array(np.arange(len(keys))), pa.array(keys)], schema=_SCHEMA)

    def serve() -> None:
        for _ in operator.push("stream", batch):
            pass
        for _ in operator.drain():
            pass

    return _quickest(serve)


def _look_up_s(pages: PageFile, keys: I64) -> float:
    """Seconds to look these keys up in one round."""
    return _quickest(lambda: pages.read_keys([pa.array(np.unique(keys))], _ROOM))


def _quickest(work: Callable[[], object]) -> float:
    """Seconds of the fastest attempt; the others also found the processor's caches empty."""
    return min(worked(work) for _ in range(_ATTEMPTS))
