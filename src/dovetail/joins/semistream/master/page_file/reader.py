"""A page file by its path, and one open generation of it: pages decoded to one batch, and the page of each key."""

from __future__ import annotations

import base64
import os
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.columns import NARROW_TEXT, WIDE_TEXT, fixed_width, nbytes, take_columns
from dovetail.engine.device import Device
from dovetail.engine.kernels.arrays import I64, U8, AnyArray, int64s, raw_bytes
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.memory import format_bytes
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.kernels import message_parts as kernels
from dovetail.joins.semistream.kernels.byte_keys import rows_among
from dovetail.joins.semistream.keys import Dense, Fences, Index, KeyForm, key_form, normal_of
from dovetail.joins.semistream.master.page_file.generation import (
    Generation,
    IndexFile,
    PartFile,
    current_version,
    directory,
    load_version,
    prune,
    versions,
)
from dovetail.joins.semistream.master.page_file.range_file import explain_ranges, open_cells
from dovetail.joins.semistream.master.pages import Order, read_each


def joined_pages(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of the pages at these places of `data`, in order, in memory of their own.

    Plain columns (fixed-width, boolean, text, binary) of messages that are as ours are joined in one pass; anything
    else is left to Arrow.
    """
    parts = _parts_of(data, starts, stops, schema)
    found = None if parts is None else _joined_columns(data, parts, schema)
    if found is not None:
        return found
    whole = pa.py_buffer(data)
    messages = [whole.slice(a, b - a) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return pa.concat_batches([pa.ipc.read_record_batch(message, schema) for message in messages])


def keyed_rows(data: U8, starts: I64, stops: I64, schema: pa.Schema, form: KeyForm, codes: I64) -> pa.RecordBatch:
    """The rows of these pages whose key has one of these codes, in order, in memory of their own.

    Of plain columns only the keys are decoded of the other rows.
    """
    parts = _parts_of(data, starts, stops, schema)
    keys = None if parts is None else _key_columns(data, parts, schema, form)
    if parts is not None and keys is not None:
        rows = rows_among(form.normal(keys)[0].codes(), codes)
        found = _joined_columns(data, kernels.single_rows(parts, rows), schema)
        if found is not None:
            return found
    whole = joined_pages(data, starts, stops, schema)
    rows = rows_among(form.normal([whole.column(name) for name in form.names])[0].codes(), codes)
    return take_columns(whole, rows)


def _key_columns(data: U8, parts: kernels.Parts, schema: pa.Schema, form: KeyForm) -> list[pa.Array] | None:
    firsts = np.cumsum([0, *(_n_buffers(field.type) for field in schema)]).tolist()
    places = [schema.get_field_index(name) for name in form.names]
    found = [_column(data, parts, at, firsts[at], schema.field(at).type) for at in places]
    return None if any(column is None for column in found) else found


def _plain(schema: pa.Schema) -> bool:
    return all(_n_buffers(field.type) for field in schema)


@lru_cache(maxsize=256)
def _n_buffers(kind: pa.DataType) -> int:
    """Buffers of a plain column, 0 of another."""
    if kind in NARROW_TEXT or kind in WIDE_TEXT:
        return 3
    return 2 if pa.types.is_boolean(kind) or fixed_width(kind) else 0


def _parts_of(data: U8, starts: I64, stops: I64, schema: pa.Schema) -> kernels.Parts | None:
    """Where the columns of these pages are; None if they are not plain."""
    if not _plain(schema):
        return None
    parts = kernels.empty_parts(len(starts), len(schema), sum(_n_buffers(field.type) for field in schema))
    return parts if kernels.message_parts(data, starts, stops, parts) else None


def _joined_columns(data: U8, parts: kernels.Parts, schema: pa.Schema) -> pa.RecordBatch | None:
    columns, buffer = [], 0
    for number, field in enumerate(schema):
        column = _column(data, parts, number, buffer, field.type)
        if column is None:
            return None
        columns.append(column)
        buffer += _n_buffers(field.type)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(data: U8, parts: kernels.Parts, number: int, buffer: int, kind: pa.DataType) -> pa.Array | None:
    rows, has_nulls = int(parts.rows.sum()), bool(parts.nulls[:, number].any())
    validity = None
    if has_nulls:
        validity = _bits(data, parts, buffer, rows)
        if validity is None:
            return None
    content = _content(data, parts, buffer + 1, rows, kind)
    if content is None:
        return None
    buffers = [None if array is None else pa.py_buffer(array) for array in (validity, *content)]
    return pa.Array.from_buffers(kind, rows, buffers, -1 if has_nulls else 0)


def _content(data: U8, parts: kernels.Parts, buffer: int, rows: int, kind: pa.DataType) -> list[AnyArray] | None:
    if pa.types.is_boolean(kind):
        bits = _bits(data, parts, buffer, rows)
        return None if bits is None else [bits]
    width = fixed_width(kind)
    if width:
        values = np.empty(rows * width, np.uint8)
        return [values] if kernels.joined_values(data, parts, buffer, width, values) else None
    words = data[: len(data) // 8 * 8].view(np.int64 if kind in WIDE_TEXT else np.int32)
    size = kernels.text_bytes(words, parts, buffer)
    if size < 0 or (words.itemsize == 4 and size >= 2**31):
        return None
    offsets, text = np.empty(rows + 1, words.dtype), np.empty(size, np.uint8)
    return [offsets, text] if kernels.joined_text(data, words, parts, buffer, offsets, text) else None


def _bits(data: U8, parts: kernels.Parts, buffer: int, rows: int) -> U8 | None:
    bits = np.zeros(-(-rows // 8), np.uint8)
    return bits if kernels.joined_bits(data, parts, buffer, bits) else None


_REPAIR = "build the page file again, or restore it from a copy"
_AT_A_TIME = 1 << 20  # bytes of pages in which keys are looked up; more of them leave the processor's caches


class PageFile:
    """One open generation: its files are held open, so that it stays readable after pruning.

    Every page is checked against its checksum each time it is read, tables and index when they are opened. A file that
    is short, damaged or cannot be read is a `ConfigError`. Page numbers run through the parts.
    """

    def __init__(self, path: Path, generation: Generation, device: Device | None = None) -> None:
        self.path, self.generation = path, generation
        self.schema, self.key, self.version = generation.schema, generation.key, generation.version
        self.order: Order = generation.order
        self.indexed = True
        self.device = device or Device()
        home = directory(path, generation.number)
        self._place = str(home)
        self._form = key_form(self.schema, self.key)
        table = page_table(path, generation)
        ends = np.concatenate([[0], np.cumsum(table.column("size").to_numpy())]).astype(np.int64)
        self._ends = array("q", ends.tobytes())  # single numbers are read from it several times faster than from NumPy
        self._crcs = array("I", table.column("crc").to_numpy().tobytes())
        self.starts: I64 = np.concatenate([[0], np.cumsum(table.column("rows").to_numpy())]).astype(np.int64)
        self._part_pages = list(accumulate((part.pages for part in generation.parts), initial=0))
        self._index = _index(home, generation, table)
        self.ranges = None if generation.ranged is None else open_cells(home, generation, generation.ranged)
        self._files: list[int] = []
        self._close = weakref.finalize(self, _close_all, self._files)
        self._parts = [*generation.parts, *([generation.null_part] if generation.null_part else [])]
        for part in self._parts:
            self._files.append(_opened(home / part.rows_file, part.nbytes))

    def by(self, part: tuple[str, ...]) -> PageFile:
        """This version looked up by part of its key, whose rows may be in any page; `ConfigError` if some are in none.

        Rows with a null in another part of the key are among those that were left out or kept apart.
        """
        if self.generation.null_keys:
            self.close()
            raise ConfigError(
                f"{self.path} has {self.generation.null_keys} rows with a null in its key {list(self.key)}, which are "
                f"in no page; to look up by {list(part)}, build a page file with this key."
            )
        self.key, self.indexed, self.order = part, False, "none"
        return self

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each row's key, or -1 where there is certainly none, nulls among them. No page is read."""
        return self._index.home(*self._form.normal(key))

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        return self._ends[first + count] - self._ends[first]

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs moves."""
        ends = np.frombuffer(self._ends, np.int64)
        moved: I64 = ends[first + count] - ends[first]
        return moved

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on, by one read. A page that is not whole is a `ConfigError`."""
        if first < 0 or count < 1 or first + count >= len(self._ends):
            raise IndexError(
                f"{self.path} has {len(self._ends) - 1} pages, from 0; {count} from {first} on are not there."
            )
        if not self._close.alive:
            raise ValueError(f"{self.path} is closed; pages cannot be read.")
        start = self._ends[first]
        size = self._ends[first + count] - start
        data = self.device.call(lambda: self._fetch(first, count, size), nbytes=size, place=(self._place, start))
        if count == 1:
            return self._decoded(first, data, start)
        ends = np.frombuffer(self._ends, np.int64)[first : first + count + 1] - start
        self._check_pages(list(range(first, first + count)), data, ends[1:].tolist())
        return joined_pages(raw_bytes(np.frombuffer(data, np.uint8)), int64s(ends[:-1]), int64s(ends[1:]), self.schema)

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins; neighbours are one read."""
        if self.device.simulated or not len(first):
            return read_each(self, first, count)
        if not self._close.alive:
            raise ValueError(f"{self.path} is closed; pages cannot be read.")
        pages = expand_runs(int64s(first), int64s(count))
        if not len(pages) or pages[0] < 0 or pages[-1] >= len(self._ends) - 1 or (np.diff(pages) < 1).any():
            return read_each(self, first, count)
        batch = joined_pages(*self._checked(pages), self.schema)
        rows = self.starts[first + count] - self.starts[first]
        return batch, np.concatenate([np.zeros(1, np.int64), np.cumsum(rows)])

    @property
    def finds_keys(self) -> bool:
        """Whether single keys are looked up; the costs of a simulated device are those of whole pages."""
        return self.indexed and not self.device.simulated

    reads_homes = True

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, from their home pages, of which `room` bytes are held at a time.

        None if the rows found have more bytes than that.
        """
        if not self._close.alive:
            raise ValueError(f"{self.path} is closed; pages cannot be read.")
        normal, valid = self._form.normal(key)
        home, codes = self._index.home(normal, valid), normal.codes()
        order = np.argsort(home, kind="stable")[int(np.count_nonzero(home < 0)) :]
        pages, firsts = np.unique(home[order], return_index=True)
        ends = np.frombuffer(self._ends, np.int64)
        sizes = ends[pages + 1] - ends[pages]
        heads = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // max(1, min(room, _AT_A_TIME)), prepend=-1))
        found, firsts, held = [], np.append(firsts, len(order)), 0
        for head, tail in pairwise([*heads.tolist(), len(pages)]):
            found.append(self._keyed(pages[head:tail], codes[order[firsts[head] : firsts[tail]]]))
            held += nbytes(found[-1])
            if held > room:
                return None
        return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], self.schema)

    def _keyed(self, pages: I64, codes: I64) -> pa.RecordBatch:
        data, starts, stops = self._checked(pages)
        return keyed_rows(data, starts, stops, self.schema, self._form, int64s(codes))

    @property
    def null_rows(self) -> int:
        """Rows with a null in the key; a `PlanError` if there were some that the file was built without."""
        found = self.generation.null_part
        if found is None and self.generation.null_keys:
            raise PlanError(
                f"{self.path} was built without its {self.generation.null_keys} rows that have a null in the key; "
                f"build it with keep_nulls=True for joins with null_safe=True.",
                argument="null_safe",
            )
        return 0 if found is None else found.rows

    @property
    def null_bytes(self) -> int:
        """Bytes of the rows with a null in the key."""
        return 0 if self.generation.null_part is None else self.generation.null_part.nbytes

    def read_nulls(self) -> pa.RecordBatch:
        """The rows with a null in the key, by one read."""
        part = self.generation.null_part
        if part is None:
            return pa.RecordBatch.from_pylist([], self.schema)
        if not self._close.alive:
            raise ValueError(f"{self.path} is closed; pages cannot be read.")
        number, table = len(self._parts) - 1, part_table(Path(self._place), part)
        data = pa.allocate_buffer(part.nbytes)
        self.device.call(lambda: self._fill(number, memoryview(data), 0), nbytes=part.nbytes)
        stops = np.cumsum(table.column("size").to_numpy())
        pages = []
        for start, stop, crc in zip([0, *stops[:-1].tolist()], stops.tolist(), table["crc"].to_pylist(), strict=True):
            page = data.slice(start, stop - start)
            if zlib.crc32(page) != crc:
                raise ConfigError(f"{self._name(number)} is damaged (checksum differs); {_REPAIR}.")
            pages.append(pa.ipc.read_record_batch(page, self.schema))
        return pa.concat_batches(pages)

    def close(self) -> None:
        """Close the files; twice is fine."""
        self._close()

    def _fetch(self, first: int, count: int, size: int) -> pa.Buffer:
        """The bytes of a run of pages, which may continue in the next part."""
        data = pa.allocate_buffer(size)
        view, done, page = memoryview(data), 0, first
        while page < first + count:
            part = bisect_right(self._part_pages, page) - 1
            stop = min(first + count, self._part_pages[part + 1])
            length = self._ends[stop] - self._ends[page]
            offset = self._ends[page] - self._ends[self._part_pages[part]]
            self._fill(part, view[done : done + length], offset)
            done, page = done + length, stop
        return data

    def _checked(self, pages: I64) -> tuple[U8, I64, I64]:
        """The bytes of ascending pages, whole and undamaged, and where each of them begins and ends."""
        ends = np.frombuffer(self._ends, np.int64)
        sizes = ends[pages + 1] - ends[pages]
        stops = np.cumsum(sizes)
        data = self._fetch_many(pages, stops - sizes, stops)
        self._check_pages(pages.tolist(), data, stops.tolist())
        return raw_bytes(np.frombuffer(data, np.uint8)), int64s(stops - sizes), int64s(stops)

    def _fetch_many(self, pages: I64, begins: I64, stops: I64) -> pa.Buffer:
        """The bytes of ascending pages, each from its place in `begins` to that in `stops`; neighbours by one read."""
        part = np.searchsorted(self._part_pages, pages, side="right") - 1
        heads = np.flatnonzero(np.append(True, (np.diff(pages) > 1) | (np.diff(part) > 0)))
        tails = np.append(heads[1:], len(pages)) - 1
        ends = np.frombuffer(self._ends, np.int64)
        offset = ends[pages[heads]] - ends[np.array(self._part_pages)[part[heads]]]
        runs = [column.tolist() for column in (part[heads], offset, begins[heads], stops[tails])]
        data = self.device.call(lambda: self._filled(runs, int(stops[-1])), nbytes=int(stops[-1]))
        self.device.requests += len(heads) - 1
        self.device.seeks += len(heads) - 1
        return data

    def _filled(self, runs: list[list[int]], size: int) -> pa.Buffer:
        data = pa.allocate_buffer(size)
        view, files, read = memoryview(data), self._files, os.preadv
        for part, offset, begin, stop in zip(*runs, strict=True):
            place = view[begin:stop]
            try:
                whole = read(files[part], [place], offset) == stop - begin
            except OSError:
                whole = False
            if not whole:  # cut short by a signal, or an error that the second attempt raises
                self._fill(part, place, offset)
        return data

    def _fill(self, part: int, view: memoryview, offset: int) -> None:
        done, size = 0, len(view)
        while done < size:
            try:
                got = os.preadv(self._files[part], [view[done:] if done else view], offset + done)
            except OSError as error:
                raise ConfigError(f"cannot read {self._name(part)}: {error.strerror}; check the disk.") from error
            if got == 0:
                nbytes = self._parts[part].nbytes
                raise ConfigError(f"{self._name(part)} ends at byte {offset + done} of {nbytes}; {_REPAIR}.")
            done += got

    def _decoded(self, page: int, data: pa.Buffer, start: int) -> pa.RecordBatch:
        message = data.slice(self._ends[page] - start, self._ends[page + 1] - self._ends[page])
        if zlib.crc32(message) != self._crcs[page]:
            raise self._damaged(page)
        return pa.ipc.read_record_batch(message, self.schema)

    def _check_pages(self, pages: list[int], data: pa.Buffer, stops: list[int]) -> None:
        view, start, crcs = memoryview(data), 0, self._crcs
        for page, stop in zip(pages, stops, strict=True):
            if zlib.crc32(view[start:stop]) != crcs[page]:
                raise self._damaged(page)
            start = stop

    def _damaged(self, page: int) -> ConfigError:
        part = bisect_right(self._part_pages, page) - 1
        return ConfigError(f"page {page} in {self._name(part)} is damaged (checksum differs); {_REPAIR}.")

    def _name(self, part: int) -> str:
        return f"{self._place}/{self._parts[part].rows_file}"


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _opened(path: Path, nbytes: int) -> int:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}; check permissions, or {_REPAIR}.") from error
    found = os.fstat(handle).st_size
    if found != nbytes:
        os.close(handle)
        raise ConfigError(f"{path} has {found} bytes instead of {nbytes}; {_REPAIR}.")
    return handle


