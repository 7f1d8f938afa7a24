"""The interface of master data to joins: one version, as numbered pages with a home page for every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.storage.device import Device
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.cells import CELL, CellIndex
from dovetail.joins.semistream.keys import key_columns

Order = Literal["key", "frequency", "none"]
Counted = Literal["pages", "all", "before"]
"""The exact row counts: those of every page, that of all pages together, or those of an earlier version."""
PageOrder = Literal["key", "frequency", "hash", "none"]
"""The orders in which a page file can be written; one by hash is none to joins, but needs no entry a key to find it."""
FOUND_BY_PAGE: tuple[PageOrder, ...] = ("key", "hash")
"""Orders in which the first and the last key of each page, or their hashes, tell the page of every key."""


def check_order(order: str, frequency: str | None, schema: pa.Schema) -> None:
    """A `PlanError` unless order and frequency are given together and known."""
    if order not in get_args(PageOrder):
        raise PlanError(f"order is {order!r}; it is one of {list(get_args(PageOrder))}.", argument="order")
    if (order == "frequency") != (frequency is not None):
        raise PlanError(
            f"order={order!r} with frequency={frequency!r}; name the column with the frequencies for "
            f"order='frequency', and for no other order.",
            argument="order",
        )
    if frequency is None:
        return
    if frequency not in schema.names:
        raise PlanError(
            f"frequency column {frequency!r} is not one of the columns {schema.names}.", argument="frequency"
        )
    kind = schema.field(frequency).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise PlanError(
            f"frequency column {frequency!r} is of type {kind}; frequencies are numbers.", argument="frequency"
        )


class Pages(Protocol):
    """One version of master data, immutable while it is open, divided into pages that are each read by one request.

    All rows of one key are in one page, its home page. Segments, what joins load at a time, are runs of neighbouring
    pages that start at a multiple of their length: the disk buffer of the sources. Rows whose key has a null are not
    part of any page, unless the store was opened with them.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, key columns among them."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        ...

    @property
    def order(self) -> Order:
        """The order of rows: by key, most requested first, or none."""
        ...

    @property
    def indexed(self) -> bool:
        """Whether `home` can be called; without an index only joins that scan the store work."""
        ...

    @property
    def version(self) -> str:
        """An identifier that is unique among the versions of the store."""
        ...

    @property
    def device(self) -> Device:
        """The device that counts the reads, and their cost if it is simulated."""
        ...

    @property
    def starts(self) -> I64:
        """The number of the first row of each page, and the number of all rows at the end: one more than pages."""
        ...

    @property
    def counted(self) -> Counted:
        """The rows that `starts` counts."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the store holds while it is open, which a join cannot use; 0 if its index is on disk."""
        ...

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each row's key, or -1 where there is certainly none, nulls among them. No page is read."""
        ...

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        ...

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves."""
        ...

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on, in their order, by one read of the device.

        A page that cannot be read whole is an error, never fewer rows.
        """
        ...

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many runs of pages, and where the rows of each run begin, with the number of all at the end.

        Runs are given in ascending order and do not overlap; `count` may be 0. Runs that follow each other may be one
        read of the device. As with `read`, either all rows come or an error.
        """
        ...

    def close(self) -> None:
        """Close files and connections; twice is fine."""
        ...


@runtime_checkable
class KeyedPages(Pages, Protocol):
    """Pages of a store that also finds single keys, many in one request: a page file, or a database with an index."""

    @property
    def finds_keys(self) -> bool:
        """Whether keys of this store's types can be sent."""
        ...

    @property
    def reads_homes(self) -> bool:
        """Whether home pages are read to find keys, so that keys of one page share a read."""
        ...

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, by one request, in any order; rows of other keys may be among them.

        Keys may repeat and have no nulls. Where home pages are read, `room` bytes of them are held at a time. None if
        one of the keys cannot be sent, or if there are far more rows with these keys than `room` bytes hold: then pages
        have to be read.
        """
        ...


@runtime_checkable
class RangedPages(Pages, Protocol):
    """Pages of a store that can have ranges: their key is a cell, which is found by the value of a stream row."""

    @property
    def ranges(self) -> CellIndex | None:
        """The cells; None if the store has no ranges."""
        ...


def ranges_of(pages: Pages) -> CellIndex | None:
    """The cells of pages of ranges; None for others."""
    return pages.ranges if isinstance(pages, RangedPages) else None


def found_by(pages: Pages) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """The key, and the bounds of ranges if these are found by them."""
    ranges = ranges_of(pages)
    return (pages.key, None) if ranges is None else (ranges.form.ranged.key, ranges.form.ranged.bounds)


def columns_text(schema: pa.Schema) -> str:
    """The columns and their types, as errors show them."""
    return ", ".join(f"{field.name} {field.type}" for field in schema if field.name != CELL)


def key_text(key: tuple[str, ...], bounds: tuple[str, str] | None) -> str:
    """The key and the bounds, as errors show them."""
    return f"key {list(key)}" + ("" if bounds is None else f", bounds {list(bounds)}")


def probed(pages: Pages) -> tuple[str, ...]:
    """The master columns that the stream's key columns are compared with."""
    ranges = ranges_of(pages)
    return pages.key if ranges is None else ranges.form.ranged.probed


def stream_key(pages: Pages, rows: pa.RecordBatch, on: Sequence[str]) -> list[pa.Array]:
    """The key of stream rows in the types that the pages have it in: their columns, or the cell of their value."""
    ranges = ranges_of(pages)
    if ranges is None:
        return key_columns(rows, on, [pages.schema.field(name).type for name in pages.key])
    value = rows.column(rows.schema.get_field_index(on[-1]))
    return [ranges.find([*key_columns(rows, on[:-1], ranges.form.types), value])]


@runtime_checkable
class Resting(Protocol):
    """Pages of a server that hold locks or a snapshot there while they are open."""

    def rest(self) -> None:
        """Release locks and snapshots at the server until the next read, which fails if the version is gone by then."""
        ...

    def wake(self) -> bool:
        """Take the snapshot again, for the reads to come; whether the version is still there."""
        ...


def stored_each(pages: Pages, first: I64, count: I64) -> I64:
    """The result of `stored_many`, computed run by run."""
    runs = zip(first.tolist(), count.tolist(), strict=True)
    return np.array([pages.stored_bytes(at, n) for at, n in runs], np.int64)


def read_each(pages: Pages, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
    """The result of `read_many`, by one read for each run."""
    runs = zip(first.tolist(), count.tolist(), strict=True)
    batches = [pages.read(at, n) if n else None for at, n in runs]
    rows = [0 if batch is None else batch.num_rows for batch in batches]
    found = [batch for batch in batches if batch is not None and batch.num_rows]
    whole = pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], pages.schema)
    return whole, np.cumsum([0, *rows])


class NoHistory:
    """A source without old versions and without a list of changes."""

    keeps_versions = False

    def changed(self, old: str, new: str) -> I64 | None:
        """Not known."""
        return None

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Nothing to remove."""
        raise UnsupportedError(f"{self} keeps no old versions, so there is nothing to prune.")


class Source(Protocol):
    """One kind of store: a small frozen value that can be pickled and opened anywhere."""

    @property
    def keeps_versions(self) -> bool:
        """Whether versions other than the newest can be opened."""
        ...

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
