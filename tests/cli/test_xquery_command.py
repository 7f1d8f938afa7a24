"""`dovetail xquery`: answers, files, plans, times, and errors in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dovetail.cli.main import app

runner = CliRunner()
QUERY = 'for $v in collection("c")/r/v where xs:integer($v) gt 1 return $v'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    home = tmp_path / "files"
    home.mkdir()
    (home / "a.xml").write_text("<r><v>1</v><v>2</v></r>")
    (home / "b.xml").write_text("<r><v>3</v></r>")
    return home


@pytest.mark.usefixtures("spark")
def test_answers(files: Path, tmp_path: Path) -> None:
    place = f"c={files}"
    assert runner.invoke(app, ["xquery", QUERY, "--collection", place]).output == "<v>2</v>\n<v>3</v>\n"
    query, target = tmp_path / "q.xq", tmp_path / "answer.json"
    query.write_text(QUERY)
    done = runner.invoke(app, ["xquery", str(query), "--collection", place, "--output", "json", "--to", str(target)])
    assert done.exit_code == 0
    assert [json.loads(line) for line in target.read_text().splitlines()] == ["<v>2</v>", "<v>3</v>"]


@pytest.mark.usefixtures("spark")
def test_plans_and_times(files: Path) -> None:
    place = f"c={files}"
    shown = runner.invoke(app, ["xquery", QUERY, "--collection", place, "--explain"]).output
    assert "DATASCAN" in shown
    assert "MapInArrow" in shown
    timed = runner.invoke(app, ["xquery", "1 to 3", "--time"]).output
    assert "mean of the last 3 of 5 runs" in timed
    assert "3 items" in timed


@pytest.mark.usefixtures("spark")
def test_errors_are_one_line(files: Path) -> None:
    place = f"c={files}"
    (files / "b.xml").write_text("<r>")
    bad = runner.invoke(app, ["xquery", QUERY, "--collection", place])
    assert bad.exit_code == 2
    assert "b.xml, line 1" in bad.output
    assert "Traceback" not in bad.output
    skipped = runner.invoke(app, ["xquery", QUERY, "--collection", place, "--skip-malformed"])
    assert "<v>2</v>" in skipped.output
    assert "1 malformed file(s) skipped" in skipped.output
    wrong = runner.invoke(app, ["xquery", "for $x", "--collection", place])
    assert wrong.exit_code == 2
    assert "XPST0003" in wrong.output
    cast = runner.invoke(app, ["xquery", 'xs:integer("a")'])
    assert cast.exit_code == 2
    assert "[FORG0001]" in cast.output
    for arguments in (["--collection", "c"], ["--output", "parquet"]):
        assert runner.invoke(app, ["xquery", "1", *arguments]).exit_code == 2
