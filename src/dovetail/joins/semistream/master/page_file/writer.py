"""The writer of a page file: pages and their tables in parts, and the index of all keys, merged from those of parts."""

from __future__ import annotations

import base64
import hashlib
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import F64, I32, I64
from dovetail.engine.memory import parse_bytes
from dovetail.engine.rows.columns import fixed_width, offsets_of
from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place, located
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.keys import KeyForm, Normal, dense_index, hashes_of, key_form
from dovetail.joins.semistream.master.page_file.generation import (
    Generation,
    IndexFile,
    PartFile,
    building,
    commit,
)

ALIGNMENT = 64
_SHOWN = 5  # offending keys in an error


@dataclass(frozen=True, slots=True)
class Part:
    """One finished file of pages: its path, its table of pages, and the page of each key."""

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
    16 bytes a key, whatever the part's size. With `ordered` keys must not descend; with `hashed` their hashes must not,
    and keys of one hash stay together. With `unique` no key may repeat. With `keyed=False` it takes rows whose key has
    a null, in any order, and pages end anywhere.
    """

    def __init__(
        self,
        path: Place,
        schema: pa.Schema,
        form: KeyForm,
        page_bytes: int,
        ordered: bool,
        unique: bool,
        keyed: bool = True,
        hashed: bool = False,
    ) -> None:
        self.path, self.schema, self.form, self.page_bytes = path, schema, form, page_bytes
        self._ordered, self._unique, self._keyed, self._hashed = ordered or hashed, unique, keyed, hashed
        self._tables = _Tables()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes, self._enough = 0, 8 * page_bytes
        self._file = files.Output(path)

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows that follow all earlier ones; pages that are complete are written."""
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._enough:
            self._write_waiting(last=False)

    def cut(self) -> int:
        """End the page here, if it has rows; how many pages there are now."""
        if self._waiting:
            self._write_waiting(last=True)
        return len(self._tables.sizes)

    def finish(self) -> Part:
        """The part, with every row on disk."""
        self.cut()
        self._file.finish()
        found = self._tables
        empty = pa.int64() if self._hashed else _normal_type(self.form)
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
        return Part(self.path.name, table, _concatenated(found.codes), _concatenated(found.code_pages))

    def abort(self) -> None:
        """Close and remove the file."""
        self._file.abort()

    def _write_waiting(self, last: bool) -> None:
        rows = pa.concat_batches(self._waiting)
        keys, valid = self.form.normal([rows.column(name) for name in self.form.names])
        if valid.any() if not self._keyed else not valid.all():
            raise ValueError("rows without a key reached the page writer, or with one that of rows without")
        if self._keyed and self._unique:
            self._check_unique(rows, keys)
        keys = hashes_of(keys) if self._keyed and self._hashed else keys
        groups = self._groups(rows, keys) if self._keyed else np.arange(rows.num_rows + 1)
        ends = page_ends(row_bytes(rows), groups, self.page_bytes)
        # The last page may still grow, and its last group too, unless this is the end.
        cuts = ends if last else ends[:-1]
        if self._keyed:
            self._record_keys(keys, groups, cuts)
        for start, stop in zip([0, *cuts[:-1]], cuts, strict=False):
            self._write_page(rows.slice(start, stop - start))
        rest = rows.slice(cuts[-1] if cuts else 0)
        # A copy, so that the rest of a large batch is freed; waiting for twice the rest keeps huge groups linear.
        self._waiting = [pa.concat_batches([rest])] if rest.num_rows else []
        self._waiting_bytes = rest.nbytes
        self._enough = max(8 * self.page_bytes, 2 * rest.nbytes)

    def _groups(self, rows: pa.RecordBatch, keys: Normal) -> I64:
        """The first row of each key group, and the number of rows."""
        steps = keys.steps()
        if self._ordered and (steps < 0).any():
            at = int(np.flatnonzero(steps < 0)[0])
            raise DataError(f"rows are not in key order: {_key_rows(rows, self.form, [at, at + 1])} follow each other.")
        return np.concatenate([[0], np.flatnonzero(steps) + 1, [len(keys)]]).astype(np.int64)

    def _check_unique(self, rows: pa.RecordBatch, keys: Normal) -> None:
        """A `DataError` if a key occurs twice."""
        twice = np.flatnonzero(keys.steps() == 0)
        if len(twice):
            shown = _key_rows(rows, self.form, twice[:_SHOWN].tolist())
            raise DataError(f"keys {list(self.form.names)} are not unique: {shown} occur more than once.")

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
        # The checksum finds damage. To tell versions of a page apart, one collision in 2^32 is too many.
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


