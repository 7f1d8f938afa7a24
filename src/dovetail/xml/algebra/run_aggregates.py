"""Aggregate expressions over the values of tuples, in one step or in two."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from dovetail.xml.algebra.expressions import Call
from dovetail.xml.algebra.operators import TwoStep
from dovetail.xml.algebra.run_expressions import Compiler, Items

PARTS = 3
"""Into so many parts the tuples are divided for an aggregate of two steps."""


def aggregated(compiler: Compiler, call: Call, steps: TwoStep | None, values: list[Items]) -> Items:
    """The aggregate of the items of all tuples, one after the other."""
    if call.name == "create_sequence":
        return _all(values)
    if steps is None:
        return _function(compiler, call.name, call)(_all(values))
    size = max(1, -(-len(values) // PARTS))
    parts = [_all(values[at : at + size]) for at in range(0, len(values), size)]
    filled = [part for part in parts if part]
    return _combined(compiler, call, steps, filled) if filled else _function(compiler, call.name, call)([])


def _combined(compiler: Compiler, call: Call, steps: TwoStep, parts: list[Items]) -> Items:
    """Parts without items send nothing: they say nothing about the type of the answer."""
    local = [_all(_function(compiler, step, call)(part) for part in parts) for step in steps.local]
    if steps.combine != "divide":
        return _function(compiler, steps.combine, call)(local[0])
    return compiler.named("divide", 2)([_function(compiler, "sum", call)(one) for one in local])


def _function(compiler: Compiler, name: str, call: Call) -> Callable[[Items], Items]:
    function = compiler.named(name, 1, call.place)
    return lambda given: function([given])


def _all(values: Iterable[Items]) -> list[Any]:
    return list(chain.from_iterable(values))
