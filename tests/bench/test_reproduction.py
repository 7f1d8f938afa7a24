"""The page of claims that do not hold, and runs that go on where they ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench.__main__ import app
from bench.experiment import Experiment, Findings, Statement
from bench.reproduction import write_claims
from typer.testing import CliRunner

from bench import harness, page

FOUND = Findings(
    (
        Statement("rates grow", "holds"),
        Statement("rates double", "does not hold", "the variance is taken for the mean", "source"),
        Statement("no row waits", "does not hold", "two cores", "scale"),
        Statement("memory is flat", "does not hold"),
        Statement("disks are slow", "not tested here"),
    )
)


def one(source: str = "Naeem 2012", found: Findings | None = FOUND) -> Experiment:
    def run(bench: object) -> Findings:
        if found is None:
            raise ValueError("the disk is full")
        return found

    return Experiment("semistream-x", ("figure 9",), "It grows.", run, source=source, measures=("engine/kernels",))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Any:
    def become(*entries: Experiment) -> None:
        found = {entry.name: entry for entry in entries}
        for place in ("bench.catalogue.load_all", "bench.page.load_all", "bench.reproduction.load_experiments"):
            monkeypatch.setattr(place, lambda: found)

    return become


def test_the_page_lists_what_does_not_hold_by_cause(tmp_path: Path, known: Any) -> None:
    known(one())
    page.keep(harness.run([one()], "small"), tmp_path / "figures")
    text = write_claims(tmp_path / "figures", tmp_path / "docs" / "reproduction.md").read_text()
    assert "| Naeem 2012 | 5 | 1 | 1 | 0 | 1 | 1 | 1 |" in text
    parts = text.split("### ")
    assert [part.partition("\n")[0] for part in parts[1:]] == ["The source's claim", "The scale here", "Unexplained"]
    assert "* figure 9: rates double. The variance is taken for the mean. (`semistream-x`, counted, small" in parts[1]
    assert "rates grow" not in text
    assert "before)" not in text


def test_each_figure_names_the_commit_that_it_was_measured_with(tmp_path: Path, known: Any) -> None:
    known(one())
    page.keep(harness.run([one()], "small"), tmp_path)
    file = tmp_path / "semistream-x.small.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"commit": "0123456789abcdef"}))
    text = write_claims(tmp_path, tmp_path / "reproduction.md").read_text()
    assert ", commit 01234567)" in text
    assert "Figures of several commits stand together" in text
    assert " · commit 01234567 · " in page.write_page(tmp_path, tmp_path)[0].read_text()


def test_claims_of_our_own_are_not_on_it_and_old_figures_are_marked(tmp_path: Path, known: Any) -> None:
    page.keep(harness.run([one()], "small"), tmp_path)
    known(one("our own"))
    assert "semistream-x" not in write_claims(tmp_path, tmp_path / "reproduction.md").read_text()
    known(one())
    file = tmp_path / "semistream-x.small.json"
    kept = json.loads(file.read_text())
    kept["entry"]["code"] = "of another day"
    file.write_text(json.dumps(kept))
    assert ", before)" in write_claims(tmp_path, tmp_path / "reproduction.md").read_text()


def test_fresh_figures_at_small_scale_are_told_before_old_ones_at_full_scale(tmp_path: Path, known: Any) -> None:
    known(one())
    for scale in ("small", "full"):
        page.keep(harness.run([one()], scale), tmp_path)
    assert "counted, full" in write_claims(tmp_path, tmp_path / "reproduction.md").read_text()
    file = tmp_path / "semistream-x.full.json"
    kept = json.loads(file.read_text())
    kept["entry"]["code"] = "of another day"
    file.write_text(json.dumps(kept))
    text = write_claims(tmp_path, tmp_path / "reproduction.md").read_text()
    assert "counted, small" in text
    assert ", before)" not in text


def test_what_was_measured_with_this_code_is_not_run_again(tmp_path: Path, known: Any) -> None:
    known(one())
    asked = ["run", "semistream-x", "--keep", str(tmp_path), "--resume"]
    page.keep(harness.run([one()], "small"), tmp_path)
    again = CliRunner().invoke(app, asked)
    assert "1 of 1 are measured; 0 are left" in again.stderr
    assert again.exit_code == 0
    other = CliRunner().invoke(app, [*asked, "--scale", "full"])
    assert "0 of 1 are measured; 1 are left" in other.stderr


def test_what_failed_is_run_again(tmp_path: Path, known: Any) -> None:
    known(one(found=None))
    asked = ["run", "semistream-x", "--keep", str(tmp_path), "--resume"]
    assert [CliRunner().invoke(app, asked).exit_code for _ in range(2)] == [1, 1]
    assert "0 of 1 are measured; 1 are left" in CliRunner().invoke(app, asked).stderr


def test_resume_needs_a_directory(known: Any) -> None:
    known(one())
    result = CliRunner().invoke(app, ["run", "semistream-x", "--resume"])
    assert result.exit_code == 2
    assert "--resume needs --keep" in result.output
