"""`dovetail calibrate`, and what doctor says of its profile."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.calibrate import __main__ as first_use
from dovetail.calibrate import unit_cost
from dovetail.calibrate.unit_cost import Effort, cpu_model, versions
from dovetail.cli import doctor as checks
from dovetail.cli.main import app
from dovetail.engine.profile import Profile, load_profile
from dovetail.spark import warm

runner = CliRunner()
TINY = Effort(
    repeats=2, rows=1_000, spark_repeats=1, spark_rows=1_000, file_bytes=1 << 20, page_sizes=(4096,), page_reads=2
)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that profiles are kept in during one test."""
    path = tmp_path / "profile.json"
    monkeypatch.setenv("DOVETAIL_PROFILE", str(path))
    return path


def measured(**change: object) -> Profile:
    fresh = Profile(measured_at=datetime.now(UTC).isoformat(), cpu=cpu_model(), versions=versions())
    return replace(fresh, **change)


def test_the_command_measures_and_keeps_a_profile(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_cost, "QUICK", TINY)
    result = runner.invoke(app, ["calibrate", "--quick", "--no-spark"])
    assert result.exit_code == 0
    assert "page_write 4 KiB" in result.stdout
    assert "typical, not measured" in result.stdout
    assert load_profile(profile).probe.samples == TINY.repeats


def test_the_file_and_the_directory_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_cost, "QUICK", TINY)
    arguments = ["--profile", str(tmp_path / "mine.json"), "--directory", str(tmp_path)]
    assert runner.invoke(app, ["calibrate", "--quick", "--no-spark", *arguments]).exit_code == 0
    assert load_profile(tmp_path / "mine.json").measured


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = runner.invoke(app, ["calibrate", "--quick", "--no-spark", "--directory", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "cannot measure pages in" in result.stderr


def test_the_first_use_keeps_a_profile_and_replaces_none(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "FIRST_USE", TINY)
    first_use.main()
    kept = load_profile(profile)
    assert kept.measured
    assert kept.probe.samples == TINY.repeats
    first_use.main()
    assert load_profile(profile) == kept


def test_a_profile_that_cannot_be_kept_at_the_first_use_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DOVETAIL_PROFILE", str(tmp_path / "file" / "profile.json"))
    monkeypatch.setattr(first_use, "FIRST_USE", TINY)
    first_use.main()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("setting", "exists", "starts"), [("", False, 1), ("off", False, 0), ("", True, 0)])
def test_a_session_measures_a_machine_without_a_profile(
    profile: Path, monkeypatch: pytest.MonkeyPatch, setting: str, exists: bool, starts: int
) -> None:
    started: list[str] = []
    monkeypatch.setenv(warm.CALIBRATE, setting)
    monkeypatch.setattr(warm, "beside", lambda module: started.append(module))
    if exists:
        Profile().save()
    warm.calibrate_in_background()
    assert started == ["dovetail.calibrate"] * starts


def test_doctor_without_a_profile(profile: Path) -> None:
    finding = checks.calibration({})
    assert finding.status == "warning"
    assert "dovetail calibrate --quick" in finding.fix


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({}, "ok", "measured today"),
        ({"measured_at": (datetime.now(UTC) - timedelta(days=10)).isoformat()}, "ok", "measured 10 days ago"),
        ({"measured_at": (datetime.now(UTC) - timedelta(days=91)).isoformat()}, "warning", "more than 90 days"),
        ({"cpu": "abacus"}, "warning", "another processor (abacus)"),
        ({"versions": {**versions(), "numba": "0.1"}}, "warning", "Another version of numba"),
    ],
)
def test_doctor_with_a_profile(profile: Path, change: dict[str, object], status: str, text: str) -> None:
    measured(**change).save()
    finding = checks.calibration({})
    assert finding.status == status
    assert text in f"{finding.found} {finding.fix}"


def test_doctor_with_a_damaged_profile(profile: Path) -> None:
    profile.write_text("{")
    finding = checks.calibration({})
    assert finding.status == "broken"
    assert "delete it" in finding.fix
