"""The setting that a model prices, and the prediction that it makes.

A setting has memory, master data, stream, policies and the cost of unit work. A prediction has tuples per iteration,
seconds, the service rate and memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, get_args

import numpy as np

from dovetail.engine.profile import PageCost, Profile
from dovetail.engine.storage.device import DeviceModel
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Demand, Distribution, cached_share
from dovetail.joins.semistream.master.pages import Order
from dovetail.joins.semistream.request import Kind
from dovetail.joins.semistream.sizes import Sizes

Points = tuple[tuple[float, float], ...]

Probes = Literal["segment", "smaller"]


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Seconds for one read by its size, c_IO(x): (bytes, seconds) points for reads anywhere and for reads in turn.

    Between points, and beyond the last two, on a line; below the first as much as there.
    """

    random: Points
    sequential: Points

    def __post_init__(self) -> None:
        for name, points in (("random", self.random), ("sequential", self.sequential)):
            sizes = [size for size, _ in points]
            if not points or sizes != sorted(set(sizes)) or min(min(point) for point in points) < 0:
                raise PlanError(
                    f"the costs of {name} reads are {points}; give at least one (bytes, seconds), sizes rising and "
                    f"nothing negative."
                )

    def seconds(self, nbytes: float, *, sequential: bool = False) -> float:
        """Seconds to read `nbytes` bytes in one request."""
        points = self.sequential if sequential else self.random
        if nbytes <= points[-1][0] or len(points) == 1:
            return float(np.interp(nbytes, [size for size, _ in points], [seconds for _, seconds in points]))
        (x0, y0), (x1, y1) = points[-2:]
        return y1 + max(0.0, y1 - y0) / (x1 - x0) * (nbytes - x1)

    def times(self, ratio: float) -> ReadCosts:
        """The costs of a store whose reads take `ratio` times as long."""
        random, sequential = (
            tuple((size, seconds * ratio) for size, seconds in points) for points in (self.random, self.sequential)
        )
        return ReadCosts(random, sequential)

    @classmethod
    def linear(cls, seek_s: float, bytes_per_s: float, request_s: float = 0.0) -> ReadCosts:
        """A device with a price for a seek, one for every request, and a rate."""
        at = 1e6
        return cls(
            ((0.0, seek_s + request_s), (at, seek_s + request_s + at / bytes_per_s)),
            ((0.0, request_s), (at, request_s + at / bytes_per_s)),
        )

    @classmethod
    def of_device(cls, model: DeviceModel) -> ReadCosts:
        """The costs of a simulated device; the real one has none until it is measured."""
        if model.bytes_per_s is None:
            raise PlanError(f"device {model.name!r} is not simulated; take its costs from a measured profile.")
        return cls.linear(model.seek_s, model.bytes_per_s, model.request_s)


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds per unit of work; the source's symbols beside.

    `probe` one tuple looked up in a hash table, c_H; `emit` one result, c_O; `evict` one tuple out of table and queue,
    c_E; `receive` one tuple from the stream, c_S; `admit` one into table and queue, c_A; `compare` one frequency,
    c_F. `load` is what a read costs beside its bytes: opening, decoding, its part of a call of a kernel; zero in the
    source. `visit` is the fixed cost of probing a resident segment, however few the rows, beside a table over the
    segment; zero in the source, whose resident segments are tables. `look_up` is one key asked of a store that finds
    single keys, in which joins that keep no segments read none, or with `by_page` all keys of one page; None for a
    store of whole pages. `micro_batch` is what a micro-batch
    costs a join without its rows; the source has no micro-batches. `probes`: the source looks every row of a
    segment up among the waiting tuples; "smaller" takes whichever side has fewer.
    """

    read: ReadCosts
    probe: float
    emit: float
    evict: float
    receive: float
    admit: float
    compare: float
    load: float = 0.0
    visit: float = 0.0
    look_up: float | None = None
    micro_batch: float = 0.0
    by_page: bool = False
    probes: Probes = "segment"

    def __post_init__(self) -> None:
        each = (
            self.probe,
            self.emit,
            self.evict,
            self.receive,
            self.admit,
            self.compare,
            self.load,
            self.visit,
            self.look_up or 0.0,
            self.micro_batch,
        )
        if min(each) < 0 or not np.isfinite(each).all():
            raise PlanError(f"unit costs {each} were given; each is a finite number of seconds, not negative.")
        if self.probes not in ("segment", "smaller"):
            raise PlanError(f"probes={self.probes!r} was given; it is 'segment' or 'smaller'.")

    def load_s(self, nbytes: float, *, sequential: bool = False) -> float:
        """Seconds to load `nbytes` bytes in one request."""
        return self.read.seconds(nbytes, sequential=sequential) + self.load

    def find_s(self, nbytes: float) -> float:
        """Seconds to load a segment; only the fixed cost of a load if keys are looked up one by one."""
        if self.look_up is None:
            return self.load_s(nbytes)
        return self.load + (self.look_up if self.by_page else 0.0)

    @property
    def each_found_s(self) -> float:
        """Seconds to look up one key; 0 where segments are read, or keys of one page share a look-up."""
        return 0.0 if self.by_page else self.look_up or 0.0

    def visit_s(self, segment_rows: float) -> float:
        """Fixed seconds to probe a resident segment, without the cost per row."""
        return self.visit + self.probe * segment_rows if self.visit else 0.0

    def probing_s(self, segment_rows: float, tuples: float) -> float:
        """Seconds to match a segment with the tuples that wait for it."""
        return self.probe * (segment_rows if self.probes == "segment" else min(segment_rows, tuples))


SOURCE_COSTS = UnitCosts(
    read=ReadCosts.linear(4.0e-3, 1 / 0.099e-6),
    probe=2617e-9,
    emit=2000e-9,
    evict=5248e-9,
    receive=3749e-9,
    admit=3588e-9,
    compare=100e-9,
)
"""The source's costs: its table 5.2 divided by the tuples of an iteration, and a disk that fits its printed facts.

