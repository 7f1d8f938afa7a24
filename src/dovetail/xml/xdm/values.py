"""Typed values of items, effective boolean values, sequences of one item at most, and casts."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.syntax.reader import NAME_CHAR, NCNAME
from dovetail.xml.xdm.atomic import (
    INTEGER_BOUNDS,
    NUMBERS,
    PRIMITIVES,
    PYTHON_TYPES,
    STRING_PARENTS,
    STRINGS,
    TYPE_NAMES,
    AnyURI,
    Base64Binary,
    Float,
    HexBinary,
    UntypedAtomic,
    primitive_of,
    to_double,
)
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.nodes import KINDS, Attribute, Comment, Document, Element, Instruction, Text, is_node
from dovetail.xml.xdm.nodes import string_value as node_text
from dovetail.xml.xdm.temporal import MAX_DIGITS, DayTimeDuration, Duration, Temporal, YearMonthDuration

_TEMPORAL = {name: kind for name, kind in PYTHON_TYPES.items() if issubclass(kind, Temporal)}
_DURATIONS = {name: kind for name, kind in PYTHON_TYPES.items() if issubclass(kind, Duration)}
SPACE = " \t\n\r"
DECIMAL = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
DOUBLE = rf"{DECIMAL}(?:[eE][+-]?[0-9]+)?"
"""How finite numbers are written; also for Spark's regular expressions."""
_DOUBLE = re.compile(DOUBLE)
_SPECIAL = {"INF": math.inf, "+INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
_STRING_PATTERNS = {
    "language": re.compile(r"[a-zA-Z]{1,8}(?:-[a-zA-Z0-9]{1,8})*", re.ASCII),
    "NMTOKEN": re.compile(f"[:{NAME_CHAR}]+"),
    "Name": re.compile(f"(?:{NCNAME}|:)[:{NAME_CHAR}]*"),
    **dict.fromkeys(("NCName", "ID", "IDREF", "ENTITY"), re.compile(NCNAME)),
}
# The last sign before `=` holds four or two bits only.
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?")


def _invalid(value: Any, target: str) -> XQueryError:
    return XQueryError("FORG0001", f"{text_of(value)!r} is not a valid xs:{target}")


# --- from text


def _double_of(text: str) -> float:
    if _DOUBLE.fullmatch(text):
        return float(text)
    if text in _SPECIAL:
        return _SPECIAL[text]
    raise _invalid(text, "double")


def _reader(name: str, pattern: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Reads texts of a type that match the pattern as a whole."""
    allowed = re.compile(pattern, re.ASCII)

    def value(text: str) -> Any:
        if allowed.fullmatch(text):
            return read(text)
        raise _invalid(text, name)

    return value


def _base64_of(text: str) -> Base64Binary:
    signs = re.sub(f"[{SPACE}]", "", text)
    if not _BASE64.fullmatch(signs):
        raise _invalid(text, "base64Binary")
    return Base64Binary(base64.b64decode(signs))


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "double": _double_of,
    "float": lambda text: Float(_double_of(text)),
    "decimal": _reader("decimal", DECIMAL, Decimal),
    "integer": _reader("integer", r"[+-]?\d+", lambda text: int(text if len(text) < MAX_DIGITS else Decimal(text))),
    "boolean": _reader("boolean", "true|false|1|0", lambda text: text in ("true", "1")),
    "base64Binary": _base64_of,
    "hexBinary": _reader("hexBinary", "(?:[0-9a-fA-F]{2})*", lambda text: HexBinary(bytes.fromhex(text))),
    "anyURI": lambda text: AnyURI(re.sub(f"[{SPACE}]+", " ", text)),
    **{name: kind.parse for name, kind in _TEMPORAL.items()},
    **{name: kind.parse for name, kind in _DURATIONS.items()},
}


# --- between types


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, float) and not math.isfinite(value):
        raise XQueryError("FOCA0002", f"{text_of(value)} has no decimal value")
    return Decimal(value)


def _numeric(value: Any, target: str) -> Any:
    if target == "decimal":
        return _to_decimal(value)
    if target == "integer":
        return int(_to_decimal(value))
    return Float(to_double(value)) if target == "float" else to_double(value)


def _temporal(value: Temporal, target: str) -> Any:
    kind = _TEMPORAL[target]
    if target == "dateTime":
        return kind(value.year, value.month, value.day, zone=value.zone)
    if target == "time":
        return kind(hour=value.hour, minute=value.minute, second=value.second, zone=value.zone)
    parts = {"gYear": ("year",), "gYearMonth": ("year", "month"), "gMonth": ("month",), "gDay": ("day",)}
    wanted = parts.get(target, ("month", "day") if target == "gMonthDay" else ("year", "month", "day"))
    return kind(**{part: getattr(value, part) for part in wanted}, zone=value.zone)


def _duration(value: Duration, target: str) -> Duration:
    if target == "duration":
        return Duration(value.months, value.seconds)
    return YearMonthDuration(value.months) if target == "yearMonthDuration" else DayTimeDuration(0, value.seconds)


_NUMERIC = frozenset(("double", "float", "decimal", "integer"))
_FROM_DATE = frozenset(("dateTime", "date", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay"))


def _convert(value: Any, source: str, target: str) -> Any:
    """A value of one primitive type in another one; XPTY0004 where XQuery knows no such cast."""
    if target in ("string", "untypedAtomic"):
        return text_of(value) if target == "string" else UntypedAtomic(text_of(value))
    if source in _NUMERIC or source == "boolean":
        if target in _NUMERIC:
            return _numeric(value, target)
        if target == "boolean":
            return not (value == 0 or (isinstance(value, float) and math.isnan(value)))
    if (source in ("dateTime", "date") and target in _FROM_DATE) or (source, target) == ("dateTime", "time"):
        return _temporal(value, target)
    if source in _DURATIONS and target in _DURATIONS:
        return _duration(value, target)
    if {source, target} == {"base64Binary", "hexBinary"}:
        return PYTHON_TYPES[target](value)
    raise XQueryError("XPTY0004", f"xs:{source} cannot be cast to xs:{target}")


def _derived(value: Any, target: str) -> Any:
    """A value of the right primitive type narrowed to a derived one."""
    if target in INTEGER_BOUNDS:
        _, low, high = INTEGER_BOUNDS[target]
        if (low is not None and value < low) or (high is not None and value > high):
            raise _invalid(value, target)
    if target in STRING_PARENTS:
        spaced = re.sub(r"[\t\n\r]", " ", value)
        value = spaced if target == "normalizedString" else " ".join(spaced.split(" ")).strip(" ")
        if target != "normalizedString":
            value = re.sub(" +", " ", value)
        pattern = _STRING_PATTERNS.get(target)
        if pattern is not None and not pattern.fullmatch(value):
            raise _invalid(value, target)
    return PYTHON_TYPES[target](value)


def cast(value: Any, target: str) -> Any:
    """An atomic value as xs:target. Raises FORG0001 for text that does not fit, XPTY0004 for impossible casts."""
    source_type = type(value)
    if target == "numeric":
        return value if source_type in NUMBERS else cast(value, "double")
    if source_type is PYTHON_TYPES[target]:
        return value
    source, primitive = PRIMITIVES[source_type], primitive_of(target)
    if source == primitive:
        result = PYTHON_TYPES[primitive](value) if TYPE_NAMES[source_type] != primitive else value
    elif source in ("string", "untypedAtomic") and primitive in _FROM_TEXT:
        result = _FROM_TEXT[primitive](value.strip(SPACE))
    elif source == "anyURI" and primitive not in ("string", "untypedAtomic"):
        raise XQueryError("XPTY0004", f"xs:anyURI cannot be cast to xs:{target}")
    else:
        result = _convert(value, source, primitive)
    return result if primitive == target else _derived(result, target)


def untyped_to_double(value: Any) -> Any:
    """An untyped value as a double, anything else as it is: what arithmetic does with its operands."""
    return _double_of(value.strip(SPACE)) if type(value) is UntypedAtomic else value


_UNTYPED = frozenset((Element, Attribute, Text, Document))
_TYPED = frozenset((Comment, Instruction))


def atomise(items: list[Any]) -> list[Any]:
    """The typed values of items: trees have no schema, so text is untyped; comments are strings."""
    return [
        UntypedAtomic(node_text(item))
        if (kind := type(item)) in _UNTYPED
        else node_text(item)
        if kind in _TYPED
        else item
        for item in items
    ]


def atom(items: list[Any], what: str = "an operand") -> Any:
    """The one typed value of a sequence, or None if it is empty. More than one item raises XPTY0004."""
    if not items:
        return None
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"{what} is a sequence of {len(items)} items; one is allowed")
    item = items[0]
    kind = type(item)
    if kind is Element:
        return UntypedAtomic((item.text or "") if len(item) == 0 else "".join(item.itertext()))
    return atomise(items)[0]


def string_of(item: Any) -> str:
    """The string value of any item."""
    return node_text(item) if is_node(item) else text_of(item)


def type_name(item: Any) -> str:
    """The type of an item, for messages."""
    return f"{KINDS[type(item)]}()" if is_node(item) else f"xs:{TYPE_NAMES[type(item)]}"


def boolean(items: list[Any]) -> bool:
    """The effective boolean value. Raises FORG0006 where a sequence has none."""
    if not items:
        return False
    first = items[0]
    kind = type(first)
    if kind is bool and len(items) == 1:
        return first  # type: ignore[no-any-return]  # the exact type was asked
    if is_node(first):
        return True
    if len(items) == 1:
        if kind in STRINGS:
            return bool(first != "")
        if kind in NUMBERS:
            return not (first == 0 or (isinstance(first, float) and math.isnan(first)))
    given = (
        type_name(first) if len(items) == 1 else f"a sequence of {len(items)} items that starts with an atomic value"
    )
    raise XQueryError("FORG0006", f"{given} has no effective boolean value")
