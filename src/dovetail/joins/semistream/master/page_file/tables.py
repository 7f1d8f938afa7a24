"""Reads what a generation has beside its pages: the tables of them, and the index of their keys."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import AnyArray
from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place
from dovetail.engine.storage.remote import Remote, overlapped
from dovetail.errors import ConfigError
from dovetail.joins.semistream.keys import Buckets, Dense, Fences, Index, normal_of
from dovetail.joins.semistream.master.page_file.generation import Generation, IndexFile, directory

T = TypeVar("T")
Data = TypeVar("Data", bytes, pa.Buffer)
REPAIR = "build the page file again, or restore it from a copy"


def _each(home: Place, calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of these calls; those to an object store are made at once."""
    return overlapped(calls) if isinstance(home, Remote) else [call() for call in calls]


def page_table(path: Place, generation: Generation) -> pa.Table:
    """Size, rows, checksums and fences of every page of a generation, and its place: the part and the offset in it."""
    home, layout = directory(path, generation.number), generation.layout
    if layout is not None:
        return part_table(home / layout.table_file, layout.table_crc)
    tables = _each(home, [partial(part_table, home / part.table_file, part.table_crc) for part in generation.parts])
    return pa.concat_tables([placed(table, at) for at, table in enumerate(tables)]).combine_chunks()


def placed(table: pa.Table, part: int) -> pa.Table:
    """The table of the pages of a part, one after the other, with their places."""
    sizes = table.column("size").to_numpy()
    offsets = pa.array(np.cumsum(sizes) - sizes, pa.int64())
    parts = pa.array(np.full(table.num_rows, part, np.int32))
    return table.append_column("part", parts).append_column("offset", offsets)


def part_table(path: Place, crc: int) -> pa.Table:
    """Size, rows, checksums and fences of pages, from a file with this checksum."""
    with pa.ipc.open_stream(checked(files.read, path, crc)) as stream:
        return stream.read_all()


def checked(read: Callable[[Place], Data], path: Place, crc: int) -> Data:
    """The content of a file that has this checksum; a `ConfigError` if it has another or cannot be read."""
    try:
        data = read(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check permissions, or {REPAIR}.") from error
    if zlib.crc32(data) != crc:
        raise ConfigError(f"{path} is damaged (checksum differs); {REPAIR}.")
    return data


def open_index(home: Place, generation: Generation, table: pa.Table) -> Index:
    """The index of keys: the fences of pages, or codes that are mapped."""
    if generation.index is None:
        fences = Fences(*(normal_of(_one_array(table.column(name))) for name in ("first", "last")))
        return Buckets(fences) if generation.order == "hash" else fences
    found = generation.index
    codes = _mapped(home / "index.codes", np.dtype("<i8"), found, 1)
    pages = _mapped(home / "index.pages", np.dtype("<i4"), found, 2)
    if not found.clashing_keys:
        return Dense(codes, pages)
    keys = pa.array([base64.b64decode(key) for key in found.clashing_keys], pa.large_binary())
    return Dense(codes, pages, (normal_of(keys), np.array(found.clashing_pages, np.int64)))


def _mapped(path: Place, kind: np.dtype[np.signedinteger], index: IndexFile, crc_at: int) -> AnyArray:
    """A memory-mapped file of the index, after its checksums were compared."""
    if index.entries == 0:
        return np.empty(0, kind)
    try:
        data = files.mapped(path)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}; check permissions, or {REPAIR}.") from error
    nbytes = index.entries * kind.itemsize
    if data.size != nbytes:
        raise ConfigError(f"{path} has {data.size} bytes instead of {nbytes}; {REPAIR}.")
    found, at = np.frombuffer(data, kind), 0
    for stretch in index.stretches:
        if zlib.crc32(found[at : at + stretch[0]].data) != stretch[crc_at]:
            raise ConfigError(f"{path} is damaged (checksum differs); {REPAIR}.")
        at += stretch[0]
    return found


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
