"""Lays out the columns of a join's result: their inputs and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import PlanError

How = Literal["inner", "left", "right", "full", "left_semi", "left_anti"]
HOWS: tuple[How, ...] = get_args(How)
Key = str | tuple[str, str]


def key_pairs(on: Iterable[Key]) -> tuple[tuple[str, str], ...]:
    """Equality keys as (left, right) names; a single name stands for both sides."""
    return tuple((key, key) if isinstance(key, str) else (key[0], key[1]) for key in on)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a pair of rows becomes a row of the result: left's columns, then right's, a shared key once, as in Spark.

    `shared` are the keys that both sides call by one name; where the left row is missing, they come from the right row.
    """

    schema: pa.Schema
    left: tuple[str, ...]
    right: tuple[str, ...]
    shared: frozenset[str]

    def batch(self, left: pa.RecordBatch, right: pa.RecordBatch | None) -> pa.RecordBatch:
        """Rows of the result from matched rows; all-null rows stand for a missing side."""
        columns = [_coalesced(left, right, name) if name in self.shared else left.column(name) for name in self.left]
        if right is not None:
            columns += [right.column(name) for name in self.right]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def join_layout(
    left: pa.Schema, right: pa.Schema, on: Sequence[Key], how: How, suffixes: tuple[str, str] = ("", "_right")
) -> Layout:
    """The layout of a join's result; semi and anti joins have left's columns only.

    Names that both sides have get the suffixes. `PlanError` for keys that do not exist or whose types differ, and for
    names that are equal in spite of the suffixes.
    """
    _check_keys(left, right, key_pairs(on))
    shared = frozenset(key for key in on if isinstance(key, str))
    if how in ("left_semi", "left_anti"):
        return Layout(left, tuple(left.names), (), frozenset())
    mine = [left.field(i) for i in range(len(left))]
    theirs = [field for field in (right.field(i) for i in range(len(right))) if field.name not in shared]
    clashing = {field.name for field in mine if field.name not in shared} & {field.name for field in theirs}
    out = [_renamed(f, suffixes[0], clashing, how in ("right", "full")) for f in mine]
    out += [_renamed(f, suffixes[1], clashing, how in ("left", "full")) for f in theirs]
    _check_distinct([field.name for field in out], suffixes)
    return Layout(pa.schema(out), tuple(f.name for f in mine), tuple(f.name for f in theirs), shared)


def check_columns(schema: pa.Schema, names: Iterable[str], side: str, argument: str | None = None) -> None:
    """Raise a `PlanError` that names the missing and the existing columns."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise PlanError(f"{side} input has no column {missing}; it has {schema.names}.", argument=argument)


def _check_keys(left: pa.Schema, right: pa.Schema, on: tuple[tuple[str, str], ...]) -> None:
    for side, schema, names in (("left", left, [a for a, _ in on]), ("right", right, [b for _, b in on])):
        check_columns(schema, names, side, "on")
        twice = [name for name, n in Counter(schema.names).items() if n > 1]
        if twice:
            raise PlanError(
                f"{side} input has columns {twice} more than once; rename them before the join.", argument=side
            )
    for a, b in on:
        if left.field(a).type != right.field(b).type:
            raise PlanError(
                f"key {a!r} of left is {left.field(a).type} but key {b!r} of right is {right.field(b).type}; "
                f"cast one of them so that both are of one type.",
                argument="on",
            )


def _check_distinct(names: list[str], suffixes: tuple[str, str]) -> None:
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    if twice:
        raise PlanError(
            f"the answer would have columns {twice} twice with suffixes={suffixes}; choose other suffixes.",
            argument="suffixes",
        )


def _renamed(field: pa.Field, suffix: str, clashing: set[str], may_be_missing: bool) -> pa.Field:
    named = field.with_name(field.name + suffix) if field.name in clashing else field
    return named.with_nullable(True) if may_be_missing else named


def _coalesced(left: pa.RecordBatch, right: pa.RecordBatch | None, name: str) -> pa.Array:
    mine = left.column(name)
    return mine if right is None or not mine.null_count else pc.coalesce(mine, right.column(name))
