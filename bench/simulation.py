"""Master data that is only keys, on a device that only counts: joins run for real, and their reads have a price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import VirtualClock
from dovetail.engine.device import Device, DeviceModel
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.master.pages import Order, read_each, stored_each
from dovetail.joins.semistream.operators.cachejoin import CacheJoin, OptimisedXHybridJoin, Sscj
from dovetail.joins.semistream.operators.hybridjoin import HybridJoin, XHybridJoin
from dovetail.joins.semistream.operators.inlj import Inlj
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.joins.semistream.operators.resident import PartitionedJoin, Ssij
from dovetail.joins.semistream.options import OLDEST, CachePolicy, Lookup
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
        """What these pages count as."""
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
class UnitCosts:
    """Seconds to probe, emit, remove, take from the stream, admit, and compare one row's frequency."""

    probe: float
    emit: float
    remove: float
    arrive: float
    admit: float
    compare: float

    @property
    def stay(self) -> float:
        """Everything that a row costs that waits, but for being probed."""
        return self.emit + self.remove + self.arrive + self.admit


SOURCE_UNITS = UnitCosts(2617e-9, 2000e-9, 5248e-9, 3749e-9, 3588e-9, 100e-9)
"""What the source printed for its machine (T, table 5.2)."""


@dataclass(frozen=True, slots=True)
class SourceSizes:
    """The memory of the source's experiments: bytes in all, of a row and what the Java maps added to each."""

    memory: int = 50 * 2**20
    row_bytes: int = 120
    waiting_bytes: int = 172
    mesh_bytes: int = 164
    cached_bytes: int = 260

    def waiting(self, buffer_rows: int, cached: int = 0) -> int:
        """Rows that can wait beside a disk buffer and a cache of so many rows."""
        return (self.memory - buffer_rows * self.row_bytes - cached * self.cached_bytes) // self.waiting_bytes


SOURCE_SIZES = SourceSizes()
PRINTED_CACHE = CachePolicy("random", 5)


@dataclass(frozen=True, slots=True)
class Rate:
    """What a saturated join did: rows a load, the share answered by pinned or cached rows, and rows a second."""

    algorithm: str
    rows_per_load: float
    cached_share: float
    per_second: float
    loads: int


