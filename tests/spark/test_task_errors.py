"""Errors of tasks come out of every action as what they are: with their class, and XQuery's with code and place."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

import dovetail
from dovetail.errors import BudgetExceeded, ConfigError, DataError, DovetailError, PlanError, XQueryError
from dovetail.spark.frames import map_in_arrow
from dovetail.spark.task_errors import task_error

SCHEMA = T.StructType([T.StructField("id", T.LongType())])


def raising(error: Exception, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise error


@pytest.mark.parametrize(
    "error",
    [
        DataError("row 7 is wrong:\n  a = 'x'\n  b = 'y'"),
        ConfigError("no disk"),
        BudgetExceeded("too much; give more memory."),
        PlanError("cannot be"),
        XQueryError("FORG0001", "'a\nb' is not a number", 3, 14),
        XQueryError("FOER0000", "without a place"),
    ],
)
def test_an_error_of_ours_in_a_task_is_that_error(spark: SparkSession, error: DovetailError):
    frame = map_in_arrow(spark.range(1), partial(raising, error), SCHEMA)
    with pytest.raises(type(error)) as caught:
        frame.filter("id >= 0").collect()
    assert isinstance(caught.value, PythonException)
    assert str(caught.value) == str(error)
    assert vars(error).items() <= vars(caught.value).items()
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  (our own)
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_other_errors_are_sparks_as_ever(spark: SparkSession):
    frame = map_in_arrow(spark.range(1), partial(raising, ValueError("not ours")), SCHEMA)
    with pytest.raises(PythonException, match="ValueError: not ours") as caught:
        frame.collect()
    assert not isinstance(caught.value, DovetailError)


def test_every_action_gives_the_error(spark: SparkSession, tmp_path: Path):
    frame = dovetail.xquery(spark, "1,\n  (1 + 'a')")
    actions = (
        frame.collect, frame.count, frame.first, frame.show, frame.toArrow, frame.cache().count,
        partial(frame.write.parquet, str(tmp_path / "out")), lambda: frame.groupBy("item").count().collect(),
        lambda: list(frame.toLocalIterator()),
    )  # fmt: skip
    for action in actions:
        with pytest.raises(XQueryError) as caught:
            action()
        assert isinstance(caught.value, PySparkException)
        assert (caught.value.code, caught.value.line, caught.value.column) == ("XPTY0004", 2, 3)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("error()", "FOER0000", ""),
        ('error(QName("urn:x", "p:not-this.1"), "it is so")', "not-this.1", "it is so"),
        ('(1 to 3) ! error(xs:QName("xs:y"), string(.))', "y", "1"),
    ],
)
def test_errors_that_a_query_raises_itself(spark: SparkSession, query: str, code: str, message: str):
    with pytest.raises(XQueryError) as caught:
        dovetail.xquery(spark, query).collect()
    assert caught.value.code == code
    assert str(caught.value).startswith(f"[{code}] {message}")


def test_what_a_text_of_spark_holds():
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'
    first, last = "dovetail.errors.DataError: the cause", "dovetail.errors.ConfigError: line one\nline two"
    chained = f"{trace}{first}\n\nDuring handling of the above exception, another one:\n\n{trace}{last}\n"
    told = f"Job aborted: {chained}\n\tat org.apache.Foo(Foo.scala:1)\nCaused by: {trace}{first}\n"
    for text in (chained, told):
        found = task_error(text)
        assert (type(found), str(found)) == (ConfigError, "line one\nline two")
    raised = task_error("[USER_RAISED_EXCEPTION] dovetail.errors.XQueryError: [FORG0001] no SQLSTATE: P0001")
    assert isinstance(raised, XQueryError)
    assert (raised.code, str(raised)) == ("FORG0001", "[FORG0001] no")
    for text in ("nothing", "dovetail.errors.Other: x", "dovetail.errors.XQueryError: no code"):
        assert task_error(text) is None
