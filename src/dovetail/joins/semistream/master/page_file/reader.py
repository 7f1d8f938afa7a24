"""A page file by its path, and one open generation of it: pages decoded to one batch, and the page of each key."""

from __future__ import annotations

import dataclasses
import os
import weakref
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, U8, int64s, raw_bytes
from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.memory import format_bytes
from dovetail.engine.rows.columns import nbytes
from dovetail.engine.storage.device import Device
from dovetail.engine.storage.files import Place, located
from dovetail.engine.storage.remote import AT_ONCE, Access, Remote, RemoteFile, fill_ranges, overlapped
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.keys import Fences, key_form, last_not_above
from dovetail.joins.semistream.master.page_file.decode import joined_pages, keyed_rows
from dovetail.joins.semistream.master.page_file.generation import (
    Applied,
    Generation,
    current_version,
    directory,
    load_version,
    versions,
)
from dovetail.joins.semistream.master.page_file.holds import prune
from dovetail.joins.semistream.master.page_file.range_file import explain_ranges, open_cells
from dovetail.joins.semistream.master.page_file.tables import REPAIR, open_index, page_table, part_table
from dovetail.joins.semistream.master.pages import Counted, Order, read_each

_FROM_A_STORE = 16 << 20  # enough for requests to be always under way
_AT_A_TIME = 1 << 20  # bytes of pages in which keys are looked up; more of them leave the processor's caches


