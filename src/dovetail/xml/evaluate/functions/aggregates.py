"""avg, max, min, sum: untyped values are doubles."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.arithmetic import arithmetic
from dovetail.xml.xdm.atomic import INTEGERS, NUMBERS, PRIMITIVES, AnyURI, UntypedAtomic
from dovetail.xml.xdm.cast import untyped_to_double
from dovetail.xml.xdm.compare import comparable
from dovetail.xml.xdm.decimals import EXACT
from dovetail.xml.xdm.duration import DayTimeDuration, YearMonthDuration
from dovetail.xml.xdm.numbers import promoted
from dovetail.xml.xdm.values import type_name

_ADDABLE = (YearMonthDuration, DayTimeDuration)


def _addable(values: list[Any], name: str) -> list[Any]:
    numbers = [untyped_to_double(value) for value in values]
    if all(type(value) in NUMBERS for value in numbers):
        return numbers
    for kind in _ADDABLE:
        if all(type(value) is kind for value in numbers):
            return numbers
    bad = next((value for value in numbers if type(value) not in NUMBERS), numbers[0])
    raise fail("FORG0006", f"{name}() needs numbers or durations of one kind, given {type_name(bad)}")


def _total(values: list[Any]) -> Any:
    kinds = set(map(type, values))
    if kinds <= INTEGERS:
        return sum(map(int, values))
    if kinds == {float}:
        total = values[0]
        for value in values[1:]:
            total += value
        return total
    if kinds == {Decimal}:
        total = values[0]
        for value in values[1:]:
            total = EXACT.add(total, value)
        return total
    result = values[0]
    for value in values[1:]:
        result = arithmetic("+", result, value)
    return result


@function("sum", "anyAtomicType*", "anyAtomicType?", optional=1)
def _sum(values: list[Any], *zero: Any) -> Any:
    if not values:
        return zero[0] if zero else 0
    return _total(_addable(values, "sum"))


@function("avg", "anyAtomicType*")
def _avg(values: list[Any]) -> Any:
    return arithmetic("div", _total(_addable(values, "avg")), len(values)) if values else None


@function("max", "anyAtomicType*", "string", optional=1)
def _max(values: list[Any], *collation: str) -> Any:
    check_collation(*collation)
    return _extreme(values, "max", lambda left, right: left > right)


@function("min", "anyAtomicType*", "string", optional=1)
def _min(values: list[Any], *collation: str) -> Any:
    check_collation(*collation)
    return _extreme(values, "min", lambda left, right: left < right)


def _extreme(values: list[Any], name: str, better: Callable[[Any, Any], bool]) -> Any:
    if not values:
        return None
    if all(type(value) is UntypedAtomic for value in values):
        doubles = list(map(untyped_to_double, values))
        if any(value != value for value in doubles):
            return math.nan
        return max(doubles) if name == "max" else min(doubles)
    ordered = [str(value) if type(value) is AnyURI else untyped_to_double(value) for value in values]
    best = _orderable(ordered[0], name)
    for value in ordered[1:]:
        if PRIMITIVES[type(value)] != PRIMITIVES[type(best)] and not {type(value), type(best)} <= NUMBERS:
            raise fail("FORG0006", f"{name}() cannot compare {type_name(value)} with {type_name(best)}")
        best = _pick(best, value, better)
    return _widest(best, ordered)


def _orderable(value: Any, name: str) -> Any:
    unordered = {"QName", "duration", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay"}
    if PRIMITIVES[type(value)] in unordered:
        raise fail("FORG0006", f"{name}() of {type_name(value)}: such values have no order")
    return value


def _pick(best: Any, value: Any, better: Callable[[Any, Any], bool]) -> Any:
    if isinstance(best, float) and best != best:
        return best
    if isinstance(value, float) and value != value:
        return value
    first, second = comparable(value, best, "lt")
    return value if better(first, second) else best


def _widest(best: Any, values: list[Any]) -> Any:
    """Among numbers the result has the type that all of them can be promoted to."""
    if type(best) not in NUMBERS:
        return best
    result = best
    for kind in {type(value) for value in values}:
        if PRIMITIVES[kind] in ("double", "float"):
            result = promoted(result, kind(0))[0]
    return result


def check_collation(*uris: str) -> None:
    """Only the comparison by code points exists."""
    for uri in uris:
        if uri != "http://www.w3.org/2005/xpath-functions/collation/codepoint":
            raise fail("FOCH0002", f"the collation {uri!r} is not supported")
