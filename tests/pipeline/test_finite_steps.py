"""Every function over finite DataFrames as a step of a pipeline: it gives the rows of the function."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests import oracle

from dovetail.functions import FINITE
from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.run import Run, watch_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLS = [("x", 1, 5, 1), ("x", 4, 9, 2), ("y", 1, 2, 3), (None, 1, 4, 4), ("y", None, 3, 5)]
SHIFTS = [("x", 3, 6, 1), ("y", 8, 9, 2), ("y", 2, 4, 3)]
OPTIONS: dict[str, dict[str, Any]] = {
    "interval_join": {"on": "k", "how": "full", "min_overlap": 1, "with_overlap": True},
    "count_overlaps": {"on": "k", "relation": "before"},
    "interval_topk": {"k": 1},
    "interval_nearest": {"on": "k", "ties": "all", "max_distance": 9, "how": "left"},
    "band_join": {"within": [["start", "start", -5, 5], ["end", "end", -50, 5]], "on": "k", "closed": "left"},
    "asof_join": {"on": "start", "by": "k", "direction": "nearest", "ties": ["last", "r"], "how": "left"},
    "interval_merge": {"on": "k", "gap": 1, "aggregates": {"total": "sum(l)"}},
    "interval_cluster": {"closed": "both"},
    "interval_complement": {"on": "k", "limits": "shifts"},
    "interval_depth": {"on": "k", "keep": "largest"},
    "make_disjoint": {"on": "k", "aggregates": {"total": "sum(l)"}},
    "interval_window": {"width": 4, "origin": 1},
    "interval_pivot": {"on": "k", "width": 4},
    "interval_coverage": {"on": "k", "closed": "both"},
    "interval_subtract": {"on": "k", "partitions": 3},
    "interval_setdiff": {"invalid": "drop"},
}


def written(options: dict[str, Any]) -> str:
    """Options as TOML, which has texts, numbers, lists and truth as JSON has them."""

    def value(given: Any) -> str:
        inside = given.items() if isinstance(given, dict) else ()
        return f"{{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in inside)} }}" if inside else json.dumps(given)

    return "\n".join(f"{name} = {value(given)}" for name, given in options.items())


@pytest.mark.parametrize("name", FINITE)
def test_every_function_is_a_step(spark: SparkSession, tmp_path: Path, name: str) -> None:
    function, frames, text = FINITE[name], {}, '[pipeline]\nname = "all"\nmemory = "8MB"\n'
    uses = 2 if "limits" in OPTIONS[name] else len(function.inputs)
    for source, rows, number in (("calls", CALLS, "l"), ("shifts", SHIFTS, "r"))[:uses]:
        names = ("k", "start", "end", number)
        frames[source] = spark.createDataFrame(rows, f"k string, start bigint, end bigint, {number} bigint")
        (tmp_path / source).mkdir()
        lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
        (tmp_path / source / "rows.json").write_text("\n".join(lines))
        kinds = ", ".join(f"{column} {kind}" for column, kind in frames[source].dtypes)
        text += f'\n[source.{source}]\ntype = "json"\npath = "{source}"\nschema = "{kinds}"\n'
    inputs = dict(zip(function.inputs, frames, strict=False))
    text += f'\n[join.step]\ntype = "{name}"\n{written(inputs | OPTIONS[name])}\n'
    file = tmp_path / "one.toml"
    file.write_text(text + '\n[sink.answer]\ntype = "parquet"\nfrom = "step"\npath = "answer"\n')
    pipeline = read_pipeline(file)
    assert check_pipeline(spark, pipeline) == []
    Run(spark, pipeline, watch_of(pipeline), console=Console(quiet=True)).go()
    options = {key: frames[value] if key == "limits" else value for key, value in OPTIONS[name].items()}
    wanted = function.call()(*(frames[source] for source in inputs.values()), **options)
    found = spark.read.parquet(str(tmp_path / "answer"))
    assert found.columns == wanted.columns
    assert oracle.bag(map(tuple, found.collect())) == oracle.bag(map(tuple, wanted.collect()))
    assert found.count() > 0


def checked(spark: SparkSession, place: Path, name: str, options: dict[str, Any], kinds: str) -> list[str]:
    """The problems of a step over two inputs with these columns, of which there are no rows yet."""
    text = '[pipeline]\nname = "one"\n'
    for source in ("calls", "shifts"):
        (place / source).mkdir()
        text += f'\n[source.{source}]\ntype = "json"\npath = "{source}"\nschema = "{kinds}"\n'
    text += f'\n[join.step]\ntype = "{name}"\nleft = "calls"\nright = "shifts"\n{written(options)}\n'
    file = place / "one.toml"
    file.write_text(text + '\n[sink.answer]\ntype = "parquet"\nfrom = "step"\npath = "answer"\n')
    return [problem.text for problem in check_pipeline(spark, read_pipeline(file))]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("interval_join", {"on": "k"}),
        ("interval_join", {"how": "right", "keep": "any", "condition": "k is not null"}),
        ("interval_join", {"how": "left_anti", "invalid": "error", "columns": ["end", "k"]}),
        ("asof_join", {"on": "start", "by": "k", "algorithm": "auto"}),
    ],
)
def test_joins_by_texts_pass_the_check(spark: SparkSession, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    assert checked(spark, tmp_path, name, options, "k int, start string, end string") == []


@pytest.mark.parametrize(
    ("name", "options", "kinds", "message"),
    [
        (
            "interval_join",
            {"max_gap": "10 min"},
            "start int, end int",
            "max_gap=.* is a length of time, but the column",
        ),
        ("interval_join", {"max_gap": 1}, "start decimal(38,0), end decimal(38,0)", "take no slack"),
        ("interval_join", {"split_points": [1.5]}, "start int, end int", "split_points: 1.5 is not a value"),
        ("interval_join", {"with_overlap": True}, "start string, end string", "with_overlap is not for text bounds"),
        ("interval_join", {"condition": "start"}, "start int, end int", "must be true or false"),
        ("asof_join", {"on": "start", "algorithm": "index"}, "start string, v int", "texts have no 64-bit codes"),
        ("asof_join", {"on": "start", "algorithm": "index"}, "start decimal(38,0), v int", "have no 64-bit codes"),
        ("asof_join", {"on": "start", "by": "v", "algorithm": "index"}, "start int, v struct<a:int>", "use 'window'"),
    ],
)
def test_a_check_refuses_what_a_run_refuses(
    spark: SparkSession, tmp_path: Path, name: str, options: dict[str, Any], kinds: str, message: str
) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup(str(tmp_path), "check")
    try:
        (said,) = checked(spark, tmp_path, name, options, kinds)
        assert list(tracker.getJobIdsForGroup(str(tmp_path))) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
    assert re.search(message, said), said
