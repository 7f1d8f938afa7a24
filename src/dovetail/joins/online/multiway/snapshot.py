"""All state of a multiway join as Arrow tables, and back: rows in memory, blocks on disk, statistics, positions.

| table | one row for |
|---|---|
| header | the join: version, specification, clock, positions, counters (JSON) |
| arrays | each array of the algorithm's own |
| memory.NAME | each row of an input in memory: columns, keys, arrival tick, join bit, bytes |
| directory.NAME | each block |
| blocks.NAME | each row on disk, blocks in their order |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.joins.online.directory import FIELDS, Entry
from dovetail.joins.online.kernels.multi_rows import CLOCK, RESULTS, claim_slots
from dovetail.joins.online.multiway.blocks import ATS, KEY, LeavingRows
from dovetail.joins.online.snapshot import arrays_table, header_table, load_arrays, read_header, take_up

if TYPE_CHECKING:
    from dovetail.joins.online.multiway.base import MultiOperator

VERSION = 2
BIT, SIZE = "__dovetail_bit", "__dovetail_size"


def dump(operator: MultiOperator) -> dict[str, pa.Table]:
    """The tables of an operator between two calls."""
    tables = {"header": _header(operator), "arrays": arrays_table(operator.arrays())}
    for r, name in enumerate(operator.names):
        store = operator.blocks[r]
        tables[f"memory.{name}"] = _memory(operator, r)
        tables[f"directory.{name}"] = pa.table({f: np.array(store.directory.column(f)) for f in FIELDS})
        batches = [store.file.read(number) for number in range(len(store))]
        store.file.blocks_read -= len(store)  # this is no work of the join's
        tables[f"blocks.{name}"] = pa.Table.from_batches(batches, store.file.schema)
    return tables


def load(operator: MultiOperator, tables: Mapping[str, pa.Table]) -> None:
    """Bring a new operator into the state that the tables hold; `PlanError` if they are of another join."""
    header = read_header(operator, tables["header"], lambda: _join(operator))
    operator.rows.meta[CLOCK], operator.rows.meta[RESULTS] = header["clock"], header["results"]
    for r, name in enumerate(operator.names):
        _load_blocks(operator, r, tables[f"directory.{name}"], tables[f"blocks.{name}"])
        _load_memory(operator, r, tables[f"memory.{name}"])
    load_arrays(operator.arrays(), tables["arrays"])
    take_up(operator, header)


def _join(operator: MultiOperator) -> str:
    f = operator.fitted
    return f"{operator.spec.explain()}, {f.rows} rows, blocks of {f.block_rows}, {f.buckets} buckets, v{VERSION}"


def _header(operator: MultiOperator) -> pa.Table:
    more = {"clock": operator.clock, "results": int(operator.rows.meta[RESULTS])}
    return header_table(operator, _join(operator), operator.fitted.widths, more)


def _memory(operator: MultiOperator, r: int) -> pa.Table:
    rows, slots = operator.rows, operator.pages[r].slots()
    slots = slots[np.argsort(rows.ats[slots], kind="stable")]
    table = pa.Table.from_batches([operator.pages[r].gather(rows.ref[slots])])
    extra = {f"{KEY}{a}": key for a, key in enumerate(operator.keys_at(r, slots))}
    extra |= {ATS: rows.ats[slots], BIT: rows.bit[slots], SIZE: rows.size[slots]}
    for name, column in extra.items():
        table = table.append_column(name, pa.array(column))
    return table


def _load_memory(operator: MultiOperator, r: int, table: pa.Table) -> None:
    rows = operator.rows
    for start in range(0, table.num_rows, operator.fitted.chunk_rows):
        part = table.slice(start, operator.fitted.chunk_rows).combine_chunks()
        slots = claim_slots(rows, part.num_rows)
        first = operator.pages[r].add(_plain(part, operator.schemas[r]), slots)
        rows.ref[slots] = first + np.arange(len(slots))
        rows.ats[slots], rows.bit[slots], rows.size[slots] = (_numbers(part, name) for name in (ATS, BIT, SIZE))
        operator.rebuild(r, slots, _keys(part, int(operator.keys.widths[r])))
        operator.pages[r].settle(first)


def _load_blocks(operator: MultiOperator, r: int, directory: pa.Table, rows: pa.Table) -> None:
    store, at = operator.blocks[r], 0
    for line in directory.to_pylist():
        entry = Entry(**line)
        part = rows.slice(at, entry.rows).combine_chunks()
        at += entry.rows
        leaving = LeavingRows(_plain(part, store.schema), _keys(part, store.keys), _numbers(part, ATS))
        store.append(leaving, entry.dts, entry.bucket, entry.group)


def _plain(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return table.select(list(schema.names)).cast(schema).to_batches()[0]


def _keys(table: pa.Table, keys: int) -> I64:
    return np.stack([_numbers(table, f"{KEY}{a}") for a in range(keys)])


def _numbers(table: pa.Table, name: str) -> I64:
    return np.asarray(table.column(name).combine_chunks().to_numpy(), np.int64)
