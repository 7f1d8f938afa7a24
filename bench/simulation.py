"""Simulates master data of keys alone on a device that only counts: joins run for real, their reads have a price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.storage.device import Device, DeviceModel
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, UnitCosts
from dovetail.joins.semistream.master.pages import Counted, Order, read_each, stored_each
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.joins.semistream.request import OLDEST, CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes

SOURCE_DISK = DeviceModel("source disk", seek_s=0.004, bytes_per_s=1e9 / 99)
"""Seek 4 ms, 0.099 us a byte: the device that fits the sources' printed facts (docs/algorithms/semistream.md, 3.0)."""


class SimulatedPages:
    """Keys 0 to n - 1, one row each, in pages of `page_rows`, where every row counts as `row_bytes` bytes.

    `order`: by key; "frequency", which is the same where key is rank; or "none", in which position is a shuffle of the
    keys by `seed`. Pages are memory, reads are charged to a device whose clock stands still otherwise.
    """

    key = ("key",)
    schema = pa.schema([pa.field("key", pa.int64(), nullable=False)])
    indexed = True
    counted: Counted = "pages"
    held_bytes = 0

    def __init__(
        self,
        n: int,
        page_rows: int,
        row_bytes: int = 120,
        order: Order = "key",
        device: Device | None = None,
        seed: int = 0,
    ) -> None:
        self.order, self.row_bytes = order, row_bytes
        self.device = device or Device(SOURCE_DISK, VirtualClock())
        self.version = f"{n} keys, {order} {seed}"
        self.starts = int64s(np.minimum(np.arange(-(-n // page_rows) + 1) * page_rows, n))
        self._page_rows, self._n = page_rows, n
        keys = np.arange(n)
        self._place: I64 | None = None
        if order == "none":
            keys = np.random.default_rng(seed).permutation(n)
            self._place = np.empty(n, np.int64)
            self._place[keys] = np.arange(n)
        self._rows = pa.RecordBatch.from_arrays([pa.array(keys)], schema=self.schema)

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each key, -1 of keys that are not there."""
        wanted = np.asarray(key[0].fill_null(-1) if key[0].null_count else key[0])
        inside = (wanted >= 0) & (wanted < self._n)
        some = wanted if inside.all() else np.where(inside, wanted, 0)
        place = some if self._place is None else self._place[some]
        page: I64 = place // self._page_rows
        return page if inside.all() else np.where(inside, page, -1)

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that these pages count as."""
        return int(self.starts[first + count] - self.starts[first]) * self.row_bytes

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The keys of these pages; the device is charged."""
        start, stop = int(self.starts[first]), int(self.starts[first + count])
        rows, size = self._rows.slice(start, stop - start), (stop - start) * self.row_bytes
        return self.device.call(lambda: rows, size, place=(self, start * self.row_bytes))

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves."""
        return stored_each(self, first, count)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins, by a read for each."""
        return read_each(self, first, count)

    def close(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True, slots=True)
class SourceSizes:
    """The memory of the source's experiments: bytes in all, of a row and what the Java maps added to each."""

    memory: int = 50 * 2**20
    row_bytes: int = 120
    waiting_bytes: int = 172
    mesh_bytes: int = 164
    cached_bytes: int = 260

    def waiting(self, buffer_rows: int, cached: int = 0) -> int:
        """Rows that can wait beside a disk buffer and a cache of these sizes, in rows."""
        return (self.memory - buffer_rows * self.row_bytes - cached * self.cached_bytes) // self.waiting_bytes


@dataclass(frozen=True, slots=True)
class Rate:
    """Counts of a saturated join: rows a load, the share answered by pinned or cached rows, and rows a second."""

    algorithm: str
    rows_per_load: float
    cached_share: float
    per_second: float
    loads: int


PRINTED_CACHE, SOURCE_SIZES = CachePolicy("random", 5), SourceSizes()
Keys = Callable[[int], I64]
STREAM = pa.schema([pa.field("key", pa.int64(), nullable=False)])
MESH = ("meshjoin", "r_meshjoin")
PINNED = ("x_hybridjoin", "optimised_x_hybridjoin")
QUEUED = ("hybridjoin", "x_hybridjoin", "optimised_x_hybridjoin", "cachejoin", "sscj")
"""Joins whose waiting rows are a queue, of which a look-up policy picks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A join of the source's experiments: `n` master rows on a simulated disk, memory counted as the source counts it.

    INLJ reads pages of 8 kB and MESHJOIN segments of 0.93 MB unless `segment_rows` is given; the others 500 rows. The
    number of waiting rows follows from the memory that is left. `cached` rows are in a hash table, `pinned_rows` in
    X-HYBRIDJOIN's other buffer; both are whole pages of data in order, at least one if any.
    """

    n: int
    segment_rows: int | None = None
    cached: int = 16_000
    pinned_rows: int | None = None
    resident: int = 0
    parts: int = 2
    order: Order = "key"
    lookup: Lookup = OLDEST
    cache: CachePolicy = PRINTED_CACHE
    memory: SourceSizes = SOURCE_SIZES
    disk: DeviceModel = SOURCE_DISK

    def rows(self, algorithm: str) -> int:
        """Master rows of a segment."""
        own = {"inlj": 8192 // self.memory.row_bytes}
        own |= dict.fromkeys(MESH, int(0.93 * 2**20 / self.memory.row_bytes))
        return self.segment_rows or own.get(algorithm, 500)

    def pages_of(self, algorithm: str) -> int:
        """Pages of a simulated segment: one, a logical part each, or as many as let few rows be pinned."""
        return self.parts if algorithm == "r_meshjoin" else min(25, self.rows(algorithm)) if algorithm in PINNED else 1

    def sizes(self, algorithm: str, per_segment: int = 1) -> Sizes:
        """Sizes of the parts of memory; a segment is `per_segment` pages of the store."""
        rows, memory = self.rows(algorithm), self.memory
        if algorithm == "inlj":
            return Sizes()
        if algorithm in MESH:
            waiting = (memory.memory - rows * memory.row_bytes) // memory.mesh_bytes
            parts = {"parts": self.parts} if algorithm == "r_meshjoin" else {}
            return Sizes(waiting=waiting, per_segment=per_segment, **parts)
        buffer, cached, kept = rows, 0, dict[str, int]()
        if algorithm == "x_hybridjoin":
            pinned = rows if self.pinned_rows is None else self.pinned_rows
            buffer, kept = rows + pinned, {"pinned": _whole_pages(pinned, rows, per_segment)}
        elif algorithm == "optimised_x_hybridjoin":
            cached, kept = self.cached, {"pinned": _whole_pages(self.cached, rows, per_segment)}
        elif algorithm in ("cachejoin", "sscj"):
            cached, kept = self.cached, {"cached": self.cached}
        elif algorithm in ("ssij", "partitioned"):
            buffer, kept = rows * (1 + self.resident), {"resident": self.resident}
        return Sizes(waiting=memory.waiting(buffer, cached), per_segment=per_segment, **kept)

    def policies(self, algorithm: str) -> dict[str, Any]:
        """Which waiting row is looked up, and which rows a cache keeps, where the join asks."""
        options: dict[str, Any] = {"lookup": self.lookup} if algorithm in QUEUED else {}
        caches = {"cachejoin": self.cache, "sscj": replace(self.cache, replaces="least_frequent")}
        return options | ({"cache": caches[algorithm]} if algorithm in caches else {})

    def join(self, algorithm: str) -> SemiStreamJoin:
        """The algorithm with the sizes of this experiment; rows are found, not built."""
        per = self.pages_of(algorithm)
        device, page = Device(self.disk, VirtualClock()), -(-self.rows(algorithm) // per)
        pages = SimulatedPages(self.n, page, self.memory.row_bytes, self.order, device)
        sizes, policies = self.sizes(algorithm, per), self.policies(algorithm)
        return ALGORITHMS[algorithm](pages=pages, on=("key",), how="left_semi", sizes=sizes, **policies)


def _whole_pages(kept: int, rows: int, per_segment: int) -> int:
    return max(1, round(kept * per_segment / rows)) if kept else 0


class Meter:
    """Counts of an operator from now on: rows, loads, seconds of its device."""

    def __init__(self, operator: SemiStreamOperator) -> None:
        self._operator, self._before = operator, dict(operator.counts)
        self._busy = operator.pages.device.busy_ns

    def did(self) -> dict[str, int]:
        """Its counts since then, and `rows`: all that were answered or found to have no master row."""
        did = {name: n - self._before[name] for name, n in self._operator.counts.items()}
        return did | {"rows": did["answered_by_page"] + did["answered_by_cache"] + did["misses"]}

    def reading_s(self) -> float:
        """Seconds of its reads since then."""
        return (self._operator.pages.device.busy_ns - self._busy) / 1e9


def service_rate(join: SemiStreamJoin, keys: Keys, warm: int, measure: int, costs: UnitCosts = SOURCE_COSTS) -> Rate:
    """The rate of a join over a stream that is never short: `keys(n)` gives the next n keys of the stream.

    The join runs for real over `warm` rows and then over `measure` rows more, of which its reads and steps are counted
    and priced: reads by the device, steps by `costs`.
    """
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": STREAM}) as operator:
        _feed(operator, keys, warm)
        meter = Meter(operator)
        _feed(operator, keys, measure)
        did = meter.did()
        seconds = meter.reading_s() + steps_s(operator, did, costs)
        per_load, hits = did["rows"] / max(1, did["loads"]), did["answered_by_cache"] / max(1, did["rows"])
        return Rate(type(join).__name__, per_load, hits, did["rows"] / seconds, did["loads"])


def _feed(operator: SemiStreamOperator, keys: Keys, rows: int) -> None:
    for start in range(0, rows, 1 << 16):
        batch = pa.RecordBatch.from_arrays([pa.array(keys(min(1 << 16, rows - start)))], schema=STREAM)
        for _ in operator.push("stream", batch):
            pass


def steps_s(operator: SemiStreamOperator, did: dict[str, int], costs: UnitCosts) -> float:
    """Seconds of everything but the device, from counts and a table of costs (docs/algorithms/semistream.md, 3).

    A row costs what its algorithm does for it, as in the models; a load costs probing of a segment, in full or as far
    as rows wait for it.
    """
    loads, hits, paged = did["loads"], did["answered_by_cache"], did["answered_by_page"] + did["misses"]
    algorithm = next(name for name, kind in ALGORITHMS.items() if type(operator.spec) is kind)
    at_once, together = costs.receive + costs.probe + costs.emit, paged / max(1, loads)
    stay, seconds = costs.emit + costs.evict + costs.receive + costs.admit, loads * costs.load
    if algorithm == "inlj":
        return seconds + (hits + paged) * at_once
    segment, pinned = (
        _first_rows(operator, operator.sizes.per_segment or 1),
        _first_rows(operator, operator.sizes.pinned or 0),
    )
    if algorithm in MESH:
        return seconds + loads * segment * costs.probe + (hits + paged) * stay
    seconds += loads * costs.probing_s(segment, together)
    if algorithm == "x_hybridjoin":  # the pinned rows are met before every load
        return seconds + loads * costs.probing_s(pinned, together) + (hits + paged) * stay
    if algorithm == "hybridjoin":
        return seconds + paged * stay
    if algorithm in ("cachejoin", "sscj"):
        seconds += loads * costs.compare * (segment if costs.probes == "segment" else min(segment, together))
    return seconds + paged * (stay + costs.probe) + hits * at_once  # what a cache lacks was probed there as well


def _first_rows(operator: SemiStreamOperator, pages: int) -> int:
    starts = operator.pages.starts
    return int(starts[min(pages, len(starts) - 1)])


def rate_from_key(of: Experiment, keys: Keys, warm: float, measure: float, costs: UnitCosts = SOURCE_COSTS) -> Rate:
    """The rate of a HYBRIDJOIN whose loads begin at the key looked up, as the sources may have run it.

    A load gives the `d` rows from the oldest waiting key on, not the aligned segment that the key is in. Waiting rows
    just below the key stay behind and cause another, overlapping load, so that it needs more loads than aligned
    segments do. Only counted: no join of ours reads this way. Lengths are in multiples of the waiting rows;
    reads and steps are priced as `service_rate` does.
    Reference: docs/algorithms/semistream.md, 1.2, 6.11 and 8.4.
    """
    d = of.rows("hybridjoin")
    slots = of.memory.waiting(d)
    stream = int64s(keys(int((warm + measure + 1) * slots)))
    loads, rows = hybridjoin_from_key(stream, of.n, d, slots, int(warm * slots))
    each = of.disk.read_s(d * of.memory.row_bytes) + d * costs.probe
    stay = costs.emit + costs.evict + costs.receive + costs.admit
    return Rate("HybridJoin from key", rows / loads, 0.0, rows / (loads * each + rows * stay), loads)


@kernel
def hybridjoin_from_key(stream: I64, n: int, d: int, slots: int, warm: int) -> tuple[int, int]:
    """Loads, and rows that they answered, after `warm` rows were and until the stream has no more to admit.

    A row of the stream waits as long as its key was not loaded after it was admitted.
    """
    waiting, loaded_at = np.zeros(n, np.int64), np.zeros(n, np.int64)
    admitted, answered, oldest, loads, rows = 0, 0, 0, 0, 0
    free = slots
    while admitted + free <= len(stream):
        for at in range(admitted, admitted + free):
            waiting[stream[at]] += 1
        admitted += free
        while loaded_at[stream[oldest]] > oldest:
            oldest += 1
        first = stream[oldest]
        free = 0
        for key in range(first, min(first + d, n)):
            free += waiting[key]
            waiting[key] = 0
            loaded_at[key] = admitted
        answered += free
        if answered > warm:
            loads += 1
            rows += free
    return loads, rows
