"""Sockets between the JVM and Python lie in a directory that only the user can enter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from dovetail.spark.daemon import private_sockets
from dovetail.spark.launch import _socket_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING, VARIABLE = "spark.python.unix.domain.socket.dir", "PYTHON_WORKER_FACTORY_SOCK_DIR"


def rights(place: str) -> int:
    return Path(place).stat().st_mode & 0o777


def test_a_local_session_has_a_directory_of_its_own() -> None:
    assert rights(_socket_directory({})[SETTING]) == 0o700
    assert _socket_directory({SETTING: "/mine"}) == {}
    assert _socket_directory({"spark.python.unix.domain.socket.enabled": "false"}) == {}


def test_a_path_that_is_too_long_for_a_socket_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ("x" * 60)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    assert _socket_directory({}) == {}


def test_a_daemon_makes_one_if_others_can_enter_the_one_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        monkeypatch.setenv(VARIABLE, place)
        with private_sockets():
            made = os.environ[VARIABLE]
            assert made != place
            assert rights(made) == 0o700
        assert not Path(made).exists()
        monkeypatch.setenv(VARIABLE, place)
        Path(place).chmod(0o700)
        with private_sockets():
            assert os.environ[VARIABLE] == place
        assert Path(place).is_dir()


def where(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"place": [os.environ[VARIABLE]]})


def test_workers_of_a_session_use_it(spark: SparkSession) -> None:
    place = spark.sparkContext.getConf().get(SETTING)
    assert place is not None
    assert rights(place) == 0o700
    assert {row.place for row in spark.range(2).mapInArrow(where, "place string").collect()} == {place}
    assert any(Path(place).glob(".*.sock"))
