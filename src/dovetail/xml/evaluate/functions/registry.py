"""Declarations of library functions: the name and the types of the parameters, as the standard writes them.

    @function("substring", "string?", "double", "double", optional=1)
    def substring(text, start, length=None): ...

A parameter `string` or `string?` is given as one Python value or None, `string*` as a list. The result is one value,
None or a list. `focus=True` lets the first argument be left out: it is the context item then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dovetail.xml.evaluate.types import mismatch, value_converter
from dovetail.xml.xdm.atomic import ANCESTORS, NUMBERS
from dovetail.xml.xdm.nodes import Element, is_node
from dovetail.xml.xdm.values import atomise

Argument = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """A function, how its arguments are prepared, and how many there may be."""

    name: str
    call: Callable[..., Any]
    parameters: tuple[str, ...]
    least: int
    focus: bool = False
    needs_environment: bool = False
    variadic: bool = False
    together: bool = False

    def accepts(self, count: int) -> bool:
        """Whether it can be called with this number of arguments."""
        if self.together and count not in (self.least, len(self.parameters)):
            return False
        low = 0 if self.focus and self.least == 1 else self.least
        return low <= count and (self.variadic or count <= len(self.parameters))

    def arguments(self, count: int) -> list[Argument]:
        """The preparation of each argument."""
        kinds = [*self.parameters, *self.parameters[-1:] * max(0, count - len(self.parameters))]
        return [argument(kind, f"argument {at} of {self.name}()") for at, kind in enumerate(kinds[:count], 1)]


FUNCTIONS: dict[str, Signature] = {}
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]


def function(
    name: str,
    *parameters: str,
    optional: int = 0,
    together: bool = False,
    focus: bool = False,
    env: bool = False,
    variadic: bool = False,
) -> Declared:
    """Registers a function of the namespace fn; the last `optional` parameters may be left out, all `together`."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        least = len(parameters) - optional
        FUNCTIONS[name] = Signature(name, call, parameters, least, focus, env, variadic, together)
        return call

    return register


def argument(kind: str, what: str) -> Argument:
    """The preparation of one argument."""
    occurrence = kind[-1] if kind[-1] in "?*+" else ""
    name = kind.rstrip("?*+")
    if name in ("item", "node", "element"):
        return _nodes(name, occurrence, what)
    convert, check = value_converter(name), _checker(name)

    def many(items: list[Any]) -> Any:
        values = [convert(value) for value in atomise(items)]
        if (not values and occurrence == "+") or not all(map(check, values)):
            raise mismatch(values, f"xs:{kind}", what)
        return values

    def one(items: list[Any]) -> Any:
        if len(items) != 1:
            if not items and occurrence == "?":
                return None
            raise mismatch(atomise(items), f"xs:{kind}", what)
        value = convert(atomise(items)[0])
        if not check(value):
            raise mismatch([value], f"xs:{kind}", what)
        return value

    return many if occurrence in ("*", "+") else one


def _checker(name: str) -> Callable[[Any], bool]:
    if name == "anyAtomicType":
        return lambda value: True
    if name == "numeric":
        return lambda value: type(value) in NUMBERS
    return lambda value: name in ANCESTORS[type(value)]


def _nodes(name: str, occurrence: str, what: str) -> Argument:
    def prepare(items: list[Any]) -> Any:
        if (name == "node" and not all(map(is_node, items))) or (
            name == "element" and any(type(item) is not Element for item in items)
        ):
            raise mismatch(items, f"{name}(){occurrence}", what)
        if occurrence == "*":
            return items
        if len(items) > 1 or (not items and occurrence != "?"):
            raise mismatch(items, f"{name}(){occurrence}", what)
        return items[0] if items else None

    return prepare


def sequence(result: Any) -> list[Any]:
    """What a function gave, as a sequence."""
    if type(result) is list:
        return result
    return [] if result is None else [result]
