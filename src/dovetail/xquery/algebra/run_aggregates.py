"""Aggregate expressions over the values of tuples, in one step or in two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from dovetail.xquery.algebra.operators import TwoStep
from dovetail.xquery.algebra.run_expressions import Compiler, Items, called
from dovetail.xquery.syntax.names import QName
from dovetail.xquery.syntax.tree import VariableRef

PARTS = 3
"""Into so many parts the tuples are divided for an aggregate of two steps."""


def aggregated(compiler: Compiler, name: str, steps: TwoStep | None, values: list[Items]) -> Items:
    """The aggregate of the items of all tuples, one after the other."""
    if name == "create_sequence":
        return _all(values)
    if steps is None:
        return _function(compiler, name)(_all(values))
    size = max(1, -(-len(values) // PARTS))
    parts = [_all(values[at : at + size]) for at in range(0, len(values), size)]
    filled = [part for part in parts if part]
    return _combined(compiler, name, steps, filled) if filled else _function(compiler, name)([])


def _combined(compiler: Compiler, name: str, steps: TwoStep, parts: list[Items]) -> Items:
    """Parts without items send nothing: they say nothing about the type of the answer."""
    local = [_all(_function(compiler, step)(part) for part in parts) for step in steps.local]
    if steps.combine != "divide":
        return _function(compiler, steps.combine)(local[0])
    sums = [_function(compiler, "sum")(one) for one in local]
    names = [QName("", "total"), QName("", "count")]
    divide = compiler.function(called("divide", [VariableRef(one) for one in names]), names)
    return divide(None, sums)


def _function(compiler: Compiler, name: str) -> Callable[[Items], Items]:
    items = QName("", "items")
    function = compiler.function(called(name, [VariableRef(items)]), [items])
    return lambda given: function(None, [given])


def _all(values: Iterable[Items]) -> list[Any]:
    return list(chain.from_iterable(values))
