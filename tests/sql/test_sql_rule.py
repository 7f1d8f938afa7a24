"""The rule of `dovetail.install` in Spark's optimizer: its answers are Spark's, whatever the bins; what it leaves."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

import dovetail
import oracle
from dovetail.errors import ConfigError
from dovetail.spark import catalyst

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWITCH = "spark.dovetail.rangeJoin"
LEAST_PAIRS = "spark.dovetail.rangeJoin.leastPairs"
WIDTHS = "spark.dovetail.rangeJoin.widths"
SCHEMA = "id long, k int, start int, end int, v int"


def rows(seed: int, n: int) -> list[tuple[Any, ...]]:
    """Random intervals of very different lengths, with nulls, empties, duplicates and inverted ones."""
    rng = random.Random(seed)  # noqa: S311  (test data)
    found = []
    for i in range(n):
        start = rng.choice([None, *range(-300, 700, 3)])
        end = None if start is None or rng.random() < 0.05 else start + rng.choice([0, 1, 2, 5, 9, -3, 40, 400])
        found.append((i % 90, rng.choice([0, 1, None]), start, end, rng.randrange(4)))
    return found


@pytest.fixture(scope="module", autouse=True)
def tables(spark: SparkSession) -> Iterator[None]:
    for name, seed, n in (("r", 1, 120), ("s", 2, 90)):
        spark.createDataFrame(rows(seed, n), SCHEMA).coalesce(1).createOrReplaceTempView(name)
    yield
    for name in ("r", "s"):
        spark.catalog.dropTempView(name)


@pytest.fixture(autouse=True)
def installed(spark: SparkSession) -> Iterator[None]:
    dovetail.install(spark)
    spark.conf.set(LEAST_PAIRS, "0")
    yield
    dovetail.uninstall(spark)
    for key in (SWITCH, LEAST_PAIRS, WIDTHS):
        spark.conf.unset(key)


def bag(frame: DataFrame) -> Any:
    return oracle.bag(map(tuple, frame.collect()))


def same(spark: SparkSession, make: Callable[[], DataFrame], *, bins: int = 1) -> str:
    """Assert that a query with `bins` joins by bins has Spark's columns and rows; what explain says of it."""
    spark.conf.set(SWITCH, "false")
    sparks = make()
    expected, schema = bag(sparks), sparks.schema
    spark.conf.set(SWITCH, "true")
    ours = make()
    said = dovetail.explain_joins(ours)
    assert said.count("by bins") == bins, said
    assert ours.schema == schema
    assert bag(ours) == expected
    return said


def query(spark: SparkSession, text: str) -> Callable[[], DataFrame]:
    return lambda: type(spark).sql(spark, text)  # not rewritten as text: the rule plans it


ON = (
    "r.start < s.end and s.start < r.end",
    "r.start <= s.end and s.start <= r.end and r.k = s.k",
    "r.start between s.start and s.end and r.v <= s.v",
    "s.start >= r.start - 5 and r.end + 5 > s.start and r.k <=> s.k",
    "r.start >= s.start and r.end <= s.end",
)
HOW = ("join", "left join", "right join", "left semi join", "left anti join")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("how", "on"), list(product(HOW, ON)))
@pytest.mark.parametrize("widths", ["", "7", "1,30,300"])
def test_answers_are_those_of_spark_whatever_the_bins(spark: SparkSession, how: str, on: str, widths: str) -> None:
    spark.conf.set(WIDTHS, widths)
    same(spark, query(spark, f"select * from r {how} s on {on}"))


BOUNDS = {
    "bigint": "cast(start as bigint) * 8000000000000000",  # of the size of the largest
    "decimal(30, 4)": "cast(start as decimal(30, 4)) / 3",
    "double": "case when id % 9 = 0 then double('nan') when id % 9 = 1 then double('inf') when id % 9 = 2 then "
    "double('-inf') else start / 3D end",
    "float": "float(start)",
    "date": "date_add(date'2024-03-01', start)",
    "timestamp": "timestamp'2024-03-31 01:30:00' + make_dt_interval(0, start)",
    "timestamp_ntz": "timestamp_ntz'2024-03-31 01:30:00' + make_dt_interval(0, start)",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["join", "left join"])
@pytest.mark.parametrize("kind", BOUNDS)
def test_every_type_of_bounds(spark: SparkSession, kind: str, how: str) -> None:
    start = f"cast({BOUNDS[kind]} as {kind})"
    bounds = f"{start} as a, {start.replace('start', 'end')} as b"
    both = " {0} (select id, {1} from s) y on x.a <= y.b and y.a < x.b"
    same(spark, query(spark, f"select * from (select id, {bounds} from r) x" + both.format(how, bounds)))


