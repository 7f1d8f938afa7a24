"""Names rows of Arrow batches by chunk and place, and gathers named rows from their chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.rows.columns import empty_batch, take_columns, taken_bytes

SHIFT = 32
PLACE = (1 << SHIFT) - 1
MISSING = -1
"""The name of no row: a row of nulls is gathered for it."""
_FEW = 2048
_FEW_OF_A_CHUNK = 64


def refs_of(chunk: int, places: I64) -> I64:
    """The names of rows of one chunk."""
    return places + (chunk << SHIFT)


class Group(NamedTuple):
    """Picked rows of one chunk: which of all they are, and their places in the chunk."""

    chunk: int
    at: I64
    places: I64


class Picks(NamedTuple):
    """Rows by name in some order, by chunk."""

    n: int
    groups: list[Group]

    @classmethod
    def of(cls, refs: I64) -> Picks:
        """The rows of these names."""
        chunks, places = refs >> SHIFT, refs & PLACE
        used = np.unique(chunks)
        if len(used) == 1 and used[0] >= 0:
            return cls(len(refs), [Group(int(used[0]), np.arange(0), places)])
        order = np.argsort(chunks, kind="stable")
        edges = np.append(np.searchsorted(chunks[order], used), len(chunks))
        parts = [(chunk, order[edges[i] : edges[i + 1]]) for i, chunk in enumerate(used.tolist()) if chunk >= 0]
        return cls(len(refs), [Group(chunk, at, places[at]) for chunk, at in parts])


Part: TypeAlias = Callable[[int, pa.RecordBatch, I64], tuple[pa.RecordBatch, I64]]
"""A batch that has the rows at these places of a chunk, and their places in that batch."""


def each_once(chunk: int, batch: pa.RecordBatch, places: I64) -> tuple[pa.RecordBatch, I64]:
    """Rows that are picked several times, once."""
    if len(places) < _FEW_OF_A_CHUNK:
        return as_picked(chunk, batch, places)
    different, inverse = np.unique(places, return_inverse=True)
    return picked(batch, different), inverse


def as_picked(chunk: int, batch: pa.RecordBatch, places: I64) -> tuple[pa.RecordBatch, I64]:
    """Rows as often as they are picked."""
    return picked(batch, places), np.arange(len(places))


class NamedRows(NamedTuple):
    """Rows that are named by chunk and place."""

    chunks: Mapping[int, pa.RecordBatch]
    schema: pa.Schema

    def take(self, picks: Picks, part: Part = each_once) -> pa.RecordBatch:
        """The picked rows, in their order; rows of several chunks pass through a copy of the `part` of each."""
        groups = picks.groups
        if len(groups) == 1 and len(groups[0].places) == picks.n:
            return picked(self.chunks[groups[0].chunk], groups[0].places)
        parts, places, before = list[pa.RecordBatch](), np.full(picks.n, MISSING, np.int64), 0
        for chunk, at, wanted in groups:
            batch, there = part(chunk, self.chunks[chunk], wanted)
            places[at] = there + before
            parts.append(batch)
            before += batch.num_rows
        together = pa.concat_batches(parts) if len(parts) > 1 else parts[0] if parts else empty_batch(self.schema)
        del parts  # three copies of the rows would be one too many
        return take_columns(together, places) if (places < 0).any() else picked(together, places)

    def take_columns(self, names: Sequence[str], picks: Picks, part: Part = each_once) -> pa.RecordBatch:
        """These columns of the picked rows."""
        wanted = list(dict.fromkeys(names))
        chunks = {group.chunk: self.chunks[group.chunk].select(wanted) for group in picks.groups}
        return NamedRows(chunks, pa.schema([self.schema.field(name) for name in wanted])).take(picks, part)

    def nbytes(self, picks: Picks) -> int:
        """Bytes of the picked rows, to reserve them before they are taken."""
        return sum(taken_bytes(self.chunks[group.chunk], group.places) for group in picks.groups)


def picked(batch: pa.RecordBatch, at: I64) -> pa.RecordBatch:
    """Rows by number; few rows by Arrow's own `take`, which starts faster but does not support all types."""
    few = len(at) < _FEW and _arrow_takes(batch.schema)
    return batch.take(pa.array(at)) if few else take_columns(batch, at)


@lru_cache(maxsize=64)
def _arrow_takes(schema: pa.Schema) -> bool:
    return not any(_is_view(field.type) for field in schema)


def _is_view(kind: pa.DataType) -> bool:
    return "view" in str(kind) or any(_is_view(kind.field(i).type) for i in range(kind.num_fields))
