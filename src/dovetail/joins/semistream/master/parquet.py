"""Parquet files as master data: row groups as pages, their statistics as the index."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from dovetail.engine.device import Device
from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.keys import Fences, KeyForm, Normal, above, key_form
from dovetail.joins.semistream.master.page_file.writer import plain_schema
from dovetail.joins.semistream.master.pages import NoHistory, Order, read_each, stored_each


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


@dataclass(frozen=True, slots=True)
class ParquetLayout:
    """One version of Parquet files as pages: row groups by the lowest key, those that share a key in one page.

    `fences` are of the first key column. Without them pages are row groups in file order, `reason` says why, and rows
    of one key may be in several pages.
    """

    schema: pa.Schema
    fragments: tuple[ds.ParquetFileFragment, ...]
    pages: tuple[tuple[RowGroup, ...], ...]
    fences: Fences | None
    reason: str
    null_groups: tuple[RowGroup, ...]  # row groups that have rows with a null in the key

    @property
    def null_keys(self) -> int:
        """Rows with a null in the key."""
        return sum(group.total - group.rows for group in self.null_groups)

    @property
    def starts(self) -> I64:
        """The number of the first row of each page, and of all rows."""
        rows = [sum(group.rows for group in page) for page in self.pages]
        return np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)

    @property
    def page_bytes(self) -> I64:
        """Bytes of each page in its file."""
        return np.array([sum(group.nbytes for group in page) for page in self.pages], np.int64)


def lay_out(dataset: ds.Dataset, schema: pa.Schema, key: tuple[str, ...]) -> ParquetLayout:
    """Pages of the dataset, by the footers of its files."""
    form = key_form(schema, key)
    fragments = tuple(dataset.get_fragments())
    found = list[RowGroup]()
    for number, fragment in enumerate(fragments):
        fragment.ensure_complete_metadata()
        _check_columns(fragment, dataset.schema)
        found += _groups(number, fragment, schema, form)
    pages, fences, reason = _paged([group for group in found if group.rows], schema.field(key[0]))
    nulls = tuple(group for group in found if group.rows < group.total)
    return ParquetLayout(schema, fragments, pages, fences, reason, nulls)


def _check_columns(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> None:
    """A file without a column, or with another type, would be read as nulls: refuse it."""
    partitioned = set(ds.get_partition_keys(fragment.partition_expression))
    for field in schema:
        at = fragment.physical_schema.get_field_index(field.name)
        if field.name not in partitioned and (at < 0 or fragment.physical_schema.field(at).type != field.type):
            found = "no such column" if at < 0 else str(fragment.physical_schema.field(at).type)
            raise ConfigError(
                f"{fragment.path}: column {field.name!r} is {field.type} in other files, here {found}; write the files "
                f"with one schema."
            )


def _groups(file: int, fragment: ds.ParquetFileFragment, schema: pa.Schema, form: KeyForm) -> list[RowGroup]:
    """The row groups of a file."""
    found, metadata = list[RowGroup](), fragment.metadata
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = [group.column(places[name]).statistics if name in places else None for name in form.names]
        rows = _keyed_rows(fragment, number, group.num_rows, statistics, schema, form)
        low, high = _range(statistics[0])
        nbytes = sum(group.column(at).total_compressed_size for at in range(metadata.num_columns))
        found.append(RowGroup(file, number, rows, group.num_rows, nbytes, low, high))
    return found


def _range(statistics: pq.Statistics | None) -> tuple[object, object]:
    if statistics is None or not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except ValueError:  # text that its writer cut in the middle of a character
        return None, None


def _keyed_rows(
    fragment: ds.ParquetFileFragment, number: int, rows: int, statistics: Sequence[pq.Statistics | None],
    schema: pa.Schema, form: KeyForm,
) -> int:  # fmt: skip
    """Rows without a null in the key: by the footer if it has counts, else by reading the key."""
    nulls = [s.null_count if s is not None and s.has_null_count else None for s in statistics]
    some = [n for n in nulls if n != 0]
    if len(some) <= 1 and None not in some:
        return int(rows - sum(n for n in some if n is not None))
    keys = fragment.subset(row_group_ids=[number]).to_table(schema=schema, columns=list(form.names))
    return int(form.normal([keys.column(name) for name in form.names])[1].sum())


def _paged(groups: list[RowGroup], first: pa.Field) -> tuple[tuple[tuple[RowGroup, ...], ...], Fences | None, str]:
    """Pages, their fences, and if there are none the reason."""
    as_they_come = tuple((group,) for group in groups)
    if pa.types.is_floating(first.type):
        return as_they_come, None, f"statistics of {first.name!r}, a float, do not cover NaN"
    if any(group.low is None for group in groups):
        return as_they_come, None, f"some row groups have no statistics of {first.name!r}"
    form = KeyForm((first.name,), (first.type,))
    lows, highs = (form.normal([pa.array([getattr(g, end) for g in groups], first.type)])[0] for end in ("low", "high"))
    order = lows.sorted_rows()
    lows, highs = lows.take(order), highs.take(order)
    before = np.arange(max(len(groups) - 1, 0))
    later_lows, earlier_highs = lows.take(before + 1), highs.take(before)
    if above(earlier_highs, later_lows, before).any():
        at = int(np.flatnonzero(above(earlier_highs, later_lows, before))[0])
        one, other = groups[order[at]], groups[order[at + 1]]
        reason = (
            f"row groups overlap in {first.name!r}: {one.low!r} to {one.high!r}, and {other.low!r} to {other.high!r}"
        )
        return as_they_come, None, reason
    apart = above(later_lows, earlier_highs, before)
    return _merged([groups[at] for at in order], lows, highs, apart)


def _merged(
    groups: list[RowGroup], lows: Normal, highs: Normal, apart: np.ndarray
) -> tuple[tuple[tuple[RowGroup, ...], ...], Fences, str]:
    """Row groups in order; those that touch share a page, as one key may be in both."""
    starts = np.concatenate([np.zeros(min(len(groups), 1), np.int64), np.flatnonzero(apart) + 1]).astype(np.int64)
    stops = np.append(starts[1:], len(groups)).astype(np.int64)[: len(starts)]
    pages = tuple(tuple(groups[start:stop]) for start, stop in zip(starts, stops, strict=True))
    return pages, Fences(lows.take(starts), highs.take(stops - 1)), ""


Marks = dict[str, tuple[int | None, int | None]]
"""Size and time of each file."""
_CREDENTIALS = re.compile(r"//[^/@]*@")
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_KEPT = 4  # layouts of versions that this process caches, so that each footer is read once
_layouts: dict[tuple[str, tuple[str, ...], str], ParquetLayout] = {}


@dataclass(frozen=True, slots=True)
class ParquetSource(NoHistory):
    """A file or directory of Parquet, on any file system that Arrow knows."""

    path: str
    key: tuple[str, ...]

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> ParquetSource:
        """The same files looked up by part of the key, with the index that their statistics of it make."""
        return replace(self, key=key)

    def version(self) -> str:
        """A digest of names, sizes and times of all files."""
        with self.errors():
            return _digest(_marks(self.dataset()))

    def open(self, version: str | None = None, device: Device | None = None) -> ParquetPages:
        """The files as they are now; a `ConfigError` if that is not the requested version."""
        with self.errors():
            dataset = self.dataset()
            marks = _marks(dataset)
            found = _digest(marks)
            if version not in (None, found):
                raise ConfigError(
                    f"{self} has changed: version {version} is gone, now it is {found}. Write new files beside the old "
                    f"ones only between queries, or build a page file, which keeps old versions."
                )
            return ParquetPages(self, found, self.layout(dataset, found), marks, device)

    def dataset(self) -> ds.Dataset:
        """The files there are now."""
        system, path = fs.FileSystem.from_uri(self.path) if "://" in self.path else (fs.LocalFileSystem(), self.path)
        found = ds.dataset(path, filesystem=system, format="parquet", partitioning="hive")
        if not found.files:
            raise ConfigError(f"{self} has no files; correct the path, or write the files first.")
        return found

    def layout(self, dataset: ds.Dataset, version: str) -> ParquetLayout:
        """The pages of a version, found once in this process."""
        name = (self.path, self.key, version)
        if name not in _layouts:
            schema = plain_schema(dataset.schema)
            key_form(schema, self.key)
            _check_collations(dataset.schema, self.key)
            found = lay_out(dataset, schema, self.key)
            if _digest(_marks(dataset)) != version:
                raise ConfigError(f"{self} was written while its footers were read; start again.")
            while len(_layouts) >= _KEPT:
                _layouts.pop(next(iter(_layouts)))
            _layouts[name] = found
        return _layouts[name]

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the file system and of the files become `ConfigError`."""
        try:
            yield
        except FileNotFoundError as error:
            raise ConfigError(f"{self} does not exist; correct the path.") from error
        except (OSError, pa.ArrowException) as error:
            reason = _CREDENTIALS.sub("//", str(error))
            raise ConfigError(f"cannot read {self}: {reason}; check permissions and that files are whole.") from error

    def explain(self) -> str:
        """The files in some lines, with the reason if there is no index."""
        with self.errors():
            dataset = self.dataset()
            version = _digest(_marks(dataset))
            found = self.layout(dataset, version)
        index = f"index by statistics of {self.key[0]!r}" if found.fences else f"no index: {found.reason}"
        size, pages = int(found.page_bytes.sum()), len(found.pages)
        return (
            f"{self}, version {version}\n  key {list(self.key)}, order {'key' if found.fences else 'none'}, {index}\n"
            f"  {found.starts[-1]} rows in {pages} pages of {format_bytes(size // max(pages, 1))} (row groups), "
            f"{len(found.fragments)} files; {found.null_keys} rows without a key left out"
        )

    def __str__(self) -> str:
        return f"Parquet {_CREDENTIALS.sub('//', self.path)}"

    __repr__ = __str__


