"""Runs points on a simulated disk, over a page file here, or over a table of a database here.

By this machine's clock, rows of 120 bytes lie in a page file of 4 kB pages, or in a table of a PostgreSQL server.
Segments are of about 60 kB (MESHJOIN's of 240 kB) unless said, are loaded one at a time and whole, as the sources do;
the number of waiting rows is what the source's maps would hold in the memory, so that h_S/n_p is the source's. Master
data, memory and caches are divided, segments are not: a request to this disk costs what it costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Chart, Findings, Grid, by_column
from bench.experiments.semistream import points
from bench.experiments.semistream.points import SEGMENT_ROWS, WARM, Point
from bench.judge import Figures
from bench.rivals.postgres import master_table
from bench.simulation import STREAM, Keys, Meter, Rate
from dovetail.calibrate.page_costs import cache_can_be_dropped
from dovetail.engine.kernels.arrays import F64, I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.cost.reads import _rising, _seconds
from dovetail.joins.semistream.cost.setting import ReadCosts
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.workloads import Master
from dovetail.workloads.blocks import checksum
from dovetail.workloads.zipf import ZipfLaw, permuted

_BATCH = 1 << 15

_WINDOWS = 3

_INLJ_ROWS = {"disk": 4000, "database": 1000}

_MESH_ROWS = 2000

_SEGMENTS = ("schema", "key", "order", "indexed", "version", "starts", "device", "home", "stored_bytes", "stored_many",
             "read", "read_many", "close")  # fmt: skip


class Segments:
    """Pages whose store may find single keys, seen as pages only: joins load segments, as the sources do."""

    def __init__(self, pages: Pages) -> None:
        for name in _SEGMENTS:
            setattr(self, name, getattr(pages, name))


class Uncached(Segments):
    """Pages of files whose bytes are dropped from the system's cache before every read, so that the device reads."""

    def __init__(self, pages: Pages, files: Sequence[int]) -> None:
        super().__init__(pages)
        self._files = files
        self.read, self.read_many = partial(self._dropped, pages.read), partial(self._dropped, pages.read_many)

    def _dropped(self, read: Callable[..., Any], *arguments: Any) -> Any:
        for file in self._files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return read(*arguments)


@contextmanager
def page_file(bench: BenchContext, rows: int) -> Iterator[Pages]:
    """Master rows in key order in a page file of 4 kB pages, read from the device where the system lets us."""

    def written() -> str:
        path = bench.scratch / f"master-{rows}.pages"
        write_pages(path, Master(rows, seed=bench.seed).table(), key="key", page="4KB", unique=True)
        return str(path)

    place = bench.once(("page file", rows), written)
    pages = MasterStore.open(place).at()
    with ExitStack() as stack:
        stack.callback(pages.close)
        files = []
        for path in sorted(Path(place).rglob("*")) if cache_can_be_dropped(bench.scratch) else []:
            if path.is_file():
                files.append(os.open(path, os.O_RDONLY))
                stack.callback(os.close, files[-1])
                os.fsync(files[-1])  # what is not written yet stays in the cache
        yield cast(Pages, Uncached(pages, files)) if files else pages


@contextmanager
def server_table(bench: BenchContext, rows: int) -> Iterator[Pages]:
    """Master rows in a table with an index on the key, read in ranges of 15 kB and more."""
    table = master_table(bench, rows)
    pages = MasterStore.postgres(table.url, table.name, "key", page="15KB").at()
    try:
        yield cast(Pages, Segments(pages))
    finally:
        pages.close()


@dataclass(frozen=True, slots=True)
class Medium:
    """Where the master data is: how it is opened, and what master rows and memory are divided by."""

    name: str
    store: Callable[[BenchContext, int], AbstractContextManager[Pages]]
    small: int
    full: int

    def kind(self, place: Path) -> str:
        """The store that is read, in words, and whether a cache answers in place of the device."""
        if self.name == "database":
            return "PostgreSQL here, which reads from its buffers and the system's cache, not from the disk,"
        if cache_can_be_dropped(place):
            return "a page file, dropped from the system's cache before every read,"
        return "a page file in the system's cache, which cannot be dropped here: nothing is read from the disk,"