class PageFile:
    """One open generation: its files are held open, so that it stays readable after pruning.

    Every page is checked against its checksum each time it is read, tables and index when they are opened. A file that
    is short, damaged or cannot be read is a `ConfigError`. Page numbers run through the parts.
    """

    def __init__(self, path: Place, generation: Generation, device: Device | None = None) -> None:
        self.path, self.generation = path, generation
        self.schema, self.key, self.version = generation.schema, generation.key, generation.version
        self.order: Order = "none" if generation.order == "hash" else generation.order
        self.counted: Counted = "pages"
        self.held_bytes = 0
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
        self._run_pages, self._run_parts, self._run_offsets = _runs(table, ends)
        self._index = open_index(home, generation, table)
        self.ranges = None if generation.ranged is None else open_cells(home, generation, generation.ranged)
        self._files: list[Any] = []  # handles, or remote files
        self._close = weakref.finalize(self, _close_all, self._files)
        self._parts = generation.all_parts
        opens = [partial(_opened, self._at(number), part.nbytes) for number, part in enumerate(self._parts)]
        if isinstance(home, Remote):
            self.device.at_once = AT_ONCE
            self._files += overlapped(opens)
        for part_file in opens if isinstance(home, Path) else ():
            self._files.append(part_file())

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

    def insertion(self, key: Sequence[pa.Array]) -> I64:
        """The page that a row of each key is in, or would be added to, of pages in key order; -1 for nulls."""
        if not isinstance(self._index, Fences):
            raise TypeError(f"{self.path} is not in key order")
        normal, valid = self._form.normal(key)
        return np.where(valid, np.maximum(last_not_above(normal, self._index.first), 0), -1)

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
        most = max(1, min(room, _AT_A_TIME if self.device.at_once == 1 else _FROM_A_STORE))
        heads = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // most, prepend=-1))
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
        number = len(self._parts) - 1
        table = part_table(self._at(number).parent / part.table_file, part.table_crc)
        data = pa.allocate_buffer(part.nbytes)
        self.device.call(lambda: self._fill(number, memoryview(data), 0), nbytes=part.nbytes)
        stops = np.cumsum(table.column("size").to_numpy())
        pages = []
        for start, stop, crc in zip([0, *stops[:-1].tolist()], stops.tolist(), table["crc"].to_pylist(), strict=True):
            page = data.slice(start, stop - start)
            if zlib.crc32(page) != crc:
                raise ConfigError(f"{self._name(number)} is damaged (checksum differs); {REPAIR}.")
            pages.append(pa.ipc.read_record_batch(page, self.schema))
        return pa.concat_batches(pages)

    def close(self) -> None:
        """Close the files; twice is fine."""
        self._close()

    def _fetch(self, first: int, count: int, size: int) -> pa.Buffer:
        """The bytes of neighbouring pages, which may be in several places."""
        data = pa.allocate_buffer(size)
        view, done, page = memoryview(data), 0, first
        while page < first + count:
            run = bisect_right(self._run_pages, page) - 1
            stop = min(first + count, self._run_pages[run + 1])
            length = self._ends[stop] - self._ends[page]
            offset = self._run_offsets[run] + self._ends[page] - self._ends[self._run_pages[run]]
            self._fill(self._run_parts[run], view[done : done + length], offset)
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
        run = np.searchsorted(self._run_pages, pages, side="right") - 1
        heads = np.flatnonzero(np.append(True, (np.diff(pages) > 1) | (np.diff(run) > 0)))
        tails, at = np.append(heads[1:], len(pages)) - 1, run[heads]
        ends, run_pages = np.frombuffer(self._ends, np.int64), np.array(self._run_pages)
        offset = np.array(self._run_offsets)[at] + ends[pages[heads]] - ends[run_pages[at]]
        runs = [column.tolist() for column in (np.array(self._run_parts)[at], offset, begins[heads], stops[tails])]
        data = self.device.call(lambda: self._filled(runs, int(stops[-1])), nbytes=int(stops[-1]))
        self.device.requests += len(heads) - 1
        self.device.seeks += len(heads) - 1
        return data

    def _filled(self, runs: list[list[int]], size: int) -> pa.Buffer:
        data = pa.allocate_buffer(size)
        view, handles, read = memoryview(data), self._files, os.preadv
        if self.device.at_once > 1:
            self._fill_at_once(runs, view)
            return data
        for part, offset, begin, stop in zip(*runs, strict=True):
            place = view[begin:stop]
            try:
                whole = read(handles[part], [place], offset) == stop - begin
            except OSError:
                whole = False
            if not whole:  # cut short by a signal, or an error that the second attempt raises
                self._fill(part, place, offset)
        return data

    def _fill_at_once(self, runs: list[list[int]], view: memoryview) -> None:
        """Read from an object store: near runs by one request, and many requests under way."""
        try:
            fill_ranges(self._files, runs, view)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}; check the store, or {REPAIR}.") from error

    def _fill(self, part: int, view: memoryview, offset: int) -> None:
        done, size = 0, len(view)
        if self.device.at_once > 1:
            self._fill_at_once([[part], [offset], [0], [size]], view)
            return
        while done < size:
            try:
                got = os.preadv(self._files[part], [view[done:] if done else view], offset + done)
            except OSError as error:
                raise ConfigError(f"cannot read {self._name(part)}: {error.strerror}; check the disk.") from error
            if got == 0:
                nbytes = self._parts[part].nbytes
                raise ConfigError(f"{self._name(part)} ends at byte {offset + done} of {nbytes}; {REPAIR}.")
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
        part = self._run_parts[bisect_right(self._run_pages, page) - 1]
        return ConfigError(f"page {page} in {self._name(part)} is damaged (checksum differs); {REPAIR}.")

    def _name(self, part: int) -> str:
        return str(self._at(part))

    def _at(self, part: int) -> Place:
        found = self._parts[part]
        return directory(self.path, found.home or self.generation.number) / found.rows_file


def _close_all(handles: Sequence[int | RemoteFile]) -> None:
    for handle in handles:
        handle.close() if isinstance(handle, RemoteFile) else os.close(handle)


def _opened(path: Place, nbytes: int) -> int | RemoteFile:
    handle: int | RemoteFile
    try:
        handle = RemoteFile(path) if isinstance(path, Remote) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}; check permissions, or {REPAIR}.") from error
    found = handle.size if isinstance(handle, RemoteFile) else os.fstat(handle).st_size
    if found != nbytes:
        _close_all([handle])
        raise ConfigError(f"{path} has {found} bytes instead of {nbytes}; {REPAIR}.")
    return handle


