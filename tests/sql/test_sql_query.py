"""Queries on Spark: the planned answer against Spark's own, or against the oracle; what is left to Spark, and why."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import product
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest

import dovetail.rewrite
import oracle
from dovetail.errors import DataError, DovetailError, PlanError, UnsupportedError
from dovetail.joins.interval.api import interval_join
from dovetail.rewrite import sql
from dovetail.rewrite.conditions import interval_calls
from dovetail.rewrite.plan import plan_query
from dovetail.rewrite.text import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("id", "k", "start", "end", "v")
SCHEMA = "id long, k int, start {0}, end {0}, v int"


def every(*bounds: Any) -> list[dict[str, Any]]:
    """Every interval with these bounds, the empty and inverted ones too, with keys that may be null."""
    pairs = enumerate(product(bounds, repeat=2))
    return [dict(zip(COLUMNS, (i, [0, 1, None][i % 3], a, b, i % 4), strict=True)) for i, (a, b) in pairs]


def rows(seed: int, n: int) -> list[dict[str, Any]]:
    """Random intervals with nulls, null keys, empties and duplicates; none inverted."""
    rng = random.Random(seed)  # noqa: S311  (test data)
    found = []
    for i in range(n):
        start = rng.randrange(30)
        bounds: list[Any] = [start, start + rng.choice([1, 2, 5, 9, 0])]
        if rng.random() < 0.15:
            bounds[rng.randrange(2)] = None
        found.append(dict(zip(COLUMNS, (i % 13, rng.choice([0, 1, None]), *bounds, rng.randrange(4)), strict=True)))
    return found


CLEAN_R, CLEAN_S = rows(4, 24), rows(5, 24)


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    views = {
        "r": (every(None, 0, 1, 2, 3), "int"),
        "s": (every(3, 2, None, 1, 0), "int"),
        "f": (every(None, -inf, 0.0, 1.0, inf, nan), "double"),
        "cr": (CLEAN_R, "int"),
        "cs": (CLEAN_S, "int"),
        "ct": (rows(3, 12), "int"),
    }
    for name, (data, kind) in views.items():
        values = [tuple(row.values()) for row in data]
        spark.createDataFrame(values, SCHEMA.format(kind)).coalesce(1).createOrReplaceTempView(name)
    yield
    for name in views:
        spark.catalog.dropTempView(name)


def planned(spark: SparkSession, query: str) -> tuple[DataFrame, str]:
    source = Source(query)
    frame, report = plan_query(spark, source, interval_calls(source, lambda name: False), {})
    return frame, report.text()


def bag(frame: DataFrame) -> Any:
    return oracle.bag(tuple(row) for row in frame.collect())


def same(spark: SparkSession, query: str, joins: int, reference: str | None = None) -> str:
    """Assert that a query with `joins` interval joins gives Spark's columns and rows; its report."""
    frame, report = planned(spark, query)
    expected = spark.sql(reference or query)
    assert report.startswith(f"{joins} interval join"), report
    assert frame.columns == expected.columns
    assert bag(frame) == bag(expected)
    return report


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "on"),
    [
        ("join", "r.start < s.end and s.start < r.end and r.k = s.k"),
        ("left join", "r.start <= s.end and s.start < r.end and r.v <= s.v"),
        ("full outer join", "r.start <= s.end and s.start <= r.end and r.k = s.k and s.v > 0"),
        ("left anti join", "r.start < s.end and r.end >= s.start and r.k = s.k"),
    ],
)
def test_comparisons_mean_what_they_say_for_every_row(spark: SparkSession, how: str, on: str) -> None:
    same(spark, f"select * from r {how} s on {on}", 1)


def test_comparisons_with_nan_and_infinity(spark: SparkSession) -> None:
    same(spark, "select f.id, g.*, f.v from f full join f g on f.start < g.end and g.start <= f.end", 1)


def test_containment_and_a_choice_of_comparisons(spark: SparkSession) -> None:
    """Containment reads as a point between bounds; of several candidates the one that fewest pairs fulfil is taken."""
    report = same(spark, "select * from cr join cs on cr.start >= cs.start and cr.end <= cs.end and cr.v < cs.v", 1)
    assert "relation: overlapping, cr.end <= cs.end and cr.start >= cs.start\n" in report
    assert "residual: cr.v < cs.v" in report


BEFORE = "6 div r.v > s.start and s.end > r.start"  # the rows with r.v = 0 have no such bound


