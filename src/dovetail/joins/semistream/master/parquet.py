"""Parquet files as master data: their footers, versions by size and time, and reads that check these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from dovetail.engine.storage.device import Device
from dovetail.engine.storage.files import system_at
from dovetail.engine.storage.remote import Access
from dovetail.engine.storage.secrets import hidden
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.keys import KeyForm, key_form
from dovetail.joins.semistream.master.page_file.writer import plain_schema
from dovetail.joins.semistream.master.pages import NoHistory
from dovetail.joins.semistream.master.row_groups import (
    Column,
    Layout,
    RowGroup,
    RowGroupPages,
    by_file,
    column_places,
    decoded,
    known_keyed,
    laid_out,
    statistics_range,
)

Marks = dict[str, tuple[int | None, int | None]]
"""Size and time of each file."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one version and their pages; every read checks that a file is still that of the version."""

    fragments: tuple[ds.ParquetFileFragment, ...]
    layout: Layout
    marks: Marks

    def scan(self, groups: Sequence[RowGroup], step: int | None) -> Iterator[pa.Table]:
        """All rows of these row groups."""
        for file, numbers in by_file(groups):
            part = self.fragments[file]
            with part.filesystem.open_input_file(part.path) as source:
                yield from decoded(source, part.metadata, numbers, _columns(part, self.layout.schema), step)
            now = part.filesystem.get_file_info(part.path)
            if (now.size, now.mtime_ns) != self.marks[part.path]:
                raise ConfigError(f"{part.path} was written while a version of it was read; start the batch again.")


def _columns(part: ds.ParquetFileFragment, schema: pa.Schema) -> list[Column]:
    """The columns of a store in a file, of which some may be in its path."""
    values = ds.get_partition_keys(part.partition_expression)
    return [Column(one, None if one.name in values else one.name, values.get(one.name)) for one in schema]


def lay_out(dataset: ds.Dataset, schema: pa.Schema, key: tuple[str, ...], marks: Marks) -> Files:
    """The dataset in pages, by the footers of its files."""
    form = key_form(schema, key)
    fragments = tuple(dataset.get_fragments())
    found = list[RowGroup]()
    for number, fragment in enumerate(fragments):
        fragment.ensure_complete_metadata()
        _check_columns(fragment, dataset.schema)
        found += _groups(number, fragment, schema, form)
    return Files(fragments, laid_out(found, schema, key), marks)


def _check_columns(fragment: ds.ParquetFileFragment, schema: pa.Schema) -> None:
    """A file without a column, or with another type, would be read as nulls: refuse it."""
    partitioned = set(ds.get_partition_keys(fragment.partition_expression))
    for one in schema:
        at = fragment.physical_schema.get_field_index(one.name)
        if one.name not in partitioned and (at < 0 or fragment.physical_schema.field(at).type != one.type):
            found = "no such column" if at < 0 else str(fragment.physical_schema.field(at).type)
            raise ConfigError(
                f"{fragment.path}: column {one.name!r} is {one.type} in other files, here {found}; write the files "
                f"with one schema."
            )


def _groups(file: int, fragment: ds.ParquetFileFragment, schema: pa.Schema, form: KeyForm) -> list[RowGroup]:
    """The row groups of a file."""
    found, metadata = list[RowGroup](), fragment.metadata
    places = column_places(metadata)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = [group.column(places[name]).statistics if name in places else None for name in form.names]
        rows = _keyed_rows(fragment, number, group.num_rows, statistics, schema, form)
        low, high = statistics_range(statistics[0])
        nbytes = sum(group.column(at).total_compressed_size for at in range(metadata.num_columns))
        found.append(RowGroup(file, number, rows, group.num_rows, nbytes, low, high))
    return found


def _keyed_rows(
    fragment: ds.ParquetFileFragment, number: int, rows: int, statistics: Sequence[pq.Statistics | None],
    schema: pa.Schema, form: KeyForm,
) -> int:  # fmt: skip
    """Rows without a null in the key: by the footer if it has counts, else by reading the key."""
    known = known_keyed(rows, statistics)
    if known is not None:
        return known
    keys = fragment.subset(row_group_ids=[number]).to_table(schema=schema, columns=list(form.names))
    return int(form.normal([keys.column(name) for name in form.names])[1].sum())


