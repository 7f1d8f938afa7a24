"""A table of a database as pages: ranges of its key, each read by one query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes
from dovetail.engine.storage.device import Device
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.keys import KeyForm, Normal, key_form, last_not_above
from dovetail.joins.semistream.master.pages import Counted, Order, read_each

DEFAULT_RANGE = "32KB"  # joins ask for single keys, so that ranges need not be short
_UNKNOWN_ROW = 64.0  # bytes of a row where there is none to measure
Bound = tuple[object, ...] | None
"""The key at which a range begins or ends, as the database takes it; None where there is no end."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where the pages of a table begin: found once, when the store is named, and good for every later version.

    Ranges cover all possible keys, so that every key has a page after changes of the table; changes only make pages
    longer or shorter than counted. `fences` is an Arrow stream, a row a page: the first key, the same in the database's
    terms, and the number of the page's first row.
    """

    schema: pa.Schema
    key: tuple[str, ...]
    fences: bytes
    rows: int
    row_bytes: float
    null_keys: int

    @property
    def form(self) -> KeyForm:
        """How keys become normal keys."""
        return key_form(self.schema, self.key)

    def explain(self, page_bytes: int) -> str:
        """The layout in two lines."""
        pages = self.table().num_rows
        return (
            f"  key {list(self.key)}, order key, {pages} key ranges of about {format_bytes(page_bytes)}\n"
            f"  {self.rows} rows when the store was named; {self.null_keys} rows without a key left out"
        )

    def table(self) -> pa.Table:
        """Columns key_0 ..., bind_0 ..., start."""
        with pa.ipc.open_stream(self.fences) as stream:
            return stream.read_all()


def fence_table(keys: Sequence[pa.Array], binds: Sequence[pa.Array], starts: pa.Array) -> pa.Table:
    """The first keys of pages, as Arrow values and as values for the database, and the numbers of first rows."""
    columns = {f"key_{at}": column for at, column in enumerate(keys)}
    columns |= {f"bind_{at}": column for at, column in enumerate(binds)}
    return pa.table({**columns, "start": starts})


def _check_order(schema: pa.Schema, key: tuple[str, ...], fences: pa.Table) -> None:
    normal, _ = key_form(schema, key).normal([fences.column(f"key_{at}") for at in range(len(key))])
    if (normal.steps() <= 0).any():
        raise DataError(f"the database does not order {list(key)} as its values are ordered; use a column that is.")


def _stored(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


class KeyColumn(Protocol):
    """A column of the key in a database's SQL."""

    @property
    def name(self) -> str:
        """The name of the column."""
        ...

    @property
    def ordered(self) -> str:
        """The SQL expression by which it is compared and ordered: text by its bytes."""
        ...

    def place(self, number: int) -> str:
        """The placeholder of the statement's value of that number, from 1 on."""
        ...


C = TypeVar("C", bound=KeyColumn)


