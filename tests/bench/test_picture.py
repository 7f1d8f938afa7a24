"""Benchmark figures as pictures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.__main__ import app
from bench.chart import case_chart, draw, draw_file
from bench.experiment import Chart
from typer.testing import CliRunner

from dovetail.errors import DataError


def spread(median: float, low: float, high: float) -> dict[str, float]:
    return {"median": median, "low": low, "high": high, "n": 3}


def rival(name: str, median: float, status: str = "ok") -> dict[str, object]:
    warm = spread(median, median / 2, median * 2) if status == "ok" else None
    return {"name": name, "status": status, "warm_s": warm, "warm_ratio": spread(median, median, median)}


def figures(place: Path, **changes: object) -> Path:
    point = {"params": {"rows": 1000, "output": "a < b"}, "rivals": [rival("ours", 1.0), rival("theirs", 3.0)]}
    point["rivals"].append(rival("absent", 9.0, "unavailable"))  # type: ignore[attr-defined]  # the list above
    case = {"name": "race", "question": "Which & why?", "baseline": "ours", "points": [point]}
    whole = {"format": 2, "machine": {"cpu": "some", "usable_cores": 2}, "cases": [case], "experiments": []} | changes
    file = place / "figures.json"
    file.write_text(json.dumps(whole))
    return file


def test_bars_are_the_medians_with_their_range_and_text_is_text(tmp_path: Path) -> None:
    (path,) = draw_file(figures(tmp_path), tmp_path / "pictures")
    assert path.name == "race.svg"
    texts = [e.text for e in ElementTree.fromstring(path.read_text()).iter() if e.tag.endswith("text")]  # noqa: S314  (ours)
    assert "Which & why?" in texts
    assert "rows=1,000, output=a < b" in texts
    assert "absent" not in texts
    chart = case_chart(json.loads(figures(tmp_path).read_text())["cases"][0])
    point = "rows=1,000, output=a < b"
    assert chart.lines == {"ours": [(point, 1.0, 0.5, 2.0)], "theirs": [(point, 3.0, 1.5, 6.0)]}


def test_charts_of_experiments_are_drawn_too(tmp_path: Path) -> None:
    chart = {"title": "t", "x": "x", "y": "y", "lines": {"a": [[1, 2]]}}
    found = [{"name": "scale-x", "findings": {"charts": [chart, chart]}}, {"name": "scale-y", "findings": None}]
    paths = draw_file(figures(tmp_path, cases=[], experiments=found), tmp_path)
    assert [path.name for path in paths] == ["scale-x-1.svg", "scale-x-2.svg"]
    assert paths[0].read_text() == draw(Chart(**chart))


def test_the_command_names_what_it_drew(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["plot", str(figures(tmp_path)), "--to", str(tmp_path / "p")])
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "p" / "race.svg")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}'])
def test_what_is_no_figures_file_is_said(tmp_path: Path, content: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(DataError, match="holds no benchmark figures"):
        draw_file(file, tmp_path)
    with pytest.raises(DataError, match="is of format 7"):
        draw_file(figures(tmp_path, format=7), tmp_path)
