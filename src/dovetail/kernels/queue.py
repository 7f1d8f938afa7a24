"""A doubly linked queue of int64 values with deletion anywhere and access by position."""

from __future__ import annotations

import numpy as np

from dovetail.kernels import queue_links as links
from dovetail.kernels.arrays import I64, Bool, enlarged, grown_capacity, int64s
from dovetail.kernels.compile import register_warmup


class LinkedQueue:
    """Values in order of arrival, each in a slot that names it until it leaves; later arrivals reuse slots.

    With n elements: append, deletion by slot and pop cost at most log2(n / 32) counter updates; access by position and
    the position of a slot cost as many look-ups and a walk of at most 64 places; each further element of a window costs
    one step. At most 2**30 - 64 elements.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._initial = max(1, capacity)
        self.clear()

    def clear(self) -> None:
        """Forget every element and give back all memory beyond the initial capacity."""
        self._links = links.empty_links(self._initial, _tickets(self._initial))

    def __len__(self) -> int:
        return int(self._links.meta[links.LIVE])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays held, used or not."""
        return sum(array.nbytes for array in self._links)

    def nbytes_after(self, n_rows: int) -> int:
        """The most that `nbytes` can be after `n_rows` more arrivals.

        While it grows, one old array is held besides for a moment.
        """
        capacity = len(self._links.values)
        rows = grown_capacity(capacity, len(self) + n_rows, limit=links.MAX_ELEMENTS)
        tickets = max(len(self._links.order), _tickets(rows))
        return rows * links.SLOT_BYTES + 4 * tickets + 4 * (tickets // links.BLOCK + 1) + self._links.meta.nbytes

    def append(self, values: I64) -> I64:
        """The slots of the values, which are now the newest, in their order."""
        values = int64s(values)
        self._make_room(len(values))
        slots = np.empty(len(values), np.int64)
        links.append(self._links, values, slots)
        return slots

    def _make_room(self, n_rows: int) -> None:
        have = len(self._links.tickets)
        rows = grown_capacity(have, len(self) + n_rows, limit=links.MAX_ELEMENTS)
        if rows > have:  # `tickets` grows last, so that running out of memory half-way leaves the old capacity in force
            for name in ("values", "after", "before", "tickets"):
                self._links = self._links._replace(**{name: enlarged(getattr(self._links, name), rows)})
        if int(self._links.meta[links.TICKET]) + n_rows > len(self._links.order):
            self._renumber(_tickets(rows))

    def _renumber(self, tickets: int) -> None:
        if tickets > len(self._links.order):
            fresh = links.empty_links(0, tickets)
            self._links = self._links._replace(order=fresh.order, tree=fresh.tree)
        links.renumber(self._links)

    def pop_front(self, n: int) -> tuple[I64, I64]:
        """Slots and values of the `n` oldest elements, or of all if there are fewer; they have left."""
        taken = max(0, min(n, len(self)))
        slots, values = np.empty(taken, np.int64), np.empty(taken, np.int64)
        links.pop_front(self._links, slots, values)
        return slots, values

    def delete(self, slots: I64) -> Bool:
        """For each slot whether it held an element, which has now left."""
        slots = self._checked(slots)
        gone = np.empty(len(slots), np.bool_)
        links.delete(self._links, slots, gone)
        return gone

    def at(self, positions: I64) -> I64:
        """For each position its slot; 0 is the oldest, len - 1 the newest."""
        positions = int64s(positions)
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            raise IndexError(f"positions from {positions.min()} to {positions.max()}; the queue holds {len(self)}")
        out = np.empty(len(positions), np.int64)
        links.slots_at(self._links, positions, out)
        return out

    def position_of(self, slots: I64) -> I64:
        """For each slot the number of elements before it, or -1 where it holds none."""
        slots = self._checked(slots)
        out = np.empty(len(slots), np.int64)
        links.positions_of(self._links, slots, out)
        return out

    def window(self, position: int, n: int) -> I64:
        """The slots of at most `n` elements from `position` on, in order; empty beyond the end."""
        taken = max(0, min(n, len(self) - position))
        out = np.empty(taken, np.int64)
        if taken:
            links.walk(self._links, int(self.at(np.array([position]))[0]), out)
        return out

    def slots(self) -> I64:
        """The slots of all elements, oldest first."""
        return self.window(0, len(self))

    def values(self) -> I64:
        """All values, oldest first."""
        return self._links.values[self.slots()]

    def values_of(self, slots: I64) -> I64:
        """The values of elements that are there; a slot that was left gives what it last held."""
        return self._links.values[self._checked(slots)]

    def _checked(self, slots: I64) -> I64:
        slots = int64s(slots)
        if len(slots) and not 0 <= slots.min() <= slots.max() < len(self._links.values):
            raise IndexError(f"slots from {slots.min()} to {slots.max()}; there are {len(self._links.values)}")
        return slots


def _tickets(capacity: int) -> int:
    """Twice the capacity, so that renumbering n elements happens once in n arrivals at most; whole blocks."""
    return (2 * capacity + links.BLOCK) // links.BLOCK * links.BLOCK


@register_warmup
def _warm() -> None:
    queue = LinkedQueue(1)
    slots = queue.append(np.arange(200, dtype=np.int64))
    queue.delete(slots[:3])
    queue.position_of(slots)
    queue.pop_front(2)
    queue.slots()
    queue.append(np.arange(400, dtype=np.int64))
