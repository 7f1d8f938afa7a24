"""The dense index on disk: two files of numbers, written by one process or by many, each its own stretch."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.errors import DataError
from dovetail.joins.semistream.master.generation import IndexFile
from dovetail.joins.semistream.master.index import dense_index
from dovetail.joins.semistream.master.key_form import KeyForm
from dovetail.joins.semistream.master.page_writer import Part

CODES, PAGES = "index.codes", "index.pages"


def store_index(work: Path, part: Part, schema: pa.Schema, form: KeyForm) -> IndexFile:
    """The index of a page file of one part, written."""
    codes, pages, clashes = dense_index(part.codes, part.code_pages)
    for name in (CODES, PAGES):
        (work / name).touch()
    stretch = store_stretch(work, 0, codes, pages)
    sizes = part.table.column("size").to_numpy()
    suspects = np.unique(part.code_pages[np.isin(part.codes, clashes)]).tolist()
    found = ((page, read_page(work / part.rows_file, sizes, page, schema)) for page in suspects)
    return with_clashes(IndexFile(len(codes), (stretch,)), form, clashes, found)


def store_stretch(work: Path, first: int, codes: I64, pages: I32) -> tuple[int, int, int]:
    """Write entries from number `first` on into the files, which are there; how many, and both checksums."""
    crcs = []
    for name, values in ((CODES, codes.astype("<i8")), (PAGES, pages.astype("<i4"))):
        with (work / name).open("r+b") as file:
            file.seek(first * values.itemsize)
            file.write(values.data)
        crcs.append(zlib.crc32(values.data))
    return len(codes), crcs[0], crcs[1]


def read_page(path: Path, sizes: I64, page: int, schema: pa.Schema) -> pa.RecordBatch:
    """One page of a part that is being built."""
    with path.open("rb") as file:
        file.seek(int(sizes[:page].sum()))
        return pa.ipc.read_record_batch(pa.py_buffer(file.read(int(sizes[page]))), schema)


def with_clashes(
    index: IndexFile, form: KeyForm, clashes: I64, pages: Iterable[tuple[int, pa.RecordBatch]]
) -> IndexFile:
    """The index with the keys of these pages whose hash stands for several keys, each with its page."""
    found: dict[bytes, int] = {}
    for number, rows in pages:
        keys, _ = form.normal([rows.column(name) for name in form.names])
        suspects = keys.take(np.flatnonzero(np.isin(keys.codes(), clashes))).column()
        for key in suspects.unique().to_pylist():
            if found.setdefault(key, number) != number:
                raise DataError(f"rows of one key {list(form.names)} do not lie together; sort the rows by key first.")
    known = sorted(found)
    texts = tuple(base64.b64encode(key).decode() for key in known)
    return IndexFile(index.entries, index.stretches, texts, tuple(found[key] for key in known))
