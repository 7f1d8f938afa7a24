"""Buckets of a multiway join as the cells of a cube, with an axis for each key that inputs share.

A row goes to the cells that agree with the keys it has; along axes of keys that it does not have it is copied. So every
combination meets in exactly one cell. Where one key is equal in all inputs there is one axis and no copy.
Reference: docs/algorithms/online.md, 7.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from dovetail.joins.online.graph import Attribute, JoinGraph

_DENSE, _FEW = 4096, 12


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
        """How rows are spread, and why so, in one line."""
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
    """Ways to cut axes into at most so many cells; the last is cut as often as that leaves room for.

    If not `every` one is tried, all small numbers of parts are, and larger ones in steps of a half.
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
