"""Aggregates in two steps: what a partition keeps of its items, and what all partitions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.xml.algebra.operators import Aggregate
from dovetail.xml.execute.runner import Runner
from dovetail.xml.execute.texts import Texts
from dovetail.xml.kernels.plain import plain_integers
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.values import atomise

Items = list[Any]
_EXACT = 2**53


class Local:
    """The aggregate of the items seen so far, one value for each function of the local step."""

    def __init__(self, runner: Runner, aggregate: Aggregate) -> None:
        assert aggregate.steps is not None  # noqa: S101  (only such aggregates are cut)
        self._functions = [(name, _function(runner, name, aggregate)) for name in aggregate.steps.local]
        self._names = set(aggregate.steps.local)
        self._state: list[Items] = [[] for _ in self._functions]
        self._doubles: dict[str, float] = {}
        self._number = _function(runner, "sum", aggregate)
        self._counts = all(name == "count" for name, _ in self._functions)
        self.seen = 0

    def add(self, items: Items) -> None:
        """Take further items, in order."""
        if not items:
            return
        self.seen += len(items)
        if not self._counts:
            items = atomise(items)
        for place, (name, function) in enumerate(self._functions):
            if name == "count":
                self._state[place] = [self.seen]
            elif name == "sum":
                self._state[place] = function([*self._state[place], *map(self._summand, items)])
            else:
                self._state[place] = function([*self._state[place], *_different(items)])

    def add_texts(self, texts: Texts) -> bool:
        """Take one untyped text a row, or none, if all of them are whole numbers; gives whether it did.

        Sums of such numbers are exact in any order, as long as they stay below 2^53.
        """
        if self._counts:
            return False
        values, known = plain_integers(*texts.buffers())
        if not np.all(known | ~texts.present):
            return False
        values = values[texts.present]
        if len(values) == 0:
            return True
        if "sum" in self._names and np.abs(values).sum() >= _EXACT:
            return False
        given = {"sum": float(values.sum()), "max": float(values.max()), "min": float(values.min())}
        self.seen += len(values)
        for place, (name, function) in enumerate(self._functions):
            self._state[place] = [self.seen] if name == "count" else function([*self._state[place], given[name]])
        return True

    def _summand(self, item: Any) -> Any:
        if type(item) is not UntypedAtomic:
            return item
        if item not in self._doubles:
            if len(self._doubles) > 1 << 17:
                self._doubles.clear()
            (self._doubles[item],) = self._number([item])
        return self._doubles[item]

    def state(self) -> list[Items]:
        """What the combining step needs."""
        return self._state


def _different(items: Items) -> Items:
    """Untyped texts once each: the largest and the smallest of equal ones are that text."""
    return list(dict.fromkeys(items)) if {type(item) for item in items} == {UntypedAtomic} else items


def combined(runner: Runner, aggregate: Aggregate, states: list[list[Items]]) -> Items:
    """The aggregate over all partitions; those without items send nothing."""
    name, steps = aggregate.expression.name, aggregate.steps  # type: ignore[attr-defined]  # `aggregate_in_two_steps` asks for a call
    assert steps is not None  # noqa: S101  (as above)
    if not states:
        return _function(runner, name, aggregate)([])
    local = [[item for state in states for item in state[place]] for place in range(len(steps.local))]
    if steps.combine != "divide":
        return _function(runner, steps.combine, aggregate)(local[0])
    return runner.named("divide", 2)([_function(runner, "sum", aggregate)(one) for one in local])


def _function(runner: Runner, name: str, aggregate: Aggregate) -> Callable[[Items], Items]:
    function = runner.named(name, 1, aggregate.expression.place)  # type: ignore[attr-defined]  # a call, by `aggregate_in_two_steps`
    return lambda given: function([given])
