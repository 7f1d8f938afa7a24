"""Encodes keys of rows as int64, exactly where possible; where keys are hashed, combinations are verified by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.rows.keys import KeyEncoder
from dovetail.engine.rows.named_rows import picked
from dovetail.joins.online.graph import Attribute, Band, Edge, JoinGraph, Predicate, whole_bounds
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.kernels.ranges import BACK, FORTH, WHOLE, float_images, key_ranges

_SMALLEST = -(2**63)
_NULL = 0x2545F4914F6CDD1D  # the key of nulls, where they are equal


class JoinKeys:
    """Keys of the rows of all inputs of a join, the same in every process; distinct values take no memory.

    A row has a key for each attribute of its input, the same for every edge that uses it, and then one for each band in
    addition to equal columns: an input has `counts` attributes and `widths` keys. Keys of one column of numbers,
    booleans, dates, times or short decimals are exact; text, binary, wide decimals and several columns are hashed, and
    `same` compares their values: see `exact`. `hash_bits` below 64 makes hashes collide, for tests.

    `ends`, `attributes` and `around` are by edge and end: input, number of the attribute there, and the range of keys
    of the other end that match a key, as down, up and measure; `near` and `near_around` are the same for bands in
    addition to equal columns, with number -1 if there is none. `order` is by input and attribute: the key that orders
    rows of equal key, that of a band if there is one.

    Where rows match by a relation of intervals, the band is that of their starts. It `grows` with the longest interval
    that `keyed` has seen, and `growth` counts how often; `related` decides the relation.
    """

    def __init__(self, graph: JoinGraph, schemas: Mapping[str, pa.Schema], hash_bits: int = 64) -> None:
        self.graph = graph
        edges, each = graph.edges, range(len(graph.names))
        numbers = [graph.attributes(r) for r in each]
        first = [schemas[graph.names[edge.ends[0].relation]] for edge in edges]
        self.counts = _array([len(found) for found in numbers])
        self.widths = self.counts + [len(graph.nears(r)) for r in each]
        self.ends = _array([[end.relation for end in edge.ends] for edge in edges])
        self.attributes = _array([[numbers[end.relation].index(end) for end in edge.ends] for edge in edges])
        self.around = _array([_around(edge.predicate.within, left) for edge, left in zip(edges, first, strict=True)])
        self.near_around = _array([_around(edge.within, left) for edge, left in zip(edges, first, strict=True)])
        self.near = _array([self._near_numbers(edge) for edge in edges])
        self.order = self._orders()
        self._edges = [_edge_keys(edge, left, hash_bits) for edge, left in zip(edges, first, strict=True)]
        self._encoders = [self._encoders_of(r, numbers[r], first) for r in each]
        near = edges[0].any_band
        self._intervals = near if isinstance(near, Intervals) else None
        self._longest: tuple[float, float] = (0, 0)
        self.growth = 0
        self.exact = all(keys.exact for keys in self._edges)

    @property
    def grows(self) -> bool:
        """Whether rows of a join of two inputs match by a relation, so that the band grows with their intervals."""
        return self._intervals is not None

    @property
    def coded(self) -> bool:
        """Whether rows of a join of two inputs have a band in addition to equal columns, and so two keys."""
        return bool(self.near[0, 0] >= 0)

    @property
    def banded(self) -> bool:
        """Whether rows of a join of two inputs match within a band."""
        return self.graph.edges[0].any_band is not None

    @property
    def reach(self) -> I64:
        """In a join of two inputs: by input the range of the other's last keys around a last key."""
        around: I64 = (self.near_around if self.coded else self.around)[0]
        return around

    def ranges(self, side: int, key: I64) -> tuple[I64, I64]:
        """In a join of two inputs: the first and last key of the other input that match the last key of each row."""
        return key_ranges(key, *self.reach[side].tolist()) if self.banded else (key, key)

    def encode(self, relation: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys by number and row, and which rows have all of them: the others match nothing."""
        encoders = self._encoders[relation]
        keys = np.empty((len(encoders), batch.num_rows), np.int64)
        valid = np.ones(batch.num_rows, np.bool_)
        for at, (encoder, end) in enumerate(encoders):
            keys[at], also = encoder.encode(end, batch)
            valid &= also
        return keys, valid

    def keyed(self, relation: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, I64]:
        """The rows that can match something, with their keys."""
        keys, valid = self.encode(relation, batch)
        if not valid.all():
            some = np.flatnonzero(valid)
            batch, keys = picked(batch, some), keys[:, some]
        if self._intervals is not None:
            self._grow(self._intervals, relation, batch)
        return batch, keys

    def _grow(self, intervals: Intervals, side: int, batch: pa.RecordBatch) -> None:
        """Widen the band for these rows."""
        mine, theirs = max(self._longest[side], intervals.longest(side, batch)), self._longest[1 - side]
        if mine > self._longest[side]:
            self._longest, self.growth = (mine, theirs) if side == 0 else (theirs, mine), self.growth + 1
            floating = pa.types.is_floating(batch.schema.field(intervals.bounds[side][0]).type)
            around = _array([intervals.around(self._longest, floating)])
            if self.coded:
                self.near_around = around
            else:
                self.around = around

    @property
    def bounds(self) -> tuple[tuple[str, str], tuple[str, str]] | None:
        """By input the columns of its intervals, if a relation between them is to be decided."""
        return None if self._intervals is None else self._intervals.bounds

    def related(self, rows: Sequence[pa.RecordBatch]) -> Bool:
        """Whether the relation holds for each pair, given as rows of each input with at least the `bounds`."""
        assert self._intervals is not None  # noqa: S101  (for the type checker: asked only where there are bounds)
        return self._intervals.holds(rows[0], rows[1])

    def same(self, rows: Sequence[pa.RecordBatch]) -> Bool:
        """Whether the hashed columns of each combination, given as rows of each input, are really equal."""
        equal = np.ones(rows[0].num_rows, np.bool_)
        for edge, keys in zip(self.graph.edges, self._edges, strict=True):
            if not keys.exact:
                equal &= keys.same(*(rows[end.relation] for end in edge.ends))
        return equal

    def _near_numbers(self, edge: Edge) -> list[int]:
        """At both ends of an edge the number of the key of its additional band; -1 without one."""
        if edge.within is None:
            return [-1, -1]
        columns = (edge.within.left, edge.within.right)
        ends = [(end.relation, column) for end, column in zip(edge.ends, columns, strict=True)]
        return [int(self.counts[r]) + self.graph.nears(r).index(column) for r, column in ends]

    def _orders(self) -> I64:
        found = np.tile(np.arange(int(self.counts.max()), dtype=np.int64), (len(self.counts), 1))  # the key itself
        for edge in range(len(self.near) - 1, -1, -1):  # the first band of an attribute stays
            for end in (0, 1):
                if self.near[edge, end] >= 0:
                    found[self.ends[edge, end], self.attributes[edge, end]] = self.near[edge, end]
        return found

    def _encoders_of(
        self, relation: int, attributes: Sequence[Attribute], first: Sequence[pa.Schema]
    ) -> list[tuple[_EqualKeys | _BandKeys, int]]:
        """The encoder of each key, and its end; all edges of an attribute or a column have the same one."""
        found: dict[int, tuple[_EqualKeys | _BandKeys, int]] = {}
        for at, edge in enumerate(self.graph.edges):
            for end in (0, 1):
                if edge.ends[end].relation == relation:
                    found.setdefault(attributes.index(edge.ends[end]), (self._edges[at], end))
                    if edge.within is not None:
                        found[int(self.near[at, end])] = _near_keys(edge.within, first[at]), end
        return [found[number] for number in sorted(found)]


def _array(rows: list[Any]) -> I64:
    return int64s(np.array(rows, np.int64))


def _around(band: Band | Intervals | None, left: pa.Schema) -> list[list[int]]:
    """For both ends of an edge the range around a key of it, and the measure of that."""
    if band is None:
        return [[0, 0, WHOLE], [0, 0, WHOLE]]
    if isinstance(band, Intervals):
        return band.around((0, 0), pa.types.is_floating(left.field(band.left).type))
    whole = whole_bounds(band, left.field(band.left).type)
    if whole is None:
        lo, hi = np.array([float(band.lo), float(band.hi)]).view(np.int64).tolist()  # type: ignore[arg-type]  # numbers
        return [[lo, hi, FORTH], [lo, hi, BACK]]
    lo, hi = whole
    return [[lo, hi, WHOLE], [-hi, -lo, WHOLE]]


def _edge_keys(edge: Edge, left: pa.Schema, hash_bits: int) -> _EqualKeys | _BandKeys:
    band = edge.predicate.within
    return _EqualKeys(edge.predicate, left, hash_bits) if band is None else _near_keys(band, left)


def _near_keys(band: Band | Intervals, left: pa.Schema) -> _BandKeys:
    return _IntervalKeys(band, left) if isinstance(band, Intervals) else _BandKeys(band, left)


class _BandKeys:
    """Keys that order as the column of a band does: always exact."""

    exact = True

    def __init__(self, band: Band | Intervals, left: pa.Schema) -> None:
        kind = left.field(band.left).type
        self._columns, self._encoder = (band.left, band.right), KeyEncoder([kind])
        self._whole, self._unsigned = not pa.types.is_floating(kind), kind == pa.uint64()

    def encode(self, end: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys of rows of one end, and which of them can match anything."""
        return self._encoded(batch.column(self._columns[end]))

    def _encoded(self, column: pa.Array) -> tuple[I64, Bool]:
        if self._whole:
            key, valid = self._encoder.encode([column])
            return int64s(key ^ _SMALLEST if self._unsigned else key), valid
        numbers = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        finite = np.isfinite(numbers)  # nulls are NaN here
        return float_images(np.where(finite, numbers, 0.0)), finite

    def same(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bool:
        """All: keys are exact."""
        return np.ones(left.num_rows, np.bool_)


class _IntervalKeys(_BandKeys):
    """Keys that order as the starts of intervals do."""

    def __init__(self, intervals: Intervals, left: pa.Schema) -> None:
        super().__init__(intervals, left)
        self._intervals = intervals

    def encode(self, end: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys of rows of one end, and which of them have an interval that can match anything."""
        keys, valid = self._encoded(self._intervals.starts(end, batch))
        return keys, valid & self._intervals.usable(end, batch)


class _EqualKeys:
    """Keys that are equal if the columns of both ends are, and rarely otherwise if they are hashed."""

    def __init__(self, predicate: Predicate, left: pa.Schema, hash_bits: int) -> None:
        self._pairs = predicate.pairs
        types = [left.field(a).type for a, _ in self._pairs]
        self._codes = KeyCodes(types, hash_bits, predicate.null_safe, _NULL)
        self.exact = self._codes.exact

    def encode(self, end: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys of rows of one end, and which of them can match anything."""
        return self._codes.encode([batch.column(pair[end]) for pair in self._pairs])

    def same(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bool:
        """Row by row whether the columns are equal; none of them is null unless nulls are equal."""
        mine, theirs = zip(*((left.column(a), right.column(b)) for a, b in self._pairs), strict=True)
        return self._codes.same(mine, theirs)