def page_table(path: Path, generation: Generation) -> pa.Table:
    """Size, rows, checksums and fences of every page of a generation."""
    home = directory(path, generation.number)
    return pa.concat_tables([part_table(home, part) for part in generation.parts]).combine_chunks()


def part_table(home: Path, part: PartFile) -> pa.Table:
    """Size, rows, checksums and fences of the pages of one part."""
    path = home / part.table_file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; check permissions, or {_REPAIR}.") from error
    if zlib.crc32(data) != part.table_crc:
        raise ConfigError(f"{path} is damaged (checksum differs); {_REPAIR}.")
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()


def _index(home: Path, generation: Generation, table: pa.Table) -> Index:
    if generation.index is None:
        return Fences(*(normal_of(_one_array(table.column(name))) for name in ("first", "last")))
    found = generation.index
    codes = _mapped(home / "index.codes", np.dtype("<i8"), found, 1)
    pages = _mapped(home / "index.pages", np.dtype("<i4"), found, 2)
    if not found.clashing_keys:
        return Dense(codes, pages)
    keys = pa.array([base64.b64decode(key) for key in found.clashing_keys], pa.large_binary())
    return Dense(codes, pages, (normal_of(keys), np.array(found.clashing_pages, np.int64)))


def _mapped(path: Path, kind: np.dtype[np.signedinteger], index: IndexFile, crc_at: int) -> AnyArray:
    """A memory-mapped file of the index, after its checksums were compared."""
    if index.entries == 0:
        return np.empty(0, kind)
    with os.fdopen(_opened(path, index.entries * kind.itemsize), "rb") as file:
        found = np.memmap(file, kind, "r")
    at = 0
    for stretch in index.stretches:
        if zlib.crc32(found[at : at + stretch[0]].data) != stretch[crc_at]:
            raise ConfigError(f"{path} is damaged (checksum differs); {_REPAIR}.")
        at += stretch[0]
    return np.asarray(found)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


