"""Iceberg tables as master data: their snapshots, and the files, partitions and deleted rows of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.storage.remote import Access, S3Access
from dovetail.engine.storage.secrets import censored, hidden, is_secret
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.keys import key_form
from dovetail.joins.semistream.master.lake.data_files import (
    DataFiles,
    Listed,
    TableHistory,
    fits,
    is_bytes,
    is_list,
    is_text,
    naming,
    opened,
)

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

EMPTY = "none"  # the version of a table that has no snapshot yet
_REMEDY = "keep more snapshots (history.expire.min-snapshots-to-keep)"
Properties = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class IcebergSource(TableHistory):
    """An Iceberg table; every snapshot is read with the columns that the table had when the store was named.

    `catalog` is its name, and None for a table that is known by its directory or metadata file. `described` is the
    schema by which the store was named: columns are known by their ids, and one that an older snapshot does not have
    is null there. `named_at` is the moment of the newest snapshot then.
    """

    catalog: str | None
    table: str
    key: tuple[str, ...]
    schema: pa.Schema
    described: str = field(repr=False)
    properties: Properties = field(default=(), repr=False)
    named_at: tuple[int, int] = (0, 0)

    remedy = _REMEDY

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> IcebergSource:
        """The same table looked up by part of the key, with the index that statistics of it make."""
        return replace(self, key=key)

    def version(self) -> str:
        """The id of the current snapshot."""
        return version_of(self._table())

    def __str__(self) -> str:
        return f"Iceberg table {hidden(self.table)}" + (f" in catalog {self.catalog}" if self.catalog else "")

    def _table(self) -> Table:
        return load(self.catalog, self.properties, self.table)

    def files(self, version: str | None) -> tuple[str, DataFiles]:
        """The name of a snapshot, by default of the current one, and its files."""
        table = self._table()
        name = version or version_of(table)
        snapshot = None if name == EMPTY else self._snapshot(table, name)
        with self.reading(name).errors(), errors(self, self.properties):
            planned = described(self.described)
            self._check(table, snapshot, planned)
            listed = partial(listed_files, table, snapshot, planned, str(self))
            match = partial(_matched, planned, table.name_mapping())
            opener = partial(_open, table)
            found = (f"{table.metadata.table_uuid}", self.key, self.schema, self.described, name)
            return name, opened(found, listed, self.schema, self.key, match, opener)

    def _snapshot(self, table: Table, version: str) -> Any:
        if not version.isdigit():
            raise PlanError(
                f"{version!r} is not a version of an Iceberg table; one is the id of a snapshot, a number.",
                argument="version",
            )
        found = table.metadata.snapshot_by_id(int(version))
        if found is None:
            raise ConfigError(
                f"{self} has no version {version} any more (current is {version_of(table)}): its snapshot has expired, "
                f"or the table was created again. {_REMEDY.capitalize()}, or start the query from the current version."
            )
        return found

    def _check(self, table: Table, snapshot: Any, planned: Schema) -> None:
        """Refuse a snapshot without a column of the store, unless it is older than the column, or of another type."""
        now = table.schema() if snapshot is None or snapshot.schema_id is None else table.schemas()[snapshot.schema_id]
        known = {one.field_id: one for one in now.fields}
        types = dict(zip((one.field_id for one in now.fields), arrow_schema(now).types, strict=True))
        for column, one in zip(self.schema, planned.fields, strict=True):
            missing = one.field_id not in known and (snapshot is None or _moment(snapshot) > self.named_at)
            if missing or (one.field_id in known and not fits(types[one.field_id], column.type)):
                found = "no such column" if missing else str(types[one.field_id])
                raise ConfigError(
                    f"{self} has changed: column {column.name!r} is {column.type} in this query, and version "
                    f"{EMPTY if snapshot is None else snapshot.snapshot_id} has {found}; name the store and plan the "
                    f"query again."
                )


def iceberg_source(
    catalog: object, table: str, key: str | Sequence[str], access: Access | None = None
) -> IcebergSource:
    """The table of a catalog, with the columns that it has now."""
    name, properties = catalog_of(catalog)
    properties = tuple({**s3_properties(access), **dict(properties)}.items())
    found = load(name, properties, table)
    schema = arrow_schema(found.schema())
    names = key_form(schema, key).names
    newest = found.current_snapshot()
    named_at = (0, 0) if newest is None else _moment(newest)
    return IcebergSource(name, table, names, schema, found.schema().model_dump_json(), properties, named_at)


def _moment(snapshot: Any) -> tuple[int, int]:
    """Snapshots in the order in which they were made; tables of format 1 do not number them."""
    return snapshot.sequence_number or 0, snapshot.timestamp_ms


def catalog_of(catalog: object) -> tuple[str | None, Properties]:
    """The name and properties of a catalog, given by name, by properties or as an object of pyiceberg."""
    if catalog is None:
        return None, ()
    if isinstance(catalog, str):
        return catalog, ()
    given = catalog if isinstance(catalog, Mapping) else getattr(catalog, "properties", None)
    if not isinstance(given, Mapping):
        raise PlanError(
            f"the catalog is a {type(catalog).__name__}; give the name of one that pyiceberg is configured for, its "
            f"properties, a pyiceberg catalog, or None with the directory of the table.",
            argument="catalog",
        )
    name = str(given.get("name", getattr(catalog, "name", "dovetail")))
    return name, tuple((str(key), str(value)) for key, value in given.items() if key != "name")


def s3_properties(access: Access | None) -> dict[str, str]:
    """The access to a bucket by the names that the package has for it."""
    if not isinstance(access, S3Access):
        return {}
    scheme = "https" if access.ssl else "http"
    endpoint = access.endpoint if "://" in access.endpoint or not access.endpoint else f"{scheme}://{access.endpoint}"
    found = {
        "s3.endpoint": endpoint,
        "s3.region": access.region,
        "s3.access-key-id": access.key,
        "s3.secret-access-key": access.secret,
        "s3.session-token": access.token,
        "s3.force-virtual-addressing": "true" if endpoint and not access.path_style else "",
        "s3.anonymous": "true" if access.anonymous else "",
    }
    return {name: value for name, value in found.items() if value}


def load(catalog: str | None, properties: Properties, table: str) -> Table:
    """The table as it is now."""
    try:
        from pyiceberg.table import StaticTable
    except ImportError as error:
        raise ConfigError("Iceberg tables need the package pyiceberg: pip install 'dovetail[iceberg]'.") from error
    what = f"Iceberg table {hidden(table)}"
    try:
        with errors(what, properties):
            if catalog is None:
                return StaticTable.from_metadata(table.rstrip("/"), dict(properties))
            found: Table = _catalog(os.getpid(), catalog, properties).load_table(table)
            return found
    except FileNotFoundError as error:
        raise ConfigError(
            f"cannot read {what}: {hidden(str(error.filename or error))}: there is no such file; give the table's "
            f"directory, which has metadata/version-hint.text, or one of its metadata files."
        ) from error


@lru_cache(maxsize=8)
def _catalog(pid: int, name: str, properties: Properties) -> Any:  # workers are forked: they connect themselves
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **dict(properties))


@contextmanager
def errors(source: object, properties: Properties) -> Iterator[None]:
    """Errors of catalog and files become `ConfigError`, without what is secret in the properties."""
    try:
        yield
    except (ConfigError, PlanError, UnsupportedError, FileNotFoundError):
        raise
    except Exception as error:  # those of the catalog's own driver too
        text = " ".join(str(error).partition("(Background on")[0].split())
        secrets = [value for name, value in properties if is_secret(name)]
        reason = censored(text, [value for _, value in properties if "://" in value], secrets)
        # The driver's own error is not kept as the cause: its text may show what is hidden here.
        raise ConfigError(
            f"cannot read {source}: {type(error).__name__}: {reason}; check the catalog, the name of the table and "
            f"rights."
        ) from None


def version_of(table: Table) -> str:
    """The id of the current snapshot."""
    found = table.current_snapshot()
    return EMPTY if found is None else str(found.snapshot_id)


def described(text: str) -> Schema:
    """The schema that was written as JSON."""
    from pyiceberg.schema import Schema

    return Schema.model_validate_json(text)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns in Arrow's types, as pages have them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    try:
        found = schema_to_pyarrow(schema, include_field_ids=False)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise UnsupportedError(
            f"a column has a type that Arrow does not have: {error}; build a page file.", argument="table"
        ) from error
    return pa.schema([pa.field(one.name, _plain(one.type)) for one in found])


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type with offsets of four bytes, and uuids and bytes of fixed length as bytes."""
    if isinstance(kind, pa.BaseExtensionType) or is_bytes(kind):
        return pa.binary()
    if is_text(kind):
        return pa.string()
    if is_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _plain(one.type)) for one in kind])
    return kind


