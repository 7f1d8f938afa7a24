"""Delta Lake tables as master data: their versions, and the files, partitions and deletion vectors of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import Bool
from dovetail.engine.storage.files import system_at
from dovetail.engine.storage.remote import Access, S3Access, is_remote
from dovetail.engine.storage.secrets import hidden
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.keys import key_form
from dovetail.joins.semistream.master.lake.data_files import (
    DataFiles,
    Listed,
    TableHistory,
    fits,
    opened,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable

_REMEDY = "keep files longer before VACUUM removes them (delta.deletedFileRetentionDuration)"
_READ = frozenset(
    {"deletionVectors", "columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
     "vacuumProtocolCheck"}
)  # fmt: skip
_MAPPING = "delta.columnMapping."


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a version: its name, its type, and by what files have it."""

    name: str
    type: pa.DataType
    physical: str
    number: int | None


@dataclass(frozen=True, slots=True)
class DeltaSource(TableHistory):
    """A Delta table; every version is read with the columns that the newest one had when the store was named.

    Columns are known by their names in files, so that one that was renamed is still the same. `named_at` is the version
    by which the store was named: those before it may lack columns, whose values are null then.
    """

    path: str
    key: tuple[str, ...]
    schema: pa.Schema
    physical: tuple[str, ...]
    named_at: int
    access: Access | None = field(default=None, repr=False, compare=False)

    remedy = _REMEDY

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> DeltaSource:
        """The same table looked up by part of the key, with the index that statistics of it make."""
        return replace(self, key=key)

    def version(self) -> str:
        """The number of the newest version, and the beginning of the table's id."""
        return version_of(self._table(None))

    def __str__(self) -> str:
        return f"Delta table {hidden(self.path)}"

    def files(self, version: str | None) -> tuple[str, DataFiles]:
        """The name of a version, by default of the newest, and its files."""
        table = self._table(version)
        name = version_of(table)
        with self.reading(name).errors():
            system, base = system_at(self.path, self.access)
            opener = partial(_open, base, system, self.access)
            columns = self._columns(table)
            match = partial(_matched, columns, table.metadata().configuration.get(f"{_MAPPING}mode"))
            named = {old.name: new.name for old, new in zip(columns, self.schema, strict=True) if old is not None}
            found = (f"{self.path} {table.metadata().id}", self.key, self.schema, self.physical, name)
            return name, opened(found, partial(listed_files, table, named), self.schema, self.key, match, opener)

    def _table(self, version: str | None) -> DeltaTable:
        table = load(self.path, self.access, None if version is None else _number(version), version)
        check_features(table, self)
        name = version_of(table)
        if version is not None and "-" in version and name != version:
            raise ConfigError(f"{self} was created again: version {version} is gone, its number now stands for {name}.")
        return table

    def _columns(self, table: DeltaTable) -> list[Field | None]:
        """The columns of the version that the store has; None for one that was added later."""
        known = {column.physical: column for column in fields_of(table)}
        found = [known.get(physical) for physical in self.physical]
        for planned, column in zip(self.schema, found, strict=True):
            if column is None and table.version() >= self.named_at:
                raise self._other(planned, "no such column", table)
            if column is not None and not fits(column.type, planned.type):
                raise self._other(planned, str(column.type), table)
        return found

    def _other(self, planned: pa.Field, found: str, table: DeltaTable) -> ConfigError:
        return ConfigError(
            f"{self} has changed: column {planned.name!r} is {planned.type} in this query, and version "
            f"{version_of(table)} has {found}; name the store and plan the query again."
        )


def delta_source(path: str, key: str | Sequence[str], access: Access | None) -> DeltaSource:
    """The table at a path, with the columns of its newest version."""
    table = load(path, access, None, None)
    check_features(table, f"Delta table {hidden(path)}")
    fields = fields_of(table)
    schema = pa.schema([pa.field(column.name, column.type) for column in fields])
    names = key_form(schema, key).names
    return DeltaSource(path, names, schema, tuple(column.physical for column in fields), table.version(), access)


def load(path: str, access: Access | None, number: int | None, version: str | None) -> DeltaTable:
    """The table at a version, by default the newest; a `ConfigError` if there is none."""
    try:
        import deltalake
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise ConfigError("Delta tables need the package deltalake: pip install 'dovetail[delta]'.") from error
    shown, address = hidden(path), _url(path)
    try:
        return deltalake.DeltaTable(address, version=number, storage_options=storage_options(access))
    except (DeltaError, OSError, ValueError) as error:
        if number is not None:
            current = version_of(load(path, access, None, None))
            raise ConfigError(
                f"Delta table {shown} has no version {version} (current is {current}): it never had, or its log was "
                f"cleaned up. Keep more of the log (delta.logRetentionDuration), or start the query from the current "
                f"version."
            ) from error
        missing = isinstance(error, TableNotFoundError)
        reason = "there is no such table" if missing else hidden(" ".join(str(error).split()))
        raise ConfigError(f"cannot read Delta table {shown}: {reason}; correct the path, or check rights.") from None


def _url(path: str) -> str:
    """The address of a table as the package takes it, which undoes escapes, some of them twice."""
    if re.search("%[0-9A-Fa-f]{2}", path):
        raise UnsupportedError(
            f"Delta table {hidden(path)}: the package deltalake reads a percent sign and two digits in a path as "
            f"another character, and might open another table; rename the directory.",
            argument="path",
        )
    scheme, has_scheme, rest = path.partition("://")
    if not has_scheme:
        return Path(path).absolute().as_uri()
    if not is_remote(path):
        return path
    return f"{'hdfs' if scheme == 'hdfs' else 's3'}://{quote(rest, safe='/:')}"


