"""Atomic types as Python types: the class hierarchy is the type hierarchy.

| XQuery | Python |
|---|---|
| xs:string, xs:boolean, xs:integer, xs:decimal, xs:double | str, bool, int, Decimal, float |
| xs:untypedAtomic, xs:anyURI, xs:float, types derived from string and integer | subclasses of those, here |
| dates, times, durations, QNames, binary | classes of their own (`temporal`, `duration`, here) |

What a value is, is always asked by its exact type: a bool is an int to Python, an untyped value a str.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field
from decimal import Decimal

from dovetail.xml.xdm.duration import DayTimeDuration, Duration, YearMonthDuration
from dovetail.xml.xdm.temporal import Date, DateTime, GDay, GMonth, GMonthDay, GYear, GYearMonth, Time


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


@dataclass(frozen=True, slots=True)
class QNameValue:
    """xs:QName; the prefix does not count when two are compared."""

    uri: str
    local: str
    prefix: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.prefix}:{self.local}" if self.prefix else self.local


_BUILT_IN: dict[str, tuple[str, type]] = {
    "untypedAtomic": ("anyAtomicType", UntypedAtomic),
    "string": ("anyAtomicType", str),
    "boolean": ("anyAtomicType", bool),
    "decimal": ("anyAtomicType", Decimal),
    "integer": ("decimal", int),
    "double": ("anyAtomicType", float),
    "float": ("anyAtomicType", Float),
    "anyURI": ("anyAtomicType", AnyURI),
    "QName": ("anyAtomicType", QNameValue),
    "base64Binary": ("anyAtomicType", Base64Binary),
    "hexBinary": ("anyAtomicType", HexBinary),
    "dateTime": ("anyAtomicType", DateTime),
    "date": ("anyAtomicType", Date),
    "time": ("anyAtomicType", Time),
    "gYear": ("anyAtomicType", GYear),
    "gYearMonth": ("anyAtomicType", GYearMonth),
    "gMonth": ("anyAtomicType", GMonth),
    "gMonthDay": ("anyAtomicType", GMonthDay),
    "gDay": ("anyAtomicType", GDay),
    "duration": ("anyAtomicType", Duration),
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
