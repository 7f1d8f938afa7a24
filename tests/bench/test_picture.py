"""Benchmark figures as pictures."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.__main__ import app
from bench.picture import LABEL, draw_file
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
    case = {"name": "race", "question": "Who & why?", "baseline": "ours", "points": [point]}
    whole = {"format": 1, "machine": {"cpu": "some", "usable_cores": 2}, "cases": [case]} | changes
    file = place / "figures.json"
    file.write_text(json.dumps(whole))
    return file


def test_bars_are_as_long_as_the_times_and_text_is_text(tmp_path: Path) -> None:
    (path,) = draw_file(figures(tmp_path), tmp_path / "pictures")
    assert path.name == "race.svg"
    tree = ElementTree.fromstring(path.read_text())  # noqa: S314  (of our own making)
    bars = [float(e.get("width", "0")) for e in tree if e.tag.endswith("rect") and e.get("x") == str(LABEL)]
    assert len(bars) == 2
    assert bars[1] == pytest.approx(3 * bars[0], rel=0.01)
    texts = [e.text for e in tree if e.tag.endswith("text")]
    assert "Who & why?" in texts
    assert "rows 1,000, a < b" in texts
    assert "absent" not in texts


def test_the_command_names_what_it_drew(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["plot", str(figures(tmp_path)), "--to", str(tmp_path / "p")])
    assert result.exit_code == 0
    assert result.stdout.strip() == str(tmp_path / "p" / "race.svg")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1}'])
def test_what_is_no_figures_file_is_said(tmp_path: Path, content: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(DataError, match="holds no benchmark figures"):
        draw_file(file, tmp_path)
    with pytest.raises(DataError, match="is of format 7"):
        draw_file(figures(tmp_path, format=7), tmp_path)