@pytest.mark.parametrize(
    "on",
    [
        "x.at between y.at - interval 3 days and y.at + interval 3 hours",
        "date(x.at) >= date_sub(date(y.at), 2) and date(x.at) <= date(y.at)",
        "x.at >= y.at and x.at <= coalesce(y.till, timestamp'2024-04-02')",
        "x.n.a < y.n.b and y.n.a < x.n.b",
        "x.n.a * 2D < y.n.b and y.n.a + 0.5D < x.n.b",
    ],
)
def test_bounds_that_are_expressions(spark: SparkSession, on: str) -> None:
    """Days of the calendar have 23 or 25 hours where clocks change, which a number of microseconds does not say."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    at = "timestamp'2024-03-31 01:30:00' + make_dt_interval(0, {0}) as {1}"
    columns = f"id, {at.format('start', 'at')}, {at.format('end', 'till')}, struct(start as a, end as b) as n"
    bins = 0 if "date(" in on else 1  # a cast to a date is not known to be safe
    try:
        made = (f"(select {columns} from {name})" for name in "rs")
        same(spark, query(spark, f"select * from {next(made)} x join {next(made)} y on {on}"), bins=bins)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


@pytest.mark.parametrize("how", ["join", "left join"])
def test_sums_that_wrap_or_round(spark: SparkSession, how: str) -> None:
    """Without ANSI's errors a sum of whole numbers wraps around; one of long decimals is rounded."""
    spark.conf.set(WIDTHS, "1")
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for mode in ("false", "true"):
            spark.conf.set("spark.sql.ansi.enabled", mode)
            top = 2147483647 if mode == "false" else 2147483000
            x = f"(select * from values ({top}), (5), (-2147483640) as t(a)) x"
            y = "(select * from values (-2147483648), (7), (2147483647) as t(p)) y"
            same(spark, query(spark, f"select * from {x} {how} {y} on y.p between x.a + 1 and x.a + 3"))
        spark.conf.set(WIDTHS, "0.00000001")
        decimals = "cast(0 as decimal(38, 1)) as a, cast(c as decimal(38, 20)) as b"
        x = f"(select {decimals} from values (4e-7BD), (6e-7BD), (9e-7BD) as t(c)) x"
        y = "(select cast(p as decimal(38, 6)) as p from values (0), (1e-6BD), (5e-6BD) as t(p)) y"
        same(spark, query(spark, f"select * from {x} {how} {y} on y.p >= x.a + x.b and y.p <= x.a + x.b"))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi or "true")


def test_widths_that_are_far_too_narrow_for_a_join_are_not_used(spark: SparkSession) -> None:
    spark.conf.set(WIDTHS, "1")
    spans = "(select id as a, id + 1000000000 as b from range(20)) union all (select 2000000000, 2000000001)"
    said = same(spark, query(spark, f"select * from ({spans}) x left join ({spans}) y on x.a < y.b and y.a < x.b"))
    assert "bins of width 1," not in said


@pytest.mark.parametrize(
    ("text", "bins"),
    [
        ("select * from r where exists (select 1 from s where s.start < r.end and r.start < s.end)", 1),
        ("select * from r where v not in (select v from s where s.start < r.end and r.start < s.end)", 1),
        ("select r.k, count(*), max(s.v) from r, s where r.start < s.end and s.start < r.end and r.v > 1 group by r.k",
         1),
        ("select a.id, b.id, c.v from r a, s b, s c where a.start < b.end and b.start < a.end and b.start < c.end "
         "and c.start < b.end and a.k = c.k", 2),
        ("with x as (select * from r limit 50) select * from x a join x b on a.start < b.end and b.start < a.end", 1),
        ("select (select max(b.v) from s b join r c on b.start < c.end and c.start < b.end) as m, id from r", 1),
        ("select x.k, n from (select k, min(start) a, max(end) b, count(*) n from r group by k, v) x join s "
         "on x.a < s.end and s.start < x.b", 1),
    ],
)  # fmt: skip
def test_the_rest_of_the_query(spark: SparkSession, text: str, bins: int) -> None:
    same(spark, query(spark, text), bins=bins)


@pytest.mark.parametrize("how", ["inner", "left", "right", "semi", "anti"])
def test_joins_of_data_frames_keep_their_columns(spark: SparkSession, how: str) -> None:
    """Columns of the inputs select those of the result, names that appear twice included."""
    left, right = spark.table("r"), spark.table("s")

    def joined() -> DataFrame:
        on = (left.start < right.end) & (right.start < left.end) & (left.k == right.k)
        frame = left.join(right, on, how).where(left.v > 0)
        return frame if how in ("semi", "anti") else frame.select(right["id"], left["*"], right["v"]).drop(left["k"])

    same(spark, joined)


def test_a_self_join_by_aliases(spark: SparkSession) -> None:
    frame = spark.table("r")
    on = F.expr("a.start < b.end and b.start < a.end and a.id < b.id")
    same(spark, lambda: frame.alias("a").join(frame.alias("b"), on).select("a.id", F.col("b.id").alias("other"), "b.v"))


