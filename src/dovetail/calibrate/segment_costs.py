"""What segments cost in a join beside their reads: one that is loaded in a round, and one that is resident."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.master.page_file.source import PageFileSource
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.cachejoin import CacheJoin
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.operators.resident import Ssij
from dovetail.joins.semistream.sizes import Sizes

_MEMORY = "256MB"
_PAGE = "4KB"
_ATTEMPTS = 3
_LEAST_S = 1e-7  # a difference of times that leaves less was not measured well enough
_SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int64())])


@contextmanager
def small_store(segments: int) -> Iterator[Pages]:
    """A page file of so many pages of some thirty rows, in a directory for a while."""
    with tempfile.TemporaryDirectory(prefix="dovetail-calibrate-") as directory:
        keys = np.arange(32 * segments)
        text = pa.array(["x" * 100] * 64).take(pa.array(keys % 64))
        write_pages(Path(directory) / "m.pages", pa.table({"key": keys, "text": text}), "key", page=_PAGE, unique=True)
        pages = PageFileSource(str(Path(directory) / "m.pages")).open()
        try:
            yield pages
        finally:
            pages.close()


def load_step_s(pages: Pages) -> float:
    """Seconds of a segment in a round of loads beside its read and its waiting rows, in a join with a cache.

    From two batches of as many rows: one in which every row asks for another page, and one in which eight share it.
    """
    n = len(pages.starts) - 1
    sizes = Sizes(waiting=2 * n, per_segment=1, cached=1)
    with CacheJoin(pages=pages, on=("key",), how="left", sizes=sizes).open(
        MemoryBudget(_MEMORY), {"stream": _SCHEMA}
    ) as operator:
        spread = _firsts(pages, np.arange(n))
        shared = np.repeat(_firsts(pages, np.arange(0, n, 8)), 8)[:n]
        _served_s(operator, spread)  # kernels are loaded, and pages in the system's cache
        apart, together = _served_s(operator, spread), _served_s(operator, shared)
    reads = _read_s(pages, np.arange(n)) - _read_s(pages, np.arange(0, n, 8))
    return max(_LEAST_S, (apart - together - reads) / (n - len(range(0, n, 8))))


def visit_step_s(pages: Pages, probe_s: float) -> float:
    """Seconds for rows to meet one resident segment, beside a table over its rows.

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


def _read_s(pages: Pages, which: I64) -> float:
    """Seconds to read these pages in one round."""
    return _quickest(lambda: pages.read_many(int64s(which), np.ones(len(which), np.int64)))


def _quickest(work: Callable[[], object]) -> float:
    """Seconds of the quickest of some attempts: the others also waited for the processor."""
    times = []
    for _ in range(_ATTEMPTS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
