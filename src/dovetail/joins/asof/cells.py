"""Finds the cells of rows in the tasks that send rows: the cell of each row, and cells that need a copy of a right row.

Spark then converts no column for it.
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.sort import stable_order
from dovetail.engine.rows.keys import KeyEncoder, bound_codes, bound_positions
from dovetail.engine.rows.ties import tie_order
from dovetail.joins.asof.operator import AsofJoin

Copies = tuple[I64, I64]
"""Numbers of rows, and of the cells that they are copied to."""
_NONE: Copies = (int64s([]), int64s([]))


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


@dataclass(frozen=True, slots=True)
class Carried:
    """Copies of right rows for cells of their key that may lack the right row before (or after) their left rows.

    A task makes them from the rows that it has at a time: of these the last ones before a cell are enough. A cell gets
    copies from many tasks, and its own task finds the last one among them.

    Rows of the hot keys are copied: `reach` has the first and the last cell of each, by the hash of the key.

    `spec` is the join, `hashed` the column of the hashes; without keys there is none. The last row before a cell is
    copied to it, unless the join looks forward only; the first one after it, unless it looks back only. Of rows at one
    time the one that wins the tie is enough.
    """

    spec: AsofJoin
    columns: tuple[str, ...]
    hashed: str | None
    reach: Mapping[int, tuple[int, int]]

    def copies(self, rows: pa.RecordBatch, cells: I64) -> Copies:
        """Which of these rows are copied, and where to."""
        times = bound_codes(rows[self.spec.on[1]])
        found = [_NONE]
        for chosen, reach in self._hot(rows):
            for ends, targets in self._ends(times, cells, chosen, reach):
                at = self._winner(rows, ends)
                found.append((int64s(np.full(len(targets), at)), int64s(np.array(targets, np.int64))))
        rows_of, targets_of = zip(*found, strict=True)
        return int64s(np.concatenate(rows_of)), int64s(np.concatenate(targets_of))

    def _hot(self, rows: pa.RecordBatch) -> Iterator[tuple[I64, tuple[int, int]]]:
        """The rows of each hot key. Keys of one hash are told apart."""
        if self.hashed is None:
            [reach] = self.reach.values()
            yield int64s(np.arange(rows.num_rows)), reach
            return
        hashes = np.asarray(rows[self.hashed], np.int64)
        for key, reach in self.reach.items():
            chosen = np.flatnonzero(hashes == key)
            columns = [rows[name].take(pa.array(chosen)) for _, name in self.spec.by]
            codes = KeyEncoder([column.type for column in columns]).encode(columns)[0]
            for code in np.unique(codes):
                yield int64s(chosen[codes == code]), reach

    def _ends(self, times: I64, cells: I64, chosen: I64, reach: tuple[int, int]) -> Iterator[tuple[I64, range]]:
        """Rows at the last or first time of their cell, and the cells that lack it."""
        order = chosen[stable_order(int64s(cells[chosen]))]
        present, firsts = np.unique(cells[order], return_index=True)
        edges, when = [*firsts.tolist(), len(order)], times[order]
        for number, cell in enumerate(present.tolist()):
            own, at = (part[edges[number] : edges[number + 1]] for part in (order, when))
            before, after = [reach[0], *present][number], [*present, reach[1]][number + 1]
            if self.spec.direction != "forward":
                yield int64s(own[at == at.max()]), range(cell + 1, int(after) + 1)
            if self.spec.direction != "backward":
                yield int64s(own[at == at.min()]), range(int(before), cell)

    def _winner(self, rows: pa.RecordBatch, tied: I64) -> int:
        """The row that wins the tie, as the index of the cell chooses it."""
        if len(tied) == 1:
            return int(tied[0])
        ranked = tie_order(np.zeros(len(tied), np.int8), rows.select(self.columns), tied, self.spec.tie_order)
        return int(tied[ranked[0 if self.spec.tie == "first" else -1]])
