"""Splits a budget between the parts of a semi-stream join, and master data into segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels.key_cache import cache_bytes
from dovetail.joins.semistream.kernels.segment_match import met_bytes, scratch_bytes
from dovetail.joins.semistream.kernels.waiting_pool import SLOT_BYTES, pool_bytes
from dovetail.joins.semistream.master.pages import KeyedPages, Pages


class Segments:
    """Aligned runs of `per_segment` pages. The first `pinned` pages, if any, are one more segment, the last one.

    A segment that would begin among the pinned pages begins after them; one wholly among them is empty.
    """

    def __init__(self, pages: Pages, per_segment: int, pinned: int = 0) -> None:
        self.pages, self.per_segment = pages, per_segment
        self.n_pages = len(pages.starts) - 1
        self.pinned = min(pinned, self.n_pages)
        self.aligned = -(-self.n_pages // per_segment)
        first = np.maximum(np.arange(self.aligned) * per_segment, self.pinned)
        last = np.minimum((np.arange(self.aligned) + 1) * per_segment, self.n_pages)
        last = np.maximum(first, last)
        if self.pinned:
            first, last = np.append(first, 0), np.append(last, self.pinned)
        self.first, self.last = first.astype(np.int64), last.astype(np.int64)
        self.starts = np.asarray(pages.starts, np.int64)
        self.rows: I64 = self.starts[self.last] - self.starts[self.first]
        self.most_rows = int(self.rows.max(initial=0))  # of the largest segment
        self.most_swapped_rows = int(self.rows[: self.aligned].max(initial=0))  # of the largest one that is not pinned

    @property
    def n(self) -> int:
        """How many segments there are, the pinned one included."""
        return len(self.first)

    @property
    def wanted(self) -> int:
        """The number of segments that are read from storage repeatedly: those with pages, without the pinned one."""
        return int((self.last[: self.aligned] > self.first[: self.aligned]).sum())

    def homes(self, key: Sequence[pa.Array]) -> I64:
        """The home segment of each key, or -1 where there is certainly none."""
        return self.of_pages(np.asarray(self.pages.home(key), np.int64))

    def of_pages(self, page: I64) -> I64:
        """The segment of each page; -1 for -1."""
        segment = np.where(page < 0, -1, page // self.per_segment)
        if self.pinned:
            segment = np.where((page >= 0) & (page < self.pinned), self.aligned, segment)
        return segment

    def run(self, segment: int) -> tuple[int, int]:
        """The first page of a segment, and the number of its pages."""
        first = int(self.first[segment])
        return first, int(self.last[segment]) - first

    def read(self, segment: int) -> pa.RecordBatch:
        """The rows of a segment, by one read."""
        return self.pages.read(*self.run(segment))

    def stored_bytes(self, segments: I64) -> I64:
        """Bytes that reading each of these segments moves."""
        first = self.first[segments]
        return self.pages.stored_many(first, self.last[segments] - first)

    def page_at(self, rows: I64) -> I64:
        """The pages of these rows of the master data."""
        pages: I64 = np.searchsorted(self.starts, rows, side="right") - 1
        return pages


def row_bytes(pages: Pages) -> float:
    """Bytes of an average master row in memory, by its stored size and its schema, whichever is more."""
    rows, n_pages = int(pages.starts[-1]), len(pages.starts) - 1
    stored = pages.stored_bytes(0, n_pages) / rows if rows else 0.0
    return max(stored, width_of(pages.schema))


def width_of(schema: pa.Schema) -> float:
    """Bytes of a row of these types, text guessed at sixteen bytes."""
    total = 0.0
    for field in schema:
        try:
            total += field.type.bit_width / 8
        except ValueError:
            total += 20.0
        total += 1 / 8 if field.nullable else 0
    return total


Part = Literal["waiting", "cached", "pinned", "resident", "chunks"]
INTAKE_BYTES = 72  # of a row being admitted: code, validity, segment, reference, cache hit, and what they come from
TYPICAL_SEEK_BYTES = 50_000  # bytes that a device reads in the time of one seek; similar on disks and flash
PAIR_BYTES = 16  # of a collected pair of a stream row and a master row
GARBAGE = 2.0  # stored rows per live row, between two compactions
CACHED_GARBAGE = 1.3  # the same of cached rows, which stay for longer
WORTH_A_ROUND = 4  # segments; for fewer at a time a round saves nothing
MOST_TOGETHER = 1 << 15
ROUND_ROW_BYTES = 24  # of a master row in a round beside the row: its code, and what that comes from
ROUND_SEGMENT_BYTES = 64  # of a segment in a round: its number, its waiting rows, its place, each twice
NOTED_KEYS = 4096  # most keys matched before the qualifying ones enter a cache
ROUND_KEYS = 8192  # of one request to a store that finds keys, at most; more save nothing
ROUNDS_UNDER_WAY = 4  # times the requests that are under way together, of which the pages are held
KEYED_INTAKE = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes of a join's parts; what is left out is chosen to fit the budget.

    `waiting`: stream rows that wait (h_S). `per_segment`: pages loaded at a time. `parts`: logical parts of a segment,
    R-MESHJOIN only (l). `pinned`: pages kept from the start (X-HYBRIDJOIN, Optimised X-HYBRIDJOIN). `cached`: keys in
    the cache (h_R; CACHEJOIN, SSCJ). `resident`: segments kept in memory (Partition-based, SSIJ). `page_cache`: pages
    that INLJ keeps. `together`: segments that are picked one after the other and loaded in one round, at most, and no
    more than a sixteenth of the budget holds; 1 serves each before the next is picked. The default is 1 on simulated
    devices, whose figures are those of single loads, and as many as fit on others. `threshold`: waiting rows with which
    a key first gets into the cache (CACHEJOIN, SSCJ); left out, what the cache's policy says.
    """

    waiting: int | None = None
    per_segment: int | None = None
    parts: int | None = None
    pinned: int | None = None
    cached: int | None = None
    resident: int | None = None
    page_cache: int | None = None
    together: int | None = None
    threshold: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("pinned", "cached", "resident", "page_cache") else 1
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise PlanError(
                    f"size {field.name}={value!r} must be a whole number from {least}; give one, or leave it out.",
                    argument="tune",
                )

    def __str__(self) -> str:
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return ", ".join(f"{name}={value}" for name, value in given if value is not None) or "fitted"


