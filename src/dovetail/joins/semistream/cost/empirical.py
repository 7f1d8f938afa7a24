"""How wanted the rows of master data are, from a sample of the stream's keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.segments import Segments, grouped, in_frequency_order, shuffled


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Keys as often as a sample had them; what the sample never saw is spread evenly over the other rows.

    The share left to unseen rows is the share of keys that the sample had once (Good and Turing), taken from all seen
    keys alike, so that those seen often keep theirs. `wanted` are the shares of the seen keys, most wanted first.
    With `places`, the row number of each of them, segments are those of the real layout; without, rows that are not in
    order of frequency are taken as shuffled.
    """

    rows: int
    wanted: F64
    places: I64 | None = None

    def __post_init__(self) -> None:
        if self.rows < max(1, self.wanted.size):
            raise PlanError(f"{self.wanted.size} keys were seen in master data of {self.rows} rows; give all its rows.")
        if self.wanted.size and (self.wanted.min() < 0 or self.wanted.sum() > 1 + 1e-9):
            raise PlanError("the shares of seen keys must not be negative, nor add to more than 1.")
        if self.places is not None and self.places.shape != self.wanted.shape:
            raise PlanError(f"{self.places.size} places were given for {self.wanted.size} keys; give one for each.")

    @classmethod
    def of_sample(cls, keys: I64, rows: int, places: I64 | None = None) -> Empirical:
        """The distribution behind a sample of stream keys; `places` are the row numbers of their master rows.

        Keys are codes: equal codes are equal keys. Keys that master data has not should be left out.
        """
        if keys.size == 0:
            return cls(rows, np.zeros(0))
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        discount = np.count_nonzero(counts == 1) / counts.size if counts.size < rows else 0.0
        seen = (counts[order] - discount) / keys.size
        return cls(rows, seen, None if places is None else places[first][order])

    @property
    def unseen(self) -> float:
        """The share of the stream that asks for rows which the sample did not see."""
        return max(0.0, 1.0 - float(self.wanted.sum()))

    def share(self, ranks: F64) -> F64:
        """The share of the stream that asks for the first so many ranks; unseen rows are the last ones."""
        curve = np.concatenate([[0.0], np.cumsum(self.wanted)])
        inside = np.clip(np.asarray(ranks, np.float64), 0.0, float(self.rows))
        seen: F64 = np.interp(inside, np.arange(curve.size, dtype=np.float64), curve)
        others = self.rows - self.wanted.size
        if not others:
            return seen / (curve[-1] or 1.0)
        rest: F64 = self.unseen * np.maximum(0.0, inside - self.wanted.size) / others
        return seen + rest

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Segments:
        """The p_i of segments, of the real layout where it is known and not in order of frequency."""
        cached = min(cached, self.rows)
        if ordered:
            return in_frequency_order(self.share, self.rows, segment_rows, cached, bend=self.wanted.size)
        if self.places is None:
            return shuffled(self.share, self.rows, segment_rows, cached)
        n = -(-self.rows // segment_rows)
        seen = np.bincount(self.places[cached:] // segment_rows, self.wanted[cached:], n)
        return grouped(seen.astype(np.float64) + self.unseen / n)
