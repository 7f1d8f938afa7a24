"""Recognises interval predicates in SQL, and keeps the meaning of their comparisons; no Spark."""

from __future__ import annotations

from itertools import product

import pytest
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.errors import PlanError
from dovetail.joins.interval.relation import ALIASES, EQUAL, GREATER, LESS, RELATIONS, Relation
from dovetail.rewrite.conditions import (
    Condition,
    find_functions,
    find_overlaps,
    found_comparisons,
    found_function,
    interval_calls,
    read_condition,
)
from dovetail.rewrite.interval import ordered_sql, type_trouble
from dovetail.rewrite.names import Input, Scope
from dovetail.rewrite.text import Source, conjuncts

LEFT, RIGHT = frozenset({0}), frozenset({1})
COLUMNS = ("start", "end", "k", "v")
SCOPE = Scope(
    tuple(Input(n, a, ((a,),), COLUMNS, tuple(f"{a}__{c}" for c in COLUMNS)) for n, a in enumerate("rs")), str.lower
)


def read(text: str) -> list[Condition]:
    source = Source(text)
    calls = interval_calls(source, lambda name: False)
    return [read_condition(piece, SCOPE, calls) for piece in conjuncts(source.whole())]


@pytest.mark.parametrize(
    ("text", "touching"),
    [
        ("r.start < s.end and s.start < r.end", (False, False)),
        ("s.end > r.start and r.end > s.start", (False, False)),
        ("(s.start < r.end) and (r.start < s.end)", (False, False)),
        ("r.start <= s.end and s.start <= r.end", (True, True)),
        ("s.end >= r.start and s.start < r.end", (True, False)),
        ("r.start < s.end and r.end >= s.start", (False, True)),
    ],
)
def test_overlap_by_comparisons(text: str, touching: tuple[bool, bool]) -> None:
    (overlap,) = find_overlaps(read(text), LEFT, RIGHT)
    assert [term.shown for term in overlap.terms] == ["r.start", "r.end", "s.start", "s.end"]
    assert (overlap.touching_start, overlap.touching_end) == touching


def test_a_point_between_bounds() -> None:
    (overlap,) = find_overlaps(read("r.start between s.start and s.end"), LEFT, RIGHT)
    assert [term.shown for term in overlap.terms] == ["r.start", "r.start", "s.start", "s.end"]
    assert (overlap.touching_start, overlap.touching_end) == (True, True)


@pytest.mark.parametrize(
    "text",
    [
        "r.start < s.end",
        "r.start < s.end or s.start < r.end",
        "not r.start < s.end and s.start < r.end",
        "r.start < s.end and s.start > r.end",
        "r.start < s.end and r.start < r.end",
        "r.start < 5 and s.start < r.end",
        "r.start + s.start < s.end and s.start < r.end",
        "r.start not between s.start and s.end",
        "r.start < s.end = true and s.start < r.end",
    ],
)
def test_no_overlap(text: str) -> None:
    assert find_overlaps(read(text), LEFT, RIGHT) == []


def test_keys_and_residual_of_the_raw_form() -> None:
    conditions = read("s.k = r.k and r.start < s.end and r.v + s.v > 3 and s.start < r.end and r.v = 1")
    (overlap,) = find_overlaps(conditions, LEFT, RIGHT)
    found = found_comparisons(conditions, [], overlap, (LEFT, RIGHT))
    assert [(key.left.sql, key.right.sql) for key in found.keys] == [("`r__k`", "`s__k`")]
    assert [condition.shown for condition in found.residual] == ["r.v + s.v > 3", "r.v = 1"]


def test_half_of_a_between_stays_a_condition() -> None:
    conditions = read("r.start between s.start and s.end and s.start < r.end")
    overlap = find_overlaps(conditions, LEFT, RIGHT)[1]
    assert [term.shown for term in overlap.terms] == ["r.start", "r.end", "s.start", "s.end"]
    found = found_comparisons(conditions, [], overlap, (LEFT, RIGHT))
    assert [condition.shown for condition in found.residual] == ["r.start between s.start and s.end"]


@pytest.mark.parametrize("name", [*RELATIONS, *ALIASES])
def test_every_relation_has_a_function(name: str) -> None:
    conditions = read(f"INTERVAL_{name.upper()}(r.start, r.end, s.start, s.end) and r.k = s.k")
    assert find_functions(conditions, LEFT, RIGHT) == [0]
    found = found_function(conditions, [], 0, (LEFT, RIGHT))
    assert found.bounds is not None
    assert found.bounds.relation == Relation.parse(name)
    assert len(found.keys) == 1


