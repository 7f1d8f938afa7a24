"""Rows of one input on disk: numbered blocks with keys and arrival ticks, a directory of them, and parts of them
loaded for a join."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.memory import MemoryBudget, Reservation
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes
from dovetail.engine.rows.named_rows import PLACE, SHIFT, NamedRows, Picks, as_picked, picked
from dovetail.engine.storage.spill import SpillFile, spill_directory
from dovetail.errors import ConfigError
from dovetail.joins.online.kernels.match import Stretch
from dovetail.joins.online.kernels.ranges import WHOLE, key_ranges

KEY, ATS, DTS, BLOCK = "__dovetail_key", "__dovetail_ats", "__dovetail_dts", "__dovetail_block"
"""The columns of keys, each followed by its number, of ticks of arrival and departure, and of block numbers."""
Rule = Literal["ticks", "group", "none"]
"""The rule for combinations produced before: those in memory together (ticks), those of one group, or none."""


class Leaving(NamedTuple):
    """Rows on their way to disk, with keys by number and row, and the arrival tick of each."""

    batch: pa.RecordBatch
    keys: I64
    ats: I64

    def take(self, order: I64) -> Leaving:
        """The same rows in another order."""
        return Leaving(picked(self.batch, order), self.keys[:, order], self.ats[order])

    def slice(self, start: int, rows: int) -> Leaving:
        """A range of consecutive rows."""
        stop = start + rows
        return Leaving(self.batch.slice(start, rows), self.keys[:, start:stop], self.ats[start:stop])


class Face(NamedTuple):
    """Rows of a part prepared for matching with another input: sorted keys, the row of each, and the first and last
    key of the other input that any of them can match."""

    stretch: Stretch
    rows: I64
    reach: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some rows of one input: keys by number and row, ticks, block of each; `refs` name each in `pages`.

    `faces` caches the prepared rows by input.
    """

    keys: I64
    ats: I64
    dts: I64
    block: I64
    refs: I64
    pages: dict[int, pa.RecordBatch]
    schema: pa.Schema
    faces: dict[Sought, Face] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.ats)

    def only(self, wanted: Bool) -> Part:
        """The selected rows; pages are unchanged."""
        if wanted.all():
            return self
        numbers = (self.ats[wanted], self.dts[wanted], self.block[wanted], self.refs[wanted])
        return Part(self.keys[:, wanted], *numbers, self.pages, self.schema)

    def compact(self, number: int) -> Part:
        """The same rows, copied to one page without other rows."""
        page = self.pages[number]
        if len(self.ats) == page.num_rows:
            return self
        place = self.refs - (number << SHIFT)
        refs = (number << SHIFT) + np.arange(len(place))
        return replace(self, refs=refs, pages={number: picked(page, place)}, faces={})

    def in_one_page(self) -> Part:
        """The same rows, with all pages copied to one."""
        numbers, sizes = zip(*((number, page.num_rows) for number, page in self.pages.items()), strict=True)
        order = np.argsort(numbers)
        at = order[np.searchsorted(np.array(numbers)[order], self.refs >> SHIFT)]
        refs = (np.cumsum(sizes) - sizes)[at] + (self.refs & PLACE)
        return replace(self, refs=int64s(refs), pages={0: pa.concat_batches(list(self.pages.values()))})

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(map(nbytes, self.pages.values()))

    @property
    def rows(self) -> NamedRows:
        """The columns by name."""
        return NamedRows(self.pages, self.schema)

    def facing(self, other: Sought) -> Face:
        """The rows prepared for matching with another input; sorted once."""
        if other not in self.faces:
            self.faces[other] = other.face(self.keys, self.ats, self.dts)
        return self.faces[other]


class Sought(NamedTuple):
    """How rows of one input are matched with another: the number of their key, and of the key of an additional band
    (-1 if none); for both the range of the other input's keys, as down, up and measure."""

    key: int
    near: int
    around: tuple[int, int, int]
    near_around: tuple[int, int, int]

    @property
    def coded(self) -> bool:
        """Whether keys must also be equal, in addition to a band."""
        return self.near >= 0

    @property
    def is_equal(self) -> bool:
        """Whether rows can match only if their keys are equal."""
        return self.coded or self.around == (0, 0, WHOLE)

    @property
    def last(self) -> int:
        """The key that rows with equal codes are ordered by."""
        return self.near if self.coded else self.key

    def face(self, keys: I64, ats: I64, dts: I64) -> Face:
        """Rows of these keys and ticks, sorted."""
        code, key = keys[self.key], keys[self.last]
        order = np.lexsort((key, code)) if self.coded else np.argsort(key, kind="stable")
        key, code, ats, dts = (int64s(column[order]) for column in (key, code, ats, dts))
        around = self.near_around if self.coded else self.around
        low, high = (key, key) if around == (0, 0, WHOLE) else key_ranges(key, *around)
        some = low <= high
        reach = (int(low[some].min()), int(high[some].max())) if some.any() else (_LAST, _FIRST)
        return Face(Stretch(key, code, int64s(low), int64s(high), ats, dts), order, reach)