def _concatenated(parts: list[I64]) -> I64:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _normal_type(form: KeyForm) -> pa.DataType:
    return pa.int64() if form.exact else pa.large_binary()


DEFAULT_PAGE = "4KB"  # small batches need few rows of many pages; joins read several pages as one segment
REMOTE_PAGE = "16KB"  # takes a request no longer than 4 KB, and an index of a quarter


def page_size(page: int | str | None, place: Place) -> int:
    """Bytes of a page; by default few on disks, and more where every request has to wait."""
    given = page if page is not None else DEFAULT_PAGE if isinstance(place, Path) else REMOTE_PAGE
    return parse_bytes(given, "page")


_STEP = 65_536  # rows put in order at a time


def write_pages(
    path: str | Place,
    rows: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch],
    key: str | Sequence[str],
    page: int | str | None = None,
    unique: bool = False,
) -> Generation:
    """Writes these rows, all in memory, by key as a new generation of a page file, and returns it.

    Rows of one key are together. Rows with a null in the key are left out and counted. `unique=True` refuses keys that
    occur twice. `page` is the size that pages have unless one key's rows need more.
    """
    place, table = located(path), as_table(rows)
    form = key_form(table.schema, key)
    page_bytes = page_size(page, place)
    keys, valid = form.normal([table.column(name) for name in form.names])
    kept = np.flatnonzero(valid)
    layout = kept[keys.take(kept).sorted_rows()]
    with building(place) as work:
        writer = PartWriter(work / part_name(0), table.schema, form, page_bytes, ordered=True, unique=unique)
        try:
            for start in range(0, len(layout), _STEP):
                piece = table.take(pa.array(layout[start : start + _STEP])).combine_chunks()
                for batch in piece.to_batches():
                    writer.append(batch)
            part = writer.finish()
        except BaseException:
            writer.abort()
            raise
        found = Generation(
            uuid.uuid4().hex[:8], table.schema, form.names, "key", unique, page_bytes,
            table.num_rows - len(layout), (store_part(work, part),), None,
        )  # fmt: skip
        return commit(place, work, found)


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
        raise PlanError(f"columns {schema.names} have a name twice; rename one.", argument="df")
    kinds = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema]
    return pa.schema([pa.field(f.name, kind, f.nullable) for f, kind in zip(schema, kinds, strict=True)])


def part_name(number: int) -> str:
    """A file name for a part that no other attempt to write it has."""
    return f"{number}-{uuid.uuid4().hex[:12]}.rows"


def store_part(work: Place, part: Part) -> PartFile:
    """Write the part's table beside its rows; returns its entry in the description."""
    name = part.rows_file.removesuffix(".rows") + ".table"
    crc = store_table(work / name, part.table)
    nbytes = files.size(work / part.rows_file) or 0
    return PartFile(part.rows_file, name, crc, part.table.num_rows, part.rows, nbytes)


