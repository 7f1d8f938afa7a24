"""Operators on atomic values: arithmetic, comparisons, deep equality."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.xdm.atomic import NUMBERS, PRIMITIVES, STRINGS, Float, UntypedAtomic, calculate, promoted, to_double
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.nodes import Attribute, Document, Element, Instruction, is_node, string_value
from dovetail.xml.xdm.temporal import EXACT, DayTimeDuration, Duration, Temporal, YearMonthDuration, days_of_month
from dovetail.xml.xdm.values import cast, type_name, untyped_to_double


def _scaled(value: Duration, factor: float | Decimal, divide: bool) -> Duration:
    number = Decimal(repr(float(factor))) if isinstance(factor, float) else Decimal(factor)
    if number.is_nan():
        raise XQueryError("FOCA0005", "a duration cannot be multiplied or divided by NaN")
    if divide and number == 0:
        raise XQueryError("FODT0002", "a duration divided by zero")
    if not divide and number.is_infinite():
        raise XQueryError("FODT0002", "a duration multiplied by infinity")
    amount = Decimal(value.months) if type(value) is YearMonthDuration else value.seconds
    result = Decimal(calculate("div" if divide else "*", amount, number)) if number.is_finite() else Decimal(0)
    if type(value) is YearMonthDuration:
        return YearMonthDuration(int(EXACT.add(result, Decimal("0.5")).to_integral_value(rounding="ROUND_FLOOR")))
    return DayTimeDuration(0, result)


def shifted(value: Temporal, by: Duration, sign: int) -> Temporal:
    """A date or time moved by a duration."""
    if type(by) is YearMonthDuration:
        months = value.year * 12 + value.month - 1 + sign * by.months
        year, month = months // 12, months % 12 + 1
        day = min(value.day, days_of_month(year, month))
        return type(value)(year, month, day, value.hour, value.minute, value.second, value.zone)
    moved = type(value).of_seconds(EXACT.add(value.local_seconds(), EXACT.multiply(sign, by.seconds)), value.zone)
    return _trimmed(moved)


def _trimmed(value: Temporal) -> Temporal:
    name = PRIMITIVES[type(value)]
    if name == "date":
        return type(value)(value.year, value.month, value.day, zone=value.zone)
    if name == "time":
        return type(value)(hour=value.hour, minute=value.minute, second=value.second, zone=value.zone)
    return value


def temporal_arithmetic(op: str, left: Any, right: Any) -> Any:
    """`left op right` where one of them is a date, time or duration. Raises XPTY0004 if that is undefined."""
    if isinstance(left, Temporal) and type(left) is type(right) and op == "-" and _movable(left):
        return DayTimeDuration(0, EXACT.subtract(left.instant(), right.instant()))
    if isinstance(left, Temporal) and op in ("+", "-") and _fits(left, right):
        return shifted(left, right, 1 if op == "+" else -1)
    if isinstance(right, Temporal) and op == "+" and _fits(right, left):
        return shifted(right, left, 1)
    result = _duration_arithmetic(op, left, right)
    if result is None:
        raise XQueryError("XPTY0004", f"{type_name(left)} {op} {type_name(right)} is not defined")
    return result


def _movable(value: Temporal) -> bool:
    return PRIMITIVES[type(value)] in ("dateTime", "date", "time")


def _fits(value: Temporal, by: Any) -> bool:
    if not _movable(value):
        return False
    return type(by) is DayTimeDuration or (type(by) is YearMonthDuration and PRIMITIVES[type(value)] != "time")


def _duration_arithmetic(op: str, left: Any, right: Any) -> Any:
    ordered = (YearMonthDuration, DayTimeDuration)
    if type(left) in ordered and type(left) is type(right):
        sign = {"+": 1, "-": -1}.get(op)
        if sign is not None:
            seconds = EXACT.add(left.seconds, EXACT.multiply(sign, right.seconds))
            return type(left)(left.months + sign * right.months, seconds)
        if op == "div":
            return _ratio(left, right)
    if type(left) in ordered and type(right) in NUMBERS and op in ("*", "div"):
        return _scaled(left, right, op == "div")
    if type(right) in ordered and type(left) in NUMBERS and op == "*":
        return _scaled(right, left, False)
    return None


def _ratio(left: Duration, right: Duration) -> Any:
    months = type(left) is YearMonthDuration
    return calculate(
        "div", Decimal(left.months if months else left.seconds), Decimal(right.months if months else right.seconds)
    )


def arithmetic(op: str, left: Any, right: Any) -> Any:
    """`left op right` for two typed values; untyped ones are doubles."""
    left, right = untyped_to_double(left), untyped_to_double(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return calculate(op, left, right)
    return temporal_arithmetic(op, left, right)


Test = Callable[[Any, Any], bool]
TESTS: dict[str, Test] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
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
    """The two values of a general comparison: an untyped one is cast as the other one requires."""
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
    test = TESTS[op]
    for left in lefts:
        for right in rights:
            if test(*comparable(*general_pair(left, right), op)):
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
    """A common value of all numbers that `eq` calls equal: the double, or the float, nearest to them."""
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


def _double_key(value: Any) -> str | None:
    """NaN equals nothing, not even itself; both zeros are equal."""
    number = to_double(cast(value, "double"))
    return None if number != number else repr(number + 0.0)


KEYS: dict[str, Callable[[Any], Any]] = {
    "string": str,
    "exact": text_of,
    "double": _double_key,
    "moment": lambda value: text_of(value.instant()),
    "number": lambda value: Float(to_double(cast(value, "double"))),
}
"""The key of a value by the kind of its comparison (`algebra.operators.Equality`); None equals nothing."""


def deep_equal(left: list[Any], right: list[Any]) -> bool:
    """Whether two sequences have equal values and nodes that look the same, one by one; NaN equals NaN."""
    return len(left) == len(right) and all(map(_items_equal, left, right))


def _items_equal(left: Any, right: Any) -> bool:
    if is_node(left) != is_node(right):
        return False
    if is_node(left):
        return _nodes_equal(left, right)
    return same(left, right)


def _nodes_equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if type(left) is Element:
        same = left.tag == right.tag and dict(left.attrib) == dict(right.attrib)
        return same and _content_equal(left, right)
    if type(left) is Document:
        return _content_equal(left.holder, right.holder)
    if type(left) is Attribute and left.key != right.key:
        return False
    if type(left) is Instruction and left.target != right.target:
        return False
    return string_value(left) == string_value(right)


def _content_equal(left: Any, right: Any) -> bool:
    first, second = _content(left), _content(right)
    if len(first) != len(second):
        return False
    return all(
        one == other if isinstance(one, str) or isinstance(other, str) else _nodes_equal(one, other)
        for one, other in zip(first, second, strict=True)
    )


def _content(element: Any) -> list[Any]:
    """Texts and elements in turn; comments and instructions do not count."""
    content: list[Any] = [element.text or ""]
    for child in element:
        content += [child, child.tail or ""] if type(child) is Element else [child.tail or ""]
    return [part for part in content if not isinstance(part, str) or part]
