"""Functions on numbers."""

from __future__ import annotations

import decimal
import math
from typing import Any

from dovetail.xml.evaluate.functions.integer_picture import format_integer
from dovetail.xml.evaluate.functions.picture import format_number
from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.atomic import INTEGERS, Float
from dovetail.xml.xdm.numbers import rounded


def _like(value: Any, result: float) -> Any:
    return Float(result) if type(value) is Float else result


@function("abs", "numeric?")
def _abs(value: Any) -> Any:
    if value is None:
        return None
    if type(value) in INTEGERS:
        return abs(int(value))
    return _like(value, math.fabs(value)) if isinstance(value, float) else value.copy_abs()


def _integral(value: Any, rounding: str) -> Any:
    if value is None or type(value) in INTEGERS:
        return value
    if isinstance(value, float):
        if not math.isfinite(value) or value == 0:
            return value
        whole = math.floor(value) if rounding == decimal.ROUND_FLOOR else math.ceil(value)
        return _like(value, math.copysign(float(whole), value))
    return value.to_integral_value(rounding=rounding)


@function("floor", "numeric?")
def _floor(value: Any) -> Any:
    return _integral(value, decimal.ROUND_FLOOR)


@function("ceiling", "numeric?")
def _ceiling(value: Any) -> Any:
    return _integral(value, decimal.ROUND_CEILING)


@function("round", "numeric?", "integer", optional=1)
def _round(value: Any, digits: int = 0) -> Any:
    return None if value is None else rounded(value, digits)


@function("round-half-to-even", "numeric?", "integer", optional=1)
def _half_even(value: Any, digits: int = 0) -> Any:
    return None if value is None else rounded(value, digits, half_even=True)


@function("format-number", "numeric?", "string", "string?", optional=1)
def _format_number(value: Any, picture: str, name: str | None = None) -> str:
    if name is not None:
        raise fail("FODF1280", f"the decimal format {name!r} is not declared")
    return format_number(math.nan if value is None else value, picture)


@function("format-integer", "integer?", "string", "string?", optional=1)
def _format_integer(value: int | None, picture: str, *_: str | None) -> str:
    return "" if value is None else format_integer(value, picture)
