"""Java's classes in an archive: made once, used by the next JVM, bounded, and off where the user says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import ConfigError
from dovetail.spark import class_archive, launch
from dovetail.spark.java import Java, find_java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    monkeypatch.delenv("DOVETAIL_CLASS_ARCHIVE", raising=False)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked for in the background, instead of being made."""
    calls: list[str] = []
    monkeypatch.setattr(class_archive, "_make_in_background", lambda: calls.append("made"))
    monkeypatch.setattr(class_archive, "is_prepared", lambda: True)
    return calls


@pytest.mark.parametrize(("version", "option"), [("17.0.15", "-XX:SharedArchiveFile="), ("25.0.2", "-XX:AOTCache=")])
def test_an_archive_that_is_there_is_used(cache: Path, asked: list[str], version: str, option: str) -> None:
    java = Java(Path("/java"), version, "PATH")
    assert class_archive.options(java) == ""
    assert asked == ["made"]
    path = class_archive.archive(java)
    path.parent.mkdir(parents=True)
    path.touch()
    assert class_archive.options(java).startswith(f"{option}{path} -Xlog:")
    assert asked == ["made"]


def test_what_the_user_says_wins(cache: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java(Path("/java"), "17.0.15", "PATH")
    monkeypatch.setenv("DOVETAIL_CLASS_ARCHIVE", "off")
    assert class_archive.options(java) == ""
    monkeypatch.delenv("DOVETAIL_CLASS_ARCHIVE")
    monkeypatch.setenv("DOVETAIL_CACHE", str(cache / "a b"))  # Spark would cut the path in two
    assert class_archive.options(java) == ""
    assert asked == []


def test_kernels_come_first(cache: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "is_prepared", lambda: False)
    assert class_archive.options(Java(Path("/java"), "17.0.15", "PATH")) == ""
    assert asked == []


def test_another_java_or_spark_has_another_archive(cache: Path) -> None:
    one = class_archive.archive(Java(Path("/java"), "17.0.15", "PATH"))
    assert one == class_archive.archive(Java(Path("/java"), "17.0.15", "JAVA_HOME"))
    assert one != class_archive.archive(Java(Path("/java"), "17.0.16", "PATH"))
    assert one != class_archive.archive(Java(Path("/other"), "17.0.15", "PATH"))


def test_a_java_that_cannot_make_one_is_asked_once(
    cache: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_train", lambda option, quiet, folder: None)
    assert class_archive.make() is None
    assert class_archive.options(find_java()) == ""
    assert asked == []


def test_old_archives_go(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_train", lambda option, quiet, folder: Path(option.partition("=")[2]).touch())
    folder = cache / "java"
    folder.mkdir()
    for number in range(4):
        (folder / f"classes-old-{number}.jsa").touch()
    made = class_archive.make()
    left = list(folder.glob("classes-*"))
    assert made in left
    assert len(left) == 2


def test_options_of_the_user_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[dict[str, str]] = []

    def submit(settings: dict[str, str], output: object) -> None:
        started.append(settings)
        raise ConfigError("enough")

    monkeypatch.setattr(launch, "_start_jvm", submit)
    monkeypatch.setattr(launch, "_runs_jvm", lambda: False)
    monkeypatch.setattr(launch, "_ahead", lambda settings: {})
    for given in ({}, {launch.JAVA_OPTIONS: "-Xss4m"}):
        with pytest.raises(ConfigError, match="enough"):
            launch.launch("t", {"spark.master": "local[1]", **given})
    assert started[0][launch.JAVA_OPTIONS] == launch.java_options(find_java())
    assert started[1][launch.JAVA_OPTIONS] == "-Xss4m"


STARTED = """
import sys
from dovetail.spark import class_archive, launch
from dovetail.spark.java import find_java
spark = launch.launch("t", {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.log.level": "OFF"})
assert spark.range(3).count() == 3
shared = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print([a for a in shared if class_archive.archive(find_java()).name in a])
"""


@pytest.mark.slow
def test_a_jvm_starts_from_the_archive_that_another_made(cache: Path) -> None:
    command = [sys.executable, "-m", "dovetail.spark.class_archive"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    made = class_archive.archive(find_java())
    assert told.splitlines()[-1] == str(made)
    assert made.stat().st_size > 10_000_000
    assert not list(made.parent.glob(".classes-*")), "what it was made with goes away"
    shown = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    assert str(made) in shown.stdout
    assert "warning" not in shown.stdout
