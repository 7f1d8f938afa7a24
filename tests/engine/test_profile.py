"""The profile: measured figures come back exactly, others are typical ones, and damage is reported."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.engine.profile import Cost, PageCost, Profile, load_profile, profile_path
from dovetail.errors import ConfigError

MEASURED = Profile(
    probe=Cost(1e-7, 0.9e-7, 1.3e-7, 9),
    page_read_random=(PageCost(4096, Cost(1e-4, 1e-4, 2e-4, 5)), PageCost(8192, Cost(2e-4, 1e-4, 3e-4, 5))),
    measured_at="2024-05-01T00:00:00+00:00",
    cpu="test processor",
    versions={"numpy": "2.0"},
)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    assert MEASURED.save(path) == path
    assert load_profile(path) == MEASURED
    assert [entry.name for entry in path.parent.iterdir()] == ["profile.json"]


def test_without_a_file_figures_are_typical_and_say_so(tmp_path: Path) -> None:
    profile = load_profile(tmp_path / "none.json")
    assert profile == Profile()
    assert not profile.measured
    assert profile.age_days() is None
    assert profile.explain() == "profile: typical figures (run `dovetail calibrate` to measure this machine)"
    costs = [getattr(profile, f.name) for f in fields(profile)]
    assert all(cost.samples == 0 for cost in costs if isinstance(cost, Cost))


def test_age_and_line() -> None:
    assert MEASURED.measured
    assert MEASURED.age_days(datetime(2024, 5, 3, 12, tzinfo=UTC)) == 2.5
    assert MEASURED.explain() == "profile: measured 2024-05-01T00:00:00+00:00 on test processor"


def test_pages_between_and_beyond_the_measured_sizes() -> None:
    seconds = [MEASURED.page_read_s(n) for n in (1, 4096, 6144, 8192, 16384)]
    assert seconds == pytest.approx([1e-4, 1e-4, 1.5e-4, 2e-4, 4e-4])
    assert Profile().page_read_s(4096, sequential=True) < Profile().page_read_s(4096)
    assert Profile().page_write_s(1 << 20) == pytest.approx(10e-6 + (1 << 20) / 500e6)


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body.update(format=99),
        lambda body: body.update(gravity=9.81),
        lambda body: body.update(probe={"seconds": -1, "low": 0, "high": 1, "samples": 1}),
        lambda body: body.update(probe={"seconds": 1}),
        lambda body: body.update(measured_at="yesterday"),
        lambda body: body.update(page_write=[]),
        lambda body: body.pop("format"),
    ],
)
def test_a_damaged_file_is_a_config_error(tmp_path: Path, damage: object) -> None:
    path = MEASURED.save(tmp_path / "p.json")
    body = json.loads(path.read_text())
    damage(body)  # type: ignore[operator]  # a callable, from the list above
    path.write_text(json.dumps(body))
    with pytest.raises(ConfigError, match="dovetail calibrate"):
        load_profile(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_text_that_is_no_profile_is_a_config_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(path)


def test_a_failed_save_keeps_the_old_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = MEASURED.save(tmp_path / "p.json")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(ConfigError, match="DOVETAIL_PROFILE"):
        Profile().save(path)
    assert load_profile(path) == MEASURED
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.json"]


def test_the_place_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOVETAIL_PROFILE", str(tmp_path / "mine.json"))
    assert profile_path() == tmp_path / "mine.json"
    MEASURED.save()
    assert load_profile() == MEASURED
    monkeypatch.delenv("DOVETAIL_PROFILE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setattr("sys.platform", "linux")
    assert profile_path() == tmp_path / "settings" / "dovetail" / "profile.json"
