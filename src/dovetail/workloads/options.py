"""Options as text: values written as calls ("pareto(1.5, 1, 1000)"), and the arguments of a workload's function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from dovetail import request
from dovetail.errors import PlanError
from dovetail.workloads.blocks import Workload

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


def split_options(
    options: Mapping[str, str], maker: Callable[..., Workload], reading: Mapping[str, type]
) -> tuple[Workload, dict[str, object]]:
    """The workload that the options describe, and those of them that say how to read it.

    Upper and lower case and underscores do not matter: "tupleBytes" is tuple_bytes. An unknown option, or a text that
    does not fit, is a `PlanError`.
    """
    hints = {name: kind for name, kind in get_type_hints(maker).items() if name in inspect.signature(maker).parameters}
    known = {_plain(name): name for name in (*hints, *reading)}
    making: dict[str, object] = {}
    how: dict[str, object] = {}
    for given, text in options.items():
        name = known.get(_plain(given))
        if name is None:
            raise PlanError(f"unknown option {given!r}: {nearest(given, hints | dict(reading))}", argument=given)
        if name in reading:
            how[name] = parse_option(name, text, reading[name])
        else:
            making[name] = parse_option(name, text, hints[name])
    return maker(**making), how


def parse_option(name: str, text: str, kind: object) -> object:
    """The value of one option: a number, true or false, one of a few words, or any text."""
    if get_origin(kind) is Literal:
        words = {str(word): word for word in get_args(kind)}
        if text not in words:
            raise PlanError(f"option {name} is {text!r}: {nearest(text, words)}", argument=name)
        return words[text]
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    if kinds == [bool]:
        return parse_option(name, text.lower(), Literal["true", "false"]) == "true"
    try:
        return kinds[0](text)
    except ValueError:
        raise PlanError(f"option {name} must be {_KINDS[kinds[0]]}, not {text!r}.", argument=name) from None


_KINDS = {int: "a whole number", float: "a number"}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
