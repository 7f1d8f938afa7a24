"""A page file written from Arrow rows in this process; Spark's way to write one shares every step but the sorting."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import parse_bytes
from dovetail.errors import PlanError
from dovetail.joins.semistream.master.generation import Generation, PartFile, building, commit, local_path
from dovetail.joins.semistream.master.index_file import store_index
from dovetail.joins.semistream.master.key_form import KeyForm, key_form
from dovetail.joins.semistream.master.normal import Normal
from dovetail.joins.semistream.master.page_writer import Part, PartWriter
from dovetail.joins.semistream.master.pages import Order

DEFAULT_PAGE = "4KB"  # small batches want few rows of many pages; joins read several as one segment where that pays
_STEP = 65_536  # rows put in order at a time


def write_pages(
    path: str | Path,
    rows: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    key: str | Sequence[str],
    order: Order = "key",
    page: int | str = DEFAULT_PAGE,
    frequency: str | None = None,
    unique: bool = False,
    keep_nulls: bool = False,
) -> Generation:
    """The generation of a page file that these rows, all in memory, became: the first at this path, or the next.

    Rows lie by key, by the falling number in column `frequency` (of a key's rows the highest), or as they come; rows of
    one key always together. Rows with a null in the key are left out and counted, or kept apart with `keep_nulls`.
    `unique=True` refuses keys that occur twice. `page` is the size that pages have unless one key's rows need more.
    """
    place, table = local_path(path), as_table(rows)
    check_order(order, frequency, table.schema.names)
    form = key_form(table.schema, key)
    page_bytes = parse_bytes(page, "page")
    layout = _laid_out(table, form, order, frequency)
    with building(place) as work:
        writer = PartWriter(work / part_name(0), table.schema, form, page_bytes, order == "key", unique)
        part = _written(writer, table, layout)
        listed = store_part(work, part)
        index = None if order == "key" else store_index(work, part, table.schema, form)
        nulls = _null_part(work, table, form, page_bytes) if keep_nulls and len(layout) < table.num_rows else None
        found = Generation(
            uuid.uuid4().hex[:8], table.schema, form.names, order, unique, page_bytes,
            table.num_rows - len(layout), (listed,), index, null_part=nulls,
        )  # fmt: skip
        return commit(place, work, found)


def _laid_out(table: pa.Table, form: KeyForm, order: Order, frequency: str | None) -> I64:
    """Numbers of the rows that have a key, in the order in which they will lie."""
    keys, valid = form.normal([table.column(name) for name in form.names])
    kept = np.flatnonzero(valid)
    weights = None if frequency is None else _weights(table.column(frequency).take(pa.array(kept)), frequency)
    return kept[layout_order(keys.take(kept), order, weights)]


def _written(writer: PartWriter, table: pa.Table, layout: I64) -> Part:
    try:
        for start in range(0, len(layout), _STEP):
            piece = table.take(pa.array(layout[start : start + _STEP])).combine_chunks()
            for batch in piece.to_batches():
                writer.append(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def _null_part(work: Path, table: pa.Table, form: KeyForm, page_bytes: int) -> PartFile:
    """The part of the rows that have a null in the key."""
    _, valid = form.normal([table.column(name) for name in form.names])
    writer = PartWriter(work / part_name(0), table.schema, form, page_bytes, False, False, keyed=False)
    return store_part(work, _written(writer, table, np.flatnonzero(~valid)))


def as_table(rows: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch]) -> pa.Table:
    """The rows as one table without dictionaries and metadata, which pages do not keep."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    elif not isinstance(rows, pa.Table):
        rows = pa.Table.from_batches(list(rows))
    return rows.cast(plain_schema(rows.schema))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with values in place of dictionaries, and no metadata."""
    if len(set(schema.names)) != len(schema.names):
        raise PlanError(f"columns {schema.names} have a name twice; rename one.")
    kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema([pa.field(f.name, kind, f.nullable) for f, kind in zip(schema, kinds, strict=True)])


def check_order(order: str, frequency: str | None, names: Sequence[str]) -> None:
    """A `PlanError` unless order and frequency are given together and known."""
    if order not in ("key", "frequency", "none"):
        raise PlanError(f"order is {order!r}; it is one of 'key', 'frequency', 'none'.", argument="order")
    if (order == "frequency") != (frequency is not None):
        raise PlanError(
            f"order={order!r} with frequency={frequency!r}; name the column with the frequencies for "
            f"order='frequency', and for no other order.",
            argument="order",
        )
    if frequency is not None and frequency not in names:
        raise PlanError(
            f"frequency column {frequency!r} is not one of the columns {list(names)}.", argument="frequency"
        )


def layout_order(keys: Normal, order: Order, weights: I64 | None) -> I64:
    """Row numbers in the order in which rows lie."""
    by_key = keys.sorted_rows()
    if order == "key" or len(by_key) == 0:
        return by_key
    starts = np.concatenate([[0], np.flatnonzero(keys.take(by_key).steps()) + 1])
    # Keys as they come, that is by the first row of each, or by the highest weight.
    rank = np.minimum.reduceat(by_key, starts) if weights is None else -np.maximum.reduceat(weights[by_key], starts)
    lengths = np.diff([*starts, len(by_key)])
    return by_key[np.argsort(np.repeat(rank, lengths), kind="stable")]


def _weights(column: pa.ChunkedArray, name: str) -> I64:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise PlanError(f"frequency column {name!r} is of type {kind}; frequencies are numbers.", argument="frequency")
    # Double is enough to rank by: frequencies beyond 2^53 that differ in the last digit are equally wanted.
    found = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
    return np.unique(np.nan_to_num(found), return_inverse=True)[1].astype(np.int64)


def part_name(number: int) -> str:
    """A file name for a part that no other attempt to write it has."""
    return f"{number}-{uuid.uuid4().hex[:12]}.rows"


def store_part(work: Path, part: Part) -> PartFile:
    """Write the part's table beside its rows; what the description lists."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.table.schema) as stream:
        stream.write_table(part.table)
    data = sink.getvalue()
    name = part.rows_file.removesuffix(".rows") + ".table"
    (work / name).write_bytes(data)
    nbytes = (work / part.rows_file).stat().st_size
    return PartFile(part.rows_file, name, zlib.crc32(data), part.table.num_rows, part.rows, nbytes)
