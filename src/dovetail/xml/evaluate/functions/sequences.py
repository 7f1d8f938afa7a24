"""Functions on sequences."""

from __future__ import annotations

import math
from functools import cmp_to_key
from typing import Any

from dovetail.xml.evaluate.functions.aggregates import check_collation
from dovetail.xml.evaluate.functions.registry import fail, function
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.compare import comparable, distinct, key_of
from dovetail.xml.xdm.equality import deep_equal
from dovetail.xml.xdm.numbers import rounded
from dovetail.xml.xdm.values import atomise


@function("exists", "item*")
def _exists(items: list[Any]) -> bool:
    return bool(items)


@function("empty", "item*")
def _empty(items: list[Any]) -> bool:
    return not items


@function("head", "item*")
def _head(items: list[Any]) -> list[Any]:
    return items[:1]


@function("tail", "item*")
def _tail(items: list[Any]) -> list[Any]:
    return items[1:]


@function("reverse", "item*")
def _reverse(items: list[Any]) -> list[Any]:
    return items[::-1]


@function("insert-before", "item*", "integer", "item*")
def _insert(items: list[Any], position: int, more: list[Any]) -> list[Any]:
    at = max(position, 1) - 1
    return [*items[:at], *more, *items[at:]]


@function("remove", "item*", "integer")
def _remove(items: list[Any], position: int) -> list[Any]:
    return [item for at, item in enumerate(items, 1) if at != position]


@function("subsequence", "item*", "double", "double", optional=1)
def _subsequence(items: list[Any], start: float, length: float = math.inf) -> list[Any]:
    first = rounded(start, 0)
    last = math.inf if length == math.inf and first == -math.inf else first + rounded(length, 0)
    if length == math.inf and math.isfinite(first):
        last = math.inf
    return [item for at, item in enumerate(items, 1) if first <= at < last]


@function("index-of", "anyAtomicType*", "anyAtomicType", "string", optional=1)
def _index_of(values: list[Any], wanted: Any, *collation: str) -> list[int]:
    check_collation(*collation)
    return [at for at, value in enumerate(values, 1) if _equal(value, wanted)]


def _equal(left: Any, right: Any) -> bool:
    first, second = key_of(left), key_of(right)
    if first[0] != second[0]:
        return False
    left, right = comparable(left, right, "eq")
    return bool(left == right)


@function("distinct-values", "anyAtomicType*", "string", optional=1)
def _distinct(values: list[Any], *collation: str) -> list[Any]:
    check_collation(*collation)
    return distinct(values)


@function("deep-equal", "item*", "item*", "string", optional=1)
def _deep_equal(left: list[Any], right: list[Any], *collation: str) -> bool:
    check_collation(*collation)
    return deep_equal(left, right)


@function("sort", "item*", "string?", optional=1)
def _sort(items: list[Any], collation: str | None = None) -> list[Any]:
    check_collation(*([collation] if collation else []))
    keyed: list[tuple[Any, Any]] = list(zip(atomise(items), items, strict=True))
    return [item for _, item in sorted(keyed, key=cmp_to_key(_before))]


def _before(first_pair: tuple[Any, Any], second_pair: tuple[Any, Any]) -> int:
    left, right = first_pair[0], second_pair[0]
    left, right = (str(value) if type(value) is UntypedAtomic else value for value in (left, right))
    nan = [isinstance(value, float) and math.isnan(value) for value in (left, right)]
    if any(nan):
        return nan[1] - nan[0]
    first, second = comparable(left, right, "lt")
    return -1 if first < second else int(first > second)


@function("zero-or-one", "item*")
def _zero_or_one(items: list[Any]) -> list[Any]:
    if len(items) > 1:
        raise fail("FORG0003", f"zero-or-one() was given {len(items)} items")
    return items


@function("one-or-more", "item*")
def _one_or_more(items: list[Any]) -> list[Any]:
    if not items:
        raise fail("FORG0004", "one-or-more() was given nothing")
    return items


@function("exactly-one", "item*")
def _exactly_one(items: list[Any]) -> list[Any]:
    if len(items) != 1:
        raise fail("FORG0005", f"exactly-one() was given {len(items)} items")
    return items
