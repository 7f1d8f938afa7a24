"""Counts the most frequent of many items in a bounded number of counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # metrics are read where no kernels are loaded
    from dovetail.engine.kernels.arrays import I64

CAPACITY = 64


@dataclass(slots=True)
class FrequentItems:
    """Counters of at most 64 items, and the total of all.

    An item's counter is never above its true count, and below it by at most a 65th of the total. So every item with a
    larger share is among them. Sums of such counters keep this bound, in any order.

    Reference: Misra and Gries 1982; Agarwal et al. 2012 for sums. docs/algorithms/online.md, 7.7.

    >>> items = FrequentItems()
    >>> items.add({"a": 3, "b": 1}, 5)
    >>> items.share("a")
    0.6
    """

    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, counts: Mapping[str, int], total: int) -> None:
        """Add counts of some of `total` items: all of them, or those that `above_the_rest` leaves."""
        self.total += total
        for item, n in counts.items():
            self.counts[item] = self.counts.get(item, 0) + n
        if len(self.counts) > CAPACITY:
            left = above_the_rest(np.fromiter(self.counts.values(), np.int64, len(self.counts))).tolist()
            self.counts = {item: n for item, n in zip(self.counts, left, strict=True) if n > 0}

    def merge(self, other: FrequentItems) -> None:
        """Add all that `other` counted."""
        self.add(other.counts, other.total)

    def share(self, item: str) -> float:
        """The part of all items that an item is, at least."""
        return self.counts.get(item, 0) / self.total if self.total else 0.0

    def __str__(self) -> str:
        """The first three, with their shares."""
        first = sorted(self.counts, key=lambda item: -self.counts[item])[:3]
        return ", ".join(f"{item} {self.share(item):.1%}" for item in first)


def above_the_rest(counts: I64) -> I64:
    """Counts less the 65th largest one: at most 64 are above 0."""
    return counts if len(counts) <= CAPACITY else counts - np.partition(counts, -CAPACITY - 1)[-CAPACITY - 1]
