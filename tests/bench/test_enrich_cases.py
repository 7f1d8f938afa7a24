"""The enrichment benchmarks: every rival gives the expected answer, and the claims are those that were promised."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from bench.case import Case, Outcome, Params
from bench.cases import enrich_rates
from bench.context import BenchContext
from bench.rivals.enrichment import (
    UNMATCHED,
    kept,
    master_files,
    matched,
    stream_broadcast,
    stream_rows,
    stream_static,
)
from bench.rivals.lookups import LruCache, batch_by_batch, full_read, row_by_row, without_cache
from pyspark.sql import DataFrame, SparkSession

from bench import catalogue

ENRICH = catalogue.load_cases()["enrich"]
TINY = {50_000: 1_000, 200_000: 4_000}
"""Master rows of the small points, made tiny."""


def outcomes(case: Case, params: Params, tiny: Params, bench: BenchContext) -> dict[str, Outcome]:
    """What each rival that takes part at a point answers at the tiny one."""
    found = {}
    for rival in case.rivals:
        if rival.sits_out(params) is None:
            with rival.prepare(bench, tiny) as run:
                answer = run()
            found[rival.name] = answer if isinstance(answer, Outcome) else Outcome(answer)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("point", range(1, 4), ids=["small batches", "large batches", "server"])
def test_every_rival_answers_every_row_that_has_a_master_row(point: int) -> None:
    case = ENRICH
    params = case.points["small"][point]
    batch_rows = 1_000 if params["batch_rows"] == 10_000 else 2 * 10_000
    tiny = {**params, "master_rows": TINY[params["master_rows"]], "batch_rows": batch_rows}
    with BenchContext("small", case.seed) as bench:
        found = outcomes(case, params, tiny, bench)
        expected = case.expected(bench, tiny)
    assert {name: outcome.answer for name, outcome in found.items()} == dict.fromkeys(found, expected)
    assert 0 < found["dovetail"].figures["peak_of_budget"] <= 1
    assert all(outcome.figures["rows_per_s"] > 0 for outcome in found.values())


@pytest.mark.slow
def test_spark_sorts_both_sides_where_it_does_not_know_the_size_of_the_stream(spark: SparkSession) -> None:
    with BenchContext("small") as bench, smaller_broadcasts(spark):
        static = spark.read.parquet(str(master_files(bench, 80)))
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        joined = stream.withColumnRenamed("value", "key").join(static, "key")
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
            assert "SortMergeJoin" in query._jsq.explainInternal(False)
        finally:
            query.stop()
        rows = spark.range(5).withColumnRenamed("id", "key")
        assert "SortMergeJoin" in physical(stream_static(bench, {"master_rows": 80})(rows)[0])
        assert "BroadcastHashJoin" in physical(stream_broadcast(bench, {"master_rows": 80})(rows)[0])


@contextmanager
def smaller_broadcasts(spark: SparkSession) -> Iterator[None]:
    """Tables count as too large for a broadcast from 100 bytes on."""
    setting = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "100b")
    try:
        yield
    finally:
        spark.conf.set(setting, before)


def physical(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def test_who_takes_part_where() -> None:
    taking_part = [
        {rival.name for rival in ENRICH.rivals if rival.sits_out(point) is None} for point in ENRICH.points["full"]
    ]
    spark = {"spark's stream-static join", "spark's join, stream broadcast"}
    assert taking_part == [
        {"dovetail", *spark},
        {"dovetail", "dovetail, a quarter", *spark},
        {"dovetail"},
        {"dovetail", "look-up per row", "look-up per batch"},
    ]
    for bound in ENRICH.bounds:
        for point, names in zip(ENRICH.points["full"], taking_part, strict=True):
            if bound.covers(point):
                assert {bound.rival, bound.against or bound.rival} <= names


def test_the_claims() -> None:
    claims = {(round(1 / b.at_most, 3), b.against or b.figure, b.where.get("master_rows")) for b in ENRICH.bounds}
    assert claims == {
        (5.0, "spark's stream-static join", 2_000_000),
        (15.0, "spark's stream-static join", 8_000_000),
        (0.7, "dovetail, a quarter", 8_000_000),
        (0.5, "us_per_row", None),
        (3.0, "look-up per row", 2_000_000),
        (1.0, "look-up per batch", 2_000_000),
        (1.0, "peak_of_budget", None),
    }


def test_the_stream_goes_on_where_it_stopped_and_a_share_of_it_has_no_match() -> None:
    with BenchContext("small") as bench:
        whole, parts = stream_rows(bench, 500, 0, 2_000), [stream_rows(bench, 500, n, n + 500) for n in (0, 500)]
    keys = whole["key"].to_pylist()
    assert pa.concat_tables(parts)["key"].to_pylist() == keys[:1_000]
    assert sum(1 <= key <= 500 for key in keys) == matched(2_000) == 2_000 - 2_000 // UNMATCHED


def test_data_is_made_once_and_kept_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_BENCH_DATA", str(tmp_path))
    with BenchContext("small") as bench:
        place = master_files(bench, 80)
        assert kept(bench, place.name, lambda path: pytest.fail(f"{path} was made again")) == place
    assert place.parent == tmp_path
    assert len(list(place.glob("*.parquet"))) == 8


class Table:
    """Look-ups in a dict, with the number of times that it was asked."""

    def __init__(self, rows: dict[int, tuple[int, str]], limit: int) -> None:
        self.rows, self.asked, self.cache = rows, 0, LruCache(limit)

    def one(self, key: int) -> tuple[int, str] | None:
        self.asked += 1
        return self.rows.get(key)

    def many(self, keys: list[int]) -> dict[int, tuple[int, str]]:
        self.asked += 1
        return {key: self.rows[key] for key in keys if key in self.rows}

    def everything(self) -> pa.Table:
        checksums, payloads = zip(*self.rows.values(), strict=True)
        return pa.table({"key": list(self.rows), "checksum": list(checksums), "payload": list(payloads)})


@pytest.mark.parametrize("limit", [1, 2_000, 10**6])
@pytest.mark.parametrize("answer", [row_by_row, batch_by_batch, without_cache, full_read])
def test_look_ups_by_hand_are_right_whatever_the_cache_holds(answer: object, limit: int) -> None:
    rows = {key: (key, f"row {key}") for key in range(0, 60, 2)}
    table = Table(rows, limit)
    for start in range(0, 300, 50):
        keys = [(7 * n * n) % 61 for n in range(start, start + 50)]
        assert answer(table, keys) == [rows.get(key) for key in keys]  # type: ignore[operator]  # one of the four
    assert table.cache.used <= limit
    assert len(table.cache) <= 61


def test_a_cache_keeps_what_was_used_last() -> None:
    cache = LruCache(limit=1_500)
    for key in (1, 2, 3):
        cache.put(key, (key, "x" * 100))
    assert cache.get(1) == (1, "x" * 100)
    cache.put(4, (4, "x" * 100))
    assert [key for key in range(1, 5) if key in cache] == [1, 3, 4]
    assert 0 < cache.used <= 1_500


def test_the_simulated_rates_are_the_reference_counts_where_they_are_quick_to_count() -> None:
    queues, rate = enrich_rates.rate("INLJ", 1, enrich_rates.SIZES[0])
    assert queues == enrich_rates.QUEUES
    assert rate == pytest.approx(207, rel=0.1)
    case = catalogue.load_cases()["enrich-rates"]
    names = {rival.name for rival in case.rivals}
    assert {(bound.rival, bound.figure, bound.at_most) for bound in case.bounds} == {(n, "off_by", 0.1) for n in names}


def test_the_cases_are_found_by_name() -> None:
    assert {"enrich", "enrich-rates", "enrich-rivals"} <= set(catalogue.load_cases())
