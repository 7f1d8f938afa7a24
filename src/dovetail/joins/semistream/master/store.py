"""Describes master data by name: a value that a query ships to its workers and opens there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.storage.device import Device
from dovetail.engine.storage.files import access_of
from dovetail.engine.storage.remote import Access
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.cells import CELL
from dovetail.joins.semistream.master.lake.delta import delta_source
from dovetail.joins.semistream.master.lake.iceberg import iceberg_source
from dovetail.joins.semistream.master.mysql import mysql_source
from dovetail.joins.semistream.master.null_page import with_nulls
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.pages import Order, PageOrder, Pages, Source, columns_text, found_by, key_text
from dovetail.joins.semistream.master.parquet import ParquetSource
from dovetail.joins.semistream.master.postgres.source import postgres_source
from dovetail.joins.semistream.master.ranges import DEFAULT_RANGE
from dovetail.joins.semistream.master.redis import redis_source
from dovetail.joins.semistream.master.sqlite import sqlite_source
from dovetail.request import Closed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from dovetail.joins.semistream.plan.changes import Operation


@dataclass(frozen=True, slots=True)
class MasterStore:
    """Master data that a stream is joined with: where it is, its columns, its key.

    A value: it holds no file and no connection, can be pickled, and is opened where it is read. Make one with `open`,
    `build`, `table`, `parquet`, `delta`, `iceberg`, `sqlite`, `postgres`, `mysql` or `redis`. Data that cannot be
    reached, is damaged, or has other columns than when the store was named is a `ConfigError`, never a missing row;
    the next attempt opens the store again.

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

        >>> dovetail.MasterStore.open(f"{place}/names.pages").columns
        ['id', 'name']
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
        order: PageOrder = "key",
        page: int | str | None = None,
        frequency: str | None = None,
        unique: bool = False,
        keep_nulls: bool = False,
        closed: Closed | None = None,
    ) -> MasterStore:
        """The page file that Spark writes from the rows of `df`, as a new generation if the path has one already.

        Rows are stored by key, by column `frequency` in descending order, by a hash of the key ("hash": the index is 16
        bytes a page, however wide keys are), or in no order ("none"); rows of one key are together.
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

        >>> bands = spark.createDataFrame([(0, 9, "child"), (10, 99, "adult")], "low int, high int, band string")
        >>> dovetail.MasterStore.build(bands, f"{place}/bands.pages", bounds=("low", "high")).bounds
        ('low', 'high')
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

    def relayout(self, log: DataFrame, *, page: int | str | None = None) -> MasterStore:
        """This page file as a new generation, laid out by access: rows of the keys first that `log` names most often.

        `log` has the key columns and a row for each access: past rows of the stream, or a sample. Running streams go on
        and adopt the new version as their `freshness` says. For `algorithm="x_hybridjoin"` and `"optimised_..."`.

        >>> store.relayout(spark.createDataFrame([(2,), (2,), (1,)], "id int")).order
        'frequency'
        """
        from dovetail.joins.semistream.plan.relayout import relaid

        relaid(self, log, page)
        return MasterStore.open(self.source.path)  # type: ignore[attr-defined]  # of a page file, as was checked

    @staticmethod
    def table(name: str, key: str | Sequence[str], *, spark: SparkSession | None = None) -> MasterStore:
        """A Spark table by its name, where the catalog says that it is a Delta, Iceberg or Parquet table.

        It is then read in place, as `delta`, `iceberg` or `parquet` do, not through Spark. `spark` is the session whose
        catalog is asked, by default the active one.

        >>> rows = spark.createDataFrame([(1, "red"), (2, "blue")], "id int, name string")
        >>> rows.write.saveAsTable("colours", format="parquet", path=f"{place}/colours.parquet")
        >>> dovetail.MasterStore.table("colours", key="id").columns
        ['id', 'name']
        >>> _ = spark.sql("DROP TABLE colours")
        """
        from dovetail.joins.semistream.plan.tables import table_store

        return table_store(name, key, spark)

    @staticmethod
    def parquet(path: str | Path, key: str | Sequence[str]) -> MasterStore:
        """A Parquet file or directory, hive partitions too, local, at s3a:// or hdfs://, or a URI that Arrow knows.

        Pages are row groups; write them small, sorted by key. Their statistics of the first key column are the index,
        if their ranges overlap little; row groups that share a key become one page. Otherwise only joins that read
        everything in turn work, and `explain` says why. Credentials of s3a:// are those of the running session. Old
        versions cannot be read again.

        >>> spark.createDataFrame([(1, "red"), (2, "blue")], "id int, name string").write.parquet(f"{place}/c.parquet")
        >>> dovetail.MasterStore.parquet(f"{place}/c.parquet", key="id").columns
        ['id', 'name']
        """
        place, access = _address(path)
        return _named(ParquetSource(place, (key,) if isinstance(key, str) else tuple(key), access))

    @staticmethod
    def delta(path: str | Path, key: str | Sequence[str]) -> MasterStore:
        """A Delta Lake table, local or at an address that Spark knows (s3a://, hdfs://); needs `dovetail[delta]`.

        Pages are row groups, found by statistics as in `parquet`; overlapping ones are read together. A version is
        a version of the table, so that replays are exact until VACUUM removes its files. Deletion vectors, column
        mapping, partitions and widened types are read; a column that was added since a file was written is null in it.

        >>> import deltalake, pyarrow
        >>> deltalake.write_deltalake(f"{place}/colours", pyarrow.table({"id": [1, 2], "name": ["red", "blue"]}))
        >>> dovetail.MasterStore.delta(f"{place}/colours", key="id").columns
        ['id', 'name']
        """
        place, access = _address(path)
        return _named(delta_source(place, key, access))

    @staticmethod
    def iceberg(catalog: object, table: str | Path, key: str | Sequence[str]) -> MasterStore:
        """An Iceberg table of a catalog, or at a place; needs `dovetail[iceberg]`.

        `catalog` is the name of a catalog that pyiceberg is configured for on all hosts, its properties, `name` among
        them, or a pyiceberg catalog; None if `table` is the directory or a metadata file of a table. Pages are row
        groups, found by statistics as in `parquet`; overlapping ones are read together. A version is a snapshot, so
        that replays are exact until it expires. Position deletes, deletion vectors, partitions and changed schemas are
        read; equality deletes are refused.

        >>> import pyarrow
        >>> from pyiceberg.catalog import load_catalog
        >>> lake = load_catalog("lake", type="sql", uri=f"sqlite:///{place}/lake.db", warehouse=f"file://{place}/lake")
        >>> lake.create_namespace("shop")
        >>> colours = pyarrow.table({"id": [1, 2], "name": ["red", "blue"]})
        >>> lake.create_table("shop.colours", colours.schema).append(colours)
        >>> dovetail.MasterStore.iceberg(lake, "shop.colours", key="id").columns
        ['id', 'name']
        """
        from dovetail.joins.semistream.plan.build import warehouse_access

        place, access = _address(table) if catalog is None else (str(table), warehouse_access(catalog))
        return _named(iceberg_source(catalog, place, key, access))

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

        >>> import sqlite3
        >>> with sqlite3.connect(f"{place}/shop.db") as shop:
        ...     _ = shop.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT)")
        >>> dovetail.MasterStore.sqlite(f"{place}/shop.db", "products", key="id").columns
        ['id', 'name']
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

        >>> dovetail.MasterStore.postgres("postgresql://shop@localhost:1/shop", "products", key="id")
        Traceback (most recent call last):
        dovetail.errors.ConfigError: ...
        """
        return _named(postgres_source(uri, table, key, page, marker))

    @staticmethod
    def mysql(
        uri: str,
        table: str,
        key: str | Sequence[str],
        *,
        page: int | str = DEFAULT_RANGE,
        marker: str | None = None,
    ) -> MasterStore:
        """An InnoDB table, or view, of a MySQL or MariaDB server; needs `dovetail[mysql]`, otherwise as `postgres`.

        Have an index on the key: joins ask for many keys in one statement. Text keys are compared by their bytes,
        whatever the column's collation. The version moves with every transaction that writes anywhere in the server,
        and with its housekeeping, unless `marker` is a query of your own whose single value changes when the table
        does: give one if a commit may take more than 5 ms from the server's log until others see it. Each opened
        version is one consistent snapshot. Old versions cannot be read again.

        >>> dovetail.MasterStore.mysql("mysql://shop@127.0.0.1:1/shop", "products", key="id", page="64KB")
        Traceback (most recent call last):
        dovetail.errors.ConfigError: ...
        """
        return _named(mysql_source(uri, table, key, page, marker))

    @staticmethod
    def redis(
        uri: str,
        prefix: str,
        key: str | Sequence[str],
        *,
        schema: pa.Schema,
        separator: str = ":",
        page: int | str = DEFAULT_RANGE,
        marker: str | None = None,
    ) -> MasterStore:
        """Hashes of a Redis server, a row each, whose names are `prefix` and the key; needs `dovetail[redis]`.

        Several key columns stand in the name with `separator` between them. `schema` names key columns, whole numbers
        or text, and fields with their types; values are texts, and a missing field is null. Joins ask for a thousand
        rows in one request. Every worker holds a list of all keys, which is made again when the server was written, or
        when the value of the name `marker` has changed. Redis has no versions: a row is as it is when it is read, and
        a micro-batch that runs again may give others.

        >>> import pyarrow
        >>> columns = pyarrow.schema({"id": pyarrow.int64(), "name": pyarrow.string()})
        >>> dovetail.MasterStore.redis("redis://localhost:1/0", "product:", key="id", schema=columns)
        Traceback (most recent call last):
        dovetail.errors.ConfigError: ...
        """
        return _named(redis_source(uri, prefix, key, schema, separator, page, marker))

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
                micro-batch to the next, but if the store has these columns, older ones are left out. With `history` the
                first is the time; further ones, columns of the store, decide between changes of one time.
            checkpoint: The query's checkpoint location.
            operation: The column that says what a change does; "op" or "_change_type" unless given.
            operations: What further values of it mean: "upsert", "delete" or "ignore". Known are those of Debezium (c,
                r, u, d), Delta Lake (insert, update_postimage, delete; update_preimage is ignored), Flink (+I, +U, -D;
                -U is ignored), and insert, update, delete.
            history: Columns of the store for the first time and the end of validity. A change then ends the row of its
                key that is valid at the first `sequence` column, and begins another; a deletion only ends it. Such a
                store answers `enrich(..., at=...)` by the row that was valid at the time of a stream row. Periods of a
                changed key that overlap, or have no end where another begins, end where the next one begins.
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

        >>> changes = spark.createDataFrame([(2, "Bea", "u", 11)], "id int, name string, op string, lsn int")
        >>> store.merge_changes(changes, sequence="lsn") == store.version()
        True
        """
        from dovetail.joins.semistream.plan.changes import Changes

        if changes.isStreaming:
            raise PlanError("the changes are a stream; apply them with apply_changes.", argument="changes")
        made = Changes.of(self, changes, sequence, operation, operations, history).merge(changes)
        return self.version() if made is None else made.version

    def version(self) -> str:
        """The newest version now; what `at` takes to read exactly this one again.

        >>> store.version() == dovetail.MasterStore.open(f"{place}/names.pages").version()
        True
        """
        return self.source.version()

    def at(self, version: str | None = None, device: Device | None = None) -> Pages:
        """The pages of a version, by default the newest; close them after use.

        >>> pages = store.at()
        >>> pages.read(0, 1).to_pydict(), pages.close()
        ({'id': [1, 2], 'name': ['Ada', 'Ben']}, None)
        """
        pages = self.source.open(version, device)
        if self.nulls:
            pages = _or_closed(pages, self.source)
        key, bounds = found_by(pages)
        if pages.schema.equals(self.schema) and key == self.key and bounds == self.bounds:
            return pages
        found = f"columns [{columns_text(pages.schema)}], {key_text(key, bounds)}"
        pages.close()
        raise ConfigError(
            f"{self.source} now has {found}; this query was planned for [{columns_text(self.schema)}], "
            f"{key_text(self.key, self.bounds)}. Restore the columns, or name the store and plan the query again."
        )

    def with_nulls(self) -> MasterStore:
        """The same store with its rows that have a null in the key, as one more page at the end.

        A page file must have been built with `keep_nulls=True`, or have had no such rows.

        >>> store.with_nulls().nulls
        True
        """
        return replace(self, nulls=True)

    def by(self, key: Sequence[str]) -> MasterStore:
        """The same store looked up by some columns of its key; each value of them may have many rows.

        Parquet files and databases are laid out by these columns. A page file is read as a whole by every task, as it
        is laid out by its own key; build another one for these columns where that costs too much.

        >>> prices = spark.createDataFrame([("a", 1, 2.5), ("a", 2, 2.0)], "sku string, shop int, price double")
        >>> store = dovetail.MasterStore.build(prices, f"{place}/prices.pages", key=["sku", "shop"])
        >>> store.by(["sku"]).key
        ('sku',)
        """
        return replace(_named(self.source.by(tuple(key), self.schema)), nulls=self.nulls)

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of version `new` that differ from the page of that number in `old`; None if that is not known.

        A page that is not among them holds the same rows, and is home to the same keys, in both versions.

        >>> store.changed(store.version(), store.version()).tolist()
        []
        """
        return None if self.nulls else self.source.changed(old, new)

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove old versions, except the newest `keep`, and return the removed ones. Open readers can continue.

        Versions that rows wait for in a stream with `as_of="admitted"` stay too, and so does the last one of such a
        stream that never runs again, until `also_held=True` removes what is held as well.

        >>> store.prune(keep=1)
        []
        """
        return self.source.prune(keep, also_held)

    def explain(self) -> str:
        """The store in some lines: what it is, key, order, index, size.

        >>> assert "key ['id']" in store.explain()
        """
        return self.source.explain()


def _address(path: str | Path) -> tuple[str, Access | None]:
    from dovetail.joins.semistream.plan.build import address_of

    return address_of(path)


def _or_closed(pages: Pages, source: Source) -> Pages:
    try:
        return with_nulls(pages, source)
    except BaseException:
        pages.close()
        raise


def _named(source: Source) -> MasterStore:
    pages = source.open(None, None)
    try:
        key, bounds = found_by(pages)
        return MasterStore(source, pages.schema, key, pages.order, bounds=bounds)
    finally:
        pages.close()