def _check_collations(schema: pa.Schema, key: Sequence[str]) -> None:
    """`PlanError` for a key to which Spark, when it wrote the files, gave a collation: keys are compared as bytes."""
    described = (schema.metadata or {}).get(_SPARK_SCHEMA)
    for field in json.loads(described)["fields"] if described else []:
        collation = (field.get("metadata") or {}).get("__COLLATIONS", {}).get(field["name"])
        if collation is not None and field["name"] in key:
            raise PlanError(
                f"key: column {field['name']!r} has the collation {collation}, and keys of master data are compared by "
                f"their bytes; write the files with F.col({field['name']!r}).cast('string').",
                argument="key",
            )


class ParquetPages:
    """One version of Parquet files. Every read checks that its files are still those of the version."""

    def __init__(
        self, source: ParquetSource, version: str, layout: ParquetLayout, marks: Marks, device: Device | None
    ) -> None:
        self._marks = marks
        self._source, self._layout, self.version = source, layout, version
        self.schema, self.key = layout.schema, source.key
        self.order: Order = "key" if layout.fences else "none"
        self.indexed = layout.fences is not None
        self.device = device or Device()
        self.starts: I64 = layout.starts
        self._ends = np.concatenate([[0], np.cumsum(layout.page_bytes)]).astype(np.int64)
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
        return int(self._ends[first + count] - self._ends[first])

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on. A file that has changed is a `ConfigError`."""
        if first < 0 or count < 1 or first + count >= len(self._ends):
            raise IndexError(f"there are {len(self._ends) - 1} pages, from 0; {count} from {first} on are not there.")
        groups = [group for page in self._layout.pages[first : first + count] for group in page]
        expected = int(self.starts[first + count] - self.starts[first])
        return self._rows(groups, self.stored_bytes(first, count), expected, keyed=True)

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
        return self._rows(self._layout.null_groups, self.null_bytes, self.null_rows, keyed=False)

    def _rows(self, groups: Sequence[RowGroup], nbytes: int, expected: int, keyed: bool) -> pa.RecordBatch:
        """The rows of these row groups that have a key, or those that have none."""
        with self._source.errors():
            table = self.device.call(lambda: self._fetch(groups), nbytes=nbytes)
        _, valid = self._form.normal([table.column(name) for name in self.key])
        if not (valid.all() and keyed):
            table = table.filter(pa.array(valid == keyed))
        if table.num_rows != expected:
            raise ConfigError(
                f"{self._source}: {table.num_rows} rows where the footer says {expected}; write it again."
            )
        batches = table.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves."""
        return stored_each(self, first, count)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins, by a read for each."""
        return read_each(self, first, count)

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _fetch(self, groups: Sequence[RowGroup]) -> pa.Table:
        tables = []
        for file, numbers in _by_file(groups):
            part = self._layout.fragments[file].subset(row_group_ids=numbers)
            tables.append(part.to_table(schema=self.schema, use_threads=False))
            now = part.filesystem.get_file_info(part.path)
            if (now.size, now.mtime_ns) != self._marks[part.path]:
                raise ConfigError(
                    f"{part.path} was written while version {self.version} was read; start the batch again."
                )
        return pa.concat_tables(tables)


def _by_file(groups: Sequence[RowGroup]) -> list[tuple[int, list[int]]]:
    """Row groups in their order, neighbours of one file together."""
    found: list[tuple[int, list[int]]] = []
    for group in groups:
        if found and found[-1][0] == group.file and found[-1][1][-1] < group.number:
            found[-1][1].append(group.number)
        else:
            found.append((group.file, [group.number]))
    return found


def _marks(dataset: ds.Dataset) -> Marks:
    return {info.path: (info.size, info.mtime_ns) for info in dataset.filesystem.get_file_info(sorted(dataset.files))}


def _digest(marks: Marks) -> str:
    return hashlib.blake2b(repr(sorted(marks.items())).encode(), digest_size=8).hexdigest()
