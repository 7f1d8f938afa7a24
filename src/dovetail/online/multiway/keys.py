"""Keys of all attributes of the inputs as int64, and the last word on combinations where keys were hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dovetail.kernels.arrays import I64, Bool, int64s
from dovetail.kernels.online_multi_rows import BACK, FORTH, WHOLE
from dovetail.online.keys import RowKeys
from dovetail.online.multiway.graph import JoinGraph
from dovetail.online.predicate import Predicate, whole_bounds


class MultiKeys:
    """Keys by attribute, the same for every edge that uses one; `PlanError` for types that cannot be keys.

    `ends`, `attributes`, `down`, `up` and `measure` are by edge and end: input, number of the attribute there, and the
    range of keys of the other end that match a key.
    """

    def __init__(self, graph: JoinGraph, schemas: Mapping[str, pa.Schema], hash_bits: int = 64) -> None:
        self.graph = graph
        names, edges = graph.names, graph.edges
        numbers = [graph.attributes(r) for r in range(len(names))]
        self.counts = int64s(np.array([len(found) for found in numbers], np.int64))
        self._edges = [self._edge_keys(at, schemas, hash_bits) for at in range(len(edges))]
        self._encoders: list[list[tuple[RowKeys, int]]] = [
            [self._encoder(attribute) for attribute in found] for found in numbers
        ]
        self.ends = int64s(np.array([[end.relation for end in edge.ends] for edge in edges], np.int64))
        self.attributes = int64s(
            np.array([[numbers[end.relation].index(end) for end in edge.ends] for edge in edges], np.int64)
        )
        around = np.array([self._around(at, schemas) for at in range(len(edges))], np.int64)
        self.down, self.up, self.measure = (int64s(around[:, :, i]) for i in range(3))
        self._near = [self._near_keys(at, schemas) for at in range(len(edges))]
        self.exact = all(keys.exact for keys in self._edges) and not any(self._near)

    def _edge_keys(self, at: int, schemas: Mapping[str, pa.Schema], hash_bits: int) -> RowKeys:
        edge, names = self.graph.edges[at], self.graph.names
        left, right = (schemas[names[end.relation]] for end in edge.ends)
        return RowKeys(edge.predicate, {"left": left, "right": right}, hash_bits)

    def _near_keys(self, at: int, schemas: Mapping[str, pa.Schema]) -> RowKeys | None:
        """Of an edge with equal columns and a band, what the band compares."""
        edge, names = self.graph.edges[at], self.graph.names
        left, right = (schemas[names[end.relation]] for end in edge.ends)
        return None if edge.within is None else RowKeys(Predicate((), edge.within), {"left": left, "right": right})

    def _encoder(self, attribute: object) -> tuple[RowKeys, int]:
        """Keys of any edge that uses the attribute: types agree along edges, so all of them give the same."""
        for edge, keys in zip(self.graph.edges, self._edges, strict=True):
            if attribute in edge.ends:
                return keys, edge.ends.index(attribute)
        raise AssertionError(attribute)

    def _around(self, at: int, schemas: Mapping[str, pa.Schema]) -> list[list[int]]:
        """For both ends of an edge the range around a key of it, and the measure of that."""
        edge = self.graph.edges[at]
        band = edge.predicate.within
        if band is None:
            return [[0, 0, WHOLE], [0, 0, WHOLE]]
        schema = schemas[self.graph.names[edge.ends[0].relation]]
        whole = whole_bounds(band, schema.field(band.left).type)
        if whole is None:
            lo, hi = np.array([float(band.lo), float(band.hi)]).view(np.int64).tolist()  # type: ignore[arg-type]  # numbers
            return [[lo, hi, FORTH], [lo, hi, BACK]]
        lo, hi = whole
        return [[lo, hi, WHOLE], [-hi, -lo, WHOLE]]

    def encode(self, relation: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys by attribute and row, and which rows have all of them: the others match nothing."""
        keys = np.empty((len(self._encoders[relation]), batch.num_rows), np.int64)
        valid = np.ones(batch.num_rows, np.bool_)
        for at, (encoder, side) in enumerate(self._encoders[relation]):
            coded = encoder.encode(side, batch)
            keys[at] = coded.key
            valid &= coded.valid
        return keys, valid

    def same(self, rows: Sequence[pa.RecordBatch]) -> Bool:
        """Combination by combination, given as rows of each input, whether hashed columns are equal indeed, and those
        of bands besides equal columns near."""
        equal = np.ones(rows[0].num_rows, np.bool_)
        for edge, keys, near in zip(self.graph.edges, self._edges, self._near, strict=True):
            mine, theirs = (rows[end.relation] for end in edge.ends)
            if not keys.exact:
                equal &= keys.same(mine, theirs)
            if near is not None:
                equal &= _are_near(near, mine, theirs)
        return equal


def _are_near(keys: RowKeys, mine: pa.RecordBatch, theirs: pa.RecordBatch) -> Bool:
    first, second = keys.encode(0, mine), keys.encode(1, theirs)
    low, high = keys.ranges(0, first.key)
    return first.valid & second.valid & (low <= second.key) & (second.key <= high)
