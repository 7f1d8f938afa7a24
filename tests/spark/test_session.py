"""The session has what our joins need, and says what a running one can no longer take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import dovetail
from dovetail.errors import ConfigError
from dovetail.spark import launch, settings
from dovetail.spark import session as module
from dovetail.spark.frames import is_connect, require_classic
from dovetail.spark.settings import SETTINGS, Setting


def test_the_session_has_every_setting(spark: SparkSession) -> None:
    assert {setting.key: module._current(spark, setting.key) for setting in SETTINGS} == {
        setting.key: setting.value for setting in SETTINGS
    }


def test_the_time_zone_and_the_process_environment_are_left_alone(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    zone = jvm.java.util.TimeZone.getDefault().getID()
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    assert {"PYSPARK_PYTHON", "JAVA_HOME"} & set(os.environ) == BEFORE


BEFORE = {"PYSPARK_PYTHON", "JAVA_HOME"} & set(os.environ)


def test_a_second_call_gives_the_same_session(spark: SparkSession) -> None:
    assert dovetail.session() is spark
    assert dovetail.session("another name", spark_ui_enabled=False) is spark


def test_a_running_session_takes_what_can_change_and_refuses_the_rest(spark: SparkSession) -> None:
    dovetail.session(spark_sql_shuffle_partitions=5)
    try:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    with pytest.raises(ConfigError, match=r"cannot take spark\.driver\.memory=9216m \(it is 2g\).*spark\.stop\(\)"):
        dovetail.session(memory="9g")


def test_a_jvm_that_is_smaller_than_asked_for_is_not_passed_off_as_large(spark: SparkSession) -> None:
    launch._check_memory({"spark.driver.memory": "2g"})
    with pytest.raises(ConfigError, match=r"memory 9 GiB was asked for, but the JVM .* started with (1\.9|2) GiB"):
        launch._check_memory({"spark.driver.memory": "9g"})


def test_configure_sets_what_it_can_and_says_what_it_could_not(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    ours = spark.conf.get(provider)
    spark.conf.unset(provider)
    assert dovetail.configure(spark) == []
    assert spark.conf.get(provider) == ours
    arrow = "spark.sql.execution.arrow.pyspark.enabled"
    spark.conf.set(arrow, "false")
    try:
        (line,) = dovetail.configure(spark)
        assert line.startswith(f"{arrow} was set to false, which stays")
        assert spark.conf.get(arrow) == "false"
    finally:
        spark.conf.set(arrow, "true")
    stuck = Setting("spark.driver.memory", "7g", "for this test", runtime=False)
    absent = Setting("spark.python.authenticate.socketTimeout", "3s", "for this test", runtime=False)
    monkeypatch.setattr(settings, "SETTINGS", (*SETTINGS, stuck, absent))
    lines = dovetail.configure(spark)
    assert [line.split(";")[0] for line in lines] == [
        "spark.driver.memory is 2g and cannot change while Spark runs (for this test)",
        "spark.python.authenticate.socketTimeout is not set and cannot change while Spark runs (for this test)",
    ]
    assert all("dovetail.session()" in line for line in lines)


def test_a_state_store_of_the_user_keeps_its_format(spark: SparkSession) -> None:
    """Spark's store in Java's memory fails with the format that ours needs."""
    provider, form = (f"spark.sql.streaming.stateStore.{name}" for name in ("providerClass", "checkpointFormatVersion"))
    before = {name: spark.conf.get(name) for name in (provider, form)}
    assert before[form] == "2"
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    spark.conf.unset(form)
    try:
        (line,) = dovetail.configure(spark)
        assert line.startswith(f"{provider} was set to")
        assert spark.conf.get(form) == "1"
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_this_session_is_not_connect(spark: SparkSession) -> None:
    frame = spark.range(1)
    assert not any(map(is_connect, (spark, frame, frame.id)))
    require_classic(spark, "this", "nothing")


def test_workers_spill_where_spark_does_and_run_this_python(spark: SparkSession) -> None:
    def places(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"local": [os.environ["SPARK_LOCAL_DIRS"]], "python": [sys.prefix]})

    import sys

    row = spark.range(0, 1, 1, 1).mapInArrow(places, "local string, python string").first()
    assert row is not None
    local = spark.sparkContext.getConf().get("spark.local.dir")
    assert local is not None
    assert Path(row.local).is_relative_to(local)  # Spark's own directory for this session, which Spark removes
    assert Path(row.local).is_dir()
    assert row.python == sys.prefix
