"""A table of a PostgreSQL server as master data, read as Arrow: its columns, key and ranges, and its versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.memory import parse_bytes
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.master.postgres.connection import (
    CONNECTIONS,
    as_config_errors,
    check_url,
    query,
    scalars,
)
from dovetail.joins.semistream.master.ranges import (
    Bound,
    Ranges,
    Table,
    fence_table,
    lay_out,
    quoted,
)
from dovetail.joins.semistream.master.snapshots import ServerTable, SnapshotReader, key_columns, relation

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection


_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

# The file changes when the table is rewritten or created again, the snapshot with every transaction that writes.
_DEFAULT_MARKER = "pg_relation_filenode($1::text::regclass)::text || '/' || pg_current_snapshot()::text"


@dataclass(frozen=True, slots=True)
class PostgresSource(ServerTable):
    """A table of a PostgreSQL server."""

    server, connections = "PostgreSQL", CONNECTIONS

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> PostgresSource:
        """The same table in ranges of part of its key."""
        return postgres_source(self.url, self.table_name, key, self.page_bytes, self.marker)

    def marker_of(self, connection: Connection) -> str:
        """The version that this connection's transaction sees."""
        if self.marker is None:
            (found,) = scalars(connection, f"SELECT {_DEFAULT_MARKER}", [relation(self.table_name)])
        else:
            found = scalars(connection, self.marker)[0]
        return str(found)

    def reader(self, version: str | None) -> PostgresReader:
        """A connection that sees one version."""
        return PostgresReader(self, version)


class PostgresReader(SnapshotReader):
    """A connection to PostgreSQL that sees one version."""

    connections, errors = CONNECTIONS, staticmethod(as_config_errors)
    _source: PostgresSource
    table: PgTable

    @property
    def finds_keys(self) -> bool:
        """Whether keys of these types can be sent."""
        return can_send(self.table.key)

    def find(self, key: Sequence[pa.Array], most: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order; None if one cannot be sent, or with more than `most`."""
        sent = sent_keys(self.table.key, key)
        if sent is None:
            return None
        found = self.rows(f"{self.table.select} WHERE {key_condition(self.table.key)} LIMIT {most + 1}", sent)
        return None if found.num_rows > most else found

    def begin(self, connection: Connection) -> tuple[str, tuple[PgColumn, ...]]:
        """Begin a transaction that sees one version."""
        with connection.cursor() as cursor:
            cursor.execute(_SNAPSHOT)
        return self._source.marker_of(connection), tuple(columns_of(connection, self._source.table_name))

    def table_on(self, connection: Connection) -> PgTable:
        """The table as a connection sees it."""
        return PgTable(connection, self._source.table_name, self._source.columns, self._source.ranges.key)

    def query(self, connection: Connection, sql: str, values: Sequence[str] | pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a query that selects all columns."""
        return self.table.rows(query(connection, sql, values))


def postgres_source(
    url: str, table: str, key: str | Sequence[str], page: int | str, marker: str | None
) -> PostgresSource:
    """The table, laid out in pages by one pass over its key in one snapshot."""
    page_bytes, url = parse_bytes(page, "page"), check_url(url)

    def laid_out(connection: Connection) -> tuple[tuple[PgColumn, ...], Ranges, str]:
        with connection.cursor() as cursor:
            cursor.execute(_SNAPSHOT)
        columns = tuple(columns_of(connection, table))
        found = PgTable(connection, table, columns, key)
        ranges = lay_out(found, page_bytes)
        return columns, ranges, found.index_advice(ranges)

    connection, (columns, ranges, advice) = CONNECTIONS.using(url, laid_out)
    CONNECTIONS.give_back(url, connection)
    return PostgresSource(url, table, columns, ranges, page_bytes, marker, advice)


_SAMPLE = 1000  # rows whose size stands for all

_MANY_PAGES = 16  # fewer are read as quickly by a scan

_ARROW = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}

_BEFORE_ALL = {
    "date": -2_500_000,
    "timestamp": -220_000_000_000_000_000,
    "timestamptz": -220_000_000_000_000_000,
}
"""Days or microseconds from 1970 that are before 4713 BC, where the server's times begin."""

# Whether a column is ordered by bytes: it has no collation, or one that does so, its own or the database's. An index is
# used only for the very collation it has, so none is named where none is needed.
_BY_BYTES = """CASE WHEN a.attcollation = 0 THEN true
    WHEN c.collname = 'default' THEN (
        SELECT datcollate IN ('C', 'POSIX') AND coalesce(to_jsonb(d) ->> 'datlocprovider', 'c') <> 'i'
        FROM pg_database d WHERE datname = current_database())
    ELSE c.collname IN ('C', 'POSIX', 'ucs_basic') END"""