@pytest.mark.parametrize(
    ("query", "joins"),
    [
        (f"select * from r left join s on r.v <> 0 and {BEFORE}", 1),
        (f"select * from r left anti join s on r.v <> 0 and {BEFORE}", 1),
        (f"select * from r join s on string(r.v) rlike '[1-9]' and {BEFORE}", 1),
        (f"select * from r join s on {BEFORE} where string(r.v) rlike '[1-9]'", 1),
        (f"select * from r join s on r.v <> 0 and {BEFORE} and r.v <= s.v and s.id < 20", 1),
        ("select * from r join s on string(r.v) rlike '[1-9]' and s.v <> 0 and 6 div r.v = 6 div s.v and "
         "r.start < s.end and s.start < r.end", 1),
        (f"select * from r left join s on s.v > 5 and {BEFORE}", 0),
    ],
)  # fmt: skip
def test_a_condition_protects_the_expressions_beside_it(spark: SparkSession, query: str, joins: int) -> None:
    """A bound or key that some rows have no value for is an error only where Spark's own join has one."""
    report = same(spark, query, joins) if joins else planned(spark, query)[1]
    assert bag(planned(spark, query)[0]) == bag(spark.sql(query))
    assert joins or "DIVIDE_BY_ZERO" in report


def test_functions_follow_the_interval_join(spark: SparkSession) -> None:
    """Empty intervals match nothing, unlike the comparisons; written from the right; keys and a condition."""
    query = (
        "select * from cr left join cs on Interval_Contains(cs.start, cs.END, `cr`.`start`, cr.end) "
        "and cr.k = cs.k and cr.v + cs.v > 1"
    )
    pairs = oracle.interval_join(
        CLEAN_R, CLEAN_S, "left", relation="covered_by", on=[("k", "k")], condition=lambda a, b: a["v"] + b["v"] > 1
    )
    frame, report = planned(spark, query)
    assert bag(frame) == oracle.bag(oracle.flat(pairs, COLUMNS, COLUMNS))
    assert report == (
        "1 interval join\n"
        "1. cr left join cs\n"
        "   relation: covered_by, by function\n"
        "   intervals: (`cr`.`start`, cr.end) with (cs.start, cs.END)\n"
        "   keys: cr.k = cs.k\n"
        "   residual: cr.v + cs.v > 1"
    )


def test_a_set_of_relations_in_where_of_a_comma_join(spark: SparkSession) -> None:
    bounds = "(cr.start, cr.end, cs.start, cs.end)"
    frame, _ = planned(
        spark,
        f"select cr.id, cs.v from cr, cs where (interval_meets{bounds} or interval_starts{bounds}) and cr.v = 1",
    )
    pairs = oracle.interval_join([row for row in CLEAN_R if row["v"] == 1], CLEAN_S, relation={"meets", "starts"})
    assert bag(frame) == oracle.bag((a["id"], b["v"]) for a, b in pairs if a and b)


def test_several_interval_joins_in_one_query(spark: SparkSession) -> None:
    """Inputs in an order in which neighbours are not linked; a triangle of functions; an equality join beside it."""
    functions = (
        "select a.id, b.id, c.*, d.v from ct c, r d, cr a, cs b "
        "where interval_overlapping(a.start, a.end, b.start, b.end) and a.id = d.id "
        "and interval_overlapping(b.start, b.end, c.start, c.end) and interval_before(a.start, a.end, c.start, c.end)"
    )
    proper = " and ".join(f"{name}.start < {name}.end" for name in "abc")
    comparisons = (
        "select a.id, b.id, c.*, d.v from ct c, r d, cr a, cs b where a.start < b.end and b.start < a.end "
        f"and a.id = d.id and b.start < c.end and c.start < b.end and a.end < c.start and {proper}"
    )
    report = same(spark, functions, 2, comparisons)
    assert "- c, a, b inner join d: no interval predicate between its sides" in report


def test_with_subqueries_struct_bounds_and_the_rest_of_the_query(spark: SparkSession) -> None:
    query = """
        with a as (select id, struct(start as lo, end as hi) as iv, v from cr where v > 0 /* { */),
             b as (select a.*, cs.id as sid, cs.start as at from a join cs -- not (this)
                   on a.iv.lo - 1 < cs.end and a.iv.hi + 1 > cs.start)
        select b.sid % 3 as m, count(*) as n, max(t.end) as `a{b}`, row_number() over (order by b.sid % 3) as p
        from b left join (select * from ct where v < 3) t on t.start between b.at and b.iv.hi
        where exists (select 1 from s where s.id = b.id) group by b.sid % 3 having count(*) > 1
        union all select 9, 9, id, 9 from ct order by m, n, `a{b}` limit 9"""
    frame, report = planned(spark, query)
    assert report.startswith("2 interval joins\n1. a inner join cs\n")
    assert "2. b left join t\n" in report
    assert [tuple(row) for row in frame.collect()] == [tuple(row) for row in spark.sql(query).collect()]
    assert frame.columns == ["m", "n", "a{b}", "p"]


