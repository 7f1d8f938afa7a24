"""Resolves column names by Spark's rules, and rewrites expressions to unique names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlglot import exp

from dovetail.rewrite.text import OFFSET, expression
from dovetail.spark.frames import quoted

# An expression with one of these depends on the whole query, and is never moved.
FIXED = (exp.Query, exp.Star, exp.Placeholder, exp.Parameter, exp.Window, exp.SessionParameter)

# Conditions made of these alone give the same answer wherever and however often they run.
PLAIN = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg, exp.Not, exp.And, exp.Or),
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Is, exp.Like),
    *(exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.DataType, exp.Interval, exp.Var, exp.Dot),
)


@dataclass(frozen=True, slots=True)
class Input:
    """One relation of FROM: its columns as the query names them, and our unique names for them."""

    number: int
    alias: str
    qualifiers: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    opaque: bool = False  # its columns are not known before the query runs


@dataclass(frozen=True, slots=True)
class Term:
    """An expression over our names, the inputs that it reads, and its text in the query."""

    sql: str
    inputs: frozenset[int]
    shown: str
    plain: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """The inputs that a condition can see; `fold` makes names comparable (lower case, or nothing)."""

    inputs: tuple[Input, ...]
    fold: Callable[[str], str]

    def term(self, text: str) -> Term | None:
        """The expression over our names; None if it reads anything else than columns of these inputs."""
        read = expression(text)
        if read is None or isinstance(read, exp.Query) or any(read.find(kind) for kind in FIXED):
            return None
        bound = {self.fold(name.name) for each in read.find_all(exp.Lambda) for name in each.expressions}
        spots: dict[tuple[int, int], str] = {}
        used: set[int] = set()
        for column in read.find_all(exp.Column):
            found = self._place(column, bound)
            if found is None:
                return None
            spot, number, name = found
            spots[spot] = quoted(name)
            used.add(number)
        plain = all(isinstance(node, PLAIN) for node in read.walk())
        return Term(_replaced(text, spots), frozenset(used), " ".join(text.split()), plain)

    def _place(self, column: exp.Column, bound: set[str]) -> tuple[tuple[int, int], int, str] | None:
        parts = column.parts
        found = self.resolve([part.name for part in parts])
        if found is None or self.fold(parts[0].name) in bound:
            return None
        number, name, length = found
        first, last = parts[0].meta, parts[length - 1].meta
        if "start" not in first or "end" not in last:
            return None
        return (first["start"] - OFFSET, last["end"] + 1 - OFFSET), number, name

    def resolve(self, parts: list[str]) -> tuple[int, str, int] | None:
        """Input number, our name, and how many parts of the written name it took; the other parts are fields."""
        folded = [self.fold(part) for part in parts]
        for length in range(min(3, len(parts) - 1), -1, -1):
            found = self._columns(tuple(folded[:length]), folded[length])
            if len(found) > 1 or any(each is None for each in found):
                return None
            for number, name in filter(None, found):
                return number, name, length + 1
        return None

    def _columns(self, qualifier: tuple[str, ...], column: str) -> list[tuple[int, str] | None]:
        found: list[tuple[int, str] | None] = []
        for each in self.inputs:
            if qualifier and qualifier not in {tuple(map(self.fold, written)) for written in each.qualifiers}:
                continue
            if each.opaque and qualifier:
                found.append(None)
            pairs = zip(each.columns, each.names, strict=True)
            found += [(each.number, name) for shown, name in pairs if self.fold(shown) == column]
        return found


def _replaced(text: str, spots: dict[tuple[int, int], str]) -> str:
    for (start, stop), name in sorted(spots.items(), reverse=True):
        text = text[:start] + name + text[stop:]
    return text


class Names:
    """Makes names that the query does not use."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.lower() for name in taken}

    def reserve(self, names: Iterable[str]) -> None:
        """These names are in use too."""
        self._taken |= {name.lower() for name in names}

    def fresh(self, wish: str) -> str:
        """The wished name, or the first numbered variant of it that is free."""
        wish = wish.lstrip("_") or "q"
        name, number = wish, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{wish}_{number}"
        self._taken.add(name.lower())
        return name
