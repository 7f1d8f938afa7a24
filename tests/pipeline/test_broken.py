"""Broken files: each message as it is written in the file of the same name, and no job of Spark for any of them.

`python -m tests.pipeline.test_broken` writes the messages again, to be read before they are kept.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dovetail.pipeline.check import check_pipeline
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.read import read_pipeline

BROKEN = Path(__file__).with_name("broken")
FILES = sorted(BROKEN.glob("*.toml"))
TEXT = [file for file in FILES if int(file.name[:2]) < 40]
SURROUNDINGS = [file for file in FILES if int(file.name[:2]) >= 40]
ENVIRONMENT = {"DOVETAIL_TEST_SECRET": "hush-hush"}


def lay_out(place: Path) -> None:
    """The files that broken pipelines name and that are there."""
    (place / "data").mkdir()
    (place / "data" / "orders.csv").write_text("order_id,at,product_id,amount\n1,2026-01-01 10:00:00,7,2.5\n")
    with sqlite3.connect(place / "data" / "shop.db") as connection:
        connection.execute("CREATE TABLE products (product_id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO products VALUES (7, 'lamp')")
    connection.close()


def messages(file: Path, place: Path, spark: SparkSession | None) -> str:
    """What is said about a broken file that lies in `place`, with paths as the file has them."""
    copy = place / file.name
    copy.write_text(file.read_text())
    try:
        pipeline = read_pipeline(copy, environment=ENVIRONMENT)
    except PipelineError as error:
        return _relative(str(error), place)
    assert spark is not None, "the text alone is right"
    return _relative("\n".join(problem.shown(str(copy)) for problem in check_pipeline(spark, pipeline)), place)


def _relative(text: str, place: Path) -> str:
    return text.replace(f"{place}{os.sep}", "") + "\n"


@pytest.mark.parametrize("file", TEXT, ids=lambda file: file.stem)
def test_the_text_alone(file: Path, tmp_path: Path) -> None:
    assert messages(file, tmp_path, None) == file.with_suffix(".txt").read_text()


@pytest.mark.parametrize("file", SURROUNDINGS, ids=lambda file: file.stem)
def test_against_the_surroundings_without_a_job(file: Path, tmp_path: Path, spark: SparkSession) -> None:
    lay_out(tmp_path)
    tracker = spark.sparkContext.statusTracker()
    group = f"check {file.stem}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        said = messages(file, tmp_path, spark)
        assert list(tracker.getJobIdsForGroup(group)) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None removes it
    assert said == file.with_suffix(".txt").read_text()


def test_the_messages_are_distinct_and_complete() -> None:
    said = [file.with_suffix(".txt").read_text() for file in FILES]
    assert len(said) >= 30
    told = [line.partition(": ")[2] for text in said for line in text.splitlines()]
    assert len(set(told)) == len(told)
    for file, text in zip(FILES, said, strict=True):
        for line in text.splitlines():
            assert line.startswith(f"{file.name}:"), line
            assert "hush-hush" not in line
            assert re.search(r"[;.?] \S", line), f"{line}: says what is wrong, not what to do"


def main() -> None:
    import tempfile

    from dovetail import session

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    spark = session("broken", conf={"spark.master": "local[2]", "spark.ui.enabled": False, "spark.log.level": "OFF"})
    for file in FILES:
        with tempfile.TemporaryDirectory() as directory:
            lay_out(Path(directory))
            try:
                said = messages(file, Path(directory), spark)
            except Exception as error:
                said = f"{file.name}: RAISED {type(error).__name__}: {error}"
            file.with_suffix(".txt").write_text(said)
            print(said, end="")
    spark.stop()


if __name__ == "__main__":
    main()