def united(parts: Sequence[Part]) -> Part:
    """All rows of these parts, which have pages of different numbers."""
    if len(parts) == 1:
        return parts[0]
    keys = np.concatenate([part.keys for part in parts], axis=1)
    ats, dts = np.concatenate([part.ats for part in parts]), np.concatenate([part.dts for part in parts])
    block, refs = np.concatenate([part.block for part in parts]), np.concatenate([part.refs for part in parts])
    pages = {number: page for part in parts for number, page in part.pages.items()}
    return Part(keys, ats, dts, block, refs, pages, parts[0].schema)


class Entry(NamedTuple):
    """A block: rows, departure tick, bucket, group (segment, run or generation), smallest and largest key, arrival
    ticks of its oldest and newest row, and whether it is dead: replaced by a merge, or all of its rows have left."""

    rows: int
    dts: int
    bucket: int
    group: int
    low: int
    high: int
    oldest: int
    newest: int
    dead: int = 0


_FIRST, _LAST = -(2**63), 2**63 - 1
FIELDS = Entry._fields
_DEAD = FIELDS.index("dead")
_GROUP = FIELDS.index("group")
_FIRST_LINES = 16


class Directory:
    """Entries of numbers, one per block, read by field.

    Memory is reserved as entries are added. Once the budget is exhausted, all entries move to an unnamed file.
    """

    def __init__(self, reservation: Reservation, directory: Path | None = None) -> None:
        self._reservation, self._directory = reservation, directory
        self._lines: I64 = np.zeros((0, len(FIELDS)), np.int64)
        self._file: IO[bytes] | None = None
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._reservation.used

    @property
    def is_in_file(self) -> bool:
        """Whether the entries are in a file."""
        return self._file is not None

    def append(self, entry: Entry) -> None:
        """Append the entry of a block."""
        if self._n == len(self._lines):
            self._grow(max(_FIRST_LINES, 2 * self._n))
        self._lines[self._n] = entry
        self._n += 1

    def __getitem__(self, number: int) -> Entry:
        return Entry(*self._lines[number].tolist())

    def column(self, field: str) -> I64:
        """One field of all blocks; a view that must not be written."""
        return self._lines[: self._n, FIELDS.index(field)]

    def regroup(self, group: int, numbers: I64 | None = None) -> None:
        """Assign these blocks, or all, to one group."""
        self._lines[: self._n, _GROUP][slice(None) if numbers is None else numbers] = group

    def bury(self, numbers: Sequence[int] | I64) -> None:
        """Mark these blocks as dead."""
        self._lines[np.asarray(numbers, np.int64), _DEAD] = 1

    def _grow(self, lines: int) -> None:
        grown = self._in_memory(lines) if self._reserve(8 * len(FIELDS) * lines) else self._mapped(lines)
        grown[: self._n] = self._lines[: self._n]
        self._reservation.resize(0 if self.is_in_file else grown.nbytes)
        self._lines = grown

    def _reserve(self, size: int) -> bool:
        """Reserve room for the new entries beside the old ones; False if they would take a large part of the budget."""
        budget = self._reservation.budget
        small = 16 * size <= budget.limit and 2 * size < budget.available
        return small and not self.is_in_file and self._reservation.try_grow(size)

    def _in_memory(self, lines: int) -> I64:
        return np.zeros((lines, len(FIELDS)), np.int64)

    def _mapped(self, lines: int) -> I64:
        try:
            file = tempfile.TemporaryFile(dir=self._directory or spill_directory())  # noqa: SIM115  (open until `close`)
            file.truncate(8 * len(FIELDS) * lines)
        except OSError as error:
            raise ConfigError(f"cannot keep the list of spilled blocks on disk ({error}); free space there.") from error
        if self._file is not None:
            self._file.close()  # the mapping stays valid
        self._file = file
        mapped: I64 = np.memmap(file, np.int64, "r+", shape=(lines, len(FIELDS)))
        return mapped

    def clear(self) -> None:
        """Drop every entry and remove the file."""
        self._lines, self._n = np.zeros((0, len(FIELDS)), np.int64), 0
        if self._file is not None:
            self._file.close()
            self._file = None
        self._reservation.close()

    def close(self) -> None:
        """As `clear`."""
        self.clear()


