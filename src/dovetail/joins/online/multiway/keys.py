"""Keys of all attributes of the inputs as int64, and the last word on combinations where keys were hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, Bool, int64s
from dovetail.joins.online.kernels.multi_rows import BACK, FORTH, WHOLE, no_bands
from dovetail.joins.online.keys import RowKeys
from dovetail.joins.online.multiway.graph import Edge, JoinGraph
from dovetail.joins.online.predicate import Band, Predicate, whole_bounds


class MultiKeys:
    """Keys by attribute, the same for every edge that uses one; `PlanError` for types that cannot be keys.

    Keys of bands besides equal columns follow those of attributes: an input has `counts` attributes and `widths` keys.
    `ends`, `attributes` and `around` are by edge and end: input, number of the attribute there, and the range of keys
    of the other end that match a key, as down, up and measure; `near` and `near_around` are the same of bands besides
    equal columns, the number -1 where there is none. `order` is by input and attribute: the key by which rows are
    ordered that have the same key, that of a band if there is one.
    """

    def __init__(self, graph: JoinGraph, schemas: Mapping[str, pa.Schema], hash_bits: int = 64) -> None:
        self.graph = graph
        names, edges = graph.names, graph.edges
        numbers = [graph.attributes(r) for r in range(len(names))]
        self.counts = _array([len(found) for found in numbers])
        self._edges = [self._edge_keys(at, schemas, hash_bits) for at in range(len(edges))]
        self._encoders: list[list[tuple[RowKeys, int]]] = [
            [self._encoder(attribute) for attribute in found] for found in numbers
        ]
        self.ends = _array([[end.relation for end in edge.ends] for edge in edges])
        self.attributes = _array([[numbers[end.relation].index(end) for end in edge.ends] for edge in edges])
        self.around = _array([_around(edge.predicate.within, self._left(at, schemas)) for at, edge in enumerate(edges)])
        self.near_around = _array([_around(edge.within, self._left(at, schemas)) for at, edge in enumerate(edges)])
        self.widths = self.counts + [len(graph.nears(r)) for r in range(len(names))]
        self.near = _array([self._near_numbers(edge) for edge in edges])
        self.order = self._orders()
        self._near = [self._near_encoders(r, schemas) for r in range(len(names))]
        self.exact = all(keys.exact for keys in self._edges)

    def _edge_keys(self, at: int, schemas: Mapping[str, pa.Schema], hash_bits: int) -> RowKeys:
        edge, names = self.graph.edges[at], self.graph.names
        left, right = (schemas[names[end.relation]] for end in edge.ends)
        return RowKeys(edge.predicate, {"left": left, "right": right}, hash_bits)

    def _left(self, at: int, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
        return schemas[self.graph.names[self.graph.edges[at].ends[0].relation]]

    def _near_numbers(self, edge: Edge) -> list[int]:
        """At both ends of an edge the number of the key of its band besides equal columns; -1 without one."""
        if edge.within is None:
            return [-1, -1]
        columns = (edge.within.left, edge.within.right)
        ends = [(end.relation, column) for end, column in zip(edge.ends, columns, strict=True)]
        return [int(self.counts[r]) + self.graph.nears(r).index(column) for r, column in ends]

    def _orders(self) -> I64:
        found = no_bands(len(self.counts), int(self.counts.max()))
        for edge in range(len(self.near) - 1, -1, -1):  # the first band of an attribute stays
            for end in (0, 1):
                if self.near[edge, end] >= 0:
                    found[self.ends[edge, end], self.attributes[edge, end]] = self.near[edge, end]
        return found

    def _near_encoders(self, relation: int, schemas: Mapping[str, pa.Schema]) -> list[tuple[RowKeys, int]]:
        """What gives the keys of bands besides equal columns: all bands of a column give the same."""
        found: dict[int, tuple[RowKeys, int]] = {}
        for at, edge in enumerate(self.graph.edges):
            both = [schemas[self.graph.names[end.relation]] for end in edge.ends]
            for end in (0, 1):
                if edge.within is not None and edge.ends[end].relation == relation:
                    keys = RowKeys(Predicate((), edge.within), {"left": both[0], "right": both[1]})
                    found[int(self.near[at, end])] = keys, end
        return [found[number] for number in sorted(found)]

    def _encoder(self, attribute: object) -> tuple[RowKeys, int]:
        """Keys of any edge that uses the attribute: types agree along edges, so all of them give the same."""
        for edge, keys in zip(self.graph.edges, self._edges, strict=True):
            if attribute in edge.ends:
                return keys, edge.ends.index(attribute)
        raise AssertionError(attribute)

    def encode(self, relation: int, batch: pa.RecordBatch) -> tuple[I64, Bool]:
        """Keys by number and row, and which rows have all of them: the others match nothing."""
        encoders = self._encoders[relation] + self._near[relation]
        keys = np.empty((len(encoders), batch.num_rows), np.int64)
        valid = np.ones(batch.num_rows, np.bool_)
        for at, (encoder, side) in enumerate(encoders):
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


def _array(rows: list[Any]) -> I64:
    return int64s(np.array(rows, np.int64))


def _around(band: Band | None, left: pa.Schema) -> list[list[int]]:
    """For both ends of an edge the range around a key of it, and the measure of that."""
    if band is None:
        return [[0, 0, WHOLE], [0, 0, WHOLE]]
    whole = whole_bounds(band, left.field(band.left).type)
    if whole is None:
        lo, hi = np.array([float(band.lo), float(band.hi)]).view(np.int64).tolist()  # type: ignore[arg-type]  # numbers
        return [[lo, hi, FORTH], [lo, hi, BACK]]
    lo, hi = whole
    return [[lo, hi, WHOLE], [-hi, -lo, WHOLE]]
