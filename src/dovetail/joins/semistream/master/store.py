"""Describes master data by name: a value that a query ships to its workers and opens there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dovetail.engine.columns import valid_rows
from dovetail.engine.device import Device
from dovetail.engine.files import access_of
from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.cells import CELL
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.pages import KeyedPages, Order, Pages, Resting, ranges_of
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.postgres.source import postgres_source
from dovetail.joins.semistream.master.ranges import DEFAULT_RANGE
from dovetail.joins.semistream.master.sqlite import sqlite_source
from dovetail.joins.semistream.within import Closed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.joins.semistream.plan.changes import Operation


@runtime_checkable
class NullRows(Pages, Protocol):
    """Pages of a store that can also give the rows which are in none of them: those with a null in the key."""

    @property
    def null_rows(self) -> int:
        """How many there are, or were when they were counted."""
        ...

    @property
    def null_bytes(self) -> int:
        """Bytes that reading them moves."""
        ...

    def read_nulls(self) -> pa.RecordBatch:
        """All of them."""
        ...


class WithNulls:
    """Pages with one more at the end, which holds all rows of keys that have a null.

    It is read as a whole, and so must fit in memory.
    """

    def __init__(self, inner: NullRows) -> None:
        self._inner = inner
        self.schema, self.key, self.version = inner.schema, inner.key, inner.version
        self.order: Order = inner.order
        self.indexed, self.device = inner.indexed, inner.device
        self._n = len(inner.starts) - 1
        self.starts: I64 = np.append(inner.starts, int(inner.starts[-1]) + inner.null_rows).astype(np.int64)

    device: Device

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each row's key; that of keys with a null is the last one."""
        return np.where(has_null(key), self._n, self._inner.home(key))

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        inside = min(count, self._n - first)
        moved = self._inner.stored_bytes(first, inside) if inside else 0
        return moved + (self._inner.null_bytes if first + count > self._n else 0)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs moves."""
        last = self._has_last(first, count)
        inside = self._inner.stored_many(np.minimum(first, self._n), count - last)
        moved: I64 = inside + last * self._inner.null_bytes
        return moved

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on."""
        if first + count <= self._n:
            return self._inner.read(first, count)
        found = self._inner.read_nulls()
        return found if count == 1 else pa.concat_batches([self._inner.read(first, count - 1), found])

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins."""
        last = self._has_last(first, count)
        rows, offsets = self._inner.read_many(int64s(np.minimum(first, self._n)), int64s(count - last))
        if not last.any():
            return rows, offsets
        found = self._inner.read_nulls()
        offsets = offsets + np.append(0, np.cumsum(last)) * found.num_rows
        return pa.concat_batches([rows, found]), offsets

    def _has_last(self, first: I64, count: I64) -> Bool:
        """For each run whether the last page is in it; runs ascend, so that only empty ones can follow."""
        return (count > 0) & (first + count > self._n)

    @property
    def finds_keys(self) -> bool:
        """Whether single keys can be looked up."""
        return isinstance(self._inner, KeyedPages) and self._inner.finds_keys

    @property
    def reads_homes(self) -> bool:
        """Whether home pages are read to find keys."""
        return isinstance(self._inner, KeyedPages) and self._inner.reads_homes

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys; if one has a null, all rows that have one too."""
        if not isinstance(self._inner, KeyedPages):
            return None
        nulls = has_null(key)
        if not nulls.any():
            return self._inner.read_keys(key, room)
        found = [self._inner.read_nulls()]
        if not nulls.all():
            some = self._inner.read_keys([column.filter(pa.array(~nulls)) for column in key], room)
            if some is None:
                return None
            found.append(some)
        return pa.concat_batches(found)

    def rest(self) -> None:
        """Release locks and snapshots at a server until the next read."""
        if isinstance(self._inner, Resting):
            self._inner.rest()

    def wake(self) -> bool:
        """Take the snapshot again, for the reads to come; whether the version is still there."""
        return not isinstance(self._inner, Resting) or self._inner.wake()

    def close(self) -> None:
        """Close files and connections; twice is fine."""
        self._inner.close()


def has_null(key: Sequence[pa.Array]) -> Bool:
    """Row by row whether a part of the key is null."""
    found: Bool = ~np.logical_and.reduce([valid_rows(column) for column in key])
    return found