def store_table(place: Place, table: pa.Table) -> int:
    """Write a table of pages; its checksum."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data = sink.getvalue()
    files.write(place, data)
    return zlib.crc32(data)


CODES, PAGES = "index.codes", "index.pages"


def store_stretch(work: Place, first: int, codes: I64, pages: I32) -> tuple[int, int, int]:
    """Write entries from number `first` on, in files of their own; returns their number and both checksums."""
    crcs = []
    for name, values in ((CODES, codes.astype("<i8")), (PAGES, pages.astype("<i4"))):
        files.write(work / f"{name}-{first}", values.tobytes(), outlives_power=False)
        crcs.append(zlib.crc32(values.data))
    return len(codes), crcs[0], crcs[1]


def join_stretches(work: Place, firsts: Sequence[int]) -> None:
    """Make the files of the whole index from those of its stretches, in order."""
    for name in (CODES, PAGES):
        whole = files.Output(work / name)
        for first in firsts:
            whole.write(files.mapped(work / f"{name}-{first}"))
            files.remove(work / f"{name}-{first}")
        whole.finish()


def read_page(path: Place, sizes: I64, page: int, schema: pa.Schema) -> pa.RecordBatch:
    """One page of a part that is being built."""
    data = files.read_range(path, int(sizes[:page].sum()), int(sizes[page]))
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


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
                raise DataError(f"rows of one key {list(form.names)} are not consecutive; sort the rows by key first.")
    known = sorted(found)
    texts = tuple(base64.b64encode(key).decode() for key in known)
    return IndexFile(index.entries, index.stretches, texts, tuple(found[key] for key in known))


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The codes of one part, in order, in files beside its rows; pages are counted from `first_page` on."""

    name: str
    entries: int
    first_page: int

    def codes(self, work: Place, start: int = 0, stop: int | None = None) -> I64:
        """These codes."""
        stop = self.entries if stop is None else stop
        data = files.read_range(work / f"{self.name}.codes", 8 * start, 8 * (stop - start))
        return np.frombuffer(data, "<i8").astype(np.int64, copy=False)

    def pages(self, work: Place, start: int, stop: int) -> I32:
        """The pages of these codes in this part."""
        data = files.read_range(work / f"{self.name}.pages", 4 * start, 4 * (stop - start))
        return np.frombuffer(data, "<i4").astype(np.int32, copy=False)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of the whole index that one task merges: a range of every part's entries, and where they go."""

    first: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging a stretch: entries, checksums, and the codes that several pages share, with their pages."""

    stretch: tuple[int, int, int]
    clashes: tuple[int, ...]
    clash_pages: tuple[int, ...]


def store_index_part(work: Place, part: Part) -> str:
    """Write the part's own index, sorted; the name of its files."""
    name = part.rows_file.removesuffix(".rows")
    codes, pages, _ = dense_index(part.codes, part.code_pages)
    files.write(work / f"{name}.codes", codes.astype("<i8").tobytes(), outlives_power=False)
    files.write(work / f"{name}.pages", pages.astype("<i4").tobytes(), outlives_power=False)
    return name


def plan_stretches(work: Place, parts: Sequence[IndexPart], entries_each: int) -> list[Stretch]:
    """Stretches of about `entries_each` entries over all parts; equal codes share a stretch."""
    total = sum(part.entries for part in parts)
    wanted = -(-total // entries_each)
    step = max(entries_each // 256, 1)
    sample = np.sort(np.concatenate([part.codes(work)[::step] for part in parts]))
    bounds = np.unique(sample[np.arange(1, wanted) * len(sample) // wanted]) if wanted > 1 else sample[:0]
    cuts = [[0, *np.searchsorted(part.codes(work), bounds).tolist(), part.entries] for part in parts]
    first, stretches = 0, []
    for at in range(len(bounds) + 1):
        ranges = tuple((cut[at], cut[at + 1]) for cut in cuts)
        entries = sum(stop - start for start, stop in ranges)
        if entries or not total:  # files of stretches are named by their first entry
            stretches.append(Stretch(first, ranges))
        first += entries
    return stretches


def merge_stretch(work: Place, parts: Sequence[IndexPart], stretch: Stretch) -> Merged:
    """Merge one stretch of all parts."""
    found_codes, found_pages = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for part, (start, stop) in zip(parts, stretch.ranges, strict=True):
        found_codes.append(part.codes(work, start, stop))
        found_pages.append(part.pages(work, start, stop).astype(np.int64) + part.first_page)
    codes, pages, clashes = dense_index(np.concatenate(found_codes), np.concatenate(found_pages))
    clash_pages = np.unique(pages[np.isin(codes, clashes)])
    stored = store_stretch(work, stretch.first, codes, pages)
    return Merged(stored, tuple(clashes.tolist()), tuple(clash_pages.tolist()))
