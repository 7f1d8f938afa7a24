"""Paths that executors do not share are refused; on one machine all is shared. `tests/cluster` has other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dovetail.errors import ConfigError
from dovetail.spark import places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = pa.RecordBatch.from_pydict({"id": [1]})


def test_a_task_sees_a_file_of_the_same_size_or_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_TRY_S", 0.0)
    file = tmp_path / "file"
    file.write_text("123")

    def sees(token: Path, size: int | None) -> bool:
        (found,) = places._look(str(token), size, iter([BATCH]))
        return bool(found["sees"][0].as_py())

    assert sees(file, 3)
    assert sees(tmp_path, None)
    assert not sees(file, 4)
    assert not sees(tmp_path / "none", None)


def test_with_a_local_master_nothing_is_checked_or_made(spark: SparkSession, tmp_path: Path) -> None:
    places.require_shared_directory(spark, tmp_path / "new", "it")
    assert not (tmp_path / "new").exists()


def test_what_all_executors_see_is_accepted_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "local_cores", lambda master: None)
    asked: list[Path] = []
    look = places._hosts_without
    monkeypatch.setattr(places, "_hosts_without", lambda spark, token: (asked.append(token), look(spark, token))[1])
    for _ in range(2):
        places.require_shared_directory(spark, f"file://{tmp_path}/new", "it")
        places.require_seen(spark, tmp_path)
    assert len(asked) == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "new"]  # no token is left
    places.require_shared_directory(spark, "s3a://bucket/new", "it")
    places.require_seen(spark, tmp_path / "none")  # an error of its own, later
    assert len(asked) == 2


def test_what_some_do_not_see_is_refused(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "local_cores", lambda master: None)
    monkeypatch.setattr(places, "_hosts_without", lambda spark, token: ["worker1"])
    refused = f"{tmp_path} is not one place for all hosts .*: worker1 does not see"
    with pytest.raises(ConfigError, match=f"it: {refused}"):
        places.require_shared_directory(spark, tmp_path, "it")
    with pytest.raises(ConfigError, match=f"the master data: {refused}"):
        places.require_seen(spark, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="it: cannot write to"):
        places.require_shared_directory(spark, tmp_path / "file" / "below", "it")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