def test_stars_and_clashing_names(spark: SparkSession) -> None:
    """A self-join with a column that has the name we would give another, and a star with exceptions."""
    same(
        spark,
        "select *, struct(*) as whole, * except (a.k, v) from (select *, 1 as b__start from cr) a "
        "join (select id, start, end as `e``nd`, k from cr) as b on a.start < `b`.`e``nd` and B.Start < a.end "
        "and a.id < b.id lateral view explode(array(1, 2)) x as w",
        1,
    )


def test_a_group_by_that_begins_with_the_function_window(spark: SparkSession) -> None:
    report = same(
        spark,
        "select window(timestamp_seconds(cr.start), '5 seconds').start as at, count(*) as n from cr join cs "
        "on cr.start < cs.end and cs.start < cr.end group by window(timestamp_seconds(cr.start), '5 seconds') "
        "having count(*) > 1 window w as (order by 1)",
        1,
    )
    assert "left to Spark" not in report


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["join", "left join", "full join", "left anti join"])
def test_a_null_safe_equality_is_a_key(spark: SparkSession, how: str) -> None:
    """Null keys meet null keys; of two equalities one may be plain; also by function, turned round."""
    for key in ("r.k <=> s.k", "s.v <=> r.v and r.k <=> s.k", "r.k <=> s.k and r.v = s.v"):
        report = same(spark, f"select * from r {how} s on r.start < s.end and s.start < r.end and {key}", 1)
        assert f"keys: {key.replace('s.v <=> r.v', 'r.v <=> s.v').replace(' and ', ', ')}\n" in report
    frame, _ = planned(
        spark,
        f"select cr.id from cr {how} cs on interval_overlapping(cr.start, cr.end, cs.start, cs.end) and cr.k <=> cs.k",
    )
    plain = "cr.start < cs.end and cs.start < cr.end and cr.start < cr.end and cs.start < cs.end and cr.k <=> cs.k"
    assert bag(frame) == bag(spark.sql(f"select cr.id from cr {how} cs on {plain}"))