class Blocks:
    """The flushed blocks of one input, numbered from 0 in the order written; a block never changes.

    `keys` is the number of keys of a row, `beside` the bytes of each loaded row beside its columns.
    """

    def __init__(
        self, schema: pa.Schema, keys: int, beside: int, budget: MemoryBudget, directory: Path | None, name: str
    ) -> None:
        self.schema, self.keys, self.beside = schema, keys, beside
        extra = [pa.field(column, pa.int64()) for column in (*key_columns(keys), ATS)]
        self.file = SpillFile(pa.schema([*schema, *extra]), directory, name)
        self.directory = Directory(budget.reserve("block directory"), directory)
        self.largest = 0
        self.retired = 0
        """Rows that arrived up to this tick have left; blocks with younger rows still contain them on disk."""
        self.drained = 0
        """The tick up to which all rows have been joined with each other."""
        self.before = (0, 0, 0)
        """Blocks written, blocks read and bytes written in earlier files that this one replaced."""

    def __len__(self) -> int:
        return self.file.blocks

    def column(self, field: str) -> I64:
        """One field of the directory for all blocks; do not write to it."""
        return self.directory.column(field)

    def append(self, rows: Leaving, by: int, dts: int, bucket: int = 0, group: int = 0) -> int:
        """Write rows sorted by key `by` as a new block; returns its number."""
        columns = [*rows.batch.columns, *(pa.array(np.ascontiguousarray(key)) for key in rows.keys), pa.array(rows.ats)]
        number = self.file.append(pa.RecordBatch.from_arrays(columns, schema=self.file.schema))
        ends = (int(rows.keys[by][0]), int(rows.keys[by][-1]))
        self.directory.append(Entry(len(rows.ats), dts, bucket, group, *ends, int(rows.ats.min()), int(rows.ats.max())))
        self.largest = max(self.largest, self.bytes_of(number))
        return number

    def append_cut(self, rows: Leaving, block_rows: int, by: int, dts: int, bucket: int = 0, group: int = 0) -> None:
        """Write rows as new blocks of at most `block_rows` rows."""
        for start in range(0, len(rows.ats), block_rows):
            self.append(rows.slice(start, block_rows), by, dts, bucket, group)

    def bytes_of(self, number: int) -> int:
        """Memory that loading one block takes."""
        return self.file.size_of(number) + self.beside * self.directory[number].rows

    def read(self, number: int) -> Leaving:
        """A block's rows that have not left."""
        return split_off(self._present(self.file.read(number)), self.schema, self.keys)

    def _present(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        stays = int64s(batch.column(ATS)) > self.retired
        return batch if stays.all() else picked(batch, np.flatnonzero(stays))

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """A block's rows that have not left; the caller has reserved its `bytes_of`."""
        rows, entry = self.read(number), self.directory[number]
        n = len(rows.ats)
        if rule == "group":  # an interval that marks rows of a group as having been in memory together
            ats, dts = np.full(n, 2 * entry.group), np.full(n, 2 * entry.group + 1)
        else:
            ats, dts = rows.ats, np.full(n, entry.dts if rule == "ticks" else 0)
            # Rows that arrived before the last drain are joined with each other: as if all had arrived at the start.
            early = ats <= self.drained
            ats, dts = np.where(early, 0, ats), np.where(early, np.maximum(dts, 1), dts)
        refs = (number << SHIFT) + np.arange(n)
        return Part(rows.keys, ats, dts, np.full(n, number), refs, {number: rows.batch}, self.schema)

    def living(self) -> I64:
        """The numbers of blocks that are not dead."""
        return np.flatnonzero(self.column("dead") == 0)

    def living_size(self) -> tuple[int, int]:
        """Rows and bytes of blocks that are not dead."""
        numbers = self.living()
        return int(self.column("rows")[numbers].sum()), sum(map(self.file.size_of, numbers.tolist()))

    def of_bucket(self, bucket: int) -> I64:
        """The numbers of a bucket's blocks that are not dead."""
        return np.flatnonzero((self.column("bucket") == bucket) & (self.column("dead") == 0))

    def meets(self, number: int, reach: tuple[int, int]) -> bool:
        """Whether a block that is not dead has keys between these two."""
        own, (first, last) = self.directory[number], reach
        return not own.dead and own.low <= last and first <= own.high

    def retire(self, until: int) -> None:
        """Retire rows that arrived up to this tick; blocks without younger rows become dead."""
        self.retired = until
        self.directory.bury(np.flatnonzero(self.column("newest") <= until))

    @property
    def waste(self) -> float:
        """The share of rows in the file that have left or were replaced; estimated for blocks with both kinds."""
        rows, oldest, newest = (self.column(field) for field in ("rows", "oldest", "newest"))
        left = np.clip((self.retired - oldest + 1) / (newest - oldest + 1), 0, 1)
        return float((rows * np.where(self.column("dead") == 1, 1.0, left)).sum()) / max(1, int(rows.sum()))

    def compact(self) -> None:
        """Write the remaining rows to a new file, in new blocks; the caller has reserved two of `largest`."""
        old, numbers = self.file, self.living().tolist()
        lines = [self.directory[number] for number in numbers]
        self.before = self.blocks_written - len(lines), self.blocks_read, self.bytes_written
        self.file, self.largest = SpillFile(old.schema, old.directory, old.name), 0
        self.directory.clear()
        for number, line in zip(numbers, lines, strict=True):
            rows = self._present(old.read(number))
            self.directory.append(line._replace(rows=rows.num_rows, oldest=max(line.oldest, self.retired + 1)))
            self.largest = max(self.largest, self.bytes_of(self.file.append(rows)))
        old.close()

    @property
    def blocks_written(self) -> int:
        """Blocks ever written."""
        return self.before[0] + self.file.blocks

    @property
    def blocks_read(self) -> int:
        """Blocks ever read."""
        return self.before[1] + self.file.blocks_read

    @property
    def bytes_written(self) -> int:
        """Bytes ever written."""
        return self.before[2] + self.file.bytes_written

    def record(self, metrics: Metrics, name: str) -> None:
        """Record what was written and read, under the name of the input."""
        metrics.add("blocks_flushed", self.blocks_written, name, unit="blocks")
        metrics.add("blocks_read", self.blocks_read, name, unit="blocks")
        metrics.add("bytes_flushed", self.bytes_written, name, unit="bytes")

    def close(self) -> None:
        """Remove the file."""
        self.file.close()
        self.directory.close()


class LongBlocks:
    """Rows of one input written again: small blocks as long ones, or rows by ranges of their key.

    Each row keeps its ticks and the number of its block.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.schema, self.keys, self.beside = blocks.schema, blocks.keys, blocks.beside
        names = [*key_columns(self.keys), ATS, DTS, BLOCK]
        extra = [pa.field(name, pa.int64()) for name in names]
        self.file = SpillFile(pa.schema([*self.schema, *extra]), blocks.file.directory, f"{blocks.file.name}-runs")
        self._rows: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, part: Part, order: I64, edges: Sequence[int]) -> None:
        """A run for the rows between each two edges, of a part in this order."""
        numbers = [*part.keys, part.ats, part.dts, part.block]
        columns = [
            *part.rows.take(Picks.of(part.refs[order]), as_picked).columns,
            *(pa.array(each[order]) for each in numbers),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.file.schema)
        for start, stop in pairwise(edges):
            self.file.append(batch.slice(start, stop - start))
            self._rows.append(stop - start)

    def bytes_of(self, number: int) -> int:
        """Memory that loading one run takes."""
        return self.file.size_of(number) + self.beside * self._rows[number]

    def load(self, number: int, rule: Rule = "ticks") -> Part:
        """One run, with the ticks that its rows were given when it was written."""
        batch = self.file.read(number)
        rows = split_off(batch, self.schema, self.keys)
        dts, block = (batch.column(name).to_numpy() for name in (DTS, BLOCK))
        refs = (number << SHIFT) + np.arange(batch.num_rows)
        return Part(rows.keys, rows.ats, dts, block, refs, {number: rows.batch}, self.schema)

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


def key_columns(keys: int) -> list[str]:
    """The names of the columns of this many keys."""
    return [f"{KEY}{a}" for a in range(keys)]


def split_off(batch: pa.RecordBatch, schema: pa.Schema, keys: int) -> Leaving:
    """The rows of a block as written: the input's own columns, keys and ticks."""
    plain = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)
    return Leaving(
        plain, np.stack([batch.column(name).to_numpy() for name in key_columns(keys)]), batch.column(ATS).to_numpy()
    )
