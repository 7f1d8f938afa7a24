"""Figures kept from one run to the next: one JSON file a case or experiment and scale, newest wins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness import FORMAT, Report
from dovetail.errors import DataError

WHERE = ("machine", "versions", "commit", "java")
"""What a report says of the place where it was measured."""


def keep(report: Report, directory: Path) -> None:
    """Write what the report holds, each entry to a file of its own that appears whole."""
    directory.mkdir(parents=True, exist_ok=True)
    whole = report.to_json()
    where = {key: whole[key] for key in WHERE if key in whole}
    for kind in ("cases", "experiments"):
        for entry in whole[kind]:
            target = directory / f"{entry['name']}.{entry['scale']}.json"
            staged = target.with_suffix(".tmp")
            staged.write_text(json.dumps({"format": FORMAT, "kind": kind, **where, "entry": entry}, indent=1) + "\n")
            staged.replace(target)


def kept(directory: Path) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Figures by name and scale; DataError for a file that holds none."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for path in sorted(directory.glob("*.json")):
        whole = _read(path)
        entry = whole["entry"]
        found.setdefault(entry["name"], {})[entry["scale"]] = whole
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(path.read_text())
        known = whole["format"] == FORMAT and whole["kind"] in ("cases", "experiments") and "entry" in whole
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no kept figures: {error}. Make it with `python -m bench run --keep`.") from error
    if not known:
        raise DataError(f"{path} is of another format than {FORMAT}; run the benchmark again.")
    return dict(whole)