def with_nulls(pages: Pages, store: object) -> Pages:
    """The pages with the rows of keys that have a null; an `UnsupportedError` if the store cannot give them."""
    if not isinstance(pages, NullRows):
        raise UnsupportedError(
            f"{store} cannot give rows with a null in the key; build a page file with keep_nulls.", argument="null_safe"
        )
    if not pages.null_rows and not isinstance(pages, Resting):  # a table may get some while it is open
        return pages
    return WithNulls(pages)


class Source(Protocol):
    """One kind of store: a small frozen value that can be pickled and opened anywhere."""

    def version(self) -> str:
        """The newest version now."""
        ...

    def open(self, version: str | None, device: Device | None) -> Pages:
        """A version, by default the newest."""
        ...

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> Source:
        """The same rows, of this schema, looked up by columns that are part of the key."""
        ...

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of `new` that differ from those of `old`; None if that is not known."""
        ...

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove old versions that the store keeps itself."""
        ...

    def explain(self) -> str:
        """The store in some lines."""
        ...


@dataclass(frozen=True, slots=True)
class MasterStore:
    """Master data that a stream is joined with: where it is, its columns, its key.

    A value: it holds no file and no connection, can be pickled, and is opened where it is read. Make one with `open`,
    `build`, `parquet`, `sqlite` or `postgres`. Data that cannot be reached, is damaged, or has other columns than when
    the store was named is a `ConfigError`, never a missing row; the next attempt opens the store again.

    >>> products = spark.createDataFrame([(7, "lamp"), (8, "mat")], "product int, name string")
    >>> dovetail.MasterStore.build(products, f"{place}/products.pages", key="product", unique=True).key
    ('product',)
    """

    source: Source
    schema: pa.Schema
    key: tuple[str, ...]
    order: Order
    nulls: bool = False
    bounds: tuple[str, str] | None = None

    @property
    def probed(self) -> tuple[str, ...]:
        """The columns that the stream's key columns are compared with: the key, and the first value of ranges."""
        return self.key if self.bounds is None else (*self.key, self.bounds[0])

    @property
    def columns(self) -> list[str]:
        """The names of the columns that the rows were stored with."""
        return [name for name in self.schema.names if name != CELL]

    @staticmethod
    def open(path: str | Path) -> MasterStore:
        """The page file at this path: local, or at an address that Spark knows (hdfs://, s3a://).

        Credentials are those of the running session.
        """
        from dovetail.joins.semistream.plan.build import page_place

        place = page_place(path)
        return _named(PageFileSource(str(place), access=access_of(place)))

    @staticmethod
    def build(
        df: DataFrame,
        path: str | Path,
        key: str | Sequence[str] = (),
        *,
        bounds: tuple[str, str] | None = None,
        order: Order = "key",
        page: int | str | None = None,
        frequency: str | None = None,
        unique: bool = False,
        keep_nulls: bool = False,
        closed: Closed | None = None,
    ) -> MasterStore:
        """The page file that Spark writes from the rows of `df`, as a new generation if the path has one already.

        Rows are stored by key, by column `frequency` in descending order, or in no order ("none"); rows of one key
        are together.
        Rows with a null in the key are left out, or with `keep_nulls=True` kept apart for joins with `null_safe=True`,
        which read all of them as one page. `unique=True` refuses keys that occur twice, with the keys. `page` is the
        size of what one look-up reads: 4 KB on disks and 16 KB in object stores, unless you say otherwise. Driver and
        executors must see the path as one place: a directory that all hosts mount, or an address that Spark knows
        (hdfs://, s3a://), with the credentials of the session.

        With `bounds`, the columns of a first and a last value, rows are ranges that are found by a value in them,
        beside equal keys if `key` names some: IP ranges, tariff bands, the time for which a price is valid. A null
        bound is none. Ranges may overlap, and are then stored several times, unless `unique=True` refuses them. Then
        ranges of dates and timestamps may touch, and others if `closed` says that not both bounds belong to a range.
        There is no other `order`.
        """
        from dovetail.joins.semistream.plan.build import build_pages
        from dovetail.joins.semistream.plan.build_ranges import build_ranges

        if bounds is not None:
            build_ranges(df, path, key, bounds, order, page, unique, keep_nulls, closed)
            return MasterStore.open(path)
        if closed is not None:
            raise PlanError(f"closed={closed!r} is for ranges; give bounds=, or leave it out.", argument="closed")
        build_pages(df, path, key, order, page, frequency, unique, keep_nulls)
        return MasterStore.open(path)

    @staticmethod
    def parquet(path: str | Path, key: str | Sequence[str]) -> MasterStore:
        """A Parquet file or directory, local or at a URI that Arrow knows (s3://, gs://, hdfs://), hive partitions too.

        Pages are row groups; write them small, sorted by key. Their statistics of the first key column are the index,
        if their ranges do not overlap; row groups that share a key become one page. Otherwise only joins that read
        everything in turn work, and `explain` says why. Old versions cannot be read again.
        """
        place = str(path) if "://" in str(path) else str(Path(path).absolute())
        return _named(ParquetSource(place, (key,) if isinstance(key, str) else tuple(key)))

    @staticmethod
    def sqlite(
        path: str | Path,
        table: str,
        key: str | Sequence[str],
        *,
        page: int | str = DEFAULT_RANGE,
        schema: pa.Schema | None = None,
    ) -> MasterStore:
        """A table, or view, of an SQLite file, in ranges of its key that hold about `page` bytes each.

        Have an index on the key: joins ask for many keys in one statement, and for ranges where all rows are wanted or
        keys are neither whole numbers nor text. Types are those that the columns were declared with; `schema` names
        columns and other types. A file in WAL mode can be read while it is written. Old versions cannot be read again.
        """
        return _named(sqlite_source(path, table, key, page, schema))

    @staticmethod
    def postgres(
        uri: str,
        table: str,
        key: str | Sequence[str],
        *,
        page: int | str = DEFAULT_RANGE,
        marker: str | None = None,
    ) -> MasterStore:
        """A table, or view, of a PostgreSQL server, in ranges of its key that hold about `page` bytes each.

        Have an index on the key: joins ask for many keys in one query, and for ranges where all rows are wanted or keys
        are uuids or bytes. On a text key have one with COLLATE "C", for pages are ordered by bytes. The version moves
        with every transaction that writes anywhere in the server, unless `marker` is a query of your own whose single
        value changes when the table does. Each opened version is one snapshot. Old versions cannot be read again.
        """
        return _named(postgres_source(uri, table, key, page, marker))

    def apply_changes(
        self,
        changes: DataFrame,
        *,
        sequence: str | Sequence[str],
        checkpoint: str | Path,
        operation: str | None = None,
        operations: Mapping[str, Operation] | None = None,
        history: tuple[str, str] | None = None,
        keep: int = 10,
        takeover: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """The started query that applies a stream of changes to this page file, a version for each micro-batch.

        Every change brings a whole row, or of a deletion its key. Insertions and updates are alike: the row of the key
        is there afterwards. Each micro-batch is applied once, also if it runs again. Only pages that changes touch are
        written. Streams that are enriched from the store adopt new versions as their `freshness` says.

        Args:
            changes: A streaming DataFrame with the store's columns, and those below.
            sequence: The columns by which changes of a key are ordered: a log position, a version, a time. Within a
                micro-batch the last one counts, whatever the order of rows; changes of a key must not go back from one
                micro-batch to the next. If the store has these columns, a change that is older than the stored row is
                left out.
            checkpoint: The query's checkpoint location.
            operation: The column that says what a change does; "op" or "_change_type" unless given.
            operations: What further values of it mean: "upsert", "delete" or "ignore". Known are those of Debezium (c,
                r, u, d), Delta Lake (insert, update_postimage, delete; update_preimage is ignored), Flink (+I, +U, -D;
                -U is ignored), and insert, update, delete.
            history: Columns of the store for the first time and the end of validity. A change then ends the row of its
                key that is valid at the first `sequence` column, and begins another; a deletion only ends it. Such a
                store answers `enrich(..., at=...)` by the row that was valid at the time of a stream row.
            keep: How many versions stay. Those that a stream may replay stay, too, if its version log is in the store.
            takeover: The id of a query that applied changes to this store before, to go on in its place.
            trigger: Arguments of `DataStreamWriter.trigger`: {"processingTime": "10 seconds"}, {"availableNow": True}.
            name: The name of the query.

        Returns:
            The running query. It fails with a `DataError` for a change without key or place in the order, an unknown
            operation, or two different changes at one place of the order.

        Raises:
            PlanError: if store and changes do not suit each other, before the query starts.
            UnsupportedError: for a store that is not a page file in key order.

        >>> accounts = spark.createDataFrame([(1, "Ada"), (2, "Ben")], "id int, name string")
        >>> store = dovetail.MasterStore.build(accounts, f"{place}/accounts.pages", key="id", unique=True)
        >>> columns = "id int, name string, op string, lsn int"
        >>> feed = spark.createDataFrame([(2, "Bea", "u", 11), (1, None, "d", 12)], columns)
        >>> feed.write.parquet(f"{place}/feed")
        >>> stream = spark.readStream.schema(feed.schema).parquet(f"{place}/feed")
        >>> query = store.apply_changes(
        ...     stream, sequence="lsn", checkpoint=f"{place}/applied", trigger={"availableNow": True}
        ... )
        >>> query.awaitTermination()
        >>> dovetail.enrich(accounts.select("id"), store, on="id", how="left", memory="4MB").orderBy("id").collect()
        [Row(id=1, name=None), Row(id=2, name='Bea')]
        """
        from dovetail.joins.semistream.plan.changes import Changes, start_changes

        found = Changes.of(self, changes, sequence, operation, operations, history)
        return start_changes(found, changes, checkpoint, keep, takeover, trigger, name)

    def merge_changes(
        self,
        changes: DataFrame,
        *,
        sequence: str | Sequence[str],
        operation: str | None = None,
        operations: Mapping[str, Operation] | None = None,
        history: tuple[str, str] | None = None,
    ) -> str:
        """The version of this page file after the changes of a batch DataFrame, with options as in `apply_changes`.

        The version that was current, if no row is another.
        """
        from dovetail.joins.semistream.plan.changes import Changes

        if changes.isStreaming:
            raise PlanError("the changes are a stream; apply them with apply_changes.", argument="changes")
        made = Changes.of(self, changes, sequence, operation, operations, history).merge(changes)
        return self.version() if made is None else made.version

    def version(self) -> str:
        """The newest version now; what `at` takes to read exactly this one again."""
        return self.source.version()

    def at(self, version: str | None = None, device: Device | None = None) -> Pages:
        """The pages of a version, by default the newest; close them after use."""
        pages = self.source.open(version, device)
        if self.nulls:
            pages = _or_closed(pages, self.source)
        key, bounds = _found_by(pages)
        if pages.schema.equals(self.schema) and key == self.key and bounds == self.bounds:
            return pages
        found = f"columns [{_columns(pages.schema)}], {_looked_up(key, bounds)}"
        pages.close()
        raise ConfigError(
            f"{self.source} now has {found}; this query was planned for [{_columns(self.schema)}], "
            f"{_looked_up(self.key, self.bounds)}. Restore the columns, or name the store and plan the query again."
        )

    def with_nulls(self) -> MasterStore:
        """The same store with its rows that have a null in the key, as one more page at the end.

        A page file must have been built with `keep_nulls=True`, or have had no such rows.
        """
        return replace(self, nulls=True)

    def by(self, key: Sequence[str]) -> MasterStore:
        """The same store looked up by some columns of its key; each value of them may have many rows.

        Parquet files and databases are laid out by these columns. A page file is read as a whole by every task, as it
        is laid out by its own key; build another one for these columns where that costs too much.
        """
        return replace(_named(self.source.by(tuple(key), self.schema)), nulls=self.nulls)

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of version `new` that differ from the page of that number in `old`; None if that is not known.

        A page that is not among them holds the same rows, and is home to the same keys, in both versions.
        """
        return None if self.nulls else self.source.changed(old, new)

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove old versions, except the newest `keep`, and return the removed ones. Open readers can continue.

        Versions that rows wait for in a stream with `as_of="admitted"` stay too, and so does the last one of such a
        stream that never runs again, until `also_held=True` removes what is held as well.
        """
        return self.source.prune(keep, also_held)

    def explain(self) -> str:
        """The store in some lines: what it is, key, order, index, size."""
        return self.source.explain()


def _or_closed(pages: Pages, source: Source) -> Pages:
    try:
        return with_nulls(pages, source)
    except BaseException:
        pages.close()
        raise


def _named(source: Source) -> MasterStore:
    pages = source.open(None, None)
    try:
        key, bounds = _found_by(pages)
        return MasterStore(source, pages.schema, key, pages.order, bounds=bounds)
    finally:
        pages.close()


def _found_by(pages: Pages) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """The key, and the bounds of ranges if these are found by them."""
    ranges = ranges_of(pages)
    return (pages.key, None) if ranges is None else (ranges.form.ranged.key, ranges.form.ranged.bounds)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema if field.name != CELL)


def _looked_up(key: tuple[str, ...], bounds: tuple[str, str] | None) -> str:
    return f"key {list(key)}" + ("" if bounds is None else f", bounds {list(bounds)}")