FITTED = Sizes()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of everything in a join except the sized parts, for one segment length and one budget.

    A `keyed` join asks the store for keys, never for segments: its rounds hold the rows of their keys only.
    """

    segments: Segments
    master_row: float
    stream_row: float
    limit: int
    together: int = 1
    keyed: bool = False

    @property
    def segment(self) -> int:
        """A loaded segment, the largest."""
        return int(1.1 * self.segments.most_rows * self.master_row) + 2048

    @property
    def hold(self) -> int:
        """Master rows that answers still name, at most; and the pages of an object store that keys are looked up in."""
        most = max(int(self.round_rows * self.round_row), self.under_way) if self.keyed else self.limit
        return max(self.segment, min(self.limit // 16, most))

    @property
    def under_way(self) -> int:
        """Bytes of pages that keep all requests to an object store busy for some time; 0 of stores read one by one."""
        pages = self.segments.pages
        if pages.device.at_once == 1 or not self.segments.n_pages:
            return 0
        return ROUNDS_UNDER_WAY * pages.device.at_once * pages.stored_bytes(0, 1)

    @property
    def pairs(self) -> int:
        """Pairs collected before columns are gathered."""
        return self.segments.most_rows + max(64, min(16384, self.limit // 512))

    @property
    def intake(self) -> int:
        """Rows whose codes and homes are found at a time."""
        return max(64, min(KEYED_INTAKE if self.keyed else 65536, self.limit // 1024))

    @property
    def output(self) -> int:
        """Answers while they are built."""
        each = 3 * (self.master_row + self.stream_row + 2)
        most = min(self.limit // 10, int(each * self.round_rows)) if self.keyed else self.limit // 10
        return max(int(32 * each), most) + self.hold + 1024

    @property
    def floor(self) -> int:
        """Bytes of the budget that only loaded rows and answers may use."""
        return self.output + self.hold

    @property
    def round_rows(self) -> int:
        """Master rows of a round, at most; what it reads is decoded before answers are built, in their room."""
        rows = int(self.limit // 16 / self.round_row)
        return min(rows, ROUND_KEYS) if self.keyed else rows

    @property
    def round_row(self) -> float:
        """Bytes of a master row in a round."""
        return 1.1 * self.master_row + ROUND_ROW_BYTES

    @property
    def round_segments(self) -> int:
        """The most segments of a round: the requested number, if it fits and is large enough to help."""
        if self.keyed:
            return self.together
        affordable = self.round_rows // max(1, self.segments.most_swapped_rows)
        return self.together if affordable >= min(self.together, WORTH_A_ROUND) else 1

    @property
    def noted_keys(self) -> int:
        """Keys matched in a round before a cache considers them."""
        return min(NOTED_KEYS, self.round_rows)

    @property
    def noted_rows(self) -> int:
        """Master rows of these keys, at most."""
        return max(self.noted_keys, self.segments.most_swapped_rows)

    @property
    def round(self) -> int:
        """Memory of a round beside its rows; 0 if segments are served one by one."""
        if self.round_segments < 2:
            return 0
        noted = met_bytes(self.noted_keys, self.noted_rows)
        return ROUND_ROW_BYTES * self.round_rows + ROUND_SEGMENT_BYTES * self.round_segments + noted

    @property
    def fixed(self) -> int:
        """All of these together."""
        rows = self.segments.most_rows
        scratch = scratch_bytes(rows) + 16 * rows
        chains = pool_bytes(0, self.segments.n)
        working = PAIR_BYTES * self.pairs + INTAKE_BYTES * self.intake
        return self.segment + self.hold + scratch + chains + working + self.output + self.round

    @property
    def waiting_row(self) -> float:
        """One waiting row, its slot and its columns."""
        return SLOT_BYTES + GARBAGE * (self.stream_row + 1)

    @property
    def cached_key(self) -> float:
        """One cached key with one row."""
        return cache_bytes(1024) / 1024 + CACHED_GARBAGE * (self.master_row + 1)


def footprint(
    pages: Pages,
    stream: pa.Schema,
    per_segment: int,
    pinned: int,
    limit: int,
    together: int | None = None,
    keyed: bool = False,
) -> Footprint:
    """The footprint of a join over these pages."""
    segments = Segments(pages, per_segment, pinned)
    wanted = (1 if pages.device.simulated else MOST_TOGETHER) if together is None else together
    rows = row_bytes(pages), width_of(stream)
    return Footprint(segments, *rows, limit, max(1, min(wanted, segments.n)), keyed)


def asks_for_keys(pages: Pages, parts: Sequence[Part]) -> bool:
    """Whether a join of these parts asks the store for keys: the store finds keys, and no part needs whole segments."""
    whole = {"pinned", "resident", "chunks"} & set(parts)
    return isinstance(pages, KeyedPages) and pages.finds_keys and not whole


def fit(pages: Pages, stream: pa.Schema, sizes: Sizes, limit: int, parts: Sequence[Part]) -> Sizes:
    """The sizes with what was left out filled in to use a budget of `limit` bytes.

    A third of what segments and answers leave goes to a cache or to pinned rows, a fifth to resident segments, and
    the rest to waiting rows. `PlanError`, naming the smallest budget that works, if this one does not.
    """
    keyed = asks_for_keys(pages, parts)
    per = sizes.per_segment or (1 if keyed else _segment_length(pages, stream, limit))
    pinned = _pinned(pages, sizes, per) if "pinned" in parts else 0
    print_ = footprint(pages, stream, per, pinned, limit, sizes.together, keyed)
    rest = limit - print_.fixed
    least = _least(pages, stream, sizes, parts)
    if limit < least:
        raise PlanError(
            f"{format_bytes(limit)} of memory are not enough for this join: it needs at least {least} bytes "
            f"({format_bytes(least)}) for one segment, answers and waiting rows. Give more memory, or smaller pages.",
            argument="memory",
        )
    return _shared(replace(sizes, per_segment=per), print_, rest, parts, pinned)


def _shared(sizes: Sizes, cost: Footprint, rest: int, parts: Sequence[Part], pinned: int) -> Sizes:
    given: dict[str, int] = {}
    whole = rest
    if "cached" in parts:
        given["cached"] = sizes.cached if sizes.cached is not None else max(1, int(whole / 3 / cost.cached_key))
        rest -= int(given["cached"] * cost.cached_key)
    if "pinned" in parts:
        given["pinned"] = pinned
        rest -= int(int(cost.segments.starts[pinned]) * cost.cached_key)
    if "resident" in parts:
        affordable = max(0, int(whole / 5 / cost.segment))
        given["resident"] = sizes.resident if sizes.resident is not None else min(affordable, cost.segments.n)
        rest -= given["resident"] * cost.segment
    if sizes.waiting is None:
        given["waiting"] = max(_fewest(cost, parts), int(rest / cost.waiting_row))
    return replace(sizes, **given)


def _fewest(cost: Footprint, parts: Sequence[Part]) -> int:
    return cost.segments.n if "chunks" in parts else 1


def _least(pages: Pages, stream: pa.Schema, sizes: Sizes, parts: Sequence[Part]) -> int:
    """The smallest budget: short segments, one waiting row, one cached key."""
    per = sizes.per_segment or 1
    pinned = _pinned(pages, sizes, per) if "pinned" in parts else 0
    cost = footprint(pages, stream, per, pinned, 0, sizes.together, asks_for_keys(pages, parts))
    waiting = sizes.waiting or _fewest(cost, parts)
    need = cost.fixed + waiting * cost.waiting_row + 1024
    if "cached" in parts:
        need += (sizes.cached if sizes.cached is not None else 1) * cost.cached_key + 512
    if "pinned" in parts:
        need += int(cost.segments.starts[pinned]) * cost.cached_key + 512
    return int(need + (sizes.resident or 0) * cost.segment) + 1


def _pinned(pages: Pages, sizes: Sizes, per_segment: int) -> int:
    wanted = per_segment if sizes.pinned is None else sizes.pinned
    return min(wanted, len(pages.starts) - 1)


def _segment_length(pages: Pages, stream: pa.Schema, limit: int) -> int:
    """Pages a segment such that it has about sqrt(seek bytes x budget) bytes, and the fixed parts at most half."""
    n_pages = max(1, len(pages.starts) - 1)
    page = max(1.0, int(pages.starts[-1]) * row_bytes(pages) / n_pages)
    per = max(1, min(n_pages, int((TYPICAL_SEEK_BYTES * limit) ** 0.5 / page)))
    while per > 1 and footprint(pages, stream, per, 0, limit).fixed > limit // 2:
        per //= 2
    return per
