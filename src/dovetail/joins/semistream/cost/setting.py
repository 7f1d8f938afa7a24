"""What a semi-stream join is to be priced for: memory, master data, stream, costs, and the policies in use."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Distribution, cached_share
from dovetail.joins.semistream.cost.segments import Segments
from dovetail.joins.semistream.cost.units import SOURCE_COSTS, UnitCosts

Order = Literal["key", "frequency", "none"]
Lookup = Literal["oldest", "alternate", "guarded", "position", "greedy", "greedy_oldest"]
Cache = Literal["perfect", "random", "least_frequent", "adaptive"]


@dataclass(frozen=True, slots=True)
class EntryBytes:
    """Real bytes of what a join keeps in memory.

    `waiting`: one waiting tuple with its share of table and queue (f v_S + q). `chunked`: the same in the MESHJOIN
    family, whose queue holds plain pointers, and `chunk_spare` such tuples more for each chunk. `cached_extra`: what a
    cached master row takes beyond its own bytes, and `cached_counter` where its hits are counted. `pinned`: one pinned
    row, None for a plain row in X-HYBRIDJOIN and a cached one in Optimised X-HYBRIDJOIN. `resident`: one row of a
    resident segment, None for a plain row in SSIJ and a cached one in the partition-based join; `resident_segment` for
    each such segment. `buffer_extra`: what a row of a loaded segment takes beyond its own bytes. `fixed`: what no size
    changes, such as answers being built; in it, a segment of up to `held` bytes that answers name may be there twice.
    `per_segment`: counters and list heads for each segment of the master data. `index_page`, `index_row`: an index in
    memory, by page for data in key order, by row otherwise; stores that keep their index elsewhere take none.
    """

    waiting: float
    chunked: float
    cached_extra: float
    chunk_spare: float = 0.0
    cached_counter: float = 0.0
    pinned: float | None = None
    resident: float | None = None
    resident_segment: float = 0.0
    buffer_extra: float = 0.0
    fixed: float = 0.0
    held: float | None = None
    per_segment: float = 0.0
    index_page: float = 0.0
    index_row: float = 0.0

    def __post_init__(self) -> None:
        if min(self.waiting, self.chunked) <= 0 or any((getattr(self, f.name) or 0) < 0 for f in fields(self)):
            raise PlanError(f"{self} was given; a waiting tuple takes some bytes, and nothing takes fewer than none.")


SOURCE_ENTRIES = EntryBytes(waiting=172, chunked=164, cached_extra=140)
"""The source's Java maps: 20-byte tuples, fudge factor 8, queue nodes of 12 bytes, pointers of 4."""


def our_entries(payload_bytes: float) -> EntryBytes:
    """Our own slots: 36 bytes and the payload of the stream row; 24 bytes beside a cached row; 16 for a segment."""
    return EntryBytes(
        waiting=36 + payload_bytes,
        chunked=28 + payload_bytes,
        cached_extra=24,
        cached_counter=8,
        per_segment=16,
        index_page=8,
    )


