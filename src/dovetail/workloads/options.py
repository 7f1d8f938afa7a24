"""Options of a source, which arrive as text, turned into the arguments of the function that makes its workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

from dovetail.errors import PlanError
from dovetail.workloads.blocks import Workload
from dovetail.workloads.calls import nearest


def split_options(
    options: Mapping[str, str], maker: Callable[..., Workload], reading: Mapping[str, type]
) -> tuple[Workload, dict[str, object]]:
    """The workload that the options describe, and those of them that say how to read it.

    Upper and lower case and underscores do not matter: "tupleBytes" is tuple_bytes. An option that nobody knows, or a
    text that does not fit, is a `PlanError`.
    """
    hints = {name: kind for name, kind in get_type_hints(maker).items() if name in inspect.signature(maker).parameters}
    known = {_plain(name): name for name in (*hints, *reading)}
    making: dict[str, object] = {}
    how: dict[str, object] = {}
    for given, text in options.items():
        name = known.get(_plain(given))
        if name is None:
            raise PlanError(f"unknown option {given!r}: {nearest(given, hints | dict(reading))}")
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
            raise PlanError(f"option {name} is {text!r}: {nearest(text, words)}")
        return words[text]
    kinds = [one for one in get_args(kind) or (kind,) if one is not NoneType]
    if kinds == [bool]:
        return parse_option(name, text.lower(), Literal["true", "false"]) == "true"
    try:
        return kinds[0](text)
    except ValueError:
        raise PlanError(f"option {name} must be {_KINDS[kinds[0]]}, not {text!r}.") from None


_KINDS = {int: "a whole number", float: "a number"}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