def _runs(table: pa.Table, ends: I64) -> tuple[list[int], list[int], list[int]]:
    """Runs of pages that are neighbours on disk: first pages and the number of all, and of each run part and offset."""
    part, offset = table.column("part").to_numpy(), table.column("offset").to_numpy()
    apart = (part[1:] != part[:-1]) | (offset[1:] != offset[:-1] + np.diff(ends)[:-1])
    heads = np.concatenate([np.zeros(min(1, len(part)), np.int64), np.flatnonzero(apart) + 1])
    return [*heads.tolist(), len(part)], part[heads].tolist(), offset[heads].tolist()


_OPENINGS = 20  # to open the current version: it may be pruned between reading its name and opening its files


@dataclass(frozen=True, slots=True)
class PageFileSource:
    """The page file at a path that driver and workers share."""

    path: str
    part: tuple[str, ...] = ()
    """Columns of the key that rows are looked up by, if not by all of them."""
    access: Access | None = dataclasses.field(default=None, repr=False, compare=False)

    keeps_versions: ClassVar[bool] = True

    @property
    def place(self) -> Place:
        """Where it is."""
        return located(self.path, self.access)

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> PageFileSource:
        """The same file looked up by part of its key: without an index, as pages are laid out by the whole key."""
        return replace(self, part=key)

    def version(self) -> str:
        """The current generation."""
        return current_version(self.place)

    def versions(self) -> list[str]:
        """Generations that can be opened, oldest first."""
        return versions(self.place)

    def open(self, version: str | None = None, device: Device | None = None) -> PageFile:
        """A generation, by default the current one."""
        place = self.place
        for attempt in range(_OPENINGS):
            current = None if isinstance(place, Remote) else self.version()
            try:
                generation = load_version(place, version)
                current = generation.version
                found = PageFile(place, generation, device)
                return found.by(self.part) if self.part else found
            except ConfigError:
                if version is not None or attempt == _OPENINGS - 1 or self.version() == current:
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def changed(self, old: str, new: str) -> I64 | None:
        """Pages of `new` that differ from the page of that number in `old`; None if that is not cheap to find."""
        path = self.place
        before, after = load_version(path, old), load_version(path, new)
        if before.order != after.order or before.key != after.key or not before.schema.equals(after.schema):
            return None
        return _differing(page_table(path, before), page_table(path, after))

    def prune(self, keep: int, also_held: bool = False) -> list[str]:
        """Remove all but the newest generations and those that streams need; returns the removed versions."""
        return prune(self.place, keep, also_held)

    def explain(self) -> str:
        """The current generation in some lines."""
        found = load_version(self.place)
        if found.ranged is not None:
            return explain_ranges(self.place, found, found.ranged)
        ranges = "ranges of hashes" if found.order == "hash" else "fences"
        index = ranges if found.index is None else f"dense index of {found.index.entries} keys"
        repeats = "unique" if found.unique else "may repeat"
        size = f"{found.rows} rows in {found.n_pages} pages of {format_bytes(found.page_bytes)}"
        return (
            f"page file {self.path}, version {found.version} of {found.created}\n"
            f"  key {list(found.key)}, order {found.order}, {index}, keys {repeats}\n"
            f"  {size}, {format_bytes(found.nbytes)} on disk in {len(found.parts)} parts; "
            f"{found.null_keys} rows without a key {'kept apart' if found.null_part else 'left out'}{self._by_part()}"
            f"{'' if found.applied is None else _changed_by(found.applied)}"
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


def _changed_by(applied: Applied) -> str:
    return f"\n  kept up to date to micro-batch {applied.batch} of query {applied.query}"


def _differing(old: pa.Table, new: pa.Table) -> I64:
    """Pages of `new` whose rows, and with them the range of their keys, are not those of the same page of `old`."""
    shared = min(old.num_rows, new.num_rows)
    before, after = (table.column("digest").slice(0, shared) for table in (old, new))
    differs = np.asarray(pc.not_equal(before, after), np.bool_)
    return np.concatenate([np.flatnonzero(differs), np.arange(shared, new.num_rows)])
