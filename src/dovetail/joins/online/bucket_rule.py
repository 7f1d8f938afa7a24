"""Assigns rows of an online join to buckets, which are joined independently.

Equal keys share a bucket by their hash. For a band alone, keys are cut into cells somewhat wider than the band, and
cells are hashed: a left row goes to the bucket of its cell, a right row to those of all cells in which it can match. So
every pair is found in exactly one bucket, left's. The same holds for hot keys: their left rows are spread over all
buckets by a hash of the whole row, and their right rows are copied to each. A right join exchanges the sides, so that
no preserved row is copied. Without equal columns, intervals of any length may match: all rows are spread and copied as
those of hot keys. Of many inputs, buckets are the cells of a cube with an axis for each key that inputs share. A row
goes to the cells that agree with the keys it has; along axes of keys that it does not have it is copied. So every
combination is found in exactly one cell. If one key is equal in all inputs, there is one axis and no copy.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, AnyArray, Bool
from dovetail.engine.rows.hashes import row_hashes
from dovetail.engine.rows.layout import Key
from dovetail.errors import PlanError
from dovetail.joins.online.graph import Attribute, Band, JoinGraph, Predicate, pair_graph, whole_bounds
from dovetail.joins.online.keys import JoinKeys

_CELLS = 8  # widths of the band that a cell has: a right row has 1 1/8 copies on average
_FAR = 2.0**62
_DENSE, _FEW = 4096, 12
_MAX = 2**63 - 1
_APART = 0x632BE59BD9B4E019  # axes hash differently, so that equal values do not share a diagonal
_VERSION = 1  # of the hashes of keys and cells: to be raised with them


class Homes(NamedTuple):
    """Row numbers and their buckets, ordered by bucket and then by row; rows without a key are `dropped`."""

    rows: I64
    buckets: I64
    dropped: int


class BucketRule:
    """The buckets of rows under a predicate. They depend on the rows alone, not on their place or order.

    Rows of the side `once` are in one bucket each; those of the other side may be copied. Rows without a key are in
    none, but those of the sides `alone` in any one.

    Reference: docs/algorithms/online.md, 7.2.
    """

    def __init__(
        self,
        predicate: Predicate,
        schemas: Mapping[str, pa.Schema],
        buckets: int,
        hot: I64 | None = None,
        once: int = 0,
        alone: tuple[int, ...] = (),
    ) -> None:
        self._once, self._alone = once, alone
        self._keys, self._buckets = JoinKeys(pair_graph(predicate), schemas), buckets
        self.count = buckets
        self._hot = np.empty(0, np.int64) if hot is None else hot
        self._by_code = bool(predicate.on)
        band = predicate.within
        self._by_cell = isinstance(band, Band) and not self._by_code
        if isinstance(band, Band) and not self._by_code:
            self._whole = whole_bounds(band, schemas["left"].field(band.left).type)
            if self._whole is not None:
                self._width = min(_MAX, max(1, _CELLS * (self._whole[1] - self._whole[0])))
            else:
                self._size = _CELLS * (float(band.hi) - float(band.lo)) or 1.0  # type: ignore[arg-type]  # numbers

    @property
    def rule(self) -> str:
        """All that a row's bucket depends on, beyond keys and band, as text."""
        return rule_text(buckets=self._buckets, hot=self._hot.tolist())

    def homes(self, side: int, batch: pa.RecordBatch) -> Homes:
        """The buckets of a side's rows."""
        keys, valid = self._keys.encode(side, batch)
        rows = np.flatnonzero(valid)
        dropped = batch.num_rows - len(rows)
        if dropped and side in self._alone:
            return self._with_keyless(side, batch, valid)
        if not self._by_cell or self._buckets == 1:
            code = keys[0][rows] if self._by_code else np.zeros(len(rows), np.int64)
            return self._ordered(*self._spread_hot(side, batch, rows, code), dropped)
        key = keys[-1][rows]
        if side == self._once:
            return self._ordered(rows, bucket_of(self._cell(key), self._buckets), dropped)
        low, high = (self._cell(bound) for bound in self._keys.ranges(side, key))
        return self._ordered(*self._copies(rows, low, high), dropped)

    def _with_keyless(self, side: int, batch: pa.RecordBatch, valid: Bool) -> Homes:
        keyed, others = np.flatnonzero(valid), np.flatnonzero(~valid)
        found = self.homes(side, batch.take(pa.array(keyed)))
        buckets = bucket_of(row_hashes(batch.take(pa.array(others))), self._buckets)
        rows, of = np.concatenate([keyed[found.rows], others]), np.concatenate([found.buckets, buckets])
        return self._ordered(rows, of, len(others))

    def _spread_hot(self, side: int, batch: pa.RecordBatch, rows: I64, code: I64) -> tuple[I64, I64]:
        """The rows and the bucket of each; hot ones are spread by a hash on the left, copied on the right."""
        buckets = bucket_of(code, self._buckets)
        hot = np.flatnonzero(np.isin(code, self._hot)) if len(self._hot) else self._hot
        if not self._by_code and self._buckets > 1:
            hot = np.arange(len(rows))
        if len(hot) == 0:
            return rows, buckets
        if side == self._once:
            buckets[hot] = bucket_of(row_hashes(batch.take(pa.array(rows[hot]))), self._buckets)
            return rows, buckets
        plain = np.delete(np.arange(len(rows)), hot)
        copies = np.repeat(rows[hot], self._buckets)
        everywhere = np.tile(np.arange(self._buckets), len(hot))
        every, of = np.concatenate([rows[plain], copies]), np.concatenate([buckets[plain], everywhere])
        order = np.argsort(every, kind="stable")
        return every[order], of[order]

    def _copies(self, rows: I64, low: I64, high: I64) -> tuple[I64, I64]:
        """Each row once for every bucket of the cells from low to high; for all buckets if there are more cells."""
        many = high.astype(np.float64) - low >= self._buckets  # in doubles, as the number may overflow
        n = np.where(many, self._buckets, np.maximum(high - low + 1, 0))
        at = np.repeat(np.arange(len(rows)), n)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(n) - n, n)
        buckets = np.where(many[at], nth, bucket_of(low[at] + nth, self._buckets))
        pairs = np.unique(np.stack([rows[at], buckets]), axis=1)
        return pairs[0], pairs[1]

    def _cell(self, key: AnyArray) -> I64:
        if self._whole is not None:
            return np.asarray(key // self._width, np.int64)
        # The image of a double is its bits, those below the sign turned round for negative ones.
        numbers = np.where(key < 0, key ^ _MAX, key).astype(np.int64).view(np.float64)
        with np.errstate(over="ignore"):
            cells = np.floor(numbers / self._size)
        return np.clip(cells, -_FAR, _FAR).astype(np.int64)

    def _ordered(self, rows: I64, buckets: I64, dropped: int) -> Homes:
        order = np.argsort(buckets, kind="stable")
        return Homes(rows[order], buckets[order], dropped)


def key_classes(graph: JoinGraph) -> tuple[tuple[Attribute, ...], ...]:
    """Attributes that are equal to each other, in order; one that is only compared by distance is alone."""
    classes: list[list[Attribute]] = [[a] for r in range(len(graph.names)) for a in graph.attributes(r)]
    for edge in (edge for edge in graph.edges if edge.band is None):
        first, second = (next(some for some in classes if end in some) for end in edge.ends)
        if first is not second:
            first += second
            classes = [some for some in classes if some is not second]
    return tuple(tuple(some) for some in classes)


@dataclass(frozen=True, slots=True)
class Cells:
    """The cube of a join graph: how many parts each key is cut into, in the order of `key_classes`."""

    graph: JoinGraph
    shares: tuple[int, ...]

    @property
    def classes(self) -> tuple[tuple[Attribute, ...], ...]:
        """The keys that are axes."""
        return key_classes(self.graph)

    @property
    def count(self) -> int:
        """How many cells there are."""
        return prod(self.shares)

    def axes_of(self, relation: int) -> dict[int, int]:
        """The axes along which an input has a place, with the number of its attribute there."""
        attributes = self.graph.attributes(relation)
        found = {}
        for axis, some in enumerate(self.classes):
            for attribute in some:
                if attribute.relation == relation:
                    found[axis] = attributes.index(attribute)
        return found

    def copies(self, relation: int) -> int:
        """Cells that each row of an input goes to."""
        own = self.axes_of(relation)
        return prod(share for axis, share in enumerate(self.shares) if axis not in own)

    def explain(self) -> str:
        """How rows are spread, and why, in one line."""
        used = [axis for axis, share in enumerate(self.shares) if share > 1]
        if not used:
            return "one partition: no row is copied"
        keys = " x ".join(f"{self.shares[axis]} by ({self._shown(self.classes[axis])})" for axis in used)
        copies = {name: self.copies(r) for r, name in enumerate(self.graph.names)}
        if set(copies.values()) == {1}:
            return f"partitions {keys}: all inputs have this key, so no row is copied; one key is in one partition"
        shown = ", ".join(f"{name} {n}" for name, n in copies.items())
        return f"partitions {keys}: no key is in all inputs; copies of each row, chosen for least rows in each: {shown}"

    def _shown(self, some: Sequence[Attribute]) -> str:
        return " = ".join("+".join(f"{self.graph.names[a.relation]}.{c}" for c in a.columns) for a in some)


def choose_cells(graph: JoinGraph, buckets: int, rows: Mapping[str, float]) -> Cells:
    """At most `buckets` cells with the fewest rows in each, then the fewest copies; `rows` are expected by input.

    >>> from dovetail.joins.online.graph import join_graph
    >>> star = join_graph(["a", "b", "c"], [("a.x", "b.x"), ("b.x", "c.x")])
    >>> choose_cells(star, 6, {}).shares
    (6,)
    >>> chain = join_graph(["a", "b", "c"], [("a.x", "b.x"), ("b.y", "c.y")])
    >>> choose_cells(chain, 6, {}).shares, choose_cells(chain, 6, {"a": 100}).shares
    ((2, 3), (6, 1))
    """
    n = len(key_classes(graph))
    weights = [float(rows.get(name, 1.0)) for name in graph.names]
    axes = [tuple(Cells(graph, (1,) * n).axes_of(r)) for r in range(len(graph.names))]

    def cost(shares: tuple[int, ...]) -> tuple[float, float]:
        each = sum(w / prod(shares[axis] for axis in own) for w, own in zip(weights, axes, strict=True))
        return each, each * prod(shares)

    return Cells(graph, min(_shares(n, buckets, n <= 2 and buckets <= _DENSE), key=cost))


def _shares(axes: int, most: int, every: bool) -> Iterator[tuple[int, ...]]:
    """Ways to cut axes into at most `most` cells; the last axis gets as many parts as possible.

    Without `every`, all small numbers of parts are tried, and larger ones in steps of a half.
    """
    if axes == 1:
        yield (most,)
        return
    for first in range(1, most + 1) if every else _ladder(most):
        for rest in _shares(axes - 1, most // first, every):
            yield (first, *rest)


def _ladder(most: int) -> list[int]:
    found, n = list(range(1, min(most, _FEW) + 1)), _FEW
    while (n := n * 3 // 2) < most:
        found.append(n)
    return found


class MultiBucketRule:
    """The buckets of rows of many inputs: all cells that agree with their keys."""

    def __init__(self, cells: Cells, schemas: Mapping[str, pa.Schema]) -> None:
        self._cells, self._keys = cells, JoinKeys(cells.graph, schemas)
        self.count = cells.count
        steps = np.cumprod([1, *cells.shares[:-1]])
        self._steps = [int(step) for step in steps]

    @property
    def rule(self) -> str:
        """All that a row's bucket depends on, beyond the predicates, as text."""
        return rule_text(buckets=self.count, shares=self._cells.shares)

    def homes(self, relation: int, batch: pa.RecordBatch) -> Homes:
        """The buckets of an input's rows; rows without a key are dropped."""
        key, valid = self._keys.encode(relation, batch)
        rows = np.flatnonzero(valid)
        own = self._cells.axes_of(relation)
        bucket = np.zeros(len(rows), np.int64)
        for axis, attribute in own.items():
            salt = np.int64(np.uint64((axis * _APART) % 2**64).view(np.int64))
            with np.errstate(over="ignore"):
                bucket += self._steps[axis] * bucket_of(key[attribute][rows] + salt, self._cells.shares[axis])
        offsets = self._offsets(set(own))
        homes = (bucket[:, None] + offsets[None, :]).reshape(-1)
        order = np.argsort(homes, kind="stable")
        return Homes(np.repeat(rows, len(offsets))[order], homes[order], batch.num_rows - len(rows))

    def _offsets(self, own: set[int]) -> I64:
        """The cells along all axes on which an input has no place."""
        found = np.zeros(1, np.int64)
        for axis, (share, step) in enumerate(zip(self._cells.shares, self._steps, strict=True)):
            if axis not in own:
                found = (found[:, None] + step * np.arange(share)[None, :]).reshape(-1)
        return found


def rule_text(**parts: Any) -> str:
    """The rule that spreads rows, as text; equal texts mean equal buckets."""
    return json.dumps({"hash": _VERSION, **parts}, sort_keys=True)


def bucket_of(codes: AnyArray, buckets: int) -> I64:
    """A bucket from 0 for each code, by another hash than operators use inside."""
    x = codes.astype(np.int64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((29, 0x94D049BB133111EB), (32, 0xBF58476D1CE4E5B9)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x >> np.uint64(11)) % np.uint64(buckets)).astype(np.int64)


def hot_as_text(hot: Sequence[Any] | None, on: Sequence[Key], left: pa.Schema, null_safe: bool = False) -> str:
    """Values of the equal columns (tuples where there are several) as text; empty if there are none.

    With `null_safe` nulls are keys as any other.
    """
    if not hot:
        return ""
    schema = _columns(on, left)
    if not len(schema):
        raise PlanError(
            f"hot={hot!r} names keys of equal columns, and there are none; give on=, or leave hot out.", argument="hot"
        )
    if not isinstance(hot, (list, tuple)) or not all(_fits(value, len(schema), null_safe) for value in hot):
        nulls = "" if null_safe else ", none of them null"
        raise PlanError(
            f"hot={hot!r}: give a list of keys of {schema.names}{nulls}; tuples if several.", argument="hot"
        )
    lines = [value if len(schema) > 1 else (value,) for value in hot]
    try:
        columns = [pa.array([line[at] for line in lines], field.type) for at, field in enumerate(schema)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise PlanError(f"hot={hot!r} are no values of {schema.names}: {error}.", argument="hot") from error
    for at, field in enumerate(schema):
        given = [line[at] for line in lines if line[at] is not None]
        if pa.types.is_integer(field.type) and any(value % 1 != 0 for value in given):  # Arrow cuts 1.5 to 1
            raise PlanError(f"hot={hot!r} are no values of {schema.names}: whole numbers are needed.", argument="hot")
    return base64.b64encode(pa.RecordBatch.from_arrays(columns, schema=schema).serialize()).decode()


def hot_as_python(text: str, on: Sequence[Key], left: pa.Schema) -> list[str]:
    """The keys of `hot_as_text` as Python writes them."""
    if not text:
        return []
    lines = [tuple(row.values()) for row in _hot_keys(text, on, left).to_pylist()]
    return [key_text(line) for line in lines]


def key_text(values: Sequence[Any]) -> str:
    """A key as Python writes it, a tuple if it has several columns.

    >>> key_text((1, float("nan"))), key_text(["a"])
    ("(1, float('nan'))", "'a'")
    """
    floats = [isinstance(value, float) for value in values]
    numbers = [value + 0.0 if real else value for value, real in zip(values, floats, strict=True)]  # -0.0 equals 0.0
    shown = [
        f"float('{value}')" if real and not isfinite(value) else repr(value)
        for value, real in zip(numbers, floats, strict=True)
    ]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def hot_codes(text: str, on: Sequence[Key], schemas: dict[str, pa.Schema], null_safe: bool = False) -> I64:
    """The codes of hot keys, as both sides have them, in order."""
    if not text:
        return np.empty(0, np.int64)
    batch = _hot_keys(text, on, schemas["left"])
    equal = Predicate(tuple(on), null_safe=null_safe)
    return np.unique(JoinKeys(pair_graph(equal), schemas).encode(0, batch)[0][0])


def _hot_keys(text: str, on: Sequence[Key], left: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(base64.b64decode(text)), _columns(on, left))


def _columns(on: Sequence[Key], left: pa.Schema) -> pa.Schema:
    return pa.schema([left.field(key if isinstance(key, str) else key[0]) for key in on])


def _fits(value: Any, columns: int, nulls: bool) -> bool:
    parts = value if columns > 1 else (value,)
    fits = isinstance(parts, (tuple, list)) and len(parts) == columns
    return fits and (nulls or all(part is not None for part in parts))
