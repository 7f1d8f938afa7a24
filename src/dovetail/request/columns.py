"""Parses arguments that name columns: equality keys, columns of the result, suffixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.errors import PlanError
from dovetail.request.choices import nearest

Keys = str | Sequence[str | tuple[str, str]]
"""The type of `on`: "k", ["k", "l"], [("left_k", "right_k")], or a mixture."""


@dataclass(frozen=True, slots=True)
class Key:
    """An equality key: its column on each side. A `shared` key was given by one name and appears once in the result."""

    left: str
    right: str
    shared: bool

    @property
    def name(self) -> str | tuple[str, str]:
        """The key as it was given: one name, or a pair of names."""
        return self.left if self.shared else (self.left, self.right)


def parse_keys(on: Any, required: bool = False, argument: str = "on") -> tuple[Key, ...]:
    """The keys that `on` (or an argument of another name) lists; a single name stands for both sides.

    >>> parse_keys(["k", ("a", "b")])
    (Key(left='k', right='k', shared=True), Key(left='a', right='b', shared=False))
    """
    keys = tuple(_key(on, item, argument) for item in _items(on))
    if required and not keys:
        raise PlanError(
            f"{argument}={on!r} names no key; give a column name, or (left name, right name) pairs.", argument=argument
        )
    return keys


def _items(on: Any) -> list[Any]:
    if isinstance(on, str) or not hasattr(on, "__iter__"):
        return [] if on is None else [on]
    return list(on)


def _key(on: Any, item: Any, argument: str) -> Key:
    if isinstance(item, str):
        return Key(item, item, True)
    if isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return Key(item[0], item[1], False)
    raise PlanError(
        f"{argument}={on!r}: each key is a column name or a (left name, right name) pair, not {item!r}.",
        argument=argument,
    )


def parse_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The requested columns of the result, in order; None for all."""
    if columns is None:
        return None
    named = [] if isinstance(columns, str) or not hasattr(columns, "__iter__") else list(columns)
    if not named or not all(isinstance(name, str) for name in named):
        raise PlanError(f"columns={columns!r} must be a list of output column names.", argument="columns")
    if len(set(named)) < len(named):
        raise PlanError(f"columns={named} has a name twice; give each once.", argument="columns")
    return tuple(named)


def parse_suffixes(suffixes: Sequence[str]) -> tuple[str, str]:
    """The suffixes of names that both inputs have: left and right."""
    listed = isinstance(suffixes, (list, tuple)) and len(suffixes) == 2
    if not listed or not all(isinstance(suffix, str) for suffix in suffixes):
        raise PlanError(
            f"suffixes={suffixes!r} must be two strings: one for the first input's names that both have, one for the "
            "second's.",
            argument="suffixes",
        )
    return suffixes[0], suffixes[1]


def known_column(what: str, name: str, names: Sequence[str], argument: str) -> str:
    """The name, if it is one of these; else a `PlanError` with the nearest one."""
    if name in names:
        return name
    near = nearest(name, names)
    hint = "" if near is None else f" Did you mean {near!r}?"
    raise PlanError(f"{what} has no column {name!r}; it has {list(names)}.{hint}", argument=argument)


def wanted_columns(columns: tuple[str, ...] | None, every: Sequence[str]) -> tuple[str, ...]:
    """The columns of the result in order: the requested ones, or all."""
    if columns is None:
        return tuple(every)
    return tuple(known_column("columns: the result", name, every, "columns") for name in columns)


def output_names(
    left: Sequence[str], right: Sequence[str], shared: Collection[str], suffixes: tuple[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The name in the result of each column of both inputs; `shared` columns of the right one are left out.

    Names that both inputs have, in any case, get the suffixes, because Spark ignores case.

    >>> output_names(["k", "v"], ["k", "V"], {"k"}, ("", "_right"))
    ({'k': 'k', 'v': 'v'}, {'V': 'V_right'})
    """
    theirs = [name for name in right if name not in shared]
    in_left, in_right = {name.lower() for name in left}, {name.lower() for name in theirs}
    left_out = {name: name + suffixes[0] if name.lower() in in_right else name for name in left}
    right_out = {name: name + suffixes[1] if name.lower() in in_left else name for name in theirs}
    count = Counter(name.lower() for name in (*left_out.values(), *right_out.values()))
    twice = [name for name in (*left_out.values(), *right_out.values()) if count[name.lower()] > 1]
    if twice:
        raise PlanError(
            f"columns {sorted(set(twice))} would appear twice in the result with suffixes={suffixes!r}; choose other "
            "suffixes, or rename them.",
            argument="suffixes",
        )
    return left_out, right_out
