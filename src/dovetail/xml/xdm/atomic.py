"""Atomic types as Python types, where the class hierarchy is the type hierarchy; and numbers.

| XQuery | Python |
|---|---|
| xs:string, xs:boolean, xs:integer, xs:decimal, xs:double | str, bool, int, Decimal, float |
| xs:untypedAtomic, xs:anyURI, xs:float, types derived from string and integer | subclasses of those, here |
| dates, times, durations | classes of `temporal` |
| QNames | the class of the syntax tree |
| binary | classes of their own, here |

Types of values are always tested exactly: a bool is an int to Python, an untyped value a str.
"""

from __future__ import annotations

import base64
import decimal
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from dovetail.errors import XQueryError
from dovetail.xml.syntax.tree import QName
from dovetail.xml.xdm.temporal import (
    EXACT,
    Date,
    DateTime,
    DayTimeDuration,
    Duration,
    GDay,
    GMonth,
    GMonthDay,
    GYear,
    GYearMonth,
    Time,
    YearMonthDuration,
    plain,
)


class UntypedAtomic(str):
    """Text from a document without schema: takes the type that the operation needs."""

    __slots__ = ()


class AnyURI(str):
    """xs:anyURI; compares and promotes as a string."""

    __slots__ = ()


class Float(float):
    """xs:float: a double that single precision can hold."""

    __slots__ = ()

    def __new__(cls, value: float) -> Float:
        """The nearest value that single precision has."""
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        return super().__new__(cls, value)


class Base64Binary(bytes):
    """xs:base64Binary."""

    __slots__ = ()

    def __str__(self) -> str:
        return base64.b64encode(self).decode("ascii")


class HexBinary(bytes):
    """xs:hexBinary."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.hex().upper()


_BUILT_IN: dict[str, tuple[str, type]] = {
    "untypedAtomic": ("anyAtomicType", UntypedAtomic),
    "string": ("anyAtomicType", str),
    "boolean": ("anyAtomicType", bool),
    "decimal": ("anyAtomicType", Decimal),
    "integer": ("decimal", int),
    "double": ("anyAtomicType", float),
    "float": ("anyAtomicType", Float),
    "anyURI": ("anyAtomicType", AnyURI),
    "QName": ("anyAtomicType", QName),
    "base64Binary": ("anyAtomicType", Base64Binary),
    "hexBinary": ("anyAtomicType", HexBinary),
    **{
        kind.name: ("anyAtomicType", kind)
        for kind in (DateTime, Date, Time, GYear, GYearMonth, GMonth, GMonthDay, GDay, Duration)
    },
    "yearMonthDuration": ("duration", YearMonthDuration),
    "dayTimeDuration": ("duration", DayTimeDuration),
}
# Bounds of the integer types; None is open.
INTEGER_BOUNDS: dict[str, tuple[str, int | None, int | None]] = {
    "nonPositiveInteger": ("integer", None, 0),
    "negativeInteger": ("nonPositiveInteger", None, -1),
    "long": ("integer", -(2**63), 2**63 - 1),
    "int": ("long", -(2**31), 2**31 - 1),
    "short": ("int", -(2**15), 2**15 - 1),
    "byte": ("short", -(2**7), 2**7 - 1),
    "nonNegativeInteger": ("integer", 0, None),
    "unsignedLong": ("nonNegativeInteger", 0, 2**64 - 1),
    "unsignedInt": ("unsignedLong", 0, 2**32 - 1),
    "unsignedShort": ("unsignedInt", 0, 2**16 - 1),
    "unsignedByte": ("unsignedShort", 0, 2**8 - 1),
    "positiveInteger": ("nonNegativeInteger", 1, None),
}
STRING_PARENTS = {
    "normalizedString": "string",
    "token": "normalizedString",
    "language": "token",
    "NMTOKEN": "token",
    "Name": "token",
    "NCName": "Name",
    "ID": "NCName",
    "IDREF": "NCName",
    "ENTITY": "NCName",
}

PYTHON_TYPES: dict[str, type] = {name: kind for name, (_, kind) in _BUILT_IN.items()}
PARENTS: dict[str, str] = {name: parent for name, (parent, _) in _BUILT_IN.items()}
for _name, (_parent, _, _) in INTEGER_BOUNDS.items():
    PYTHON_TYPES[_name], PARENTS[_name] = type(_name, (PYTHON_TYPES[_parent],), {"__slots__": ()}), _parent
for _name, _parent in STRING_PARENTS.items():
    PYTHON_TYPES[_name], PARENTS[_name] = type(_name, (PYTHON_TYPES[_parent],), {"__slots__": ()}), _parent
TYPE_NAMES: dict[type, str] = {kind: name for name, kind in PYTHON_TYPES.items()}


def ancestors(name: str) -> frozenset[str]:
    """The type and every type it is derived from."""
    names = {"anyAtomicType"}
    while name != "anyAtomicType":
        names.add(name)
        name = PARENTS[name]
    return frozenset(names)


ANCESTORS: dict[type, frozenset[str]] = {kind: ancestors(name) for name, kind in PYTHON_TYPES.items()}


def primitive_of(name: str) -> str:
    """The type's root below anyAtomicType, where integer and the two kinds of durations count as their own."""
    while name not in _BUILT_IN:
        name = PARENTS[name]
    return name


