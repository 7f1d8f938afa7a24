"""Resolution of relative URI references, for any scheme (RFC 3986, section 5.2)."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def resolved(reference: str, base: str) -> str:
    """The reference relative to a base; without one that has a path it stays as it is."""
    scheme, place, path, query, fragment = _split(reference)
    over, place_above, path_above, query_above, _ = _split(base)
    if scheme is not None or (over is not None and place_above is None and not path_above.startswith("/")):
        return reference
    if place is None:
        place = place_above
        if not path:
            path, query = path_above, query_above if query is None else query
        elif not path.startswith("/"):
            start = path_above.rpartition("/")[0] + "/" if "/" in path_above else "/" if place_above else ""
            path = start + path
    text = "" if over is None else f"{over}:"
    text += "" if place is None else f"//{place}"
    text += _without_dots(path)
    return text + ("" if query is None else f"?{query}") + ("" if fragment is None else f"#{fragment}")


def _split(text: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    match = _PARTS.fullmatch(text)
    assert match is not None  # noqa: S101  (the pattern matches every text)
    return match[1], match[2], match[3], match[4], match[5]


def _without_dots(path: str) -> str:
    """The path without the steps `.` and `..`."""
    steps = path.split("/")
    kept: list[str] = []
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        if step == "..":
            if kept and kept != [""] and kept[-1] != "..":
                kept.pop()
            elif not path.startswith("/"):
                kept.append("..")
            kept += [""] if last else []
        elif step != ".":
            kept.append(step)
        elif last:
            kept.append("")
    return "/".join(kept)
