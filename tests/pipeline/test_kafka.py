"""Kafka in pipelines, as far as it needs no broker: values of messages, missing connectors, lag, what may change.

`make cluster` runs pipelines against a broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.checkpoint import _kept_options
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of
from dovetail.pipeline.steps.formats import known_format
from dovetail.pipeline.steps.messages import COLUMNS, decoded, encoded
from dovetail.pipeline.steps.sources import empty_source

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines" / "kafka_to_postgres.toml"
SERVERS = '"kafka.bootstrap.servers" = "localhost:9092"'


def packages(spark: SparkSession, name: str) -> str:
    """The line that brings a connector to this Spark."""
    return f'spark = {{ "spark.jars.packages" = "org.apache.spark:{name}_2.13:{spark.version}" }}'


def pipeline(place: Path, source: str, sink: str, join: str = "") -> Path:
    file = place / "p.toml"
    file.write_text(
        f'[pipeline]\nname = "p"\ncheckpoint = "c"\n[source.a]\n{source}\n{join}\n[sink.z]\nfrom = "a"\n{sink}\n'
    )
    return file


FROM_KAFKA = f'type = "kafka"\noptions = {{ {SERVERS}, subscribe = "t" }}'
TO_KAFKA = f'type = "kafka"\noptions = {{ {SERVERS}, topic = "t" }}'
RATE, FILES = 'type = "rate"', 'type = "parquet"\npath = "out"'


@pytest.mark.parametrize(
    ("source", "sink", "name", "line"),
    [
        (FROM_KAFKA, FILES, "spark-sql-kafka-0-10", 6),
        (RATE, TO_KAFKA, "spark-sql-kafka-0-10", 10),
        ('type = "format"\nformat = "avro"\npath = "x"', FILES, "spark-avro", 7),
    ],
)
def test_a_missing_connector(spark: SparkSession, tmp_path: Path, source: str, sink: str, name: str, line: int) -> None:
    """The check and a run say which line brings it."""
    read = read_pipeline(pipeline(tmp_path, source, sink))
    (problem,) = check_pipeline(spark, read)
    assert packages(spark, name) in problem.text
    assert problem.line == line
    with pytest.raises(ConfigError) as error:
        Run(spark, read, watch_of(read), seconds=1, console=Console(quiet=True)).go()
    assert packages(spark, name) in str(error.value)


def test_a_query_that_needs_avro(spark: SparkSession, tmp_path: Path) -> None:
    query = """select from_avro(cast('x' as binary), '"long"', map()) as n from a"""
    join = f"[join.b]\ntype = 'sql'\nquery = '''{query}'''"
    file = pipeline(tmp_path, RATE, FILES, join)
    file.write_text(file.read_text().replace('from = "a"', 'from = "b"'))
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert packages(spark, "spark-avro") in problem.text


def test_a_connector_comes_beside_the_packages_that_are_there() -> None:
    conf = SimpleNamespace(get=lambda key: {"spark.jars.packages": "org.example:mine:1"}.get(key))
    context = SimpleNamespace(getConf=lambda: conf)
    fake: Any = SimpleNamespace(version="4.3.0", sparkContext=context, _jvm=MagicMock())
    with pytest.raises(ConfigError, match=r'"org.example:mine:1,org.apache.spark:spark-avro_2.13:4.3.0"'):
        known_format(fake, "avro")


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        (FROM_KAFKA, 'type = "kafka"\noptions = { topic = "t" }', "a kafka sink lack 'kafka.bootstrap.servers'"),
        (FROM_KAFKA, f'type = "kafka"\noptions = {{ {SERVERS} }}', 'a kafka sink name no topic; one of topic; add'),
        (f'{FROM_KAFKA}\nschema = "n long"\navro = "n.avsc"', FILES, "schema is for values of JSON and avro"),
        (f'{FROM_KAFKA}\nmalformed = "null"', FILES, "malformed is for values with a declared schema"),
        (f'{FROM_KAFKA}\nschema = "n long"\nmalformed = "drop"', FILES, "allowed: fail, null"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_text(tmp_path: Path, source: str, sink: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read_pipeline(pipeline(tmp_path, source, sink))


def test_the_example_is_right_by_itself() -> None:
    read = read_pipeline(EXAMPLE, environment={"SHOP_URI": "postgresql://me:secret@host/shop"})
    assert read.steps["shipments"].values["avro"].lstrip().startswith("{")
    assert "at least once" in read.steps["announced"].node().detail
    assert "at least once" not in read.steps["warehouse"].node().detail


def step(kind: str, **values: Any) -> Step:
    return Step(kind, "s", "kafka", values, values, ())


def test_values_of_json(spark: SparkSession) -> None:
    values = ['{"n": 1, "s": "a"}', '{"s": null}', None, "no JSON", '{"n": "x"}']
    sent = [(None if value is None else value.encode(),) for value in values]
    messages = spark.createDataFrame(sent, "value binary")
    given = {"schema": "n long, s string", "malformed": "null"}
    found = [tuple(row) for row in decoded(spark, messages, step("source", **given)).collect()]
    assert found == [(1, "a"), (None, None), (None, None), (None, None), (None, None)]
    strict = decoded(spark, messages, step("source", schema="n long, s string"))
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        strict.collect()
    good = decoded(spark, spark.createDataFrame(sent[:3], "value binary"), step("source", schema="n long, s string"))
    assert [tuple(row) for row in good.collect()] == [(1, "a"), (None, None), (None, None)]
    assert decoded(spark, messages, step("source")) is messages


def test_rows_as_messages(spark: SparkSession) -> None:
    rows = spark.sql("select 7L as `a.b`, cast(null as string) as s, timestamp'2026-01-02 03:04:05Z' as at")
    (message,) = encoded(spark, rows, step("sink", key="a.b")).collect()
    assert message.key == "7"
    found = json.loads(message.value)
    assert (found["a.b"], found["s"]) == (7, None)
    back = decoded(spark, spark.createDataFrame([(message.value.encode(),)], "value binary"),
                   step("source", schema="`a.b` long, s string, at timestamp"))  # fmt: skip
    assert back.collect() == rows.collect()
    assert encoded(spark, rows, step("sink")).columns == ["value"]
    with pytest.raises(PlanError, match=r"the rows have no column 'k'; they have \['a.b', 's', 'at'\]"):
        encoded(spark, rows, step("sink", key="k"))


def test_a_check_knows_the_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.pipeline.steps.sources.known_format", lambda *_: None)
    assert empty_source(spark, step("source", schema="n long, s string")).columns == ["n", "s"]
    assert empty_source(spark, step("source")).columns == [part.split()[0] for part in COLUMNS.split(", ")]
    with pytest.raises(PlanError, match="is not understood") as error:
        empty_source(spark, step("source", schema="n lang"))
    assert error.value.argument == "schema"


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ({"maxOffsetsPerTrigger": 1}, {"maxOffsetsPerTrigger": 2}, True),
        ({"kafka.sasl.mechanism": "PLAIN"}, {}, True),
        ({"kafka.bootstrap.servers": "a:1, b:1"}, {"kafka.bootstrap.servers": "c:1,b:1"}, True),
        ({"kafka.bootstrap.servers": "a:1"}, {"kafka.bootstrap.servers": "b:1"}, False),
        ({"subscribe": "a"}, {"subscribe": "b"}, False),
    ],
)
def test_options_that_may_change_between_runs(old: dict[str, Any], new: dict[str, Any], is_same: bool) -> None:
    first, second = _kept_options(old, new)
    assert (first == second) is is_same
