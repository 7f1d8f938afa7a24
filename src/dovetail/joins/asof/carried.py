"""Copies of right rows for cells of their key that have left rows but may lack the right row before (or after) them.

Tasks that send right rows make them, each from the rows that it has at a time: of these the last ones before a cell
are enough. A cell gets copies from many tasks, and its own task finds the last one among them.
Reference: docs/algorithms/asof.md, 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.rows.keys import KeyEncoder, bound_codes

Copies = tuple[I64, I64]
"""Numbers of rows, and of the cells that they are copied to."""
_NONE: Copies = (int64s([]), int64s([]))


@dataclass(frozen=True, slots=True)
class Carried:
    """Rows of the hot keys are copied: `reach` has the first and the last cell of each, by the hash of the key.

    `on` is the column of times, `hashed` that of the hashes. `later`: the last rows before a cell are copied to it;
    `earlier`: the first ones after it.
    """

    on: str
    keys: tuple[str, ...]
    hashed: str
    reach: Mapping[int, tuple[int, int]]
    later: bool
    earlier: bool

    def copies(self, rows: pa.RecordBatch, cells: I64) -> Copies:
        """Which of these rows are copied, and where to."""
        times = bound_codes(rows[self.on])
        found = [copies for chosen, reach in self._hot(rows) for copies in self._ends(times, cells, chosen, reach)]
        rows_of, targets = zip(*(found or [_NONE]), strict=True)
        return int64s(np.concatenate(rows_of)), int64s(np.concatenate(targets))

    def _hot(self, rows: pa.RecordBatch) -> Iterator[tuple[I64, tuple[int, int]]]:
        """The rows of each hot key. Keys of one hash are told apart."""
        hashes = np.asarray(rows[self.hashed], np.int64)
        for key, reach in self.reach.items():
            chosen = np.flatnonzero(hashes == key)
            columns = [rows[name].take(pa.array(chosen)) for name in self.keys]
            codes = KeyEncoder([column.type for column in columns]).encode(columns)[0] if columns else hashes[chosen]
            for code in np.unique(codes):
                yield int64s(chosen[codes == code]), reach

    def _ends(self, times: I64, cells: I64, chosen: I64, reach: tuple[int, int]) -> Iterator[Copies]:
        here, when = cells[chosen], times[chosen]
        present = np.unique(here)
        if self.later:
            for cell, following in zip(present.tolist(), [*present[1:].tolist(), reach[1]], strict=True):
                own = here == cell
                yield _product(chosen[own & (when == when[own].max())], range(cell + 1, following + 1))
        if self.earlier:
            for cell, preceding in zip(present.tolist(), [reach[0], *present[:-1].tolist()], strict=True):
                own = here == cell
                yield _product(chosen[own & (when == when[own].min())], range(preceding, cell))


def _product(rows: I64, targets: range) -> Copies:
    """Every row with every target."""
    return int64s(np.repeat(rows, len(targets))), int64s(np.tile(np.array(targets, np.int64), len(rows)))