Keys = Callable[[int], I64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A join of the source's experiments: `n` master rows on a simulated disk, memory counted as the source counts it.

    INLJ reads pages of 8 kB and MESHJOIN segments of 0.93 MB unless `segment_rows` is given; the others 500 rows. The
    number of waiting rows follows from the memory that is left. `threshold` is where a learned cache starts.
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
        own |= dict.fromkeys(("meshjoin", "r_meshjoin"), int(0.93 * 2**20 / self.memory.row_bytes))
        return self.segment_rows or own.get(algorithm, 500)

    def join(self, algorithm: str) -> SemiStreamJoin:
        """The algorithm with the sizes of this experiment, one page a segment; rows are found, not built."""
        rows, memory = self.rows(algorithm), self.memory
        device = Device(self.disk, VirtualClock())
        page = -(-rows // self.parts) if algorithm == "r_meshjoin" else rows
        base: dict[str, Any] = {"on": ("key",), "how": "left_semi"}
        base["pages"] = SimulatedPages(self.n, page, memory.row_bytes, self.order, device)
        return _BUILDERS[algorithm](self, base, rows)


def _inlj(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    return Inlj(**base)


def _mesh(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    waiting = (of.memory.memory - rows * of.memory.row_bytes) // of.memory.mesh_bytes
    return MeshJoin(**base, sizes=Sizes(waiting=waiting, per_segment=1))


def _r_mesh(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    waiting = (of.memory.memory - rows * of.memory.row_bytes) // of.memory.mesh_bytes
    return RMeshJoin(**base, sizes=Sizes(waiting=waiting, per_segment=of.parts, parts=of.parts))


def _hybrid(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    return HybridJoin(**base, lookup=of.lookup, sizes=Sizes(waiting=of.memory.waiting(rows), per_segment=1))


def _resident(cls: type[Ssij] | type[PartitionedJoin]) -> Builder:
    def build(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
        waiting = of.memory.waiting(rows * (1 + of.resident))
        return cls(**base, sizes=Sizes(waiting=waiting, per_segment=1, resident=of.resident))

    return build


def _x(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    pinned = rows if of.pinned_rows is None else of.pinned_rows
    sizes = Sizes(waiting=of.memory.waiting(rows + pinned), per_segment=1, pinned=pinned // rows)
    return XHybridJoin(**base, lookup=of.lookup, sizes=sizes)


def _optimised_x(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
    sizes = Sizes(waiting=of.memory.waiting(rows, of.cached), per_segment=1, pinned=of.cached // rows)
    return OptimisedXHybridJoin(**base, lookup=of.lookup, sizes=sizes)


def _learned(cls: type[CacheJoin]) -> Builder:
    def build(of: Experiment, base: dict[str, Any], rows: int) -> SemiStreamJoin:
        sizes = Sizes(waiting=of.memory.waiting(rows, of.cached), per_segment=1, cached=of.cached)
        policy = replace(of.cache, replaces="least_frequent") if cls is Sscj else of.cache
        return cls(**base, lookup=of.lookup, sizes=sizes, cache=policy)

    return build


Builder = Callable[[Experiment, dict[str, Any], int], SemiStreamJoin]
_BUILDERS: dict[str, Builder] = {
    "inlj": _inlj,
    "meshjoin": _mesh,
    "r_meshjoin": _r_mesh,
    "partitioned": _resident(PartitionedJoin),
    "ssij": _resident(Ssij),
    "hybridjoin": _hybrid,
    "x_hybridjoin": _x,
    "optimised_x_hybridjoin": _optimised_x,
    "cachejoin": _learned(CacheJoin),
    "sscj": _learned(Sscj),
}


def service_rate(join: SemiStreamJoin, keys: Keys, warm: int, measure: int, units: UnitCosts = SOURCE_UNITS) -> Rate:
    """The rate of a join over a stream that is never short: `keys(n)` gives the next n keys of the stream.

    The join runs for real over `warm` rows and then over `measure` rows more, of which its reads and steps are counted
    and priced: reads by the device, steps by `units` and the loop costs of docs/algorithms/semistream.md, 3.
    """
    schema = pa.schema([pa.field("key", pa.int64(), nullable=False)])
    with join.open(MemoryBudget(2**40, "simulation"), {"stream": schema}) as operator:
        _feed(operator, keys, schema, warm)
        before, started = dict(operator.counts), join.pages.device.busy_ns
        _feed(operator, keys, schema, measure)
        did = {name: n - before[name] for name, n in operator.counts.items()}
        reading = (join.pages.device.busy_ns - started) / 1e9
        done = did["answered_by_page"] + did["answered_by_cache"] + did["misses"]
        seconds = reading + _steps(join, operator.sizes, did, units)
        return Rate(
            type(join).__name__,
            done / max(1, did["loads"]),
            did["answered_by_cache"] / max(1, done),
            done / seconds,
            did["loads"],
        )


def _feed(operator: SemiStreamOperator, keys: Keys, schema: pa.Schema, rows: int) -> None:
    for start in range(0, rows, 1 << 16):
        batch = pa.RecordBatch.from_arrays([pa.array(keys(min(1 << 16, rows - start)))], schema=schema)
        for _ in operator.push("stream", batch):
            pass


def _steps(join: SemiStreamJoin, sizes: Sizes, did: dict[str, int], units: UnitCosts) -> float:
    """Seconds of everything but reading."""
    starts = join.pages.starts
    rows = int(starts[min(sizes.per_segment or 1, len(starts) - 1)])
    hits, paged = did["answered_by_cache"], did["answered_by_page"] + did["misses"]
    at_once = units.probe + units.emit + units.arrive
    if isinstance(join, Inlj):
        return (hits + paged) * at_once
    scanned = did["loads"] * rows * units.probe
    if isinstance(join, XHybridJoin):  # the pinned rows are met before every load
        pinned = int(starts[min(sizes.pinned or 0, len(starts) - 1)])
        return scanned + did["loads"] * pinned * units.probe + (hits + paged) * units.stay
    if isinstance(join, CacheJoin):
        scanned += did["loads"] * rows * units.compare
    probed = units.probe if isinstance(join, (OptimisedXHybridJoin, CacheJoin)) else 0.0  # misses were probed as well
    return scanned + paged * (units.stay + probed) + hits * at_once


def rate_from_key(of: Experiment, keys: Keys, warm: float, measure: float, units: UnitCosts = SOURCE_UNITS) -> Rate:
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
    each = of.disk.read_s(d * of.memory.row_bytes) + d * units.probe
    return Rate("HybridJoin from key", rows / loads, 0.0, rows / (loads * each + rows * units.stay), loads)


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
