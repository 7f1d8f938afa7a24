"""Skewed streams and batches: hot keys are named with the call that spreads them, and that call balances the load."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.online.frame.cases import Feed, answers, bag, expected
from tests.online.frame.test_online_stream import run_all
from tests.semistream.frame.cases import drop_file

from dovetail import plan_online_join
from dovetail.pipeline.record.figures import measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dovetail.joins.online.plan.plan import OnlinePlan

pytestmark = pytest.mark.timeout(300)


def skewed(place: Path, files: int = 2, rows: int = 900) -> Feed:
    """Two thirds of left's rows, and a twentieth of right's, have key 7."""
    feed = Feed(place, rows=rows)
    for number in range(files):
        for name, tables, share in (("a", feed.left, 2 / 3), ("b", feed.right, 1 / 20)):
            rng = np.random.default_rng([number, ord(name)])
            n = rows if name == "a" else rows // 3
            keys = np.where(rng.random(n) < share, 7, rng.integers(0, 500, n))
            tables.append(pa.table({"k": keys, name: np.arange(number * n, (number + 1) * n)}))
            drop_file(place / name, tables[-1].append_column("last", pa.array([False] * n)), number)
        feed.files += 1
    return feed


def largest_share(plan: OnlinePlan) -> float:
    """Rows of the largest partition, as a multiple of an even share."""
    found = plan.metrics()
    return found.value("bucket_rows") * 4 / found.value("rows")


def test_a_hot_key_of_streams_is_named_and_spread_by_the_call_that_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, runs = skewed(tmp_path), list[tuple[dict[str, Any], str]]([({}, "first"), ({"hot": [7]}, "second")])
    options: dict[str, Any] = {
        "on": "k", "memory": "1MB", "partitions": 4, "owed": "batch", "retain": "1 hour", "columns": ["k", "a", "b"],
    }  # fmt: skip
    shares = []
    for hot, place in runs:
        (tmp_path / place).mkdir()
        plan = plan_online_join(*feed.streams(spark), **options, **hot)
        assert plan.hot_keys() == []
        run_all(plan.frame(), tmp_path / place)
        pairs = expected(pa.concat_tables(feed.left), pa.concat_tables(feed.right))
        assert bag(answers(tmp_path / place)) == pairs
        shares.append(largest_share(plan))
        if not hot:
            named, call = plan.hot_keys()
            assert named.startswith("7 has 6")
            assert "% of left's and " in named
            assert call == "hot=[7] spreads left's rows of them over all partitions, from a new checkpoint"
            assert plan.explain().splitlines()[-2:] == [f"hot keys: {named}", f"hot keys: {call}"]
            assert measured(plan, plan.metrics())["hot keys"] == f"{named}; {call}"
            assert "most frequent keys.left: 7 6" in str(plan.metrics())
        else:
            assert plan.hot_keys() == []
            assert "hot keys:" not in plan.explain()
    assert shares[0] > 2
    assert shares[1] < 1.3


def test_what_is_said_of_batches_by_how_and_by_side(spark: SparkSession) -> None:
    many = spark.range(900).selectExpr("if(id % 3 = 0, id, 7) as k", "'x' as l", "id as a")
    few = spark.range(300).selectExpr("id as k", "'x' as l", "id as b")

    usual: dict[str, Any] = {"on": "k", "partitions": 4, "memory": "1MB"}

    def said(left: Any, right: Any, **options: Any) -> list[str]:
        plan = plan_online_join(left, right, **(usual | options))
        plan.frame().write.format("noop").mode("overwrite").save()
        return plan.hot_keys()

    turned = "over all partitions, from a new checkpoint; right has more of them, so exchange the inputs first"
    assert said(many, few)[1].startswith("hot=[7] spreads left's rows")
    assert said(few, many)[1] == f"hot=[7] spreads left's rows of them {turned}"
    assert said(few, many, how="right")[1].startswith("hot=[7] spreads right's rows")
    assert "union the left join" in said(many, few, how="full")[1]
    assert said(many, few, on=["k", "l"])[1].startswith("hot=[(7, 'x')] spreads")
    nulls, some = (frame.selectExpr("nullif(k, 7) as k", "l", name) for frame, name in ((many, "a"), (few, "b")))
    assert said(nulls, some) == []
    assert said(nulls, some, null_safe=True)[1].startswith("hot=[None] spreads left's rows")
    assert said(nulls, some, null_safe=True, on=["k", "l"])[1].startswith("hot=[(None, 'x')] spreads")
    assert said(nulls, some, null_safe=True, hot=[None]) == []
    found = plan_online_join(nulls, some, **usual, null_safe=True, hot=[None], how="left").frame()
    wanted = nulls.join(some, nulls["k"].eqNullSafe(some["k"]), "left")
    assert Counter(found.select("a", "b").collect()) == Counter(wanted.select("a", "b").collect())
    assert said(many, few, hot=[7]) == []
    assert said(many, few, hot=[3])[1].startswith("hot=[3, 7] spreads")
    assert said(many, few, on=None, within=("a", "b", 0, 0)) == []