The disk (4 ms and 0.099 us per byte) and the frequency comparison are ours.
Reference: Naeem 2012, table 5.2; docs/algorithms/semistream.md, 3.0.
"""


def from_profile(
    profile: Profile,
    *,
    read: ReadCosts | None = None,
    look_up: float | None = None,
    by_page: bool = False,
    micro_batch: float = 0.0,
) -> UnitCosts:
    """This machine's costs, for joins whose kernels look the smaller side up.

    A profile has no cost of taking one tuple from the stream; a row between Python and the JVM stands for it. `read`
    replaces the reads of local pages by those of another store, `look_up` is a key of a store that finds them, or
    with `by_page` a page of one, and `micro_batch` a micro-batch without its rows.
    """
    pages = ReadCosts(_page_points(profile.page_read_random), _page_points(profile.page_read_sequential))
    return UnitCosts(
        read=read or pages,
        probe=profile.probe.seconds,
        emit=profile.emit.seconds,
        evict=profile.evict.seconds,
        receive=profile.python_to_jvm_row.seconds,
        admit=profile.insert.seconds,
        compare=profile.compare.seconds,
        load=profile.segment_load.seconds,
        visit=profile.segment_visit.seconds,
        look_up=look_up,
        by_page=by_page,
        micro_batch=micro_batch,
        probes="smaller",
    )


def _page_points(pages: tuple[PageCost, ...]) -> Points:
    return tuple(sorted((float(page.nbytes), page.cost.seconds) for page in pages))


Cache = Literal["perfect", "random", "least_frequent", "adaptive"]


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """Real bytes of what a join keeps in memory.

    `waiting`: one waiting tuple with its share of table and queue (f v_S + q). `chunked`: the same in the MESHJOIN
    family, whose queue holds plain pointers, and `chunk_spare` such tuples more for each chunk. `cached_extra`: what
    a cached master row takes beyond its own bytes. `pinned`: one pinned row, None for a plain row in X-HYBRIDJOIN and
    a cached one in Optimised X-HYBRIDJOIN. `resident`: one row of a resident segment, None for a plain row in SSIJ
    and a cached one in the partition-based join; `resident_segment` for each such segment. `buffer_extra`: what a row
    of a loaded segment takes beyond its own bytes. `fixed`: what no size changes, such as answers being built; in it,
    a segment of up to `held` bytes that answers name may be there twice. `per_segment`: counters and list heads for
    each segment of the master data.
    An index in memory counts as the store's own.
    """

    waiting: float
    chunked: float
    cached_extra: float
    chunk_spare: float = 0.0
    pinned: float | None = None
    resident: float | None = None
    resident_segment: float = 0.0
    buffer_extra: float = 0.0
    fixed: float = 0.0
    held: float | None = None
    per_segment: float = 0.0

    def __post_init__(self) -> None:
        if min(self.waiting, self.chunked) <= 0 or any((getattr(self, f.name) or 0) < 0 for f in fields(self)):
            raise PlanError(f"{self} was given; a waiting tuple takes some bytes, and nothing takes fewer than none.")


SOURCE_ENTRIES = EntryBytes(waiting=172, chunked=164, cached_extra=140)
"""The source's Java maps: 20-byte tuples, fudge factor 8, queue nodes of 12 bytes, pointers of 4."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How a join looks up and caches, where its algorithm leaves the choice.

    `position` is where look-ups stand that are not at the oldest tuple, as a share counted from the newest. `threshold`
    is the start value of the frequency detection; None takes the one that suits the cache. A "perfect" cache holds the
    most requested rows from the start. `max_age`: stream tuples after which a segment of the partition-based join is
    loaded even if few tuples wait for it; None waits for ever. `list_threshold`: waiting tuples at which it is loaded
    at once; None for twice the average of full memory, infinity to load only when memory is full.
    """

    lookup: Kind = "guarded"
    position: float = 0.3
    cache: Cache = "adaptive"
    threshold: int | None = None
    max_age: float | None = None
    list_threshold: float | None = None

    def __post_init__(self) -> None:
        if self.lookup not in get_args(Kind):
            raise PlanError(f"lookup {self.lookup!r} was given; it is one of {list(get_args(Kind))}.")
        if self.cache not in ("perfect", "random", "least_frequent", "adaptive"):
            raise PlanError(
                f"cache {self.cache!r} was given; it is 'perfect', 'random', 'least_frequent' or 'adaptive'."
            )
        if not 0 < self.position <= 1:
            raise PlanError(f"position {self.position} was given; it is above 0, the newest tuple, and at most 1.")
        if (self.threshold is not None and self.threshold < 1) or (self.max_age is not None and self.max_age <= 0):
            raise PlanError(f"threshold={self.threshold}, max_age={self.max_age} were given; both are positive.")


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a price depends on, except the sizes of the join's parts. The source's symbols beside.

    `memory` M in bytes; `row_bytes` v_R of a master row in memory, `stored_row_bytes` of one on storage if they differ;
    `stream_bytes` v_S of a stream tuple; `page_bytes` v_P in memory, the smallest unit that is read. `matched`: the
    share of stream tuples that have a match. `batch_rows`: tuples of a micro-batch that is fully answered before the
    next one, None for a continuous stream that never runs dry. `one_pass`: there is one batch only, and what a join
    keeps is empty when it begins. `seen_rows`: tuples that came before a micro-batch, from which a cache has learned;
    None for a stream that has run long enough to have warm caches. `keyed`: the entries of joins that
    look keys up in a store that finds them; None for a store of pages. The default costs and entries are the source's
    own.
    """

    memory: int
    distribution: Distribution
    row_bytes: float = 120.0
    stream_bytes: float = 20.0
    page_bytes: int = 8192
    costs: UnitCosts = SOURCE_COSTS
    entries: EntryBytes = SOURCE_ENTRIES
    order: Order = "key"
    indexed: bool = True
    policy: Policy = field(default_factory=Policy)
    stored_row_bytes: float | None = None
    matched: float = 1.0
    batch_rows: int | None = None
    one_pass: bool = False
    seen_rows: int | None = None
    keyed: EntryBytes | None = None

    def __post_init__(self) -> None:
        sizes = (self.memory, self.row_bytes, self.stream_bytes, self.page_bytes)
        if min(sizes) <= 0 or not 0 <= self.matched <= 1:
            raise PlanError(
                f"memory={self.memory}, row_bytes={self.row_bytes}, stream_bytes={self.stream_bytes}, "
                f"page_bytes={self.page_bytes}, "
                f"matched={self.matched} were given; sizes are positive and the share is between 0 and 1."
            )
        if self.order not in ("key", "frequency", "none"):
            raise PlanError(f"order {self.order!r} was given; it is 'key', 'frequency' or 'none'.")
        if self.batch_rows is not None and self.batch_rows < 1:
            raise PlanError(f"batch_rows={self.batch_rows} were given; a micro-batch has at least one.")

    @property
    def master_rows(self) -> int:
        """R_t."""
        return self.distribution.rows

    @property
    def page_rows(self) -> int:
        """Master rows of one page, at least one."""
        return max(1, int(self.page_bytes // self.row_bytes))

    def segment_rows(self, sizes: Sizes) -> int:
        """Master rows that are read at a time, d: whole pages."""
        return (sizes.per_segment or 1) * self.page_rows

    @property
    def cached_bytes(self) -> float:
        """Bytes of one cached master row."""
        return self.row_bytes + self.entries.cached_extra

    @property
    def fits(self) -> bool:
        """Whether all master rows fit in memory in a hash table, so that no semi-stream join is needed."""
        return self.master_rows * self.cached_bytes <= self.memory

    def buffer_bytes(self, rows: float) -> float:
        """Bytes of a disk buffer of `rows` rows, plus the fixed memory."""
        held = self.entries.held
        beyond = 0.0 if held is None else max(0.0, rows * self.row_bytes - held)
        return rows * (self.row_bytes + self.entries.buffer_extra) + self.entries.fixed + 2 * beyond

    def pinned_bytes(self, rows: int, *, hashed: bool) -> float:
        """Bytes of `rows` pinned rows, in a hash table or not."""
        usual = self.cached_bytes if hashed else self.row_bytes
        return rows * (usual if self.entries.pinned is None else self.entries.pinned)

    def resident_bytes(self, segments: int, segment_rows: int, *, hashed: bool) -> float:
        """Bytes of `segments` resident segments, in a hash table or not."""
        usual = self.cached_bytes if hashed else self.row_bytes
        row = usual if self.entries.resident is None else self.entries.resident
        return segments * (segment_rows * row + self.entries.resident_segment)

    def read_bytes(self, rows: float) -> float:
        """Bytes transferred by reading `rows` rows."""
        return rows * (self.row_bytes if self.stored_row_bytes is None else self.stored_row_bytes)

    def pinned_rows(self, sizes: Sizes) -> int:
        """Master rows of the pinned pages, d_N or h_R."""
        return min((sizes.pinned or 0) * self.page_rows, self.master_rows)

    def p_n(self, cached: int) -> float:
        """The share of the stream that the `cached` most requested rows answer."""
        return cached_share(self.distribution, cached)

    def segments(self, segment_rows: int, cached: int = 0) -> Demand:
        """The p_i of segments among tuples that the cached rows do not answer."""
        return self.distribution.segments(segment_rows, ordered=self.order == "frequency", cached=cached)


class NoRoomError(PlanError):
    """The sizes leave no room in the budget for a single waiting tuple."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One algorithm in its steady state; the source's symbols beside.

    `sizes` are those of the join's parts, `segment_rows` the master rows that are read at a time (d), `kept_rows` the
    pinned, cached or resident ones (d_N or h_R). One iteration finishes `w_n` tuples through the pinned or cached
    part and `w_s` through a segment. It costs `step_s`, whatever it finishes, and `miss_s` and `hit_s` for each such
    tuple. `window` is T_w, `waiting` the tuples that wait on average, `asked` the segments they ask for,
    `bound_steps` the iterations after which a tuple is answered at the latest (F6). `steps_per_load`: iterations that
    share one read. `memory`: bytes of each part. `segments`: what the tuples ask for that reach storage; None where
    storage is read in turn or by single pages.
    F6 and F7 are equations of docs/algorithms/semistream.md, 3.4.
    """

    algorithm: str
    sizes: Sizes
    segment_rows: int
    w_n: float
    w_s: float
    step_s: float
    miss_s: float
    hit_s: float
    window: float
    waiting: float
    asked: float
    bound_steps: float
    memory: tuple[tuple[str, float], ...]
    steps_per_load: int = 1
    kept_rows: int = 0
    segments: Demand | None = field(default=None, repr=False, compare=False)

    @property
    def w(self) -> float:
        """Stream tuples finished per iteration."""
        return self.w_n + self.w_s

    @property
    def p_n(self) -> float:
        """The share of tuples that never reach storage."""
        return self.w_n / self.w

    @property
    def c_loop(self) -> float:
        """Seconds of one iteration."""
        return self.step_s + self.w_s * self.miss_s + self.w_n * self.hit_s

    @property
    def mu(self) -> float:
        """Service rate: tuples per second if the stream never runs dry."""
        return self.w / self.c_loop

    @property
    def loads_per_tuple(self) -> float:
        """Reads of storage per stream tuple."""
        return 1 / (self.w * self.steps_per_load)

    @property
    def mean_residence_s(self) -> float:
        """Mean seconds that a tuple waits, if the stream never runs dry (F7)."""
        return self.waiting / self.mu


Parts = tuple[tuple[str, float], ...]


def waiting_room(setting: Setting, sizes: Sizes, cached: tuple[str, float] = ("cache", 0.0)) -> tuple[int, Parts]:
    """h_S, and the bytes of every part: h_S = (M - d v_R - cache - index - counters) / (f v_S + q).

    Reference: replaces the identities 5.1, 6.1, 6.4 and 7.1 of Naeem 2012; docs/algorithms/semistream.md, 3.4 to 3.7.
    """
    n_segments = -(-setting.master_rows // setting.segment_rows(sizes))
    parts = (
        ("disk buffer", setting.buffer_bytes(setting.segment_rows(sizes))),
        cached,
        ("segment counters", setting.entries.per_segment * n_segments),
    )
    room = capacity(setting, sizes, sum(nbytes for _, nbytes in parts), setting.entries.waiting)
    return room, (*(part for part in parts if part[1]), ("waiting tuples", room * setting.entries.waiting))


def capacity(setting: Setting, sizes: Sizes, taken: float, entry_bytes: float, least: int = 1) -> int:
    """Tuples that fit beside `taken` bytes, or as many as the sizes ask for; `least` must fit."""
    room = int((setting.memory - taken) // entry_bytes)
    wanted = room if sizes.waiting is None else sizes.waiting
    if wanted > room or wanted < least:
        raise NoRoomError(
            f"{taken:,.0f} of {setting.memory:,} bytes go to other parts: {max(room, 0):,} tuples can wait, "
            f"{max(wanted, least):,} must; give more memory, smaller segments or a smaller cache."
        )
    return wanted
