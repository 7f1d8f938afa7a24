"""Claims of several parts: each is judged by itself, and the verdict follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.experiment import Opinion
from dovetail.errors import DataError


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a claim with the figures that were found for it, and whether it holds."""

    says: str
    holds: bool


def verdict_of(holds: Sequence[bool]) -> Opinion:
    """All parts hold, some do, none does; DataError without any: figures that claim nothing are reported."""
    if not holds:
        raise DataError("a verdict needs at least one statement; without any, report the figures.")
    return "holds" if all(holds) else "holds in part" if any(holds) else "does not hold"


def judged(parts: Sequence[Part], note: str = "") -> tuple[Opinion, str]:
    """The verdict on a claim, and every part with its own; `note` is said last.

    >>> judged([Part("twice as fast (found 2.1)", True), Part("at any size", False)])
    ('holds in part', 'twice as fast (found 2.1): holds. at any size: does not hold.')
    """
    said = [f"{part.says}: {'holds' if part.holds else 'does not hold'}." for part in parts]
    return verdict_of([part.holds for part in parts]), " ".join([*said, *([note] if note else [])])