@pytest.mark.parametrize("name", RELATIONS)
def test_a_function_written_from_the_right_is_turned(name: str) -> None:
    (condition,) = read(f"interval_{name}(s.start, s.end, r.start, r.end)")
    assert condition.bounds is not None
    turned = condition.bounds.across(LEFT, RIGHT)
    assert turned is not None
    assert [term.shown for term in turned.terms] == ["r.start", "r.end", "s.start", "s.end"]
    assert turned.relation.names == Relation.parse(name).swapped().names


def test_a_set_of_relations() -> None:
    args = "(r.start, r.end, s.start, s.end)"
    (condition,) = read(f"(interval_meets{args} or interval_overlaps{args})")
    assert condition.bounds is not None
    assert condition.bounds.relation == Relation.parse({"meets", "overlaps"})
    (other,) = read(f"interval_meets{args} or interval_overlaps(r.start, r.end, s.start, s.v)")
    assert other.bounds is None
    (negated,) = read(f"not interval_meets{args}")
    assert (negated.bounds, negated.whole, len(negated.calls)) == (None, None, 1)


def test_bounds_that_mix_the_inputs_make_no_join() -> None:
    assert find_functions(read("interval_meets(r.start, s.start, r.end, s.end)"), LEFT, RIGHT) == []


def test_a_further_function_keeps_its_meaning_as_a_condition() -> None:
    conditions = read("interval_overlapping(r.start, r.end, s.start, s.end) and interval_before(r.k, r.v, s.k, s.v)")
    found = found_function(conditions, [], 0, (LEFT, RIGHT))
    (rest,) = found.residual
    assert rest.whole is not None
    assert rest.whole.sql.startswith("(((`r__v`) < (`s__k`))) and if((`r__k`) > (`r__v`) or")
    assert "raise_error" in rest.whole.sql


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interval_overlaping(a, b, c, d)", "did you mean 'interval_overlapping'"),
        ("interval_before(a, b, c)", "takes 4 arguments .* not 3"),
        ("interval_before()", "not 0"),
        ("interval_before(f(a, b), b, c, d, e)", "not 5"),
    ],
)
def test_wrong_calls(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        interval_calls(Source(f"select 1 from r join s on {text}"), lambda name: False)


@pytest.mark.parametrize(
    "text",
    [
        "select db.interval_x(1) from r",
        "with interval_a (x) as (select 1) select x from interval_a",
        "select x from (select 1) as interval_t(x)",
        "select interval_mine(1) from r",
    ],
)
def test_names_that_are_not_ours(text: str) -> None:
    assert interval_calls(Source(text), lambda name: name == "interval_mine") == []


@pytest.mark.parametrize(("start", "end"), list(product([False, True], repeat=2)))
def test_the_comparisons_hold_only_for_intervals_that_meet_once_in_order(start: bool, end: bool) -> None:
    """Why one interval join over ordered, closed bounds is enough: it finds every pair that the comparisons want."""
    closed = Relation.parse("overlapping", closed="both")
    for ls, le, rs, re in product(range(4), repeat=4):
        raw = (ls <= re if start else ls < re) and (rs <= le if end else rs < le)
        first, second = min(ls, le), min(rs, re)
        assert not raw or closed.holds(sign(first, second), sign(first, re), sign(le, second), sign(le, re))


def sign(a: int, b: int) -> int:
    return LESS if a < b else EQUAL if a == b else GREATER


def test_ordered_bounds() -> None:
    assert ordered_sql("a", "b", [T.IntegerType()] * 4) == ("if(`a` > `b`, `b`, `a`)", "`b`")
    assert ordered_sql("a", "a", [T.DateType()] * 4) == ("`a`", "`a`")
    finite = "if(`a` > 1e300D, 1e300D, if(`a` < -1e300D, -1e300D, double(`a`)))"
    assert ordered_sql("a", "a", [T.DoubleType()] * 4) == (finite, finite)


@pytest.mark.parametrize(
    ("kinds", "trouble"),
    [
        ([T.LongType(), T.IntegerType()], None),
        ([T.FloatType(), T.DoubleType()], None),
        ([T.TimestampType()] * 4, None),
        ([T.DecimalType(10, 2), T.DecimalType(12, 2)], "different types"),
        ([T.DateType(), T.TimestampType()], "different types"),
        ([T.LongType(), T.DoubleType()], "different types"),
        ([T.StringType()] * 4, None),
        ([T.StringType(), T.LongType()], "different types"),
        ([T.StringType("UTF8_LCASE")] * 2, "a bound has type string collate UTF8_LCASE"),
        ([T.BooleanType()] * 2, "a bound has type boolean"),
    ],
)
def test_types_that_compare_without_loss(kinds: list[T.DataType], trouble: str | None) -> None:
    found = type_trouble(kinds)
    assert found is None if trouble is None else trouble in str(found)
