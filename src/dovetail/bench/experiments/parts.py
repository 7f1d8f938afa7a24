"""Claims of several parts: each is judged by itself, and the verdict follows from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.bench.experiment import Opinion


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a claim with the figures that were found for it, and whether it holds."""

    says: str
    holds: bool


def judged(parts: Sequence[Part], note: str = "") -> tuple[Opinion, str]:
    """The verdict on a claim, and every part with its own; `note` is said last.

    >>> judged([Part("twice as fast (found 2.1)", True), Part("at any size", False)])
    ('holds in part', 'twice as fast (found 2.1): holds. at any size: does not hold.')
    """
    held = sum(part.holds for part in parts)
    verdict: Opinion = "holds" if held == len(parts) else "holds in part" if held else "does not hold"
    said = [f"{part.says}: {'holds' if part.holds else 'does not hold'}." for part in parts]
    return verdict, " ".join([*said, *([note] if note else [])])
