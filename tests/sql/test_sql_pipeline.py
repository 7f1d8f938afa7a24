"""SQL steps of a pipeline with joins and functions of ours, and a step as the limits of a complement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import dataset
from rich.console import Console

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TEXT = '''
[pipeline]
name = "shifts"

[source.calls]
type = "json"
path = "calls"

[source.shifts]
type = "json"
path = "shifts"

[join.free]
type = "interval_complement"
rows = "calls"
on = "k"
limits = "shifts"

[join.latest]
type = "sql"
query = """
select /*+ asof_join(memory='2MB') */ a.start, b.end as shift_end from calls a asof join shifts b using (k, start)"""

[join.counted]
type = "sql"
query = """
select k, n_overlaps from count_overlaps(TABLE shifts, calls, on => 'k')"""

[sink.gaps]
type = "parquet"
from = "free"
path = "gaps"

[sink.found]
type = "parquet"
from = "latest"
path = "found"

[sink.counts]
type = "parquet"
from = "counted"
path = "counts"
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = {
        "calls": '{"k": "a", "start": 2, "end": 4}\n{"k": "b", "start": 1, "end": 2}\n',
        "shifts": '{"k": "a", "start": 0, "end": 9}\n',
    }
    for name, text in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(text)
    found = tmp_path / "shifts.toml"
    found.write_text(TEXT)
    return found


def test_the_steps_are_checked_and_run(spark: SparkSession, file: Path) -> None:
    pipeline = read_pipeline(file)
    assert check_pipeline(spark, pipeline) == []
    Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True)).go()
    answers = [dataset.dataset(file.parent / name).to_table().to_pylist() for name in ("gaps", "found", "counts")]
    assert sorted((row["start"], row["end"]) for row in answers[0]) == [(0, 2), (4, 9)]
    assert answers[1:] == [[{"start": 2, "shift_end": 9}], [{"k": "a", "n_overlaps": 1}]]


def test_what_is_wrong_is_told_with_its_line(spark: SparkSession, file: Path) -> None:
    with pytest.raises(PipelineError, match="limits of free names 'shift', which is no step"):
        read_pipeline(file, ["join.free.limits=shift"])
    file.write_text(file.read_text().replace("asof join shifts b using (k, start)", "asof join shifts b on a.k = b.k"))
    (problem,) = check_pipeline(spark, read_pipeline(file))
    assert "latest: a ASOF JOIN b: ON has 0 inequalities" in str(problem)