PRIMITIVES: dict[type, str] = {kind: primitive_of(name) for name, kind in PYTHON_TYPES.items()}
STRINGS = frozenset(kind for kind, name in PRIMITIVES.items() if name in ("string", "anyURI", "untypedAtomic"))
NUMBERS = frozenset(kind for kind, name in PRIMITIVES.items() if name in ("integer", "decimal", "double", "float"))
INTEGERS = frozenset(kind for kind, name in PRIMITIVES.items() if name == "integer")


Number = int | Decimal | float

DIVISION_DIGITS = 18  # digits after the point of a quotient that does not end


def double_text(value: float) -> str:
    """A double or float as XQuery prints it: `5`, `1.5`, `1.0E10`, `INF`, `NaN`."""
    if value != value:  # NaN
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits = shortest(value)
    if 1e-6 <= abs(value) < 1e6:
        return plain(Decimal(digits))
    sign, figures, exponent = Decimal(digits).as_tuple()
    text = "".join(map(str, figures)).rstrip("0") or "0"
    power = int(exponent) + len(figures) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


def shortest(value: float) -> str:
    """The shortest text that a finite double or float is read from."""
    return str(np.float32(value)) if type(value) is Float else repr(value)


def to_double(value: Number) -> float:
    """The number as a double; too large ones are infinite. Only doubles know a negative zero."""
    try:
        return float(value) if isinstance(value, float) else float(value) + 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def promoted(left: Any, right: Any) -> tuple[Any, Any, str]:
    """Two numbers in their common type, and its name."""
    first, second = PRIMITIVES[type(left)], PRIMITIVES[type(right)]
    if first == "integer" and second == "integer":
        return left, right, "integer"
    if first == "double" or second == "double":
        return to_double(left), to_double(right), "double"
    if first == "float" or second == "float":
        return Float(to_double(left)), Float(to_double(right)), "float"
    return Decimal(left), Decimal(right), "decimal"


def _zero_division() -> XQueryError:
    return XQueryError("FOAR0001", "division by zero")


def _float_divide(left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1, right)
    try:
        return left / right
    except OverflowError:
        return math.copysign(math.inf, left) * math.copysign(1, right)


def _decimal_divide(left: Decimal, right: Decimal) -> Decimal:
    """The quotient, exact or with 18 digits after the point; more if the dividend has more than the divisor."""
    if right == 0:
        raise _zero_division()
    digits = DIVISION_DIGITS + max(0, _places(left) - _places(right))
    scaled = EXACT.multiply(left, Decimal(1).scaleb(digits))
    top, bottom = scaled.as_integer_ratio(), right.as_integer_ratio()
    whole, rest = divmod(abs(top[0]) * bottom[1], abs(bottom[0]) * top[1])
    whole += 2 * rest > abs(bottom[0]) * top[1]
    sign = -1 if (left < 0) != (right < 0) else 1
    return EXACT.scaleb(EXACT.create_decimal(sign * whole), -digits)