OVER = "r.start < s.end and s.start < r.end"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"select * from r full join s on {OVER}", "a FULL OUTER join"),
        ("select * from r join s on r.start < s.end", "no two comparisons of bounds that say overlap"),
        ("select * from r join s on r.start < s.end and s.start > r.end", "no two comparisons"),
        ("select * from r join s on string(r.start) < string(s.end) and string(s.start) < string(r.end)", "no two"),
        ("select * from r join s on 6 div r.v < s.end and s.start < 6 div r.v + 1 and r.v <> 0", "no two"),
        (f"select * from r join s on {OVER} and r.v + s.v < (select max(id) from s)", "a subquery"),
        (f"select /*+ broadcast(s) */ * from r join s on {OVER}", "a hint says how Spark joins it"),
    ],
)
def test_left_to_spark(spark: SparkSession, text: str, why: str) -> None:
    assert why in same(spark, query(spark, text), bins=0)


def test_inputs_that_do_more_than_give_rows_are_not_read_for_statistics(spark: SparkSession) -> None:
    plus = F.udf(lambda x: None if x is None else x + 1, "int")
    observed = spark.table("s").observe("seen", F.count("*"))
    for right in (spark.table("s").withColumn("end", plus("end")), observed):
        said = same(spark, lambda right=right: spark.table("r").alias("r").join(right.alias("s"), F.expr(OVER)), bins=0)
        assert "is not run twice" in said


def test_small_joins_are_left_to_spark_and_large_ones_planned(spark: SparkSession) -> None:
    spark.conf.unset(LEAST_PAIRS)
    assert "few pairs" in same(spark, query(spark, f"select * from r join s on {OVER}"), bins=0)
    many = spark.range(200_000).selectExpr("id * 10 as start", "id * 10 + 3 as end")
    joined = many.alias("a").join(many.alias("b"), F.expr("a.start < b.end and b.start < a.end"))
    assert "by bins" in dovetail.explain_joins(joined)
    assert joined.count() == 200_000
    few = many.withColumn("k", F.col("start") % 100_000)
    said = dovetail.explain_joins(
        few.alias("a").join(few.alias("b"), F.expr("a.k = b.k and a.start < b.end and b.start < a.end"))
    )
    assert "few pairs" in said  # the key leaves few


def test_it_can_be_turned_off_and_taken_back(spark: SparkSession) -> None:
    frame = query(spark, f"select * from r join s on {OVER}")
    assert "by bins" in dovetail.explain_joins(frame())
    dovetail.install(spark)  # twice does no harm
    spark.conf.set(SWITCH, "false")
    assert dovetail.explain_joins(frame()) == ""
    spark.conf.set(SWITCH, "true")
    dovetail.uninstall(spark)
    assert dovetail.explain_joins(frame()) == ""
    dovetail.install(spark, rule=False)
    assert dovetail.explain_joins(frame()) == ""


def test_our_own_joins_are_not_planned_again(spark: SparkSession) -> None:
    spans = spark.range(500).selectExpr("id as start", "id + 5 as end")
    joined = dovetail.interval_join(spans, spans, algorithm="bins")
    assert "by bins" not in dovetail.explain_joins(joined)


def test_streams_are_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    spark.table("r").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in")).selectExpr("start as at")
    joined = stream.join(spark.table("s"), F.expr("at between start and end"))
    started = joined.writeStream.format("memory").queryName("joined").trigger(availableNow=True).start()
    started.awaitTermination()
    assert "__dt_" not in started._jsq.explainInternal(True)
    text = "select r.start as at, s.* from r join s on r.start between s.start and s.end"
    assert bag(spark.table("joined")) == bag(query(spark, text)())


def test_where_the_rule_cannot_be_used_a_warning_says_why(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    dovetail.uninstall(spark)
    monkeypatch.setattr(catalyst, "SUPPORTED", "9.")
    with pytest.warns(UserWarning, match="not DataFrame.join: the rule is for Spark 9"):
        dovetail.install(spark)
    assert "sql" in vars(spark)
    monkeypatch.undo()
    monkeypatch.setenv("DOVETAIL_CACHE_READONLY", "1")
    monkeypatch.setenv("DOVETAIL_CACHE", "/nowhere")
    with pytest.raises(ConfigError, match="cannot be compiled into the cache"):
        catalyst.compiled()


def test_a_compiled_rule_in_the_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar, home = catalyst.compiled(), tmp_path / "catalyst"
    shutil.copytree(Path(catalyst.__file__).parent, home, ignore=shutil.ignore_patterns("*.jar"))
    monkeypatch.setattr(catalyst, "files", lambda package: home)
    monkeypatch.setattr(catalyst, "__file__", str(home / "__init__.py"))
    (home / "planner-old.jar").touch()
    assert catalyst.ship() == home / jar.name
    assert [file.name for file in home.glob("*.jar")] == [jar.name]
    monkeypatch.setenv("DOVETAIL_CACHE_READONLY", "1")
    monkeypatch.setenv("DOVETAIL_CACHE", "/nowhere")
    assert catalyst.compiled() == catalyst.ship() == home / jar.name
    (home / "RangeJoin.scala").write_text("changed")
    with pytest.raises(ConfigError, match="cannot be compiled into the cache"):
        catalyst.compiled()
