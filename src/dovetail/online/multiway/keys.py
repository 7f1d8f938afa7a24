"""Keys of all attributes of the inputs as int64, and the last word on combinations where keys were hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dovetail.kernels.arrays import I64, Bool, int64s
from dovetail.online.keys import RowKeys
from dovetail.online.multiway.graph import JoinGraph
from dovetail.online.predicate import whole_bounds


class MultiKeys:
    """Keys by attribute, the same for every edge that uses one; `PlanError` for types that cannot be keys.

    `ends`, `attributes`, `down` and `up` are by edge and end: input, number of the attribute there, and the range of
    keys of the other end that match a key.
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
        bounds = [self._bounds(at, schemas) for at in range(len(edges))]
        self.down = int64s(np.array([[lo, -hi] for lo, hi in bounds], np.int64))
        self.up = int64s(np.array([[hi, -lo] for lo, hi in bounds], np.int64))
        self.exact = all(keys.exact for keys in self._edges)

    def _edge_keys(self, at: int, schemas: Mapping[str, pa.Schema], hash_bits: int) -> RowKeys:
        edge, names = self.graph.edges[at], self.graph.names
        left, right = (schemas[names[end.relation]] for end in edge.ends)
        return RowKeys(edge.predicate, {"left": left, "right": right}, hash_bits)

    def _encoder(self, attribute: object) -> tuple[RowKeys, int]:
        """Keys of any edge that uses the attribute: types agree along edges, so all of them give the same."""
        for edge, keys in zip(self.graph.edges, self._edges, strict=True):
            if attribute in edge.ends:
                return keys, edge.ends.index(attribute)
        raise AssertionError(attribute)

    def _bounds(self, at: int, schemas: Mapping[str, pa.Schema]) -> tuple[int, int]:
        edge = self.graph.edges[at]
        band = edge.predicate.within
        if band is None:
            return 0, 0
        schema = schemas[self.graph.names[edge.ends[0].relation]]
        return whole_bounds(band, schema.field(band.left).type) or (0, 0)

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
        """Combination by combination, given as rows of each input, whether hashed columns are equal indeed."""
        equal = np.ones(rows[0].num_rows, np.bool_)
        for edge, keys in zip(self.graph.edges, self._edges, strict=True):
            if not keys.exact:
                equal &= keys.same(*(rows[end.relation] for end in edge.ends))
        return equal