def _places(value: Decimal) -> int:
    """Digits after the point, zeros at the end left out."""
    return max(0, -int(EXACT.normalize(value).as_tuple().exponent))


def _float_modulo(left: float, right: float) -> float:
    if right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.fmod(left, right)


def _decimal_modulo(left: Any, right: Any) -> Any:
    if right == 0:
        raise _zero_division()
    if isinstance(left, int):
        return int(math.copysign(1, left)) * (abs(left) % abs(right)) if left else 0
    return EXACT.subtract(left, EXACT.multiply(Decimal(_truncated(left, right)), right))


def _truncated(left: Any, right: Any) -> int:
    """The quotient without its fraction."""
    if isinstance(left, float):
        if math.isnan(left) or math.isinf(left) or math.isnan(right):
            raise XQueryError("FOAR0002", "the result of idiv is not a number")
        if right == 0:
            raise _zero_division()
        return 0 if math.isinf(right) else _truncated(Decimal(left), Decimal(right))
    if right == 0:
        raise _zero_division()
    (top, down), (over, under) = left.as_integer_ratio(), right.as_integer_ratio()
    whole = int(abs(top * under) // abs(over * down))
    return -whole if (left < 0) != (right < 0) else whole


_DECIMAL: dict[str, Callable[[Any, Any], Any]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "div": _decimal_divide,
    "mod": _decimal_modulo,
    "idiv": _truncated,
}
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "div": _float_divide,
    "mod": _float_modulo,
    "idiv": _truncated,
}
_INTEGER: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: int(left) + int(right),
    "-": lambda left, right: int(left) - int(right),
    "*": lambda left, right: int(left) * int(right),
    "div": lambda left, right: _decimal_divide(Decimal(left), Decimal(right)),
    "mod": _decimal_modulo,
    "idiv": _truncated,
}


def calculate(op: str, left: Any, right: Any) -> Number:
    """`left op right` for two numbers of any types."""
    left, right, kind = promoted(left, right)
    if kind == "integer":
        return _INTEGER[op](left, right)  # type: ignore[no-any-return]  # one table for all operators
    try:
        if kind == "decimal":
            return _DECIMAL[op](left, right)  # type: ignore[no-any-return]  # as above
        result = _FLOAT[op](left, right)
    except decimal.Inexact:
        raise XQueryError("FOAR0002", "a decimal result has more digits than can be kept") from None
    return Float(result) if kind == "float" and op != "idiv" else result


def negated(value: Any) -> Number:
    """`-value`."""
    if type(value) in INTEGERS:
        return -int(value)
    if type(value) is Decimal:
        return value.copy_negate() if value else value
    return Float(-value) if type(value) is Float else -value


def rounded(value: Any, digits: int, half_even: bool = False) -> Any:
    """The value with this number of digits after the point; halves go up, or to the even neighbour."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value) or value == 0:
            return value
        exact = _quantised(Decimal(repr(float(value))) if half_even else Decimal(value), digits, half_even)
        result = math.copysign(float(exact), value) if exact == 0 else float(exact)
        return Float(result) if type(value) is Float else result
    exact = _quantised(Decimal(value), digits, half_even)
    return int(exact) if type(value) in INTEGERS else exact


def _quantised(value: Decimal, digits: int, half_even: bool) -> Decimal:
    if -int(value.as_tuple().exponent) <= digits:
        return value
    if value.adjusted() + 1 < -digits:  # less than half of what is rounded to
        return Decimal(0)
    unit = EXACT.scaleb(Decimal(1), -digits)
    if half_even:
        return value.quantize(unit, rounding=decimal.ROUND_HALF_EVEN, context=decimal.Context(prec=20_000))
    scaled = EXACT.scaleb(value, digits)
    floor = scaled.to_integral_value(rounding=decimal.ROUND_FLOOR)
    up = EXACT.subtract(scaled, floor) >= Decimal("0.5")
    return EXACT.scaleb(EXACT.add(floor, Decimal(int(up))), -digits)
