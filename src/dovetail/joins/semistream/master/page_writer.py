"""Rows in layout order become a file of pages, each an Arrow message of whole key groups, and a table of the pages."""

from __future__ import annotations

import hashlib
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.buffers import fixed_width, offsets_of
from dovetail.engine.kernels.arrays import F64, I64
from dovetail.errors import DataError
from dovetail.joins.semistream.master.key_form import KeyForm
from dovetail.joins.semistream.master.normal import Normal

ALIGNMENT = 64
_SHOWN = 5  # offending keys in an error


@dataclass(frozen=True, slots=True)
class Part:
    """One finished file of pages: where it lies, its table of pages, and where each key of it is."""

    rows_file: str
    table: pa.Table  # of pages: size, rows, crc, digest, first, last
    codes: I64  # of each key group, in the order of the file
    code_pages: I64  # the page of each, counted in this file

    @property
    def rows(self) -> int:
        """Rows in the file."""
        return int(np.sum(self.table.column("rows").to_numpy())) if self.table.num_rows else 0


@dataclass(slots=True)
class _Tables:
    sizes: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    firsts: list[pa.Array] = field(default_factory=list)
    lasts: list[pa.Array] = field(default_factory=list)
    codes: list[I64] = field(default_factory=list)
    code_pages: list[I64] = field(default_factory=list)


class PartWriter:
    """Writes one part of a page file from batches whose rows come in layout order, rows of one key together.

    A page ends before it would hold more than `page_bytes` of rows, but never inside a key. Memory is some pages and
    16 bytes a key, whatever the part's size. With `ordered` keys must not descend; with `unique` none may repeat. With
    `keyed=False` it takes rows whose key has a null, in any order, and pages end anywhere.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        form: KeyForm,
        page_bytes: int,
        ordered: bool,
        unique: bool,
        keyed: bool = True,
    ) -> None:
        self.path, self.schema, self.form, self.page_bytes = path, schema, form, page_bytes
        self._ordered, self._unique, self._keyed = ordered, unique, keyed
        self._tables = _Tables()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes, self._enough = 0, 8 * page_bytes
        self._file = path.open("xb")

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows that follow all earlier ones; pages that are complete are written."""
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._enough:
            self._write_waiting(last=False)

    def finish(self) -> Part:
        """The part, with every row on disk."""
        if self._waiting:
            self._write_waiting(last=True)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        found = self._tables
        empty = _normal_type(self.form)
        table = pa.table(
            {
                "size": pa.array(found.sizes, pa.int64()),
                "rows": pa.array(found.rows, pa.int64()),
                "crc": pa.array(found.crcs, pa.uint32()),
                "digest": pa.array(found.digests, pa.binary(16)),
                "first": pa.concat_arrays(found.firsts) if found.firsts else pa.nulls(len(found.sizes), empty),
                "last": pa.concat_arrays(found.lasts) if found.lasts else pa.nulls(len(found.sizes), empty),
            }
        )
        return Part(self.path.name, table, _joined(found.codes), _joined(found.code_pages))

    def abort(self) -> None:
        """Close and remove the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _write_waiting(self, last: bool) -> None:
        rows = pa.concat_batches(self._waiting)
        keys, valid = self.form.normal([rows.column(name) for name in self.form.names])
        if valid.any() if not self._keyed else not valid.all():
            raise ValueError("rows without a key reached the page writer, or with one that of rows without")
        groups = self._groups(rows, keys) if self._keyed else np.arange(rows.num_rows + 1)
        ends = page_ends(row_bytes(rows), groups, self.page_bytes)
        # The last page may still grow, and its last group too, unless this is the end.
        cuts = ends if last else ends[:-1]
        if self._keyed:
            self._record_keys(keys, groups, cuts)
        for start, stop in zip([0, *cuts[:-1]], cuts, strict=False):
            self._write_page(rows.slice(start, stop - start))
        rest = rows.slice(cuts[-1] if cuts else 0)
        # A copy, so that the rest of a large batch is let go; waiting for twice the rest keeps huge groups linear.
        self._waiting = [pa.concat_batches([rest])] if rest.num_rows else []
        self._waiting_bytes = rest.nbytes
        self._enough = max(8 * self.page_bytes, 2 * rest.nbytes)

    def _groups(self, rows: pa.RecordBatch, keys: Normal) -> I64:
        """The first row of each key group, and the number of rows."""
        steps = keys.steps()
        if self._ordered and (steps < 0).any():
            at = int(np.flatnonzero(steps < 0)[0])
            raise DataError(f"rows are not in key order: {_key_rows(rows, self.form, [at, at + 1])} follow each other.")
        if self._unique and (steps == 0).any():
            shown = _key_rows(rows, self.form, np.flatnonzero(steps == 0)[:_SHOWN].tolist())
            raise DataError(f"keys {list(self.form.names)} are not unique: {shown} occur more than once.")
        return np.concatenate([[0], np.flatnonzero(steps) + 1, [len(keys)]]).astype(np.int64)

    def _record_keys(self, keys: Normal, groups: I64, cuts: list[int]) -> None:
        if not cuts:
            return
        starts = np.array([0, *cuts[:-1]], np.int64)
        stops = np.array(cuts, np.int64)
        heads = groups[:-1][groups[:-1] < stops[-1]]
        self._tables.firsts.append(keys.take(starts).column())
        self._tables.lasts.append(keys.take(stops - 1).column())
        if not self._ordered:
            self._tables.codes.append(keys.take(heads).codes())
            self._tables.code_pages.append(np.searchsorted(stops, heads, side="right") + len(self._tables.sizes))

    def _write_page(self, rows: pa.RecordBatch) -> None:
        message = rows.serialize()
        padding = bytes(-message.size % ALIGNMENT)
        self._file.write(message)
        self._file.write(padding)
        self._tables.sizes.append(message.size + len(padding))
        self._tables.rows.append(rows.num_rows)
        self._tables.crcs.append(zlib.crc32(padding, zlib.crc32(message)))
        # The checksum finds damage; telling versions of a page apart must not fail once in four thousand million.
        self._tables.digests.append(hashlib.blake2b(message, digest_size=16).digest())


def row_bytes(rows: pa.RecordBatch) -> F64:
    """Bytes that each row takes in a page; of nested columns the average."""
    total = np.zeros(rows.num_rows, np.float64)
    for column in rows.columns:
        width = fixed_width(column.type)
        if width is not None:
            total += width
        elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            total += np.diff(offsets_of(column)) + 4
        elif pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
            total += np.diff(offsets_of(column)) + 8
        else:
            total += column.nbytes / max(rows.num_rows, 1)
    return total


def page_ends(sizes: F64, groups: I64, page_bytes: int) -> list[int]:
    """Where each page ends, in rows: as many whole groups as fit, and at least one."""
    before = np.concatenate([[0.0], np.cumsum(sizes)])[groups]
    ends, at = [], 0
    while at < len(groups) - 1:
        fits = int(np.searchsorted(before, before[at] + page_bytes + 1e-6, side="right")) - 1
        at = max(fits, at + 1)
        ends.append(int(groups[at]))
    return ends


def _key_rows(rows: pa.RecordBatch, form: KeyForm, at: list[int]) -> list[object]:
    found = rows.select(list(form.names)).take(pa.array(at, pa.int64())).to_pylist()
    return [tuple(row.values()) if len(form.names) > 1 else next(iter(row.values())) for row in found]


def _joined(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _normal_type(form: KeyForm) -> pa.DataType:
    return pa.int64() if form.exact else pa.large_binary()
