"""Joins by text bounds, beside the definition and beside DuckDB: empty texts, shared beginnings, other alphabets."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from tests import oracle

import dovetail
from dovetail.errors import DataError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]
SCHEMA = "k string, start string, end string, {} int"
PLAIN = ("", "a", "ab", "abc", "b", "ba", "z", "zz", "Z", "é", "ё", "中文", "𝄞", "￿", "a\x00", "a\x00b")
LONG = tuple(f"https://example.org/{word}" for word in ("", "a", "a/1", "a/10000000", "a/10000001", "a/2", "ж", "ж/1"))


def made(words: tuple[str, ...], n: int, seed: int, own: str) -> Rows:
    random = Random(seed)  # noqa: S311  (repeatable, no secrets)
    rows = []
    for number in range(n):
        bounds = sorted(random.choices(words, k=2))
        if random.random() < 0.15:
            bounds[random.randrange(2)] = None  # type: ignore[call-overload]  # a null bound
        rows.append({"k": random.choice(["x", "y", None]), "start": bounds[0], "end": bounds[1], own: number})
    return rows


def frame(spark: SparkSession, rows: Rows, own: str) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA.format(own))


def ids(pairs: list[oracle.Pair]) -> Any:
    return oracle.bag((a and a["l"], b and b["r"]) for a, b in pairs)


def answered(found: DataFrame) -> Any:
    wanted = found.select("l", "r") if "r" in found.columns else found.select("l")
    return oracle.bag((*row, None)[:2] for row in map(tuple, wanted.collect()))


@pytest.mark.parametrize("words", [PLAIN, LONG], ids=["plain", "long"])
def test_text_bounds_of_every_how_and_closed(spark: SparkSession, words: tuple[str, ...]) -> None:
    left, right = made(words, 40, 1, "l"), made(words, 50, 2, "r")
    one, other = frame(spark, left, "l").cache(), frame(spark, right, "r").cache()
    for number, how in enumerate(oracle.HOWS):
        closed, on = oracle.CLOSED[number % 4], [("k", "k")] if number % 2 else []
        found = dovetail.interval_join(one, other, how=how, closed=closed, on=on or None)  # type: ignore[arg-type]
        assert "text_" not in "".join(found.columns)
        assert answered(found) == ids(oracle.interval_join(left, right, how, closed=closed, on=on)), (how, closed)
        n = dovetail.interval_count(one, other, closed=closed, on=on or None)  # type: ignore[arg-type]
        assert n == len(oracle.interval_join(left, right, "inner", closed=closed, on=on))
    counted = dovetail.count_overlaps(one, other)
    assert counted.columns == [*one.columns, "n_overlaps"]
    expected = oracle.bag((a["l"], n) for a, n in oracle.count_overlaps(left, right))
    assert oracle.bag(map(tuple, counted.select("l", "n_overlaps").collect())) == expected


@pytest.mark.parametrize("relation", [name for name in oracle.RELATIONS if name != "overlapping"])
def test_every_relation_of_texts(spark: SparkSession, relation: Any) -> None:
    left, right = made(LONG, 30, 3, "l"), made(LONG, 30, 4, "r")
    one, other = frame(spark, left, "l"), frame(spark, right, "r")
    for strict in (False, True):
        found = dovetail.interval_join(one, other, relation=relation, strict=strict)
        assert answered(found) == ids(oracle.interval_join(left, right, relation=relation, strict=strict)), strict


def test_inequalities_of_texts(spark: SparkSession) -> None:
    for words in (PLAIN, LONG):
        left, right = made(words, 30, 5, "l"), made(words, 30, 6, "r")
        one, other = frame(spark, left, "l"), frame(spark, right, "r")
        for how in ("inner", "full", "left_semi", "left_anti"):
            found = dovetail.band_join(one, other, within=("start", "end", 0, None), closed="neither", how=how)  # type: ignore[arg-type]
            wanted = oracle.join(
                left, right, lambda a, b: None not in (a["start"], b["end"]) and a["start"] < b["end"], how
            )
            assert answered(found) == ids(wanted), how
    with pytest.raises(PlanError, match="no differences") as problem:
        dovetail.band_join(one, other, within=("start", "end", 1, None))
    assert problem.value.argument == "within"


def test_texts_beside_duckdb(spark: SparkSession) -> None:
    left, right = made(PLAIN + LONG, 40, 7, "l"), made(PLAIN + LONG, 40, 8, "r")
    db = duckdb.connect()
    db.register("a", pa.Table.from_pylist(left))
    db.register("b", pa.Table.from_pylist(right))
    proper = "a.start < a.end and b.start < b.end"
    theirs = db.execute(
        f"select l, r from a left join b on a.start < b.end and b.start < a.end and {proper}"
    ).fetchall()
    found = dovetail.interval_join(frame(spark, left, "l"), frame(spark, right, "r"), how="left")
    assert answered(found) == oracle.bag(theirs)


def test_explain_says_that_bounds_are_texts(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "b")], "start string, end string")
    line = "texts as bounds: rows are joined by the numbers of their first bytes, the texts are a condition"
    for options in ({}, {"how": "right", "keep": "any"}):
        assert line in dovetail.plan_interval_join(rows, rows, **options).explain().splitlines()  # type: ignore[arg-type]
    numbers = spark.createDataFrame([(1, 2)], "start int, end int")
    assert line not in dovetail.plan_interval_join(numbers, numbers, how="right", keep="any", max_gap=1).explain()


def test_binary_struct_and_key_bounds(spark: SparkSession) -> None:
    left, right = made(LONG, 20, 9, "l"), made(LONG, 20, 10, "r")
    one, other = frame(spark, left, "l"), frame(spark, right, "r")
    wanted = ids(oracle.interval_join(left, right))
    binary = [
        each.selectExpr("* except (start, end)", "binary(start) start", "binary(end) end") for each in (one, other)
    ]
    assert answered(dovetail.interval_join(*binary)) == wanted
    structs = [each.selectExpr("* except (start, end)", "struct(start as a, end as b) as iv") for each in (one, other)]
    found = dovetail.interval_join(*structs, left_interval="iv", right_interval="iv", condition="l >= 0 and r >= 0")
    assert answered(found) == wanted
    keyed = dovetail.interval_join(one, other, on="start", closed="both")
    assert answered(keyed) == ids(oracle.interval_join(left, right, on=[("start", "start")], closed="both"))


def test_inverted_texts_and_what_texts_cannot_do(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", "b", 1), ("d", "c", 2)], "start string, end string, l int")
    good = spark.createDataFrame([("a", "z", 3)], "start string, end string, r int")
    with pytest.raises(DataError, match=r"left input has 1 interval.*'start': 'd', 'end': 'c', 'l': 2"):
        dovetail.interval_join(rows, good)
    assert answered(dovetail.interval_join(rows, good, how="left", invalid="drop")) == oracle.bag([(1, 3)])
    assert answered(dovetail.interval_join(rows, good, how="left", invalid="null")) == oracle.bag([(1, 3), (2, None)])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"keep": "first"}, "keep"), ({"with_overlap": True}, "with_overlap"), ({"max_gap": 1}, "max_gap"),
        ({"split_points": ["b"]}, "split_points"),
    ]  # fmt: skip
    for options, argument in wrong:
        with pytest.raises(PlanError, match="text bounds") as problem:
            dovetail.interval_join(good, good, **options)
        assert problem.value.argument == argument
    with pytest.raises(PlanError, match="all be string"):
        dovetail.interval_join(good, good.selectExpr("binary(start) start", "binary(end) end"))
    with pytest.raises(PlanError, match="all be string"):
        dovetail.interval_join(
            good, good.selectExpr("collate(start, 'UTF8_LCASE') start", "collate(end, 'UTF8_LCASE') end")
        )
    with pytest.raises(PlanError, match="interval_join, interval_count, count_overlaps and band_join"):
        dovetail.interval_topk(good, good)