class Table(ABC, Generic[C]):
    """A table, or view, as one connection sees it: its columns in Arrow's types, those of the key, and its queries."""

    whole_division = "/"

    def __init__(self, relation: str, schema: pa.Schema, key: Sequence[C], selected: Iterable[str]) -> None:
        self.relation, self.schema, self.key = relation, schema, key
        self.select = f"SELECT {', '.join(selected)} FROM {relation} r"  # noqa: S608  (names are quoted)

    @abstractmethod
    def row_bytes(self) -> float:
        """Bytes of an average row in memory, by a sample; 0 if there is none."""

    @abstractmethod
    def first_row(self, sql: str, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the first row of a query."""

    @abstractmethod
    def fences(self, low: Bound, rows: int) -> pa.Table:
        """The first keys of pages of `rows` rows, from a key on; a key is never split."""

    def in_range(self, low: Bound, high: Bound) -> tuple[str, list[Any]]:
        """The condition for keys of a range, nulls left out, and its values."""
        conditions = [f"{quoted(column.name)} IS NOT NULL" for column in self.key]
        terms, values = ", ".join(column.ordered for column in self.key), list[Any]()
        for sign, bound in ((">=", low), ("<", high)):
            if bound is not None:
                places = ", ".join(column.place(len(values) + at + 1) for at, column in enumerate(self.key))
                conditions.append(f"({terms}) {sign} ({places})")
                values += bound
        return " AND ".join(conditions), values

    def range_query(self, low: Bound, high: Bound) -> tuple[str, list[Any]]:
        """The query for rows with a key from `low` on and below `high`, in the order of the key, and its values."""
        where, values = self.in_range(low, high)
        # Without the name of the rows, ORDER BY would mean the column as selected, which may be text.
        order = ", ".join(f"r.{column.ordered}" for column in self.key)
        return f"{self.select} WHERE {where} ORDER BY {order}", values

    def null_query(self) -> str:
        """The query for rows with a null in the key."""
        return f"{self.select} WHERE {' OR '.join(f'{quoted(column.name)} IS NULL' for column in self.key)}"

    def fence_query(self, low: Bound, rows: int, shown: str, start: str) -> tuple[str, list[Any]]:
        """The query for the first keys of pages of `rows` rows, and its values: `shown` of keys k0 ..., and `start`.

        The first row of a page is counted as the sum of rows before it, whose type is given by the text `start`.
        """
        terms = ", ".join(f"{column.ordered} AS k{at}" for at, column in enumerate(self.key))
        names = ", ".join(f"k{at}" for at in range(len(self.key)))
        where, values = self.in_range(low, None)
        before, page = start.format(f"(SUM(n) OVER (ORDER BY {names}) - n)"), f"start {self.whole_division} {rows}"
        sql = f"""
            WITH keyed AS (SELECT {terms} FROM {self.relation} WHERE {where}),
            grouped AS (SELECT {names}, COUNT(*) AS n FROM keyed GROUP BY {names}),
            placed AS (SELECT {names}, {before} AS start FROM grouped),
            paged AS (SELECT placed.*, LAG({page}) OVER (ORDER BY {names}) AS previous FROM placed)
            SELECT {shown}, start FROM paged WHERE previous IS NULL OR {page} <> previous ORDER BY {names}
        """  # noqa: S608  (names are quoted, rows is an int)
        return sql, values

    def count_from(self, low: Bound, limit: int) -> int:
        """How many rows have a key from `low` on; no more than `limit` are counted."""
        where, values = self.in_range(low, None)
        sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM {self.relation} WHERE {where} LIMIT {limit}) r"  # noqa: S608
        return int(self.first_row(sql, values)[0])


def lay_out(table: Table[C], page_bytes: int) -> Ranges:
    """The first keys of pages, and the row counts of the table, by passes over the key inside the database."""
    row_bytes, whole = table.row_bytes(), table.in_range(None, None)[0]
    counts = f"SELECT COUNT(*), COUNT(CASE WHEN {whole} THEN 1 END) FROM {table.relation}"  # noqa: S608  (quoted)
    total, keyed = table.first_row(counts, ())
    fences, key = table.fences(None, page_rows(page_bytes, row_bytes)), tuple(column.name for column in table.key)
    _check_order(table.schema, key, fences)
    if fences.num_rows == 0:  # an empty table: one page for all later rows
        columns = [pa.nulls(1, field.type) for field in fences.schema][:-1]
        fences = pa.Table.from_arrays([*columns, pa.array([0], pa.int64())], fences.column_names)
    return Ranges(table.schema, key, _stored(fences), keyed, row_bytes or _UNKNOWN_ROW, total - keyed)


def extended(ranges: Ranges, page_bytes: int, table: Table[C]) -> Ranges:
    """The ranges, with more of them at the end if the last page has grown beyond two: keys often only ascend."""
    found = ranges.table()
    last, parts = found.num_rows - 1, len(ranges.key)
    low = None if last == 0 else tuple(found.column(f"bind_{at}")[last].as_py() for at in range(parts))
    start, per_page = found.column("start")[last].as_py(), page_rows(page_bytes, ranges.row_bytes)
    usual = 2 * max(per_page, ranges.rows - start)
    if table.count_from(low, usual + 1) <= usual:
        return ranges
    tail = table.fences(low, per_page)
    _check_order(ranges.schema, ranges.key, tail)
    tail = tail.set_column(tail.num_columns - 1, "start", pa.array(tail.column("start").to_numpy() + start))
    # The first of the tail is the page that has grown; it begins where it began.
    head = found if low is not None else tail.slice(0, 1)
    whole = pa.concat_tables([head, tail.slice(1).cast(head.schema)])
    return replace(ranges, fences=_stored(whole), rows=start + table.count_from(low, 2**62))


class Reader(Protocol):
    """A connection that reads one version of the table."""

    @property
    def table(self) -> Table[Any]:
        """The table as the connection sees it."""
        ...

    def rows(self, sql: str, values: Sequence[Any] = ()) -> pa.RecordBatch:
        """The rows of a query that selects all columns."""
        ...

    @property
    def finds_keys(self) -> bool:
        """Whether `find` takes keys of this table's types."""
        ...

    def find(self, key: Sequence[pa.Array], most: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, in any order; None if one cannot be sent, or with more than `most`."""
        ...

    def rest(self) -> None:
        """Release locks and snapshots until the next read."""
        ...

    def wake(self) -> bool:
        """Take the snapshot again; whether the version is still there."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class RangePages:
    """One version of a table: what the reader's connection sees. Pages are ranges of the key.

    `starts` and `stored_bytes` are as counted when the store was named; a table that has changed since has other
    numbers of rows in its pages, and still every row in the page that is its home.
    """

    def __init__(self, ranges: Ranges, version: str, reader: Reader, device: Device | None) -> None:
        self.schema, self.key, self.version = ranges.schema, ranges.key, version
        self.order: Order = "key"
        self.counted: Counted = "before"
        self.indexed = True
        self.device = device or Device("real")
        table = ranges.table()
        parts = len(ranges.key)
        self._form, self._reader = ranges.form, reader
        # The first page begins below every key, so its own fence is never compared.
        keys = [table.column(f"key_{at}").slice(1).combine_chunks() for at in range(parts)]
        self._inner: Normal = self._form.normal(keys)[0]
        binds = [table.column(f"bind_{at}").to_pylist()[1:] for at in range(parts)]
        self._bounds: list[Bound] = [None, *zip(*binds, strict=True), None]
        self.starts: I64 = np.append(table.column("start").to_numpy(), ranges.rows).astype(np.int64)
        self._row_bytes = ranges.row_bytes
        self.null_rows = ranges.null_keys

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page in whose range a key lies; -1 for nulls only."""
        keys, valid = self._form.normal(key)
        return np.where(valid, last_not_above(keys, self._inner) + 1, -1)

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moved when the store was named, by an average row."""
        return round(int(self.starts[first + count] - self.starts[first]) * self._row_bytes)

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on, by one query."""
        if first < 0 or count < 1 or first + count >= len(self._bounds):
            raise IndexError(f"there are {len(self._bounds) - 1} pages, from 0; {count} from {first} on are not there.")
        rows = self._rows(*self._reader.table.range_query(self._bounds[first], self._bounds[first + count]))
        self._check(rows, first, count)
        return rows

    @property
    def null_bytes(self) -> int:
        """Bytes that reading the rows with a null in the key moved when the store was named, by an average row."""
        return round(self.null_rows * self._row_bytes)

    def read_nulls(self) -> pa.RecordBatch:
        """The rows with a null in the key, by one query."""
        return self._rows(self._reader.table.null_query())

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> pa.RecordBatch:
        return self.device.call(lambda: self._reader.rows(sql, values), nbytes=lambda batch: int(batch.nbytes))

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moved when the store was named, by an average row."""
        rows = self.starts[first + count] - self.starts[first]
        moved: I64 = np.round(rows * self._row_bytes).astype(np.int64)
        return moved

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins, by a read for each."""
        return read_each(self, first, count)

    @property
    def finds_keys(self) -> bool:
        """Whether single keys can be looked up."""
        return self._reader.finds_keys

    reads_homes = False
    held_bytes = 0

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, by one query; None if one cannot be sent, or if they are too many."""
        most = 2 * max(len(key[0]), int(room / max(self._row_bytes, 1.0)))  # a key that the master has once: always
        return self.device.call(
            lambda: self._reader.find(key, most), nbytes=lambda batch: 0 if batch is None else int(batch.nbytes)
        )

    def rest(self) -> None:
        """Release locks and snapshots at the server until the next read, which fails if the version is gone by then."""
        self._reader.rest()

    def wake(self) -> bool:
        """Take the snapshot again, for the reads to come; whether the version is still there."""
        return self._reader.wake()

    def close(self) -> None:
        """End the connection; twice is fine."""
        self._reader.close()

    def _check(self, rows: pa.RecordBatch, first: int, count: int) -> None:
        """Rows must be in the range by our order too, or keys would be looked up in the wrong page."""
        if rows.num_rows == 0:
            return
        keys, valid = self._form.normal([rows.column(name) for name in self.key])
        ends = keys.take(np.array([0, len(keys) - 1]))
        homes = last_not_above(ends, self._inner) + 1
        if not valid.all() or (keys.steps() < 0).any() or homes[0] < first or homes[1] >= first + count:
            raise DataError(
                f"the database does not order {list(self.key)} as its values are ordered (rows of pages {first} to "
                f"{first + count - 1}); key values of one type, or a column with plain byte order, are needed."
            )


def page_rows(page_bytes: int, row_bytes: float) -> int:
    """How many rows of this size make a page."""
    return max(1, int(page_bytes / max(row_bytes, 1.0)))


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever characters it has."""
    if "\0" in name or not name:
        raise PlanError(f"{name!r} is not a name of a table or column.", argument="table")
    return '"' + name.replace('"', '""') + '"'
