"""Values of wrong types and sizes: whatever is given to an option, only errors of Dovetail come out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.request.test_consistency import NEEDED, SWEEPS, WINDOWS

import dovetail
from dovetail import MasterStore, PlanError
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HUGE = 10**400
VALUES: list[Any] = [
    None, 5, -1, 1.5, HUGE, -HUGE, float("nan"), float("inf"), Decimal("1e300"), True, "", " ", "no such", object(),
    "9999999999 days", timedelta.max, timedelta.min, [], [5], [None], [object()], [[]], (5, "k"), ("k", 5),
    ("t", HUGE), ("last", 5), ("t", "t", "k", object()), ("t", "t", None, "9999999999 days"), {}, {"": 5}, {5: ""},
    {"left": object()}, b"k", ("", ""), (None, None), (object(), object()), range,
]  # fmt: skip
LENGTHS = {
    "interval_merge": ("gap", HUGE), "interval_cluster": ("gap", HUGE), "interval_window": ("width", HUGE),
    "interval_pivot": ("width", HUGE), "interval_join": ("max_gap", HUGE), "interval_count": ("min_overlap", HUGE),
    "interval_nearest": ("max_distance", HUGE), "asof_join": ("tolerance", HUGE),
    "band_join": ("within", ("t", "t", -HUGE, HUGE)), "online_join": ("within", ("t", HUGE)),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql("select * from values (1, 3, 5, 4), (2, 4, 9, 8) as rows (k, start, end, t)")


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MasterStore:
    place = tmp_path_factory.mktemp("master") / "m.pages"
    return MasterStore.build(spark.sql("select 1 as k, 'a' as name"), place, key="k", unique=True)


def planned() -> list[str]:
    return [name for name in NEEDED if name.startswith("plan_") or f"plan_{name}" not in NEEDED]


def options(name: str) -> list[str]:
    function = getattr(dovetail, name)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def inputs(name: str, rows: Any, store: MasterStore) -> list[Any]:
    plain = name.removeprefix("plan_")
    if plain == "xquery":
        return [rows.sparkSession, "1"]
    if plain == "enrich":
        return [rows, store]
    if plain == "online_multijoin":
        return [{"a": rows, "b": rows}]
    return [rows] if plain in (*SWEEPS, *WINDOWS) else [rows, rows]


def refused(call: Any) -> str | None:
    """What comes out of the call beside an answer and errors of Dovetail."""
    try:
        call()
    except DovetailError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return None


def every(name: str, known: list[Any], allowed: dict[str, Any], call: Any) -> Iterator[str]:
    for option in known:
        for value in VALUES:
            if option == "checkpoint" and isinstance(value, str) and value.strip():
                continue  # a path, at which Spark would make a directory
            found = refused(lambda: call(**(allowed | {option: value})))  # noqa: B023  (called here)
            if found is not None:
                yield f"{name}({option}={str(type(value)) if value in (HUGE, -HUGE) else value!r}): {found}"


def assert_none(found: Iterator[str]) -> None:
    wrong = list(found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", planned())
def test_functions_refuse_values_of_wrong_types(
    spark: SparkSession, rows: DataFrame, store: MasterStore, name: str
) -> None:
    given = inputs(name, rows, store)
    found = every(name, options(name), NEEDED[name], lambda **asked: getattr(dovetail, name)(*given, **asked))
    assert_none(found)


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_beyond_doubles_are_refused(spark: SparkSession, name: str) -> None:
    rows = spark.sql("select * from values (1D, 3D, 5D) as rows (start, end, t)")
    (option, value), more = LENGTHS[name], {"on": None} if name == "online_join" else {}
    given = [rows] if name in (*SWEEPS, *WINDOWS) else [rows, rows]
    with pytest.raises(PlanError) as told:
        getattr(dovetail, name)(*given, **(NEEDED[name] | more | {option: value}))
    assert told.value.argument == option


@pytest.mark.parametrize("method", ["merge_changes", "apply_changes"])
def test_changes_refuse_values_of_wrong_types(
    spark: SparkSession, store: MasterStore, tmp_path: Path, method: str
) -> None:
    streams = method == "apply_changes"
    place = tmp_path / "feed"
    spark.sql("select 1 as k, 'b' as name, 'u' as op, 1 as lsn").write.parquet(str(place))
    changes = (spark.readStream.schema("k int, name string, op string, lsn int") if streams else spark.read).parquet(
        str(place)
    )
    given = {"sequence": "lsn"} | (
        {"checkpoint": tmp_path / "applied", "trigger": {"availableNow": True}} if streams else {}
    )

    def call(**asked: Any) -> None:
        found = getattr(store, method)(changes, **asked)
        if streams:
            found.stop()

    known = [p.name for p in inspect.signature(getattr(store, method)).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert_none(every(method, known, given, call))


def test_building_a_store_refuses_values_of_wrong_types(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    known = [
        "key",
        *(p.name for p in inspect.signature(MasterStore.build).parameters.values() if p.kind is p.KEYWORD_ONLY),
    ]

    def call(**asked: Any) -> None:
        MasterStore.build(rows, tmp_path / "m.pages", **asked)

    assert_none(every("build", known, {"key": "k"}, call))
    assert_none(every("build", known, {"key": (), "bounds": ("start", "end")}, call))


def test_other_functions_of_master_data_refuse_values_of_wrong_types(store: MasterStore) -> None:
    assert_none(every("park", ["retry", "deadline"], {}, dovetail.park))
    assert_none(every("ttl", ["age"], {}, dovetail.ttl))
    assert_none(every("dead_letter", ["path"], {}, dovetail.dead_letter))
    assert_none(every("prune", ["keep", "also_held"], {"keep": 1}, store.prune))


@pytest.mark.parametrize("kind", ["int", "bigint", "decimal(1,0)", "double"])
@pytest.mark.parametrize("point", [2**70, HUGE, -HUGE, float("nan"), Decimal("NaN"), "1", None])
def test_split_points_that_the_type_of_the_bounds_lacks_are_refused(spark: SparkSession, kind: str, point: Any) -> None:
    if kind == "double" and point == 2**70:
        return
    rows = spark.sql(f"select cast(1 as {kind}) as start, cast(2 as {kind}) as end")
    with pytest.raises(PlanError, match="split_points") as told:
        dovetail.interval_join(rows, rows, split_points=[1, point])
    assert told.value.argument == "split_points"


def test_limits_of_any_digits_are_those_of_a_band(spark: SparkSession) -> None:
    left, right = spark.sql("select 1 as a"), spark.sql("select 2 as b")
    bands = [("a", "b", -HUGE, HUGE), ("a", "b", 1, HUGE), ("a", "b", 2, HUGE)]
    assert [dovetail.band_join(left, right, within=band).count() for band in bands] == [1, 1, 0]


def test_helpers_refuse_numbers_that_spark_lacks() -> None:
    wrong = {"expand": {"by": HUGE}, "shift": {"by": -HUGE}, "flank": {"width": HUGE}, "tile": {"width": 2**70}}
    for name, option in {**wrong, "trim": {"low": -HUGE}}.items():
        with pytest.raises(PlanError) as told:
            getattr(dovetail.intervals, name)("start", "end", **option)
        assert told.value.argument in option


def test_helpers_take_numbers_of_up_to_38_digits(spark: SparkSession) -> None:
    rows = spark.sql("select 10 as start, 14 as end")
    low, high = dovetail.intervals.expand("start", "end", by=2**70)
    assert tuple(map(int, rows.select(low, high).first())) == (10 - 2**70, 14 + 2**70)  # type: ignore[arg-type]


def test_what_spark_says_is_told_without_its_plan(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as start, 2 as end, 3 as id")
    with pytest.raises(PlanError, match=r"Spark says: \[PARSE_SYNTAX_ERROR\]"):
        dovetail.interval_join(rows, rows, condition="id <")
    for wrong in ("sum(nope)", "sum(id", "id + 1"):
        with pytest.raises(PlanError, match=r"Spark says: \[") as told:
            dovetail.interval_merge(rows, aggregates={"s": wrong})
        assert "\n" not in str(told.value)
    with pytest.raises(PlanError, match="is no text"):
        dovetail.sql(spark, None)  # type: ignore[call-overload]  # what is tested
