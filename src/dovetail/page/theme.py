"""Colours and fonts of the page: each colour has one meaning and is legible on white and on near-black."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', sans-serif"


BLUE, ORANGE, GREEN, PURPLE, RED = "#3d85c6", "#e08a2c", "#2f9e78", "#9470c9", "#d6566b"
TEAL, OCHRE, PINK, SLATE, BROWN = "#29a3b5", "#b8992e", "#d673ae", "#7d8ba0", "#a5785a"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, TEAL, OCHRE, PINK, BROWN, SLATE, RED)

KINDS = {"source": "#2f6fb0", "master": "#7a5bb0", "join": "#1c7a5e", "sql": "#5f6b7c", "sink": "#a85a1a"}
"""Fill of a node of the graph; white text on each has a contrast of at least 4.5 to 1."""

LIMIT = RED
COMPONENTS = {
    "cache rows": GREEN,
    "cache keys": TEAL,
    "page cache": GREEN,
    "page cache index": TEAL,
    "stream buffer": ORANGE,
    "arriving rows": ORANGE,
    "waiting rows": PURPLE,
    "waiting slots": PINK,
    "disk buffer": BLUE,
    "disk buffer keys": SLATE,
    "hash table": BLUE,
    "index": TEAL,
    "output": OCHRE,
    "output buffer": OCHRE,
    "answers": OCHRE,
}
PHASES = {"arriving": BLUE, "reactive": OCHRE, "cleanup": PURPLE}


def colours_of(names: Iterable[str], known: dict[str, str]) -> dict[str, str]:
    """A colour for each name: the known one, else one by a hash of the name; distinct while there are enough.

    >>> colours_of(["cache rows", "stream buffer"], COMPONENTS) == {"cache rows": GREEN, "stream buffer": ORANGE}
    True
    """
    wanted = sorted(set(names), key=lambda name: (name not in known, name))
    chosen: dict[str, str] = {}
    for name in wanted:
        first = known.get(name) or PALETTE[zlib.crc32(name.encode()) % len(PALETTE)]
        chosen[name] = _free(first, set(chosen.values()))
    return chosen


def _free(first: str, taken: set[str]) -> str:
    start = PALETTE.index(first)
    ordered = PALETTE[start:] + PALETTE[:start]
    return next((colour for colour in ordered if colour not in taken), first)
