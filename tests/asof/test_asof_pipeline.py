"""An as-of join as a step of a pipeline: checked without a job, and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import dataset
from rich.console import Console

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = """
[pipeline]
name = "quotes"
memory = "8MB"

[source.trades]
type = "json"
path = "trades"

[source.quotes]
type = "json"
path = "quotes"

[join.quoted]
type = "asof_join"
left = "trades"
right = "quotes"
on = ["t", "at"]
by = "stock"
tolerance = 5
ties = ["last", "price"]
columns = ["qty", "price"]

[sink.answer]
type = "parquet"
from = "quoted"
path = "answer"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = {
        "trades": '{"stock": "A", "t": 10, "qty": 1}\n{"stock": "B", "t": 10, "qty": 2}\n',
        "quotes": '{"stock": "A", "at": 9, "price": 5}\n{"stock": "A", "at": 9, "price": 6}\n'
        '{"stock": "B", "at": 1, "price": 7}\n',
    }
    for name, text in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(text)
    found = tmp_path / "quotes.toml"
    found.write_text(TEXT)
    return found


def test_the_step_runs(spark: SparkSession, file: Path) -> None:
    pipeline = read_pipeline(file)
    assert check_pipeline(spark, pipeline) == []
    Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True)).go()
    assert dataset.dataset(file.parent / "answer").to_table().to_pylist() == [{"qty": 1, "price": 6}]


def test_what_is_wrong_with_the_step_is_told_with_its_line(file: Path) -> None:
    with pytest.raises(PipelineError, match=r"quotes.toml:14: quoted: direction='back'.* did you mean 'backward'"):
        read_pipeline(file, ["join.quoted.direction=back"])
