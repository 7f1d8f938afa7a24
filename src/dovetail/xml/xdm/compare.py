"""Comparisons of atomic values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.xdm.atomic import NUMBERS, PRIMITIVES, STRINGS, Float, UntypedAtomic
from dovetail.xml.xdm.cast import cast
from dovetail.xml.xdm.duration import DayTimeDuration, Duration, YearMonthDuration
from dovetail.xml.xdm.numbers import promoted, to_double
from dovetail.xml.xdm.temporal import Temporal
from dovetail.xml.xdm.values import type_name

Test = Callable[[Any, Any], bool]
TESTS: dict[str, Test] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
GENERAL = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_UNORDERED = frozenset(("QName", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay", "duration"))
_DURATIONS = frozenset(("duration", "yearMonthDuration", "dayTimeDuration"))


def comparable(left: Any, right: Any, op: str) -> tuple[Any, Any]:
    """The two values in a form that Python's operators compare as XQuery does. Raises XPTY0004."""
    first, second = type(left), type(right)
    if first in STRINGS and second in STRINGS:
        return str.__str__(left), str.__str__(right)
    if first in NUMBERS and second in NUMBERS:
        return promoted(left, right)[:2]
    kind, other = PRIMITIVES[first], PRIMITIVES[second]
    equality = op in ("eq", "ne")
    if kind in _DURATIONS and other in _DURATIONS:
        return _durations(left, right, equality)
    if kind != other or (kind in _UNORDERED and not equality):
        raise XQueryError("XPTY0004", f"{type_name(left)} and {type_name(right)} cannot be compared with {op}")
    if isinstance(left, Temporal):
        return left.instant(), right.instant()
    return (bytes(left), bytes(right)) if isinstance(left, bytes) else (left, right)


def _durations(left: Duration, right: Duration, equality: bool) -> tuple[Any, Any]:
    if equality:
        return (left.months, left.seconds), (right.months, right.seconds)
    if type(left) is type(right) is YearMonthDuration:
        return left.months, right.months
    if type(left) is type(right) is DayTimeDuration:
        return left.seconds, right.seconds
    raise XQueryError("XPTY0004", f"{type_name(left)} and {type_name(right)} have no order")


def compare(op: str, left: Any, right: Any) -> bool:
    """A value comparison: untyped values are strings."""
    first, second = comparable(left, right, op)
    return TESTS[op](first, second)


def general_pair(left: Any, right: Any) -> tuple[Any, Any]:
    """The two values of a general comparison: an untyped one takes the type that the other one asks for."""
    first, second = type(left) is UntypedAtomic, type(right) is UntypedAtomic
    if first == second:
        return left, right
    if first:
        return _adapted(left, right), right
    return left, _adapted(right, left)


def _adapted(value: Any, other: Any) -> Any:
    kind = PRIMITIVES[type(other)]
    if type(other) in NUMBERS:
        return cast(value, "double")
    if kind in ("string", "anyURI"):
        return str(value)
    if kind == "QName":
        raise XQueryError("XPTY0004", "an untyped value cannot be compared with a QName")
    return cast(value, kind)


def general(op: str, lefts: list[Any], rights: list[Any]) -> bool:
    """Whether any value of one side stands in the relation to any value of the other one."""
    test, name = TESTS[GENERAL[op]], GENERAL[op]
    for left in lefts:
        for right in rights:
            if test(*comparable(*general_pair(left, right), name)):
                return True
    return False


def same(left: Any, right: Any) -> bool:
    """Whether `eq` calls two values equal; values of types that do not compare differ, NaN is equal to NaN."""
    first, second = key_of(left), key_of(right)
    if first[0] != second[0] or first == second:
        return bool(first == second)
    left, right = comparable(left, right, "eq")
    return bool(left == right)


def distinct(values: list[Any]) -> list[Any]:
    """The values that are not the same as an earlier one that was kept."""
    single = any(type(value) is Float for value in values)
    kept: list[Any] = []
    seen: set[Any] = set()
    near: dict[Any, list[Any]] = {}
    for value in values:
        key = key_of(value)
        others = near.setdefault(_neighbourhood(key, single), [])
        if key not in seen and not any(same(value, other) for other in others):
            seen.add(key)
            others.append(value)
            kept.append(value)
    return kept


def _neighbourhood(key: Any, single: bool) -> Any:
    """What numbers of any types share if `eq` calls them equal: the double, or the float, nearest to them."""
    kind, value = key
    if kind != "n" or value == "NaN":
        return key
    return Float(to_double(value)) if single else to_double(value)


def key_of(value: Any) -> Any:
    """A hashable key: equal keys are values that `eq` calls equal; so are a decimal and a double that differ here."""
    kind = type(value)
    if kind in STRINGS:
        return "s", str.__str__(value)
    if kind in NUMBERS:
        return ("n", value) if value == value else ("n", "NaN")
    name = PRIMITIVES[kind]
    return ("duration" if name in _DURATIONS else name), value
