"""Page files that Spark writes: equal to the rows, whatever the order, key and number of parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.models import assert_is, keys_of, master

from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.page_file import writer as index_merge
from dovetail.joins.semistream.master.page_file.generation import load_version
from dovetail.joins.semistream.master.page_file.writer import Part
from dovetail.joins.semistream.master.store import MasterStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = [
    (("int",), "key"),
    (("text", "date"), "key"),
    (("wide",), "frequency"),
    (("int", "text"), "frequency"),
    (("bytes",), "none"),
]


@pytest.fixture
def many_parts(spark: SparkSession) -> SparkSession:
    """Adaptive execution would make one part of so few rows."""
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", False)
    yield spark
    spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table)


@pytest.mark.parametrize(("kinds", "order"), CASES)
def test_equals_the_rows(many_parts: SparkSession, tmp_path: Path, kinds: tuple[str, ...], order: str) -> None:
    rng = np.random.default_rng(len(kinds))
    names = [f"k{at}" for at in range(len(kinds))]
    table, strangers = master(rng, kinds, 3000, 900), master(rng, kinds, 300, 2000)
    frequency = "wanted" if order == "frequency" else None
    store = MasterStore.build(
        frame(many_parts, table), tmp_path / "p", names, order=order, page="1KB", frequency=frequency
    )  # type: ignore[arg-type]
    found = load_version(tmp_path / "p")
    assert len(found.parts) == 2
    assert found.null_keys == sum(None in key for key in keys_of(table, names))
    pages = store.at()
    assert_is(pages, table.cast(pages.schema), names, strangers)
    across = found.parts[0].pages
    both = pages.read(across - 1, 2)
    assert both.equals(pa.concat_batches([pages.read(across - 1, 1), pages.read(across, 1)]))
    if order == "frequency":
        groups: dict[tuple[object, ...], int] = {}
        for key, wanted in zip(keys_of(table, names), table["wanted"].to_pylist(), strict=True):
            groups[key] = max(groups.get(key, 0), wanted)
        laid = [groups[key] for page in range(len(pages.starts) - 1) for key in keys_of(pages.read(page, 1), names)]
        assert laid == sorted(laid, reverse=True)


def test_a_rebuild_is_the_next_generation_and_a_failed_one_is_none(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "p"
    frame_1 = frame(spark, pa.table({"k": [1, 2, 3], "a.b": ["x", "y", None]}))
    store = MasterStore.build(frame_1, path, "k", unique=True)
    first = store.version()
    with pytest.raises(DataError, match=r"keys \['k'\] are not unique: \[7\] occur more than once"):
        MasterStore.build(frame(spark, pa.table({"k": [7, 7, 3], "a.b": ["x", "y", None]})), path, "k", unique=True)
    assert store.version() == first
    assert sorted(e.name for e in path.iterdir()) == [".lock", "MANIFEST.json", "generation-1"]
    MasterStore.build(frame(spark, pa.table({"k": [1, 9], "a.b": ["x", "z"]})), path, "k")
    assert store.at().read(0, 1).to_pylist() == [{"k": 1, "a.b": "x"}, {"k": 9, "a.b": "z"}]
    assert store.at(first).starts.tolist() == [0, 3]


def test_a_page_file_is_laid_out_again_by_a_log_of_accesses(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"k": [*range(50), None], "name": [f"n{n}" for n in range(51)]})
    store = MasterStore.build(frame(spark, rows), tmp_path / "p", "k", order="hash", page="1KB", keep_nulls=True)
    assert store.explain().count("order hash, ranges of hashes") == 1
    old = store.version()
    log = frame(spark, pa.table({"k": [7] * 5 + [3] * 9 + [41] + [99] * 20 + [None], "at": range(36)}))
    again = store.relayout(log, page=64)
    assert again.at().read(0, 5)["k"].to_pylist()[:3] == [3, 7, 41]
    assert sorted(row["k"] for row in again.at().read(0, len(again.at().starts) - 1).to_pylist()) == list(range(50))
    assert again.with_nulls().at().read(len(again.at().starts) - 1, 1).to_pylist() == [{"k": None, "name": "n50"}]
    assert again.schema == store.schema
    assert store.at(old).order == "none"
    assert again.at().order == "frequency"
    with pytest.raises(PlanError, match=r"the log is without \['k'\]"):
        store.relayout(log.select("at"))
    ranges = MasterStore.build(
        frame(spark, pa.table({"a": [1], "b": [2], "v": [3]})), tmp_path / "r", bounds=("a", "b")
    )
    with pytest.raises(UnsupportedError, match="cannot be laid out again"):
        ranges.relayout(log)


def test_nested_columns_and_times(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(
        "SELECT id AS k, named_struct('a', id, 'b', array('x')) AS s, map('m', id) AS m, timestamp_seconds(id) AS t, "
        "make_interval(0, 0, 0, 1) IS NULL AS f FROM range(5)"
    )
    store = MasterStore.build(df, tmp_path / "p", ["t", "k"])
    assert store.schema.field("t").type == pa.timestamp("us", "UTC")
    assert store.at().read(0, 1).select(["k", "s", "m"]).to_pylist() == [
        {"k": n, "s": {"a": n, "b": ["x"]}, "m": [("m", n)]} for n in range(5)
    ]


def test_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    none = frame(spark, pa.table({"k": pa.array([None], pa.int64()), "v": ["x"]}))
    for order in ("key", "hash", "none"):
        pages = MasterStore.build(none, tmp_path / order, "k", order=order).at()  # type: ignore[arg-type]
        assert pages.starts.tolist() == [0]
        assert pages.home([pa.array([1, None])]).tolist() == [-1, -1]


def test_wrong_requests(spark: SparkSession, tmp_path: Path) -> None:
    df = frame(spark, pa.table({"k": [1], "l": [[1]]}))
    with pytest.raises(PlanError, match="cannot be a key"):
        MasterStore.build(df, tmp_path / "p", "l")
    with pytest.raises(PlanError, match="name the column"):
        MasterStore.build(df, tmp_path / "p", "k", order="frequency")
    with pytest.raises(PlanError, match="frequencies are numbers"):
        MasterStore.build(df, tmp_path / "p", "k", order="frequency", frequency="l")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        MasterStore.build(df, tmp_path / "file", "k")
    with pytest.raises(PlanError, match="streaming"):
        MasterStore.build(spark.readStream.format("rate").load(), tmp_path / "p", "value")


def test_an_index_merged_in_stretches_is_the_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts, all_codes, all_pages, first = [], [], [], 0
    for number, size in enumerate([500, 0, 1, 900]):
        codes, pages = rng.integers(-300, 300, size), np.sort(rng.integers(0, 40, size))
        part = Part(f"{number}.rows", pa.table({"rows": pa.array([], pa.int64())}), codes, pages)
        parts.append(index_merge.IndexPart(index_merge.store_index_part(tmp_path, part), size, first))
        all_codes.append(codes)
        all_pages.append(pages + first)
        first += 40
    codes, pages = np.concatenate(all_codes), np.concatenate(all_pages)
    for each in (10_000, 700, 100, 7):
        stretches = index_merge.plan_stretches(tmp_path, parts, each)
        merged = [index_merge.merge_stretch(tmp_path, parts, s) for s in rng.permutation(np.array(stretches, object))]
        assert (len(stretches) > 1) == (each < 1401)
        index_merge.join_stretches(tmp_path, [stretch.first for stretch in stretches])
        stored = np.fromfile(tmp_path / "index.codes", "<i8"), np.fromfile(tmp_path / "index.pages", "<i4")
        for name in ("index.codes", "index.pages"):
            (tmp_path / name).unlink()
        assert sorted(zip(*stored, strict=True)) == sorted(zip(codes, pages, strict=True))
        assert (np.diff(stored[0]) >= 0).all()
        homes: dict[int, set[int]] = {}
        for code, page in zip(codes.tolist(), pages.tolist(), strict=True):
            homes.setdefault(code, set()).add(page)
        clashing = {code for code, found in homes.items() if len(found) > 1}
        assert {code for found in merged for code in found.clashes} == clashing
        assert {p for found in merged for p in found.clash_pages} == set().union(*(homes[code] for code in clashing))
