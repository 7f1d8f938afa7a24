"""Stores the columns of rows in memory: Arrow pages, with rows named by page and place; dead rows are removed.

Also orders rows by their values alone: a micro-batch that Spark repeats has the same rows, but possibly in another
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.memory import Reservation
from dovetail.engine.rows.columns import (
    compact,
    compact_bytes,
    held_bytes,
    nbytes,
    row_bytes,
)
from dovetail.engine.rows.hashes import row_hashes
from dovetail.engine.rows.named_rows import SHIFT, NamedRows, Picks, as_picked, picked, refs_of

DEAD = -1


@dataclass(slots=True)
class Page:
    """Rows added or moved together, the slot of each (DEAD once it left), and the number of live rows."""

    batch: pa.RecordBatch
    slots: I32
    alive: int
    held: int


class RowPages:
    """The rows of one side that are in memory. Memory stays within an eighth of the live rows' bytes, plus a page.

    `refs` is an operator's array of row names by slot, updated whenever rows move.
    """

    def __init__(self, schema: pa.Schema, reservation: Reservation, refs: I64, page_bytes: int) -> None:
        self.schema, self.reservation = schema, reservation
        self._refs, self._page_bytes = refs, page_bytes
        self._pages: dict[int, Page] = {}
        self._next = 0

    @property
    def held(self) -> int:
        """Bytes of all pages."""
        return self.reservation.used

    def add(self, batch: pa.RecordBatch, slots: I32) -> int:
        """The name of the batch's first row; the others follow. `BudgetExceeded` if there is no room.

        `slots` is kept and may be filled until `settle`; no other row moves before that.
        """
        bound = compact_bytes(batch)
        self.reservation.grow(bound)
        kept = compact(batch)
        size = min(held_bytes(kept), bound)
        self.reservation.shrink(bound - size)
        return self._keep(kept, slots, 0, size) << SHIFT

    def _keep(self, batch: pa.RecordBatch, slots: I32, alive: int, size: int) -> int:
        number = self._next
        self._next += 1
        self._pages[number] = Page(batch, slots, alive, size)
        return number

    def settle(self, first_ref: int) -> None:
        """End the arrival of the page with this first row; rows without a slot are dead."""
        page = self._pages[first_ref >> SHIFT]
        page.alive = int(np.count_nonzero(page.slots >= 0))
        self.tidy()

    def forget(self, refs: I64) -> None:
        """Mark these rows as dead; their columns stay until `tidy`."""
        for number, _, places in Picks.of(refs).groups:
            page = self._pages[number]
            page.slots[places] = DEAD
            page.alive -= len(places)

    def tidy(self) -> None:
        """Drop empty pages, merge small ones, and compact those with more than an eighth of dead rows."""
        for number in [n for n, page in self._pages.items() if page.alive == 0]:
            self._drop(number)
        self._merge_small()
        self.squeeze(7 / 8)

    def squeeze(self, wanted: float) -> bool:
        """Compact pages, fullest last, until live rows fill at least this share of memory; whether bytes were freed."""
        before = self.held
        while (worst := self._worst(wanted)) is not None:
            if not self._merge([worst]):
                break
        return self.held < before

    def _worst(self, wanted: float) -> int | None:
        held = sum(page.held for page in self._pages.values())
        alive = sum(page.held * page.alive / len(page.slots) for page in self._pages.values() if len(page.slots))
        if not self._pages or alive >= wanted * held:
            return None
        number, page = min(self._pages.items(), key=lambda item: item[1].alive / max(1, len(item[1].slots)))
        return number if page.alive < len(page.slots) else None

    def _merge_small(self) -> None:
        """Merge pages of similar size, so that there are few and each row is moved only a few times."""
        while len(self._pages) > 1:
            last, before = (list(self._pages)[at] for at in (-1, -2))
            small, large = self._pages[last].held, self._pages[before].held
            if large > 2 * small or small + large > self._page_bytes:
                return
            if not self._merge([before, last]):
                return

    def _merge(self, numbers: list[int]) -> bool:
        """Copy the live rows of these pages to a new page; False if there is no room to copy."""
        pages = [self._pages[n] for n in numbers]
        bound = sum(page.held for page in pages)
        if not self.reservation.try_grow(bound):
            return False
        slots = np.concatenate([page.slots[page.slots != DEAD] for page in pages])
        batch = pa.concat_batches([_alive(page) for page in pages])
        size = min(held_bytes(batch), bound)
        for number in numbers:
            self._drop(number)
        self.reservation.shrink(bound - size)
        number = self._keep(batch, slots, len(slots), size)
        self._refs[slots] = refs_of(number, np.arange(len(slots)))
        return True

    def _drop(self, number: int) -> None:
        self.reservation.shrink(self._pages.pop(number).held)

    def page(self, number: int) -> pa.RecordBatch:
        """The rows of one page, dead ones too."""
        return self._pages[number].batch

    def batches(self) -> dict[int, pa.RecordBatch]:
        """All pages, by the number in row names."""
        return {number: page.batch for number, page in self._pages.items()}

    def slots(self) -> I32:
        """The slots of all rows alive."""
        parts = [page.slots[page.slots != DEAD] for page in self._pages.values()]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def rows(self) -> NamedRows:
        """All rows by name, while none of them moves."""
        return NamedRows(self.batches(), self.schema)

    def gather(self, refs: I64) -> pa.RecordBatch:
        """The rows of these names, each once, in this order."""
        return self.rows().take(Picks.of(refs), as_picked)

    def close(self) -> None:
        """Drop every page."""
        self._pages.clear()
        self.reservation.close()


def mean_row_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the columns of an average row, rounded up."""
    return -(-nbytes(batch) // batch.num_rows) if batch.num_rows else 0


def _alive(page: Page) -> pa.RecordBatch:
    if page.alive == len(page.slots):
        return page.batch
    return picked(page.batch, np.flatnonzero(page.slots != DEAD))


def in_fixed_order(batches: Sequence[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in an order and in batches that depend on the rows alone.

    Rows with equal hashes are equal, except in one case of 2^64: then they stay in input order.
    """
    hashes = np.concatenate([row_hashes(batch) for batch in batches])
    names = np.concatenate([refs_of(at, np.arange(batch.num_rows)) for at, batch in enumerate(batches)])
    size = sum(int(row_bytes(batch).sum()) for batch in batches)
    step = max(1, min(most_rows, most_bytes * len(names) // max(1, size)))
    names = names[np.argsort(hashes, kind="stable")]
    rows = NamedRows(dict(enumerate(batches)), batches[0].schema)
    for at in range(0, len(names), step):
        yield rows.take(Picks.of(names[at : at + step]), as_picked)
