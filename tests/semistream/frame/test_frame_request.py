"""Requests that cannot be right fail on the driver, before any job, and say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.semistream.frame.cases import page_store

from dovetail import dead_letter, park, plan_enrich, ttl
from dovetail.errors import PlanError
from dovetail.joins.semistream.master.store import MasterStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> MasterStore:
    table = pa.table({"product": list(range(900)), "text": ["x" * 50] * 900, "amount": [0] * 900})
    return page_store(tmp_path_factory.mktemp("request") / "p.pages", table, "product")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "a", 2)], "product long, word string, amount long")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"on": "prodct"}, "no column 'prodct'.*Did you mean 'product'"),
    ({"on": [("product", "text")]}, "the store's key has no column 'text'; it has \\['product'\\]"),
    ({"on": []}, "names no key"),
    ({"on": [("word", "product")]}, "'word' is string, master key 'product' is bigint; cast one"),
    ({"on": [("product", "product"), ("amount", "product")]}, "twice"),
    ({"on": [("a", "b", "c")]}, "each key is a column name or a"),
    ({"how": "right"}, "how='right' is not possible here; use one of inner, left"),
    ({"algorithm": "cache_join"}, "did you mean 'cachejoin'"),
    ({"mode": "batch"}, "mode='batch' is not known; did you mean 'per_batch'"),
    ({"exchange": "key"}, "exchange='key' is not known"),
    ({"lookup": "newest"}, "lookup='newest' is not one of"),
    ({"lookup": 1.5}, "outside \\(0, 1\\]"),
    ({"cache": "lru"}, "cache='lru' is not known"),
    ({"memory": "lots"}, "is not a size"),
    ({"memory": "3KB", "algorithm": "hybridjoin"}, "needs at least [0-9]+ bytes"),
    ({"memory": "1KB"}, "needs at least [0-9]+ bytes"),
    ({"tune": "best"}, "tune='best' is not known"),
    ({"tune": {"waitng": 3}}, "Did you mean 'waiting'"),
    ({"tune": {"waiting": 0}}, "a whole number from 1"),
    ({"on_miss": "keep"}, "use 'drop', dead_letter"),
    ({"on_miss": dead_letter("x"), "how": "left"}, "is for how='inner'"),
    ({"on_miss": park()}, "use mode='carry'"),
    ({"freshness": "daily"}, "use 'per_batch', 'pinned' or ttl"),
    ({"columns": ["texts"]}, "no column 'texts'.*Did you mean 'text'"),
    ({"columns": "text"}, "must be a list"),
    ({"suffixes": ("", "")}, "\\['amount'\\] would appear twice"),
    ({"algorithm": "x_hybridjoin"}, "order 'key'; build it with order='frequency'"),
]


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_wrong_requests_say_what_to_do(rows: DataFrame, store: MasterStore, change: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan_enrich(rows, store, **({"on": "product"} | change))


def test_an_algorithm_that_looks_up_needs_an_index(rows: DataFrame, tmp_path: Path) -> None:
    table = pa.table({"product": [3, 1, 2, 9, 4, 0]})
    parquet.write_table(table, tmp_path / "p.parquet", row_group_size=3, write_statistics=False)
    store = MasterStore.parquet(tmp_path / "p.parquet", key="product")
    with pytest.raises(PlanError, match="the store has no index; use one of meshjoin, r_meshjoin"):
        plan_enrich(rows, store, on="product", algorithm="cachejoin")
    assert plan_enrich(rows, store, on="product").decision.algorithm in ("meshjoin", "r_meshjoin", "hash_join")


def test_master_data_is_a_store(rows: DataFrame) -> None:
    with pytest.raises(PlanError, match="is a DataFrame; give a MasterStore"):
        plan_enrich(rows, rows, on="product")  # type: ignore[arg-type]


def test_policies_of_freshness_and_misses() -> None:
    with pytest.raises(PlanError, match="not a length of time"):
        ttl("soon")
    with pytest.raises(PlanError, match="longer than deadline"):
        park(retry="1 min", deadline="5s")