_KEYS = (*(name for name in _ARROW if name != "time"), "numeric", "uuid")


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A column of a table: its type in PostgreSQL and in Arrow."""

    name: str
    pg_type: str
    arrow: pa.DataType
    by_bytes: bool = True  # whether its collation, if it has one, is already the order of bytes

    @property
    def kind(self) -> str:
        """The name of its type."""
        return self.pg_type

    @property
    def selected(self) -> str:
        """The SQL expression that selects it; types that Arrow does not have are selected as text."""
        as_text = self.pg_type not in _ARROW or self.pg_type == "bpchar"  # which in text has no padding
        return f"{quoted(self.name)}::text" if as_text else quoted(self.name)

    @property
    def ordered(self) -> str:
        """The SQL expression by which it is compared and ordered: text by its bytes, as in Spark and the pages."""
        return quoted(self.name) + ("" if self.by_bytes else ' COLLATE "C"')

    def place(self, number: int) -> str:
        """A value of it that is sent as text."""
        return f"${number}::text::{self.pg_type}"

    def arrow_column(self, column: pa.ChunkedArray) -> pa.Array:
        """The server's values in the column's type; a value that does not fit is a `DataError`."""
        array = column.combine_chunks()
        array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
        self._check_is_finite(array)
        try:
            return array if array.type == self.arrow else array.cast(self.arrow)
        except pa.ArrowException as error:
            raise DataError(
                f"column {self.name!r} has a value that is not of type {self.arrow}: {error}", argument="table"
            ) from error

    def _check_is_finite(self, array: pa.Array) -> None:
        """`DataError` for infinity, which arrives as a time before the first one that the server has."""
        if self.pg_type not in _BEFORE_ALL:
            return
        least = pc.min(array.view(pa.int32() if self.pg_type == "date" else pa.int64())).as_py()
        if least is not None and least < _BEFORE_ALL[self.pg_type]:
            raise DataError(
                f"column {self.name!r} has the time 'infinity' or '-infinity', which only PostgreSQL has; name a view "
                f"that replaces it, as in nullif({self.name}, 'infinity') or least({self.name}, '9999-12-31').",
                argument="table",
            )


def columns_of(connection: Connection, table: str) -> list[PgColumn]:
    """The columns of a table, view or foreign table; a `ConfigError` if there is none of this name."""
    (oid,) = scalars(connection, "SELECT to_regclass($1::text)::oid::bigint", [relation(table)])
    if oid is None:
        raise ConfigError(f"there is no table {table!r}, or the user may not see it; give table or schema.table.")
    found = query(
        connection,
        f"SELECT attname::text, typname::text, atttypmod::int8, {_BY_BYTES} AS by_bytes "  # noqa: S608  (ours)
        "FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_collation c ON c.oid = a.attcollation "
        "WHERE attrelid = ($1::text)::bigint::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [str(oid)],
    ).to_pylist()
    return [
        PgColumn(row["attname"], row["typname"], _arrow_type(row["typname"], row["atttypmod"]), row["by_bytes"])
        for row in found
    ]


def _arrow_type(pg_type: str, modifier: int) -> pa.DataType:
    if pg_type != "numeric":
        return _ARROW.get(pg_type, pa.string())
    if modifier < 4:
        return pa.decimal128(38, 18)  # as Spark reads numbers of no declared size
    precision, scale = (modifier - 4) >> 16, ((modifier - 4) & 0x7FF ^ 1024) - 1024
    if scale < 0 or precision > 76:
        raise PlanError(
            f"numeric({precision}, {scale}) has no Arrow type; make a view that casts it.", argument="table"
        )
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


class PgTable(Table[PgColumn]):
    """A table as one connection sees it."""

    def __init__(
        self, connection: Connection, name: str, columns: Sequence[PgColumn], key: str | Sequence[str]
    ) -> None:
        schema = pa.schema([(column.name, column.arrow) for column in columns])
        super().__init__(
            relation(name), schema, key_columns(columns, key, _KEYS), (column.selected for column in columns)
        )
        self._connection, self._columns = connection, columns

    def first_row(self, sql: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the first row of a query."""
        return scalars(self._connection, sql, values)

    def row_bytes(self) -> float:
        """Bytes of an average row in memory, by a sample; 0 if there is none."""
        sample = query(self._connection, f"{self.select} LIMIT {_SAMPLE}")
        return float(sample.nbytes / max(sample.num_rows, 1))

    def fences(self, low: Bound, rows: int) -> pa.Table:
        """The first keys of pages of `rows` rows, from a key on, as values and as text; a key is never split."""
        values = [PgColumn(f"k{at}", column.pg_type, column.arrow).selected for at, column in enumerate(self.key)]
        shown = ", ".join(f"{value} AS v{at}, k{at}::text AS t{at}" for at, value in enumerate(values))
        found = query(self._connection, *self.fence_query(low, rows, shown, "{}::int8"))
        keys = [column.arrow_column(found.column(f"v{at}")) for at, column in enumerate(self.key)]
        binds = [found.column(f"t{at}").combine_chunks() for at in range(len(self.key))]
        return fence_table(keys, binds, found.column("start").combine_chunks())

    def rows(self, found: pa.Table) -> pa.RecordBatch:
        """The server's rows in our types."""
        arrays = [column.arrow_column(found.column(at)) for at, column in enumerate(self._columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def index_advice(self, ranges: Ranges) -> str:
        """Advice if reading a page would scan the whole table; empty if an index serves it, or the table is small."""
        fences = ranges.table()
        if fences.num_rows < _MANY_PAGES:
            return ""
        bounds = [tuple(fences.column(f"bind_{k}")[at].as_py() for k in range(len(self.key))) for at in (1, 2)]
        where, values = self.in_range(*bounds)
        sql = f"EXPLAIN SELECT * FROM {self.relation} WHERE {where}"  # noqa: S608  (quoted)
        plan = query(self._connection, sql, values).column(0).to_pylist()
        if any("Index" in line for line in plan):
            return ""
        terms = ", ".join(column.ordered for column in self.key)
        return (
            f"every page scans the table, for no index serves its key: CREATE INDEX ON {self.relation} ({terms}); "
            f"ANALYZE"
        )


_AS_THEY_ARE = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "text": pa.string(), "varchar": pa.string()}

# Types whose values all have a text form that the server accepts. A uuid key may get text that is no uuid.
_AS_TEXT = ("bool", "float4", "float8", "numeric", "bpchar", "name", "date", "timestamp", "timestamptz")

_TEXTS = ("text", "varchar", "bpchar", "name")

_TIMES = ("date", "timestamp", "timestamptz")


def can_send(key: Sequence[PgColumn]) -> bool:
    """Whether keys of these columns can be sent."""
    return all(column.pg_type in _AS_THEY_ARE or column.pg_type in _AS_TEXT for column in key)


def key_condition(key: Sequence[PgColumn]) -> str:
    """The condition for one of the keys in the arrays $1, $2, ...; rows are found once, however often a key is sent."""
    arrays = [_array(column, at + 1) for at, column in enumerate(key)]
    if len(key) == 1:
        return f"r.{quoted(key[0].name)} = ANY({arrays[0]})"
    terms = ", ".join(f"r.{quoted(column.name)}" for column in key)
    return f"({terms}) IN (SELECT * FROM unnest({', '.join(arrays)}))"  # noqa: S608  (names are quoted)


def _array(column: PgColumn, number: int) -> str:
    if column.pg_type in _AS_THEY_ARE:
        return f"${number}::{column.pg_type}[]"
    return f"${number}::text[]::{column.pg_type}[]"


def sent_keys(key: Sequence[PgColumn], columns: Sequence[pa.Array]) -> pa.RecordBatch | None:
    """The keys as one row of arrays; None if one is a time that has no text on the server.

    Keys with a zero character, which no text of the server has, are left out.
    """
    keys = pa.table(list(columns), [column.name for column in key])
    for column in key:
        if column.pg_type in _TIMES and not _plain_years(keys[column.name]):
            return None
        if column.pg_type in _TEXTS:
            keys = keys.filter(pc.invert(pc.match_substring(keys[column.name], "\0")))
    arrays = [_listed(keys[column.name].cast(_AS_THEY_ARE.get(column.pg_type, pa.string()))) for column in key]
    return pa.RecordBatch.from_arrays(arrays, names=[f"k{at}" for at in range(len(arrays))])


def _plain_years(column: pa.ChunkedArray) -> bool:
    """Whether all years have four digits, as in the texts that Arrow and the server share."""
    years = pc.min_max(pc.year(column))
    return len(column) == 0 or (years["min"].as_py() >= 1 and years["max"].as_py() <= 9999)


def _listed(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