def test_null_safe_keys_of_every_type(spark: SparkSession) -> None:
    kinds = ("string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "decimal(9, 2)", "double", "bigint")
    values = (
        "'a'",
        "x'00'",
        "false",
        "date'1970-01-01'",
        "timestamp'1970-01-01'",
        "timestamp_ntz'1970-01-01'",
        "0",
        "0",
        "0",
    )
    for kind, value in zip(kinds, values, strict=True):
        rows = f"(select explode(array(cast(null as {kind}), cast({value} as {kind}))) as k, 1 as a, 5 as b)"
        same(spark, f"select * from {rows} l join {rows} r on l.k <=> r.k and l.a < r.b and r.a < l.b", 1)


def test_bounds_that_are_times_of_day(spark: SparkSession) -> None:
    shifts = "values (1, time'08:00:00', time'12:30:00'), (2, time'12:30:00.000001', time'20:00:00') as l(id, a, b)"
    calls = "values (7, time'12:00:00', time'12:30:00.000002'), (8, null, time'09:00:00') as r(id, a, b)"
    query = f"with l as (select * from {shifts}), r as (select * from {calls}) select * from l left join r on "
    query += "l.a < r.b and r.a < l.b"
    with pytest.warns(UserWarning, match=r"l left join r: interval bounds have type time.*spark.sql.timeType.enabled"):
        sql(spark, query)
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        same(spark, query, 1)
        left, right = (spark.sql(f"select * from {rows}") for rows in (shifts, calls))
        pairs = interval_join(
            left,
            right,
            left_interval=("a", "b"),
            right_interval=("a", "b"),
            columns=["id", "id_right"],
            algorithm="forward_scan",
        )
        assert sorted(map(tuple, pairs.collect())) == [(1, 7), (2, 7)]
        with pytest.raises(PlanError, match="do not compare"):
            interval_join(
                left, right.selectExpr("id", "1L as a", "2L as b"), left_interval=("a", "b"), right_interval=("a", "b")
            )
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def test_a_query_that_is_not_read_says_so(spark: SparkSession) -> None:
    query = "select * from cr |> where v > 2"
    assert "left to Spark:\n- the whole text" in sql(spark, query, explain=True)
    with pytest.warns(UserWarning, match="leaves this to Spark: the whole text"):
        assert sql(spark, query).count() == spark.sql(query).count()


def test_names_with_a_database(spark: SparkSession) -> None:
    spark.table("cr").createOrReplaceGlobalTempView("dovetail_g")
    try:
        same(
            spark,
            "select global_temp.dovetail_g.id, dovetail_g.v, cs.* from global_temp.dovetail_g join cs "
            "on global_temp.dovetail_g.start < cs.end and cs.start < dovetail_g.end "
            "and global_temp.dovetail_g.k = cs.k",
            1,
        )
    finally:
        spark.catalog.dropGlobalTempView("dovetail_g")


def test_outer_joins_around_an_interval_join(spark: SparkSession) -> None:
    report = same(
        spark,
        "select * from ct right join (cr join cs on cr.start <= cs.end and cs.start <= cr.end) on ct.id = cr.id + cs.v "
        "left join s using (id) where cs.v > 1",
        1,
    )
    assert "- ct right join cr, cs: no interval predicate between its sides" in report


def test_correlated_subquery(spark: SparkSession) -> None:
    same(
        spark,
        "select ct.id, (select max(cs.end) from cr, cs where cr.start < cs.end and cs.start < cr.end "
        "and cr.id = ct.id) as m from ct",
        1,
    )


def test_timestamps_with_an_interval_added(spark: SparkSession) -> None:
    rows_of = "(select id, timestamp_seconds(start * 3600) as t0, timestamp_seconds(end * 3600) as t1, k from {})"
    same(
        spark,
        f"select r.id, s.id from {rows_of.format('cr')} r join {rows_of.format('cs')} s "
        "on r.t0 - interval 1 hour < s.t1 and s.t0 < r.t1 + interval '1' hour and r.k = s.k",
        1,
    )


def test_views_are_gone_and_the_frame_stays(spark: SparkSession) -> None:
    before = {table.tableName for table in spark.sql("show tables").collect()}
    frame = dovetail.sql(spark, "select cr.id from cr left semi join cs on cr.start < cs.end and cs.start < cr.end")
    assert {table.tableName for table in spark.sql("show tables").collect()} == before
    assert frame.where("id >= 0").count() > 0


OVER = "r.start < s.end and s.start < r.end"


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select * from r join s on r.id = s.id", "r join s on r.id = s.id: no interval predicate"),
        (f"select * from r join s using (id) where {OVER}", "r inner join s: USING and NATURAL merge columns"),
        (f"select * from r join (select * from s limit 3) s on {OVER}", "r inner join s: an input may give other rows"),
        (
            f"select * from r, s where {OVER.replace('s.end', 's.end + cast(rand() as int)')}",
            "an input may give other rows",
        ),
        ("select * from r join s on r.start = 1 < (s.end = 1) and s.start = 1 < (r.end = 1)", "no interval predicate"),
        ("select * from r join s on r.start < s.end * 1.5D", "different types (double, int)"),
        ("select * from r join r on 1 < 2 and 2 < 3", "two inputs have one name; give them aliases"),
        (f"select * from r join s on {OVER} and exists (select 1 from ct)", "only Spark can evaluate 'exists"),
        (f"select * from r, lateral (select s.* from s where s.id = r.id) s where {OVER}", "s depends on other inputs"),
        (f"select * from r left join s on r.id = s.id where {OVER}", "no interval predicate between its sides"),
        ("show tables", "it is not one SELECT query in words that are known here"),
    ],
)
def test_left_to_spark(spark: SparkSession, query: str, why: str) -> None:
    report = sql(spark, query, explain=True)
    assert report.startswith("no interval join; the query goes to Spark as written\nleft to Spark:\n- ")
    assert why in report
    silent = "no interval predicate" in why or query == "show tables"
    with nullcontext() if silent else pytest.warns(UserWarning, match="leaves this to Spark"):
        assert sql(spark, query).schema == spark.sql(query).schema


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("select 1 from r join s on interval_overlap(r.start, r.end, s.start, s.end)", PlanError, "interval_overlaps"),
        ("select 1 from r join s on not interval_before(r.start, r.end, s.start, s.end)", UnsupportedError, "ANDs"),
        (
            "select 1 from r where exists (select 1 from s where interval_before(r.start, r.end, s.start, s.end))",
            UnsupportedError,
            r" EXISTS becomes .* LEFT SEMI JOIN b ON",
        ),
        (
            "select 1 from r where not exists (select 1 from s where interval_meets(r.start, r.end, s.start, s.end))",
            UnsupportedError,
            r"NOT EXISTS becomes .* LEFT ANTI JOIN b ON",
        ),
        ("select interval_before(start, end, 1, 2) from r", UnsupportedError, "cannot be planned here"),
        ("select 1 from r join s on interval_before(r.start, r.end, s.start, s.nope)", Exception, "nope"),
        (
            "select 1 from r join s on interval_before(r.start, r.end, s.start, s.end)",
            DataError,
            "r join s: left .*'r__",
        ),
        ("select * frm r where (", Exception, "PARSE_SYNTAX_ERROR"),
    ],
)
def test_errors(spark: SparkSession, query: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        sql(spark, query)
    if isinstance(raised.value, DovetailError):
        assert raised.value.argument == "query"