_OPENINGS = 20  # to open the current version: it may be pruned between reading its name and opening its files


@dataclass(frozen=True, slots=True)
class PageFileSource:
    """The page file at a path that driver and workers share."""

    path: str
    part: tuple[str, ...] = ()
    """Columns of the key that rows are looked up by, if not by all of them."""

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> PageFileSource:
        """The same file looked up by part of its key: without an index, as pages are laid out by the whole key."""
        return replace(self, part=key)

    def version(self) -> str:
        """The current generation."""
        return current_version(Path(self.path))

    def versions(self) -> list[str]:
        """Generations that can be opened, oldest first."""
        return versions(Path(self.path))

    def open(self, version: str | None = None, device: Device | None = None) -> PageFile:
        """A generation, by default the current one."""
        for attempt in range(_OPENINGS):
            current = self.version()
            try:
                found = PageFile(Path(self.path), load_version(Path(self.path), version), device)
                return found.by(self.part) if self.part else found
            except ConfigError:
                if version is not None or attempt == _OPENINGS - 1 or self.version() == current:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of `new` that differ from the page of that number in `old`; None if that is not cheap to find."""
        path = Path(self.path)
        before, after = load_version(path, old), load_version(path, new)
        if before.order != after.order or before.key != after.key or not before.schema.equals(after.schema):
            return None
        return _differing(page_table(path, before), page_table(path, after))

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove all but the newest generations and those that streams need; returns the removed versions."""
        return prune(Path(self.path), keep, also_held)

    def explain(self) -> str:
        """The current generation in some lines."""
        found = load_version(Path(self.path))
        if found.ranged is not None:
            return explain_ranges(Path(self.path), found, found.ranged)
        index = "fences" if found.index is None else f"dense index of {found.index.entries} keys"
        repeats = "unique" if found.unique else "may repeat"
        size = f"{found.rows} rows in {found.n_pages} pages of {format_bytes(found.page_bytes)}"
        return (
            f"page file {self.path}, version {found.version} of {found.created}\n"
            f"  key {list(found.key)}, order {found.order}, {index}, keys {repeats}\n"
            f"  {size}, {format_bytes(found.nbytes)} on disk in {len(found.parts)} parts; "
            f"{found.null_keys} rows without a key {'kept apart' if found.null_part else 'left out'}{self._by_part()}"
        )

    def _by_part(self) -> str:
        if not self.part:
            return ""
        return (
            f"\n  looked up by {list(self.part)}, part of the key: no index, so that every task reads all pages; "
            f"a page file with this key reads what is needed"
        )

    def __str__(self) -> str:
        return f"page file {self.path}"


def _differing(old: pa.Table, new: pa.Table) -> I64:
    """Pages of `new` whose rows, and with them the range of their keys, are not those of the same page of `old`."""
    shared = min(old.num_rows, new.num_rows)
    before, after = (table.column("digest").slice(0, shared) for table in (old, new))
    differs = np.asarray(pc.not_equal(before, after), np.bool_)
    return np.concatenate([np.flatnonzero(differs), np.arange(shared, new.num_rows)])
