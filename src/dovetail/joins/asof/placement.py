"""Finds the cell of each row in the tasks that send rows: Spark then converts no column for it.

Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.rows.keys import bound_positions


@dataclass(frozen=True, slots=True)
class ByTime:
    """A row belongs to the cell after the last boundary (hash of the key, position in time) that it reaches.

    `hashed` is the column of the hashes; without keys there is none. Rows that cannot match have their cell in the
    column `given`, others -1; None if there are no such rows.
    """

    hashes: tuple[int, ...]
    positions: tuple[float, ...]
    on: str
    hashed: str | None
    given: str | None

    def cells(self, rows: pa.RecordBatch) -> I64:
        """The cell of each row."""
        found = self._reached(rows)
        if self.given is None:
            return found
        given = np.asarray(rows[self.given], np.int64)
        return int64s(np.where(given < 0, found, given))

    def _reached(self, rows: pa.RecordBatch) -> I64:
        times, cuts = bound_positions(rows[self.on]), np.array(self.positions)
        if self.hashed is None:
            return int64s(np.searchsorted(cuts, times, side="right"))
        hashes, edges = np.asarray(rows[self.hashed], np.int64), np.array(self.hashes, np.int64)
        found = np.searchsorted(edges, hashes, side="right")
        for key in np.unique(edges[cuts > -np.inf]):
            first, last = np.searchsorted(edges, key, side="left"), np.searchsorted(edges, key, side="right")
            own = hashes == key
            found[own] = first + np.searchsorted(cuts[first:last], times[own], side="right")
        return int64s(found)
