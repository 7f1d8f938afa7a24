"""JOIN: a hash table over the inner tuples where the plan names keys, all pairs otherwise; the condition decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.xml.algebra.operators import Equality, Join
from dovetail.xml.algebra.run_expressions import Compiler, Items, Tuple
from dovetail.xml.xdm.compare import key_of

Keys = set[Any] | None
"""Under which keys a tuple is found; None: under all of them, because only the condition can tell."""


def joined(compiler: Compiler, join: Join, inside: list[Tuple], outside: Iterator[Tuple]) -> Iterator[Tuple]:
    """For each outer tuple, in order, the inner tuples that fulfil the condition, in order."""
    test = compiler.test(join.condition)
    tables = [_Table(compiler, key, inside) for key in join.keys]
    for outer in outside:
        numbers = list(range(len(inside)))
        for table in tables:
            numbers = table.narrowed(numbers, outer)
        for number in numbers:
            both = outer | inside[number]
            if test(both):
                yield both


class _Table:
    """The inner tuples by one key."""

    def __init__(self, compiler: Compiler, key: Equality, inside: list[Tuple]) -> None:
        self.key, self.outer = key, compiler.closure(key.outer)
        inner = compiler.closure(key.inner)
        self.found: dict[Any, set[int]] = {}
        self.anyhow: set[int] = set()
        for number, given in enumerate(inside):
            keys = _keys(key, inner(given))
            if keys is None:
                self.anyhow.add(number)
            for one in keys or ():
                self.found.setdefault(one, set()).add(number)

    def narrowed(self, numbers: list[int], outer: Tuple) -> list[int]:
        """Those of the numbers whose tuples may match, in order."""
        keys = _keys(self.key, self.outer(outer))
        if keys is None:
            return numbers
        hits = self.anyhow.union(*(self.found.get(one, set()) for one in keys)) if keys else set()
        return [number for number in numbers if number in hits]


_CHANGES: dict[str, Callable[[Any], Any]] = {"string": str, "number": float, "value": key_of}


def _keys(key: Equality, items: Items) -> Keys:
    """A value comparison of more than one item is an error, which the condition raises when it meets the other side."""
    if len(items) > 1 and not key.existential:
        return None
    change = _CHANGES[key.kind]
    try:
        return {change(item) for item in items}
    except (ValueError, OverflowError):
        return None
