"""Small values written as calls, such as "pareto(1.5, 1, 1000)": how an option names a distribution."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from dovetail import request
from dovetail.errors import PlanError

T = TypeVar("T")

_CALL = re.compile(r"\s*([a-z_]+)\s*(?:\(([^()]*)\))?\s*")


def nearest(given: str, allowed: Mapping[str, object]) -> str:
    """A hint for a name that is not allowed: the nearest one if any is near, and all of them."""
    near = request.nearest(given, allowed)
    hint = "" if near is None else f"did you mean {near!r}? "
    return f"{hint}Allowed: {', '.join(sorted(allowed))}."


def parse_call(text: str, makers: Mapping[str, Callable[..., T]]) -> T:
    """The value that a text such as "fixed(10)" describes; numbers only, in the order of the maker's parameters."""
    match = _CALL.fullmatch(text)
    if match is None:
        raise PlanError(f"cannot read {text!r}; write a name with numbers, such as 'fixed(10)'.")
    name, arguments = match.groups()
    if name not in makers:
        raise PlanError(f"unknown {name!r} in {text!r}: {nearest(name, makers)}")
    numbers = [_number(part, text) for part in (arguments or "").split(",") if part.strip()]
    try:
        return makers[name](*numbers)
    except TypeError as error:
        raise PlanError(f"wrong number of parameters in {text!r}: {error}.") from None


def _number(part: str, text: str) -> int | float:
    cleaned = part.strip().replace("_", "")
    try:
        return int(cleaned)
    except ValueError:
        pass
    try:
        return float(cleaned)
    except ValueError:
        raise PlanError(f"{part.strip()!r} in {text!r} is not a number.") from None
