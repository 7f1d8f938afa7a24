"""Pictures of benchmark figures: one SVG a case, a group of bars for each point, drawn from the JSON of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dovetail.calibrate.unit_cost import seconds
from dovetail.errors import DataError

FORMAT = 1
WIDTH, LABEL, BAR, GAP = 860, 230, 20, 26
OURS, OTHERS, INK, FAINT = "#1f77b4", "#9aa5b1", "#24292f", "#6e7781"


def draw_file(figures: Path, directory: Path) -> list[Path]:
    """A picture for every case of a figures file, written to the directory; their paths."""
    try:
        found = json.loads(figures.read_text())
        cases = found["cases"] if found["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{figures} holds no benchmark figures: {error}. Make it with `bench run --json`.") from error
    if cases is None:
        raise DataError(f"{figures} is of format {found['format']}, this version draws {FORMAT}; run the case again.")
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for case in cases:
        path = directory / f"{case['name']}.svg"
        path.write_text(draw_case(case, found["machine"]))
        paths.append(path)
    return paths


def draw_case(case: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """The SVG of one case: warm seconds of each rival, median as a bar, smallest to largest as a line."""
    parts, top = [_text(16, 28, case["question"], size=16, bold=True)], 48
    for point in case["points"]:
        rivals = [rival for rival in point["rivals"] if rival["status"] == "ok" and rival["warm_s"]]
        if rivals:
            drawn, top = _point(point["params"], rivals, case["baseline"], top)
            parts += drawn
    note = f"Warm runs, median and range, on {machine['usable_cores']} cores ({machine['cpu']}); ratio to ours."
    parts.append(_text(16, top + 12, note, fill=FAINT))
    height = top + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _point(
    params: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], baseline: str, top: int
) -> tuple[list[str], int]:
    title = ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{value}" for name, value in params.items())
    parts = [_text(16, top + 14, title, fill=FAINT)]
    top += 24
    longest = max(rival["warm_s"]["high"] for rival in rivals)
    per_second = (WIDTH - LABEL - 150) / longest
    for rival in rivals:
        warm, color = rival["warm_s"], OURS if rival["name"] == baseline else OTHERS
        x = LABEL + warm["median"] * per_second
        middle = top + BAR / 2
        low, high = (LABEL + warm[end] * per_second for end in ("low", "high"))
        ratio = f"  ({rival['warm_ratio']['median']:.3g} x)" if rival.get("warm_ratio") else ""
        parts += [
            _text(LABEL - 10, middle + 5, rival["name"], anchor="end"),
            f'<rect x="{LABEL}" y="{top}" width="{max(1.0, x - LABEL):.1f}" height="{BAR}" fill="{color}"/>',
            f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="{INK}"/>',
            _text(max(x, high) + 8, middle + 5, seconds(warm["median"]) + ratio),
        ]
        top += GAP
    return parts, top + 12


def _text(
    x: float, y: float, text: str, size: int = 13, fill: str = INK, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    where = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}'
    return f"<text {where}>{escape(text)}</text>"
