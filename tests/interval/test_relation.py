"""Relations: the identities of the source, the sign table against the oracle, inverses, SQL, names."""

from __future__ import annotations

import itertools

import duckdb
import numpy as np
import pytest

import oracle
from dovetail.errors import PlanError
from dovetail.joins.interval.relation import ALIASES, RELATIONS, Relation

INTERVALS = [(s, e) for s in range(4) for e in range(s, 4)]  # four values give every order of two pairs of bounds
CLOSED = ("left", "right", "both", "neither")


def sign(a: int, b: int) -> int:
    return 0 if a < b else 1 if a == b else 2


def holds(relation: Relation, left: tuple[int, int], right: tuple[int, int]) -> bool:
    ss, se, es, ee = (sign(a, b) for a in left for b in right)
    return bool(relation.table()[27 * ss + 9 * se + 3 * es + ee])


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("strict", [False, True])
def test_the_table_is_the_definition(name: str, strict: bool) -> None:
    for closed in itertools.product(CLOSED, repeat=2):
        relation = Relation.parse(name, strict, closed)
        match = oracle.related(name, ("s", "e"), ("s", "e"), closed=closed, strict=strict)
        for left, right in itertools.product(INTERVALS, repeat=2):
            if oracle.is_empty(*left, closed[0]) or oracle.is_empty(*right, closed[1]):
                continue
            wanted = match({"s": left[0], "e": left[1]}, {"s": right[0], "e": right[1]})
            assert holds(relation, left, right) == wanted == holds(relation.swapped(), right, left), (left, right)


def test_identities_of_the_source() -> None:
    proper = [(s, e) for s, e in INTERVALS if s < e]
    for left, right in itertools.product(proper, repeat=2):
        found = {name for name in RELATIONS if holds(Relation.parse(name), left, right)}
        assert found - {"overlapping"}, "some relation holds for every pair"
        covering = bool(found & {"covers", "covered_by"})
        assert ("overlapping" in found) == (("overlaps" in found) + ("overlapped_by" in found) + covering == 1)
        assert ({"covers", "covered_by"} <= found) == ("equals" in found)
        strict = [name for name in RELATIONS[1:] if holds(Relation.parse(name, strict=True), left, right)]
        assert len(strict) == 1, "Allen's relations exclude each other"


@pytest.mark.parametrize("strict", [False, True])
def test_sql_says_the_same(strict: bool) -> None:
    values = ", ".join(f"({s}, {e})" for s, e in INTERVALS)
    for name, closed in itertools.product(RELATIONS, ("left", "both")):
        relation = Relation.parse(name, strict, closed)
        text = relation.sql("a.s", "a.e", "b.s", "b.e")
        rows = duckdb.sql(
            f"with t(s, e) as (values {values}) select a.s, a.e, b.s, b.e from t a, t b where {text}"
        ).fetchall()
        wanted = {(*a, *b) for a, b in itertools.product(INTERVALS, repeat=2) if holds(relation, a, b)}
        assert set(rows) == wanted


def test_aliases_and_sets() -> None:
    for alias, name in ALIASES.items():
        assert np.array_equal(Relation.parse(alias).table(), Relation.parse(name).table())
    either = Relation.parse({"meets", "Covers"})
    assert np.array_equal(either.table(), Relation.parse("meets").table() | Relation.parse("covers").table())
    assert str(either) == "covers|meets"


@pytest.mark.parametrize(
    ("relation", "closed"), [("touches", "left"), ((), "left"), ("meets", "open"), ("meets", ("left",)), (3, "left")]
)
def test_nonsense_is_refused(relation: object, closed: object) -> None:
    with pytest.raises((PlanError, TypeError)):
        Relation.parse(relation, closed=closed)  # type: ignore[arg-type]
