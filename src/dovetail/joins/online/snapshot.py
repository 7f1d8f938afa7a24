"""All state of an online join as Arrow tables, and back: rows in memory, blocks on disk, statistics, positions.

| table | one row for |
|---|---|
| header | the join: version, specification, clock, phase positions, counters (JSON) |
| arrays | each array of the algorithm's own: statistics, boundaries, hands, flags |
| memory.left, memory.right | each row in memory: its columns, key, code, arrival tick, join bit, bytes |
| directory.left, directory.right | each block |
| blocks.left, blocks.right | each row on disk, blocks in their order |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import AnyArray, int64s
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.online.blocks import ATS, CODE, KEY, Leaving
from dovetail.joins.online.directory import FIELDS, Entry
from dovetail.joins.online.kernels.rows import CLOCK, MATCHES, claim
from dovetail.joins.online.keys import SIDES

if TYPE_CHECKING:
    from dovetail.joins.online.joining import JoiningOperator
    from dovetail.joins.online.operators.base import OnlineOperator

VERSION = 2
BIT, SIZE, WAITS = "__dovetail_bit", "__dovetail_size", "__dovetail_waits"


def dump(operator: OnlineOperator) -> dict[str, pa.Table]:
    """The tables of an operator between two calls."""
    tables = {"header": _header(operator), "arrays": arrays_table(operator.arrays())}
    for side, name in enumerate(SIDES):
        tables[f"memory.{name}"] = _memory(operator, side)
        tables[f"directory.{name}"] = _directory(operator, side)
        tables[f"blocks.{name}"] = _blocks(operator, side)
    return tables


def load(operator: OnlineOperator, tables: Mapping[str, pa.Table]) -> None:
    """Bring a new operator into the state that the tables hold; `PlanError` if they are of another join."""
    header = read_header(operator, tables["header"], lambda: _join(operator))
    for side, name in enumerate(SIDES):
        _load_blocks(operator, side, tables[f"directory.{name}"], tables[f"blocks.{name}"])
        _load_memory(operator, side, tables[f"memory.{name}"])
    operator.rows.meta[CLOCK], operator.rows.meta[MATCHES] = header["clock"], header["results"]
    for store, drained in zip(operator.blocks, header["drained"], strict=True):
        store.drained, store.drained_blocks = drained
    load_arrays(operator.arrays(), tables["arrays"])
    take_up(operator, header)


def _join(operator: OnlineOperator) -> str:
    f = operator.fitted
    return f"{operator.spec.explain()}, {f.rows} rows, blocks of {f.block_rows}, {f.partitions} buckets, v{VERSION}"


def _header(operator: OnlineOperator) -> pa.Table:
    drained = [[store.drained, store.drained_blocks] for store in operator.blocks]
    more = {"clock": operator.clock, "results": int(operator.rows.meta[MATCHES]), "drained": drained}
    return header_table(operator, _join(operator), operator.fitted.widths, more)


def header_table(operator: JoiningOperator[Any], join: str, widths: Sequence[int], more: Mapping[str, Any]) -> pa.Table:
    """What an operator of any kind remembers that is no row and no array; `join` says what it is an operator of."""
    header = {
        "join": join,
        "widths": widths,
        "state": operator.state(),
        "progress": operator.progress.dump(),
        "metrics": operator.metrics.to_json(),
        "widest": operator.widest,
    }
    return pa.table({"json": [json.dumps(header | dict(more))]})


def read_header(operator: JoiningOperator[Any], table: pa.Table, join: Callable[[], str]) -> dict[str, Any]:
    """What `header_table` kept, for a new operator, which begins with it; `PlanError` if that is another join."""
    header: dict[str, Any] = json.loads(table.column("json")[0].as_py())
    operator.begin(dict(enumerate(header["widths"])))
    if header["join"] != join():
        raise PlanError(
            f"the state is of {header['join']!r}, this join is {join()!r}; restore it with the same specification and "
            f"budget, or start anew."
        )
    return header


def take_up(operator: JoiningOperator[Any], header: Mapping[str, Any]) -> None:
    """Positions and counts are as they were; rows and arrays are there already."""
    operator.set_state(header["state"])
    operator.progress.load(header["progress"])
    operator.metrics.include(Metrics.from_json(header["metrics"]))
    operator.widest = header["widest"]
    operator.grow_answers()


def arrays_table(arrays: Mapping[str, AnyArray]) -> pa.Table:
    """Arrays by name, whole numbers or floats, as a table."""
    rows: dict[str, list[Any]] = {"name": [], "ints": [], "floats": []}
    for name, array in arrays.items():
        is_float = array.dtype.kind == "f"
        rows["name"].append(name)
        rows["ints"].append(None if is_float else array.reshape(-1).astype(np.int64))
        rows["floats"].append(array.reshape(-1).astype(np.float64) if is_float else None)
    kinds = {"name": pa.string(), "ints": pa.list_(pa.int64()), "floats": pa.list_(pa.float64())}
    return pa.table({name: pa.array(rows[name], kind) for name, kind in kinds.items()})


def load_arrays(arrays: Mapping[str, AnyArray], table: pa.Table) -> None:
    """Fill the arrays with what `arrays_table` kept of them."""
    saved = {row["name"]: row["floats"] if row["ints"] is None else row["ints"] for row in table.to_pylist()}
    for name, array in arrays.items():
        array[...] = np.asarray(saved[name]).reshape(array.shape)


def _memory(operator: OnlineOperator, side: int) -> pa.Table:
    rows, slots = operator.rows, operator.pages[side].slots()
    slots = slots[np.argsort(rows.ats[slots], kind="stable")]
    batch = operator.pages[side].gather(rows.ref[slots])
    extra = {KEY: rows.key[slots], ATS: rows.ats[slots], CODE: rows.code[slots], BIT: rows.bit[slots]}
    extra |= {SIZE: rows.size[slots], WAITS: operator.waits(side, slots)}
    table = pa.Table.from_batches([batch])
    for name, column in extra.items():
        table = table.append_column(name, pa.array(column))
    return table


def _load_memory(operator: OnlineOperator, side: int, table: pa.Table) -> None:
    rows, schema = operator.rows, operator.schemas[side]
    for start in range(0, table.num_rows, operator.fitted.chunk_rows):
        part = table.slice(start, operator.fitted.chunk_rows).combine_chunks()
        batch = part.select(list(schema.names)).cast(schema).to_batches()[0]
        slots = claim(rows, part.num_rows)
        first = operator.pages[side].add(batch, slots)
        rows.ref[slots] = first + np.arange(len(slots))
        rows.key[slots], rows.ats[slots] = _numbers(part, KEY), _numbers(part, ATS)
        if operator.keys.coded:
            rows.code[slots] = _numbers(part, CODE)
        rows.bit[slots], rows.size[slots] = _numbers(part, BIT), _numbers(part, SIZE)
        operator.rebuild(side, slots, _numbers(part, WAITS).astype(np.uint8))
        operator.pages[side].settle(first)


def _directory(operator: OnlineOperator, side: int) -> pa.Table:
    return pa.table({field: np.array(operator.blocks[side].column(field)) for field in FIELDS})


def _blocks(operator: OnlineOperator, side: int) -> pa.Table:
    store = operator.blocks[side]
    alive = np.flatnonzero(store.column("dead") == 0).tolist()
    batches = [store.file.read(number) for number in alive]
    store.file.blocks_read -= len(alive)  # this is no work of the join's
    return pa.Table.from_batches(batches, store.file.schema)


def _load_blocks(operator: OnlineOperator, side: int, directory: pa.Table, rows: pa.Table) -> None:
    store, schema, at = operator.blocks[side], operator.schemas[side], 0
    for line in directory.to_pylist():
        entry = Entry(**line)
        if entry.dead:
            store.append_tombstone(entry)
            continue
        part = rows.slice(at, entry.rows).combine_chunks()
        at += entry.rows
        batch = part.select(list(schema.names)).cast(schema).to_batches()[0]
        key, ats = _numbers(part, KEY), _numbers(part, ATS)
        code = _numbers(part, CODE) if operator.keys.coded else key
        store.append(Leaving(batch, key, code, ats), entry.dts, entry.bucket, entry.group)


def _numbers(table: pa.Table, name: str) -> AnyArray:
    column = table.column(name)
    return int64s(column.combine_chunks().to_numpy() if column.num_chunks != 1 else column.chunk(0).to_numpy())