@dataclass(frozen=True, slots=True)
class Policy:
    """How a join looks up and caches, where its algorithm leaves the choice.

    `position` is where look-ups stand that are not at the oldest tuple, as a share counted from the newest. `threshold`
    is the start value of the frequency detection; None takes the one that suits the cache. A "perfect" cache holds the
    most wanted rows from the start. `max_age`: stream tuples after which a segment of the partition-based join is
    loaded even if few tuples wait for it; None waits for ever. `list_threshold`: waiting tuples at which it is loaded
    at once; None for twice the average of full memory, infinity to load only when memory is full. `drains_in_order`:
    what waits at the end of a micro-batch is loaded in the order of the master data, as SSIJ always does.
    """

    lookup: Lookup = "guarded"
    position: float = 0.3
    cache: Cache = "adaptive"
    threshold: int | None = None
    max_age: float | None = None
    list_threshold: float | None = None
    drains_in_order: bool = False

    def __post_init__(self) -> None:
        if self.lookup not in get_args(Lookup):
            raise PlanError(f"lookup {self.lookup!r} was given; it is one of {list(get_args(Lookup))}.")
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
    """Everything that a price depends on but the sizes of the join's parts. The source's symbols beside.

    `memory` M in bytes; `row_bytes` v_R of a master row in memory, `stored_row_bytes` of one on storage if they differ;
    `stream_bytes` v_S of a stream tuple; `page_bytes` v_P in memory, the smallest unit that is read. `matched`: the
    share of stream tuples that have a match. `arrival`: stream tuples per second, None for a stream that is never
    short. `batch_rows`: tuples of a micro-batch that is answered to its end before the next one, None for a stream
    without such ends. `one_pass`: there is one batch only, and what a join keeps is empty when it begins.
    `keyed`: the entries of joins that look keys up in a store that finds them; None for a store of pages.
    The default costs and entries are the source's own.
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
    arrival: float | None = None
    batch_rows: int | None = None
    one_pass: bool = False
    keyed: EntryBytes | None = None

    def __post_init__(self) -> None:
        sizes = (self.memory, self.row_bytes, self.stream_bytes, self.page_bytes)
        if min(sizes) <= 0 or not 0 <= self.matched <= 1:
            raise PlanError(
                f"memory={self.memory}, row_bytes={self.row_bytes}, stream_bytes={self.stream_bytes}, "
                f"page_bytes={self.page_bytes}, "
                f"matched={self.matched} were given; sizes are positive and the share lies from 0 to 1."
            )
        if self.order not in ("key", "frequency", "none"):
            raise PlanError(f"order {self.order!r} was given; it is 'key', 'frequency' or 'none'.")
        if (self.arrival is not None and self.arrival <= 0) or (self.batch_rows is not None and self.batch_rows < 1):
            raise PlanError(f"arrival={self.arrival}, batch_rows={self.batch_rows} were given; both are positive.")

    @property
    def master_rows(self) -> int:
        """R_t."""
        return self.distribution.rows

    @property
    def page_rows(self) -> int:
        """Master rows of one page, at least one."""
        return max(1, int(self.page_bytes // self.row_bytes))

    @property
    def cached_bytes(self) -> float:
        """Bytes of one cached master row."""
        return self.row_bytes + self.entries.cached_extra

    @property
    def fits(self) -> bool:
        """Whether all master rows fit in memory in a hash table, so that no semi-stream join is needed."""
        return self.master_rows * self.cached_bytes <= self.memory

    @property
    def index_bytes(self) -> float:
        """Bytes of the index in memory."""
        pages = -(-self.master_rows // self.page_rows)
        by_row = self.entries.index_row * self.master_rows if self.order != "key" else 0.0
        return self.entries.index_page * pages + by_row

    def buffer_bytes(self, rows: float) -> float:
        """Bytes of a disk buffer of so many rows, and of what is there whatever the sizes are."""
        held = self.entries.held
        beyond = 0.0 if held is None else max(0.0, rows * self.row_bytes - held)
        return rows * (self.row_bytes + self.entries.buffer_extra) + self.entries.fixed + 2 * beyond

    def pinned_bytes(self, rows: int, *, hashed: bool) -> float:
        """Bytes of so many pinned rows, in a hash table or not."""
        usual = self.cached_bytes if hashed else self.row_bytes
        return rows * (usual if self.entries.pinned is None else self.entries.pinned)

    def resident_bytes(self, segments: int, segment_rows: int, *, hashed: bool) -> float:
        """Bytes of so many resident segments, in a hash table or not."""
        usual = self.cached_bytes if hashed else self.row_bytes
        row = usual if self.entries.resident is None else self.entries.resident
        return segments * (segment_rows * row + self.entries.resident_segment)

    def read_bytes(self, rows: float) -> float:
        """Bytes that reading so many rows moves."""
        return rows * (self.row_bytes if self.stored_row_bytes is None else self.stored_row_bytes)

    def p_n(self, cached: int) -> float:
        """The share of the stream that the `cached` most wanted rows answer."""
        return cached_share(self.distribution, cached)

    def segments(self, segment_rows: int, cached: int = 0) -> Segments:
        """The p_i of segments among tuples that the cached rows do not answer."""
        return self.distribution.segments(segment_rows, ordered=self.order == "frequency", cached=cached)
