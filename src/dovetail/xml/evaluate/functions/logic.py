"""Booleans, errors, and functions that look at single items."""

from __future__ import annotations

import math
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate.control import RaisedError
from dovetail.xml.evaluate.functions.registry import function
from dovetail.xml.syntax.names import ERR
from dovetail.xml.xdm.atomic import QNameValue
from dovetail.xml.xdm.cast import cast
from dovetail.xml.xdm.values import atomise, string_of


@function("true")
def _true() -> bool:
    return True


@function("false")
def _false() -> bool:
    return False


@function("data", "item*", focus=True)
def _data(items: list[Any]) -> list[Any]:
    return atomise(items)


@function("string", "item?", focus=True)
def _string(item: Any) -> str:
    return "" if item is None else string_of(item)


@function("number", "anyAtomicType?", focus=True)
def _number(value: Any) -> float:
    if value is None:
        return math.nan
    try:
        return cast(value, "double")  # type: ignore[no-any-return]  # a double, as asked for
    except XQueryError:
        return math.nan


@function("error", "QName?", "string", "item*", optional=3)
def _error(code: QNameValue | None = None, message: str = "", items: list[Any] | None = None) -> None:
    raise RaisedError(code or QNameValue(ERR, "FOER0000", "err"), message, items or [])


@function("trace", "item*", "string", optional=1)
def _trace(items: list[Any], *_: str) -> list[Any]:
    return items
