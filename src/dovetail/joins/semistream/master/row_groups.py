"""Row groups of Parquet files as pages, with their statistics as the index; of any files that have such row groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.memory import format_bytes
from dovetail.engine.storage.device import Device
from dovetail.errors import ConfigError, UnsupportedError
from dovetail.joins.semistream.keys import Fences, KeyForm, Normal, above, key_form, last_not_above
from dovetail.joins.semistream.master.pages import Counted, Order, read_each, stored_each

_LEAST_STEP, _MOST_STEP = 1024, 65_536  # rows that are decoded at a time where few of a row group are wanted
_BUFFER = 256 << 10  # bytes of a column that are read at a time then
_FOOTER = 8  # times its bytes in a file that a footer takes in memory
_MOST_READ = 4.0  # times the stored bytes that reading all pages one by one may move, or there is no index


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: its file and number, its rows with a key, all its rows, and the statistics of its footer."""

    file: int
    number: int
    rows: int
    total: int
    nbytes: int
    low: object
    high: object


Page = tuple[RowGroup, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """One version of Parquet files as pages: row groups by the lowest key, those that share a key in one page.

    `fences` are of the first key column. Without them pages are row groups in file order, `reason` says why, and rows
    of one key may be in several pages. Pages that are `cut` are ranges of the key that share row groups: of these a
    page has the rows in its range, and row counts of pages are estimates.
    """

    schema: pa.Schema
    pages: tuple[Page, ...]
    fences: Fences | None
    reason: str
    null_groups: Page  # row groups that have rows with a null in the key
    cut: bool = False

    @property
    def null_keys(self) -> int:
        """Rows with a null in the key."""
        return sum(group.total - group.rows for group in self.null_groups)

    @property
    def starts(self) -> I64:
        """The number of the first row of each page, and of all rows."""
        times = Counter(group for page in self.pages for group in page)
        rows = [sum(group.rows / times[group] for group in page) for page in self.pages]
        return np.round(np.concatenate([[0], np.cumsum(rows)])).astype(np.int64)

    @property
    def page_bytes(self) -> I64:
        """Bytes of each page in its files."""
        return np.array([sum(group.nbytes for group in page) for page in self.pages], np.int64)

    @property
    def first_bytes(self) -> I64:
        """Bytes of the row groups of each page that the page before does not have."""
        before: list[Page] = [(), *self.pages]
        new = [sum(g.nbytes for g in page if g not in last) for last, page in zip(before, self.pages, strict=False)]
        return np.array(new, np.int64)

    def explain(self, key: Sequence[str], n_files: int) -> str:
        """The layout in two lines, with the reason if there is no index."""
        index = f"index by statistics of {key[0]!r}" if self.fences else f"no index: {self.reason}"
        size, pages = int(self.page_bytes.sum()), len(self.pages)
        shared = f"; row groups overlap, a page reads {size / max(self.stored, 1):.1f} x its bytes" if self.cut else ""
        return (
            f"  key {list(key)}, order {'key' if self.fences else 'none'}, {index}{shared}\n"
            f"  {self.starts[-1]} rows in {pages} pages of {format_bytes(size // max(pages, 1))} (row groups), "
            f"{n_files} files; {self.null_keys} rows without a key left out"
        )

    @property
    def stored(self) -> int:
        """Bytes of all row groups."""
        return int(self.first_bytes.sum())


def laid_out(groups: Sequence[RowGroup], schema: pa.Schema, key: Sequence[str]) -> Layout:
    """The pages of these row groups."""
    pages, fences, reason, cut = _paged([group for group in groups if group.rows], schema.field(key[0]))
    return Layout(schema, pages, fences, reason, tuple(group for group in groups if group.rows < group.total), cut)


Paged = tuple[tuple[Page, ...], Fences | None, str, bool]
"""Pages, their fences, if there are none the reason, and whether they are cut."""


def _paged(groups: list[RowGroup], first: pa.Field) -> Paged:
    as_they_come = tuple((group,) for group in groups)
    if pa.types.is_floating(first.type):
        return as_they_come, None, f"statistics of {first.name!r}, a float, do not cover NaN", False
    if any(group.low is None for group in groups):
        return as_they_come, None, f"some row groups have no statistics of {first.name!r}", False
    form = KeyForm((first.name,), (first.type,))
    lows, highs = (form.normal([pa.array([getattr(g, end) for g in groups], first.type)])[0] for end in ("low", "high"))
    order = lows.sorted_rows()
    groups, lows, highs = [groups[at] for at in order], lows.take(order), highs.take(order)
    before = np.arange(max(len(groups) - 1, 0))
    later_lows, earlier_highs = lows.take(before + 1), highs.take(before)
    overlaps = above(earlier_highs, later_lows, before)
    if not overlaps.any():
        return _merged(groups, lows, highs, above(later_lows, earlier_highs, before))
    found = _cut(groups, lows, highs)
    if found is not None:
        return found
    at = int(np.flatnonzero(overlaps)[0])
    one, other = groups[at], groups[at + 1]
    reason = f"row groups overlap in {first.name!r}: {one.low!r} to {one.high!r}, and {other.low!r} to {other.high!r}"
    return as_they_come, None, reason, False


def _merged(groups: list[RowGroup], lows: Normal, highs: Normal, apart: Bool) -> Paged:
    """Row groups in order; those that touch share a page, as one key may be in both."""
    starts = np.concatenate([np.zeros(min(len(groups), 1), np.int64), np.flatnonzero(apart) + 1]).astype(np.int64)
    stops = np.append(starts[1:], len(groups)).astype(np.int64)[: len(starts)]
    pages = tuple(tuple(groups[start:stop]) for start, stop in zip(starts, stops, strict=True))
    return pages, Fences(lows.take(starts), highs.take(stops - 1)), "", False


def _cut(groups: list[RowGroup], lows: Normal, highs: Normal) -> Paged | None:
    """Row groups that overlap, cut at the lowest key of each; None if pages would share too many of them."""
    starts = lows.take(np.flatnonzero(np.append(True, lows.steps() != 0)))
    first, last = last_not_above(lows, starts), last_not_above(highs, starts)
    nbytes = np.array([group.nbytes for group in groups])
    if (nbytes * (last - first + 1)).sum() > _MOST_READ * nbytes.sum():
        return None
    pages: list[list[int]] = [[] for _ in range(len(starts))]
    for group, (begin, stop) in enumerate(zip(first.tolist(), (last + 1).tolist(), strict=True)):
        for page in pages[begin:stop]:
            page.append(group)
    rank = np.empty(len(groups), np.int64)
    rank[highs.sorted_rows()] = np.arange(len(groups))
    highest = highs.take(np.array([max(page, key=rank.__getitem__) for page in pages], np.int64))
    return tuple(tuple(groups[at] for at in page) for page in pages), Fences(starts, highest), "", True


def column_places(footer: pq.FileMetaData) -> dict[str, int]:
    """The number of each column by its path; without paths of several: a field of a struct may look like a column."""
    paths = [footer.schema.column(at).path for at in range(footer.num_columns)]
    return {path: at for at, path in enumerate(paths) if paths.count(path) == 1}


def statistics_range(statistics: pq.Statistics | None) -> tuple[object, object]:
    """The lowest and the highest value of a row group; None where they are not known."""
    if statistics is None or not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except ValueError:  # text that its writer cut in the middle of a character
        return None, None


def known_keyed(rows: int, statistics: Sequence[pq.Statistics | None]) -> int | None:
    """Rows without a null in the key, by the footer; None if its counts do not tell."""
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    some = [n for n in nulls if n != 0]
    if len(some) <= 1 and None not in some:
        return int(rows - sum(n for n in some if n is not None))
    return None


class Named(Protocol):
    """A source of row groups: its name is text, its errors are ours."""

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        ...

    def errors(self) -> AbstractContextManager[None]:
        """Errors of the file system and of the files become `ConfigError`."""
        ...


Scan = Callable[[Sequence[RowGroup], int | None], Iterator[pa.Table]]
"""Gives all rows of row groups or raises an error: at once, or by this number of rows, decoded on demand."""


class RowGroupPages:
    """One version of Parquet files, whose row groups `scan` reads."""

    def __init__(
        self,
        source: Named,
        version: str,
        layout: Layout,
        scan: Scan,
        footers: Iterable[pq.FileMetaData],
        device: Device | None,
    ) -> None:
        self._source, self._layout, self._scan, self.version = source, layout, scan, version
        self.schema, self.key = layout.schema, source.key
        self.order: Order = "key" if layout.fences else "none"
        self.indexed = layout.fences is not None
        self.counted: Counted = "all" if layout.cut else "pages"
        self.held_bytes = _FOOTER * sum(footer.serialized_size for footer in footers)
        self.device = device or Device()
        self.starts: I64 = layout.starts
        self._bytes = layout.page_bytes
        self._ends = np.concatenate([[0], np.cumsum(layout.first_bytes)]).astype(np.int64)
        self._form = key_form(self.schema, self.key)
        self._first = KeyForm(self.key[:1], (self.schema.field(self.key[0]).type,))

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page in whose range the first part of a key lies; -1 between pages and for nulls."""
        if self._layout.fences is None:
            raise UnsupportedError(f"{self._source} has no index: {self._layout.reason}. Build a page file from it.")
        _, valid = self._form.normal(key)
        return self._layout.fences.home(self._first.normal(key[:1])[0], valid)

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves, compressed as they are."""
        if not count:
            return 0
        return int(self._bytes[first] + self._ends[first + count] - self._ends[first + 1])

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on. A file that has changed is a `ConfigError`."""
        if first < 0 or count < 1 or first + count >= len(self._ends):
            raise IndexError(f"there are {len(self._ends) - 1} pages, from 0; {count} from {first} on are not there.")
        groups = list(dict.fromkeys(group for page in self._layout.pages[first : first + count] for group in page))
        if not self._layout.cut or count == len(self._layout.pages):
            return self._rows(groups, self.stored_bytes(first, count))
        some = int(self.starts[first + count] - self.starts[first])
        return self._rows(groups, self.stored_bytes(first, count), partial(self._in_range, first, count), some)

    def _in_range(self, first: int, count: int, rows: pa.Table, keyed: Bool) -> Bool:
        """Which rows have one of these pages as their home."""
        homes = self.home([rows.column(name) for name in self.key])
        return keyed & (homes >= first) & (homes < first + count)

    @property
    def null_rows(self) -> int:
        """Rows with a null in the key."""
        return self._layout.null_keys

    @property
    def null_bytes(self) -> int:
        """Bytes of the row groups that these rows are in."""
        return sum(group.nbytes for group in self._layout.null_groups)

    def read_nulls(self) -> pa.RecordBatch:
        """The rows with a null in the key, out of all row groups that have some."""
        if not self._layout.null_groups:
            return pa.RecordBatch.from_pylist([], self.schema)
        return self._rows(self._layout.null_groups, self.null_bytes, lambda _, keyed: ~keyed, self.null_rows)

    def _rows(
        self, groups: Sequence[RowGroup], nbytes: int, wanted: Wanted = lambda _, keyed: keyed, some: int | None = None
    ) -> pa.RecordBatch:
        """The rows of these row groups that are wanted, by default those that have a key.

        With `some`, about as many as that, row groups are decoded in steps and the other rows are let go at once.
        """
        with self._source.errors():
            step = None if some is None else max(_LEAST_STEP, min(_MOST_STEP, some))
            table = self.device.call(lambda: self._filtered(groups, wanted, step), nbytes=nbytes)
        batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], self.schema)]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _filtered(self, groups: Sequence[RowGroup], wanted: Wanted, step: int | None) -> pa.Table:
        found, seen = [self.schema.empty_table()], np.zeros(2, np.int64)
        for table in self._scan(groups, step):
            _, keyed = self._form.normal([table.column(name) for name in self.key])
            seen += np.array([table.num_rows, keyed.sum()])
            kept = wanted(table, keyed)
            found.append(table if kept.all() else table.filter(pa.array(kept)))
        expected = [sum(group.total for group in groups), sum(group.rows for group in groups)]
        if seen.tolist() != expected:
            raise ConfigError(
                f"{self._source}: {seen[0]} rows, {seen[1]} with a key, where the footer says {expected[0]} and "
                f"{expected[1]}; write it again."
            )
        return pa.concat_tables(found)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves."""
        return stored_each(self, first, count)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins, by a read for each."""
        return read_each(self, first, count)

    def close(self) -> None:
        """Nothing is held open between reads."""


Wanted = Callable[[pa.Table, Bool], Bool]
"""Which rows to keep, given the rows and which of them have a key."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a store and where a file has it: by this name, or if that is None as one value."""

    field: pa.Field
    name: str | None
    value: Any = None

    def of(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Its values in these rows of the file."""
        kind = self.field.type
        if self.name is not None:
            found = rows[self.name]
            if isinstance(found.type, pa.BaseExtensionType):
                found = found.cast(found.type.storage_type)
            return found if found.type == kind else found.cast(kind)
        if self.value is None:
            return pa.nulls(rows.num_rows, kind)
        return pa.repeat(
            self.value if isinstance(self.value, pa.Scalar) else pa.scalar(self.value, kind), rows.num_rows
        )


def decoded(
    source: Any, footer: pq.FileMetaData, numbers: Sequence[int], columns: Sequence[Column], step: int | None
) -> Iterator[pa.Table]:
    """The rows of row groups of an open file, all of them at once, or `step` rows at a time.

    In steps, neither whole row groups nor whole columns of a file are in memory.
    """
    stored = [name for name in dict.fromkeys(column.name for column in columns) if name is not None]
    n_rows = sum(footer.row_group(at).num_rows for at in numbers)
    options = {"metadata": footer, "coerce_int96_timestamp_unit": "us"}
    if step is None or not stored:
        reader = pq.ParquetFile(source, pre_buffer=True, **options)  # neighbouring columns by one request
        tables = iter([reader.read_row_groups(list(numbers), columns=stored, use_threads=False)])
    else:
        reader = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False, **options)
        batches = reader.iter_batches(step, row_groups=list(numbers), columns=stored, use_threads=False)
        tables = (pa.Table.from_batches([batch]) for batch in batches)
    schema = pa.schema([column.field for column in columns])
    for rows in tables:
        given = rows if stored else pa.table({"": pa.nulls(n_rows)})
        yield pa.table([column.of(given) for column in columns], schema=schema)


def by_file(groups: Sequence[RowGroup]) -> list[tuple[int, list[int]]]:
    """Row groups in their order, neighbours of one file together."""
    found: list[tuple[int, list[int]]] = []
    for group in groups:
        if found and found[-1][0] == group.file and found[-1][1][-1] < group.number:
            found[-1][1].append(group.number)
        else:
            found.append((group.file, [group.number]))
    return found