_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_LOGS = {
    "_delta_log": "are a Delta table, whose log says which of them count; use MasterStore.delta.",
    "_spark_metadata": "a stream of Spark wrote, whose log says which of them count; read them with Spark, and write "
    "them to another directory, or to a page file by MasterStore.build.",
}
_FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
_KEPT = 4  # layouts of versions that this process caches, so that each footer is read once
_layouts: dict[tuple[str, tuple[str, ...], str], Files] = {}


@dataclass(frozen=True, slots=True)
class ParquetSource(NoHistory):
    """A file or directory of Parquet, on any file system that Arrow knows."""

    path: str
    key: tuple[str, ...]
    access: Access | None = field(default=None, repr=False, compare=False)

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> ParquetSource:
        """The same files looked up by part of the key, with the index that their statistics of it make."""
        return replace(self, key=key)

    def version(self) -> str:
        """A digest of names, sizes and times of all files."""
        with self.errors():
            return _digest(_marks(self.dataset()))

    def open(self, version: str | None = None, device: Device | None = None) -> RowGroupPages:
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
            files = self.layout(dataset, found, marks)
            footers = [part.metadata for part in files.fragments]
            return RowGroupPages(self, found, files.layout, files.scan, footers, device)

    def dataset(self) -> ds.Dataset:
        """The files there are now."""
        system, path = system_at(self.path, self.access)
        self._check_has_no_log(system, path)
        found = ds.dataset(path, filesystem=system, format=_FORMAT, partitioning="hive")
        if not found.files:
            raise ConfigError(f"{self} has no files; correct the path, or write the files first.")
        return found

    def _check_has_no_log(self, system: fs.FileSystem, path: str) -> None:
        """ConfigError if a log says which of the files count: others were removed, or never committed."""
        for info in system.get_file_info([f"{path.rstrip('/')}/{log}" for log in _LOGS]):
            if info.type == fs.FileType.Directory:
                raise ConfigError(f"{self} has files that {_LOGS[info.base_name]}")

    def layout(self, dataset: ds.Dataset, version: str, marks: Marks) -> Files:
        """The pages of a version, found once in this process."""
        name = (self.path, self.key, version)
        if name not in _layouts:
            schema = _stored_schema(dataset)
            key_form(schema, self.key)
            _check_collations(dataset.schema, self.key)
            found = lay_out(dataset, schema, self.key, marks)
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
            reason = hidden(str(error))
            raise ConfigError(f"cannot read {self}: {reason}; check permissions and that files are whole.") from error

    def explain(self) -> str:
        """The files in some lines, with the reason if there is no index."""
        with self.errors():
            dataset = self.dataset()
            marks = _marks(dataset)
            version = _digest(marks)
            found = self.layout(dataset, version, marks)
        return f"{self}, version {version}\n{found.layout.explain(self.key, len(found.fragments))}"

    def __str__(self) -> str:
        return f"Parquet {hidden(self.path)}"

    __repr__ = __str__


def _stored_schema(dataset: ds.Dataset) -> pa.Schema:
    """The columns of the files; INT96, in which Spark writes timestamps by default, are times in UTC."""
    schema, footer = plain_schema(dataset.schema), next(dataset.get_fragments()).metadata.schema
    kinds = {column.path: column.physical_type for column in (footer.column(at) for at in range(len(footer)))}
    for at, one in enumerate(schema):
        if kinds.get(one.name) == "INT96":
            schema = schema.set(at, one.with_type(pa.timestamp("us", "UTC")))
    return schema


def _check_collations(schema: pa.Schema, key: Sequence[str]) -> None:
    """`PlanError` for a key to which Spark, when it wrote the files, gave a collation: keys are compared as bytes."""
    described = (schema.metadata or {}).get(_SPARK_SCHEMA)
    for one in json.loads(described)["fields"] if described else []:
        collation = (one.get("metadata") or {}).get("__COLLATIONS", {}).get(one["name"])
        if collation is not None and one["name"] in key:
            raise PlanError(
                f"key: column {one['name']!r} has the collation {collation}, and keys of master data are compared by "
                f"their bytes; write the files with F.col({one['name']!r}).cast('string').",
                argument="key",
            )


def _marks(dataset: ds.Dataset) -> Marks:
    return {info.path: (info.size, info.mtime_ns) for info in dataset.filesystem.get_file_info(sorted(dataset.files))}


def _digest(marks: Marks) -> str:
    return hashlib.blake2b(repr(sorted(marks.items())).encode(), digest_size=8).hexdigest()