def _matched(planned: Schema, mapping: Any, found: pa.Schema) -> list[str | None]:
    """For each column its name in a file, by field ids, or where a file has none by the table's mapping of names."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        stored = pyarrow_to_schema(found, mapping, downcast_ns_timestamp_to_us=True)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the columns of a file are not those of the table: {error}; rewrite_data_files.") from error
    names = {one.field_id: one.name for one in stored.fields}
    for one in planned.fields:
        if one.field_id in names and _parts(stored, one.field_id) != _parts(planned, one.field_id):
            raise UnsupportedError(
                f"parts of column {one.name!r} were added, dropped or renamed since a file was written; rewrite the "
                f"files (rewrite_data_files), or build a page file from the table.",
                argument="table",
            )
    return [names.get(one.field_id) for one in planned.fields]


def _parts(schema: Schema, number: int) -> dict[int, str]:
    """The ids of the parts of a nested column, with their names inside it."""
    from pyiceberg.schema import index_name_by_id

    top = schema.find_column_name(number) or ""
    names = index_name_by_id(schema)
    return {at: name[len(top) :] for at, name in names.items() if name.startswith(f"{top}.") and at != number}


def listed_files(table: Table, snapshot: Any, planned: Schema, source: str) -> list[Listed]:
    """The files of a snapshot, with values of columns that are not in them, and without deleted rows."""
    if snapshot is None:
        return []
    try:
        tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
    except ValueError as error:
        if "equality deletes" not in str(error):
            raise
        raise _equality_deletes(table, snapshot, source) from error
    known: dict[str, dict[str, I64]] = {}
    return [_listed(table, task, planned, known, source) for task in tasks]


def _listed(table: Table, task: FileScanTask, planned: Schema, known: dict[str, dict[str, I64]], source: str) -> Listed:
    file = task.file
    if file.file_format.name != "PARQUET":
        raise UnsupportedError(
            f"{source}: {file.file_path} is an {file.file_format.name} file, and only Parquet is read; rewrite the "
            f"table's files as Parquet (rewrite_data_files), or build a page file from it.",
            argument="table",
        )
    deleted = [np.empty(0, np.int64)]
    for one in task.delete_files:
        if one.file_path not in known:
            known[one.file_path] = _positions(table, one, source)
        deleted.append(known[one.file_path].get(file.file_path, deleted[0]))
    positions = np.concatenate(deleted)
    kept = None
    if len(positions):
        kept = np.ones(file.record_count, np.bool_)
        kept[positions] = False
    return Listed(file.file_path, _constants(table, file, planned), kept)


def _constants(table: Table, file: DataFile, planned: Schema) -> dict[str, Any]:
    """Values of columns that a file may lack: of identity partitions, and defaults that columns were added with."""
    from pyiceberg.transforms import IdentityTransform

    found = {one.name: one.initial_default for one in planned.fields if one.initial_default is not None}
    names = {one.field_id: one.name for one in planned.fields}
    for at, part in enumerate(table.specs()[file.spec_id].fields):
        if isinstance(part.transform, IdentityTransform) and part.source_id in names:
            found[names[part.source_id]] = file.partition[at]
    return found


def _positions(table: Table, file: DataFile, source: str) -> dict[str, I64]:
    """The positions of deleted rows in data files: of a file of position deletes, or of deletion vectors."""
    kind = file.file_format.name
    with naming(file.file_path), _open(table, file.file_path) as stream:
        if kind == "PUFFIN":
            from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
            from pyiceberg.table.puffin import PuffinFile

            found = deletion_vectors_from_puffin_file(PuffinFile(stream.read()))
            return {one.referenced_data_file: one.to_vector().to_numpy().astype(np.int64) for one in found}
        if kind != "PARQUET":
            raise UnsupportedError(
                f"{source}: {file.file_path} lists deleted rows in a file of format {kind}, and only Parquet and "
                f"Puffin are read; compact the table (rewrite_data_files).",
                argument="table",
            )
        rows = pq.read_table(stream, columns=["file_path", "pos"])
    groups = rows.group_by("file_path").aggregate([("pos", "list")])
    pairs = zip(groups["file_path"].to_pylist(), groups["pos_list"].combine_chunks(), strict=True)
    return {path: np.asarray(each.values, np.int64) for path, each in pairs}


def _equality_deletes(table: Table, snapshot: Any, source: str) -> UnsupportedError:
    from pyiceberg.manifest import DataFileContent, ManifestContent

    manifests = [one for one in snapshot.manifests(table.io) if one.content == ManifestContent.DELETES]
    entries = [entry.data_file for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    paths = [file.file_path for file in entries if file.content == DataFileContent.EQUALITY_DELETES]
    return UnsupportedError(
        f"{source}: version {snapshot.snapshot_id} has equality deletes, which are not read: {', '.join(paths[:1])}. "
        f"Compact the table (CALL system.rewrite_data_files), or build a page file from it.",
        argument="table",
    )


def _open(table: Table, path: str) -> Any:
    return table.io.new_input(path).open()