def storage_options(access: Access | None) -> dict[str, str] | None:
    """The access to a bucket by the names that the package has for it; None for what the environment says."""
    if not isinstance(access, S3Access):
        return dict(access.settings) if access else None
    scheme = "https" if access.ssl else "http"
    endpoint = access.endpoint if "://" in access.endpoint or not access.endpoint else f"{scheme}://{access.endpoint}"
    found = {
        "AWS_ACCESS_KEY_ID": access.key,
        "AWS_SECRET_ACCESS_KEY": access.secret,
        "AWS_SESSION_TOKEN": access.token,
        "AWS_REGION": access.region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http:") else "",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true" if endpoint and not access.path_style else "",
        "AWS_SKIP_SIGNATURE": "true" if access.anonymous else "",
    }
    return {name: value for name, value in found.items() if value}


def version_of(table: DeltaTable) -> str:
    """The version of a table, with the beginning of its id: one that is created again counts from 0 again."""
    return f"{table.version()}-{str(table.metadata().id)[:8]}"


def _number(version: str) -> int:
    number = version.partition("-")[0]
    if not number.isdigit():
        raise PlanError(
            f"{version!r} is not a version of a Delta table; one is a number, such as '12'.", argument="version"
        )
    return int(number)


def check_features(table: DeltaTable, source: object) -> None:
    """`UnsupportedError` for a table that this reader would misread."""
    strange = sorted(set(table.protocol().reader_features or ()) - _READ)
    if strange or table.protocol().min_reader_version > 3:
        what = f"the table feature {', '.join(strange)}" if strange else "a newer reader version"
        raise UnsupportedError(
            f"{source} needs {what}, which is not read here: its rows could be misread. Drop the feature (ALTER TABLE "
            f"... DROP FEATURE), or build a page file from it with MasterStore.build.",
            argument="path",
        )


def fields_of(table: DeltaTable) -> list[Field]:
    """The columns of a version."""
    described = {one["name"]: one["metadata"] for one in json.loads(table.schema().to_json())["fields"]}
    mapped = table.metadata().configuration.get(f"{_MAPPING}mode", "none") != "none"
    found = []
    for column in pa.schema(table.schema().to_arrow()):
        known: dict[str, Any] = described[column.name] if mapped else {}
        if mapped and column.type.num_fields:
            raise UnsupportedError(
                f"column {column.name!r} of Delta table {hidden(table.table_uri)} is nested, and the table has "
                f"column mapping, by which files name its parts otherwise; build a page file from it.",
                argument="path",
            )
        physical = known.get(f"{_MAPPING}physicalName", column.name)
        found.append(Field(column.name, column.type, physical, known.get(f"{_MAPPING}id")))
    return found


def _matched(columns: Sequence[Field | None], mode: str | None, found: pa.Schema) -> list[str | None]:
    """For each column its name in a file: by number where the table maps columns so, else by name."""
    numbers = {(f.metadata or {}).get(b"PARQUET:field_id"): f.name for f in found} if mode == "id" else {}
    names = set(found.names)

    def name(column: Field | None) -> str | None:
        if column is None:
            return None
        if mode == "id":
            return numbers.get(str(column.number).encode())
        return column.physical if column.physical in names else None

    return [name(column) for column in columns]


def listed_files(table: DeltaTable, named: Mapping[str, str]) -> list[Listed]:
    """The files of a version, with their partition values and without the rows of deletion vectors.

    `named` has the store's name of each column of this version, which may have been renamed since.
    """
    actions = pa.table(table.get_add_actions())
    partitions: list[dict[str, Any]] = [{}] * actions.num_rows
    if table.metadata().partition_columns:
        partitions = actions.column("partition").to_pylist()
    kept, root = _deletion_vectors(table), unquote(urlsplit(table.table_uri).path).rstrip("/")
    found = []
    for path, values in zip(actions.column("path").to_pylist(), partitions, strict=True):
        place = unquote(path)
        whole = urlsplit(place).path if _is_of_another_table(place) else f"{root}/{place}"
        constants = {named[name]: value for name, value in values.items() if name in named}
        found.append(Listed(place, constants, kept.pop(whole, None)))
    if kept:
        raise ConfigError(
            f"Delta table {hidden(table.table_uri)} has deletion vectors of files that version "
            f"{version_of(table)} does not list: {sorted(kept)[0]}; compact it (REORG TABLE ... APPLY (PURGE))."
        )
    return found


def _deletion_vectors(table: DeltaTable) -> dict[str, Bool]:
    """Which rows are kept, by file."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    try:
        rows = pa.table(table.deletion_vectors())
    except Exception as error:  # the package has several classes for files of the log that it cannot read
        reason = hidden(" ".join(str(error).split()))
        raise ConfigError(
            f"Delta table {hidden(table.table_uri)}: deletion vectors of version {version_of(table)} cannot be "
            f"read: {reason}; {_REMEDY}, or start the query from the current version."
        ) from error
    kept = rows.column("selection_vector").combine_chunks()
    names = [unquote(urlsplit(name).path) for name in rows.column("filepath").to_pylist()]
    return {name: np.asarray(mask.values, np.bool_) for name, mask in zip(names, kept, strict=True)}


def _open(base: str, system: Any, access: Access | None, path: str) -> Any:
    if _is_of_another_table(path):
        system, path = system_at(path, access)
        return system.open_input_file(path)
    return system.open_input_file(f"{base}/{path}")


def _is_of_another_table(path: str) -> bool:
    """Whether a file is named by its whole path, as those of a shallow clone are."""
    return path.startswith("/") or bool(urlsplit(path).scheme and ":/" in path)
