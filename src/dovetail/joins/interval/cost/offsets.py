"""Allen relations between rows of known durations, as ranges of the distance between their starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from dovetail.errors import PlanError

Range = tuple[float, float]
_Offsets = Callable[[float, float], Range]

_EMPTY: Final[Range] = (1.0, 0.0)


def _point(at: float, holds: bool) -> Range:
    return (at, at) if holds else _EMPTY


_STRICT: Final[dict[str, _Offsets]] = {
    "contains": lambda r, s: (1, r - s - 1),
    "during": lambda r, s: (r - s + 1, -1),
    "starts": lambda r, s: _point(0, r < s),
    "started_by": lambda r, s: _point(0, r > s),
    "finishes": lambda r, s: _point(r - s, r < s),
    "finished_by": lambda r, s: _point(r - s, r > s),
}

# low <= S.start - R.start <= high, for R of duration r and S of duration s (table 6.2 of the source)
_OFFSETS: Final[dict[str, _Offsets]] = {
    "overlapping": lambda r, s: (1 - s, r - 1),
    "before": lambda r, s: (r + 1, math.inf),
    "after": lambda r, s: (-math.inf, -s - 1),
    "meets": lambda r, s: (r, r),
    "met_by": lambda r, s: (-s, -s),
    "overlaps": lambda r, s: (max(1, r - s + 1), r - 1),
    "overlapped_by": lambda r, s: (1 - s, min(-1, r - s - 1)),
    "covers": lambda r, s: (0, r - s),
    "covered_by": lambda r, s: (r - s, 0),
    "starts": lambda r, s: _point(0, r <= s),
    "started_by": lambda r, s: _point(0, r >= s),
    "ends": lambda r, s: _point(r - s, r <= s),
    "ended_by": lambda r, s: _point(r - s, r >= s),
    "equals": lambda r, s: _point(0, r == s),
    "contains": _STRICT["contains"],
    "during": _STRICT["during"],
    "finishes": _STRICT["finishes"],
    "finished_by": _STRICT["finished_by"],
}

_STRICT_NAMES: Final = {"covers": "contains", "covered_by": "during", "ends": "finishes", "ended_by": "finished_by"}

RELATIONS: Final = tuple(_OFFSETS)


def offset_ranges(relations: Iterable[str], d_r: float, d_s: float, *, strict: bool = False) -> tuple[Range, ...]:
    """Disjoint ranges of S.start - R.start in which at least one relation holds, ascending.

    `strict` reads covers, starts, ends and their inverses as Allen's relations; Allen's own names always are.
    """
    found = sorted(x for x in (_offsets(name, strict)(d_r, d_s) for name in relations) if x[0] <= x[1])
    merged: list[Range] = []
    for low, high in found:
        if merged and low < merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _offsets(name: str, strict: bool) -> _Offsets:
    if name not in _OFFSETS:
        raise PlanError(f"unknown relation {name!r}; the relations are {', '.join(RELATIONS)}.")
    if strict:
        allen = _STRICT_NAMES.get(name, name)
        return _STRICT.get(allen, _OFFSETS[allen])
    return _OFFSETS[name]