DISK = Medium("disk", page_file, small=20, full=1)
DATABASE = Medium("database", server_table, small=50, full=4)


def built(of: Point, pages: Pages) -> SemiStreamJoin:
    """The join with the sizes of the point, over pages of about equal length."""
    segment = _MESH_ROWS if of.mesh and of.segment == SEGMENT_ROWS else of.segment
    sizing = replace(of.experiment(), segment_rows=segment)
    per = max(1, round(segment / (int(pages.starts[-1]) / (len(pages.starts) - 1))))
    sizes, options = sizing.sizes(of.algorithm, per), sizing.policies(of.algorithm)
    if not of.mesh and not of.rounds:
        sizes = replace(sizes, together=1)
        options |= {} if of.algorithm == "inlj" else {"short_reads": False}
    return ALGORITHMS[of.algorithm](
        pages=pages, on=("key",), how="inner", columns=("checksum",), sizes=sizes, **options
    )


def law_keys(rows: int, exponent: float, *, scattered: bool, seed: int) -> Keys:
    """Keys 1 to `rows` by Zipf's law, the most frequent first or anywhere."""
    law, rng = ZipfLaw(rows, exponent, "integral"), np.random.default_rng(seed)

    def keys(n: int) -> I64:
        ranks = law.ranks(rng, n)
        return int64s(permuted(ranks - 1, rows, seed) + 1) if scattered else ranks

    return keys


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows a second by the clock, rows per load, the share answered by cached rows, and rows that were checked.

    `reading` is the share of the time that reads take.
    """

    per_second: float
    rows_per_load: float
    cached_share: float
    checked: int
    reading: float = 0.0


def timed(join: SemiStreamJoin, keys: Keys, warm: int, measure: int) -> Timed:
    """The rate over `measure` rows after `warm` ones; every answer of the run is then checked by its checksum.

    Rows are timed in three windows, and the median rate counts: what else runs here slows down any one of them.
    """
    with join.open(MemoryBudget(2**34, "bench"), {"stream": STREAM}) as operator:
        answers: list[pa.RecordBatch] = []
        taken, meter, rates = [push(operator, keys, warm, answers)], Meter(operator), []
        began = time.perf_counter()
        for _ in range(_WINDOWS):
            done, started = meter.did()["rows"], time.perf_counter()
            taken.append(push(operator, keys, -(-measure // _WINDOWS), answers))
            rates.append((meter.did()["rows"] - done) / (time.perf_counter() - started))
        did, reading = meter.did(), meter.reading_s() / (time.perf_counter() - began)
        answers += operator.finish()
        asked = np.concatenate(taken)
        check(asked, answers)
        hits = did["answered_by_cache"] / max(1, did["rows"])
        return Timed(median(rates), did["rows"] / max(1, did["loads"]), hits, len(asked), reading)


def push(operator: SemiStreamOperator, keys: Keys, rows: int, answers: list[pa.RecordBatch]) -> I64:
    """The next rows of the stream, whose answers are added; their keys."""
    taken = [keys(min(_BATCH, rows - start)) for start in range(0, rows, _BATCH)]
    for some in taken:
        answers += operator.push("stream", pa.record_batch([pa.array(some)], schema=STREAM))
    return np.concatenate(taken)


def check(asked: I64, answers: list[pa.RecordBatch]) -> None:
    """DataError unless every key that was asked for was answered, as often, and by its own row."""
    found = pa.Table.from_batches(answers)
    keys, sums = (np.asarray(found[name].combine_chunks()) for name in ("key", "checksum"))
    if not np.array_equal(np.sort(keys), np.sort(asked)) or not np.array_equal(sums, checksum(keys)):
        raise DataError(f"{len(asked):,} rows were asked for and {len(keys):,} answered, not all of them rightly.")


def run(of: Point, pages: Pages, where: str = "disk", seed: int = 3) -> Timed:
    """One join over this store with a stream by Zipf's law that is never short."""
    rows, join = int(pages.starts[-1]), built(of, pages)
    keys = law_keys(rows, of.exponent, scattered=of.order == "none", seed=seed)
    if of.algorithm == "inlj":
        return timed(join, keys, _INLJ_ROWS[where] // 4, _INLJ_ROWS[where])
    queue = join.sizes.waiting or 1
    if of.mesh:
        return timed(join, keys, queue + _BATCH, queue)
    share = ZipfLaw(rows, of.exponent, "integral").share(of.cached // of.divide)
    reaching = 1 - share if of.algorithm in ("optimised_x_hybridjoin", "cachejoin") else 1.0
    return timed(join, keys, int(WARM[of.lookup.kind] * queue / reaching), int(4.5 * queue / reaching))


Found: TypeAlias = Rate | Timed
"""Figures of a point that was run: rows a second, rows per load, and the share that rows in memory answered."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Joins at every value of one field of their points."""

    axis: str
    values: Sequence[float]
    found: Mapping[str, Sequence[Found]]

    def of(self, name: str, figure: str = "per_second") -> F64:
        """A figure of one join at every value."""
        return np.array([getattr(one, figure) for one in self.found[name]])

    def shown(self, title: str, **how: Any) -> tuple[Chart, Grid]:
        """Rows a second as a chart and as a table."""
        columns = {name: self.of(name).tolist() for name in self.found}
        grid = by_column(f"{title}: rows a second", self.axis, self.values, columns)
        return grid.chart("rows a second", title=title, **how), grid

    def figures(self, runner: Runner, title: str = "", rows: int = 0, **how: Any) -> Figures:
        """Figures for a judge: rates, rows per load and shares answered from memory, by join; and the joins' names."""
        named: dict[str, Any] = {figure: partial(self.of, figure=field) for figure, field in _FIGURES.items()}
        named |= {"values": np.array(self.values), "joins": list(self.found), "runner": runner, "note": runner.note}
        return Figures(points.NAMES | named, self.shown(title, **how) if title else (), rows)


_FIGURES = {"rate": "per_second", "load": "rows_per_load", "share": "cached_share"}


class Runner:
    """Runs points on the simulated disk."""

    few = False
    """Whether points take so long that some of them have to do."""
    fewest = False
    """Whether they take even longer."""

    def __init__(self, bench: BenchContext) -> None:
        self.bench, self.divide, self.checked = bench, points.divisor(bench), 0
        scale = (
            "The source's sizes"
            if self.divide == 1
            else f"Master data, memory and what is kept in it are divided by {self.divide}"
        )
        self.note = f"Simulated disk, steps at the source's costs; h_S/n_p = 76 at 50 MB and 2 million rows. {scale}."

    @property
    def told(self) -> dict[str, Any]:
        """What reasons may name: what sizes are divided by, and the shares of the time that reads take, if measured."""
        return {"divide": self.divide, "reading": []}

    def count(self, point: Point) -> Found:
        """Counts of the join of this point."""
        return points.count(point)

    def rate(self, point: Point) -> float:
        """Rows a second."""
        return self.count(point).per_second

    def point(self, name: str, **fields: float) -> Point:
        """One of the compared joins at this scale, with some fields changed."""
        return points.at(points.JOINS[name], divide=self.divide, **fields)

    def swept(self, names: Sequence[str], axis: str, values: Sequence[float] = (), **fields: float) -> Swept:
        """The joins over master rows, memory, exponents or another field, with further fields changed."""
        usual: dict[str, tuple[str, Sequence[float]]] = {
            "rows": ("master rows", points.master_rows(self.bench)),
            "memory_mb": ("memory, MB", points.memories(self.bench)),
            "exponent": ("exponent", points.EXPONENTS),
        }
        label, every = usual.get(axis, (axis, ()))
        some = values or every
        return Swept(label, some, {n: [self.count(self.point(n, **fields | {axis: v})) for v in some] for n in names})


class ClockRunner(Runner):
    """Runs points by the clock over stores of a medium, each opened when it is first needed."""

    few = True

    def __init__(self, bench: BenchContext, medium: Medium, stack: ExitStack) -> None:
        super().__init__(bench)
        self.fewest = medium is DATABASE
        self.medium, self.divide = medium, medium.full if bench.scale == "full" else medium.small
        self.note = (
            f"Master data in {medium.kind(bench.scratch)} at 1/{self.divide} of the source's master data and memory, "
            "h_S/n_p = 76 at 50 MB and 2 million rows; every answer was checked."
        )
        self._stack = stack
        self._stores: dict[int, Pages] = {}
        self._found: dict[Point, Timed] = {}

    @property
    def told(self) -> dict[str, Any]:
        """As of the simulated disk, with the measured shares."""
        return {"divide": self.divide, "reading": [one.reading for one in self._found.values()]}

    def pages(self, rows: int) -> Pages:
        """The store of `rows` master rows."""
        if rows not in self._stores:
            self._stores[rows] = self._stack.enter_context(self.medium.store(self.bench, rows))
        return self._stores[rows]

    def count(self, point: Point) -> Timed:
        """The join of this point by the clock, once."""
        if point not in self._found:
            found = self._found[point] = run(point, self.pages(point.master_rows), self.medium.name)
            self.checked += found.checked
        return self._found[point]


@contextmanager
def opened(bench: BenchContext, medium: Medium) -> Iterator[ClockRunner]:
    """The runner over a medium, whose stores are closed behind it."""
    with ExitStack() as stack:
        yield ClockRunner(bench, medium, stack)


def run_on(medium: str, work: Callable[[Runner], Findings], bench: BenchContext) -> Findings:
    """The findings of an experiment on the simulated disk, over a page file ("disk") or over a "database"."""
    if medium == "simulated":
        return work(Runner(bench))
    with opened(bench, {"disk": DISK, "database": DATABASE}[medium]) as runner:
        found = work(runner)
        return replace(found, rows=found.rows + runner.checked)


def measured_reads(pages: Pages, most_bytes: int = 4 << 20, repeats: int = 5, seed: int = 0) -> ReadCosts:
    """c_IO of this store: 1, 4, 16 ... pages up to `most_bytes`, anywhere and in turn, medians of `repeats` reads.

    Times are those of the device's clock, so that a simulated device is found to cost what its model says. What is
    read from a cache is read from there, as the joins themselves would.
    Reference: Naeem 2012, 3.4; docs/algorithms/semistream.md, 3.0.
    """
    n_pages = len(pages.starts) - 1
    if n_pages < 1 or repeats < 1:
        raise PlanError(f"{repeats} reads of a store with {n_pages} pages were asked for; both must be at least 1.")
    counts = [4**i for i in range(16) if 4**i <= n_pages]
    fitting = [n for n in counts if n == 1 or pages.stored_bytes(0, n) <= most_bytes]
    rng = np.random.default_rng(seed)
    random, sequential = {}, {}
    for n_read in fitting:
        size = float(pages.stored_bytes(0, n_read))
        anywhere = rng.integers(0, n_pages - n_read + 1, repeats).tolist()
        random[size] = median(_read_s(pages, first, n_read, jump=True) for first in anywhere)
        in_turn = range(0, n_pages - n_read + 1, n_read)[: repeats + 1]
        times = [_read_s(pages, first, n_read, jump=False) for first in in_turn]
        sequential[size] = median(times[1:] or times)
    return ReadCosts(_rising(random), _rising(sequential))


def _read_s(pages: Pages, first: int, count: int, *, jump: bool) -> float:
    if jump and len(pages.starts) > 2:
        pages.read(0 if first else len(pages.starts) - 2, 1)  # so that no read follows the one before by chance
    return _seconds(pages, partial(pages.read, first, count))
