"""Finds the store of a Spark table by what the catalog says of it: its provider and its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlparse

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dovetail.engine.storage import files
from dovetail.engine.storage.remote import S3_SCHEMES
from dovetail.errors import ConfigError, UnsupportedError
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.frames import arrow_type
from dovetail.spark.places import place_of
from dovetail.spark.task_errors import spark_says

_PROVIDER, _LOCATION, _TYPE = "Provider", "Location", "Type"


@dataclass(frozen=True, slots=True)
class Described:
    """A table as the catalog describes it."""

    name: str
    provider: str
    location: str

    @classmethod
    def of(cls, name: str, rows: Iterable[tuple[str, str]]) -> Described:
        """The table by the rows of DESCRIBE TABLE EXTENDED, whose details follow the columns."""
        found = {key.strip(): value for key, value in rows if key and value is not None}
        if found.get(_TYPE) == "VIEW":
            raise UnsupportedError(
                f"{name} is a view; build a page file from it: MasterStore.build(spark.table(...)).", argument="table"
            )
        return cls(name, found.get(_PROVIDER, "").lower(), found.get(_LOCATION, ""))


def table_store(name: str, key: str | Sequence[str], spark: SparkSession | None) -> MasterStore:
    """The store of a Spark table."""
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError(f"there is no Spark session to look up the table {name}; start one, or give spark=.")
    quoted = ".".join("`" + part.strip("`").replace("`", "``") + "`" for part in name.split("."))
    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except AnalysisException as error:
        raise ConfigError(f"the catalog does not describe the table {name}: {spark_says(error)}.") from error
    found = Described.of(name, [(row[0], row[1]) for row in rows])
    store = described_store(found, key, session)
    if isinstance(store.source, ParquetSource):
        _check_files(session, quoted, found, store, store.source)
    return store


def described_store(found: Described, key: str | Sequence[str], spark: SparkSession) -> MasterStore:
    """The store of a table with this description; other providers are refused, with what to use instead."""
    if found.provider in ("delta", "parquet") and found.location:
        return (MasterStore.delta if found.provider == "delta" else MasterStore.parquet)(found.location, key)
    if found.provider == "iceberg":
        place = place_of(spark, found.location)
        if files.size(place / "metadata" / "version-hint.text") is None:
            raise UnsupportedError(
                f"{found.name} is an Iceberg table whose newest metadata only its catalog knows; name that catalog as "
                f"pyiceberg does: MasterStore.iceberg(catalog, {found.name!r}, key=...).",
                argument="table",
            )
        return MasterStore.iceberg(None, found.location, key)
    raise UnsupportedError(
        f"{found.name} is a table of the provider {found.provider or 'of a catalog that names none'!r}; delta, iceberg "
        f"and parquet tables are read in place. Build a page file from others: MasterStore.build(spark.table(...)).",
        argument="table",
    )


def _check_files(spark: SparkSession, quoted: str, found: Described, store: MasterStore, source: ParquetSource) -> None:
    """Refuse a table that is not what lies at its place: partitions elsewhere, or columns of other types."""
    table = spark.table(quoted)
    columns = {field.name: arrow_type(field.dataType) for field in table.schema}
    stored = {field.name: field.type for field in store.schema}
    if columns != stored:
        names = [name for name in {**columns, **stored} if columns.get(name) != stored.get(name)]
        raise UnsupportedError(
            f"column {names[0]!r} of {found.name} is {columns.get(names[0], 'not there')} in the catalog, and "
            f"{stored.get(names[0], 'not there')} in its files; build a page file from it: MasterStore.build(...).",
            argument="table",
        )
    mine = {_path(name) for name in source.dataset().files}
    theirs = {_path(name) for name in table.inputFiles()}
    if mine != theirs:
        raise UnsupportedError(
            f"{found.name} has {len(theirs)} files in the catalog and {len(mine)} at {found.location}: partitions are "
            f"elsewhere, or are not registered. Repair it (MSCK REPAIR TABLE), or build a page file from it.",
            argument="table",
        )


def _path(name: str) -> str:
    """A file's path without scheme and host."""
    parts = urlparse(name)
    return unquote(f"{parts.netloc}{parts.path}" if parts.scheme in S3_SCHEMES else parts.path)
