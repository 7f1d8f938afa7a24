"""Puts values in place of parameters: `:name` and `?` become literals of Spark's SQL, never pasted text."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any

from sqlglot import TokenType as T
from sqlglot.errors import SqlglotError

from dovetail.errors import PlanError
from dovetail.rewrite.text import Patches, Source, escaped, explained

Arguments = Mapping[str, Any] | Sequence[Any]
_MICROSECOND = timedelta(microseconds=1)


def bound(query: str, args: Arguments | None) -> str:
    """The query with values for its parameters: by name for a mapping, in their order for a sequence.

    Markers in texts and comments stay. So do those without a value, about which Spark complains.
    """
    if not args:
        return query
    if isinstance(args, str) or not isinstance(args, (Mapping, Sequence)):
        raise PlanError("args must be values by name, {'x': 1}, or a list of values for ?, [1].", argument="args")
    try:
        start = explained(query)
        source = Source(query[start:])
    except SqlglotError:
        return query
    patches = Patches(source.written)
    named = isinstance(args, Mapping)
    values = iter(() if named else args)
    for number, token in enumerate(source.tokens):
        if named and token.token_type is T.COLON and _is_marker(source, number):
            name = source.tokens[number + 1].text
            if name in args:
                span = (token.start, source.tokens[number + 1].end + 1)
                patches.add(span, escaped(literal(name, args[name])))  # type: ignore[call-overload]  # a mapping
        elif not named and token.token_type is T.PLACEHOLDER:
            for value in values:
                patches.add((token.start, token.end + 1), escaped(literal("?", value)))
                break
    return query[:start] + patches.render().format()


def _is_marker(source: Source, number: int) -> bool:
    """Whether a colon begins a parameter, and is not one between a field and its type: struct<a:int>."""
    tokens = source.tokens
    if number + 1 == len(tokens) or not tokens[number + 1].text.replace("_", "a").isalnum():
        return False
    before = tokens[number - 1] if number else None
    touches = before is not None and before.end + 1 == tokens[number].start
    return not (touches and before is not None and before.token_type in (T.VAR, T.IDENTIFIER))


def literal(name: str, value: Any) -> str:
    """SQL for a value, of the type that Spark gives it as a parameter; `PlanError` for a value of another type."""
    if value is None:
        return "NULL"
    for kind, write in _WRITE:
        if isinstance(value, kind):
            return write(value)
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(literal(name, one) for one in value)})"
    raise PlanError(
        f"the value of the parameter {name!r} is a {type(value).__name__}; for joins of Dovetail it may be a text, a "
        "number, a truth value, bytes, a date, a time, a timedelta, None, or a list of these.",
        argument="args",
    )


def _text(value: str) -> str:
    """The text in quotes if Spark reads it as it is with every setting; else by its bytes."""
    plain = value.isprintable() and not any(one in value for one in "'\\$")
    return f"'{value}'" if plain else f"string(X'{value.encode().hex()}')"


def _double(value: float) -> str:
    return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"


def _timestamp(value: datetime) -> str:
    """Without a zone it is a time of Python's zone, as in `pyspark.sql.functions.lit`."""
    seconds = calendar.timegm(value.utctimetuple()) if value.tzinfo else int(time.mktime(value.timetuple()))
    return f"timestamp_micros({seconds * 1_000_000 + value.microsecond})"


def _interval(value: timedelta) -> str:
    micros = value // _MICROSECOND
    whole, part = divmod(abs(micros), 1_000_000)
    days, seconds = divmod(whole, 86_400)
    sign = "-" if micros < 0 else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:06}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"


_WRITE: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (bool, lambda value: str(value).upper()),
    (int, lambda value: f"({value})"),
    (float, lambda value: f"({_double(value)})"),
    (str, _text),
    (Decimal, lambda value: f"({value:f}BD)"),
    (bytes, lambda value: f"X'{value.hex()}'"),
    (bytearray, lambda value: f"X'{value.hex()}'"),
    (datetime, _timestamp),
    (date, lambda value: f"DATE'{value.isoformat()}'"),
    (time_of_day, lambda value: f"TIME'{value.isoformat()}'"),
    (timedelta, _interval),
)
