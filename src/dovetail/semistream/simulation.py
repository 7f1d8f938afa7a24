"""Master data that is only keys, on a device that only counts: joins run for real, and their reads have a price."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dovetail.engine.clock import VirtualClock
from dovetail.engine.device import Device, DeviceModel
from dovetail.kernels.arrays import I64, int64s
from dovetail.semistream.master.pages import Order

SOURCE_DISK = DeviceModel("source disk", seek_s=0.004, bytes_per_s=1e9 / 99)
"""Seek 4 ms, 0.099 us a byte: the device that fits what the sources print about theirs (specs/semistream.md, 3.0)."""


class SimulatedPages:
    """Keys 0 to n - 1, one row each, in pages of `page_rows`, where every row counts as `row_bytes` bytes.

    `order`: by key; "frequency", which is the same where key is rank; or "none", in which position is a shuffle of the
    keys by `seed`. Pages are memory, reads are charged to a device whose clock stands still otherwise.
    """

    key = ("key",)
    schema = pa.schema([pa.field("key", pa.int64(), nullable=False)])
    indexed = True

    def __init__(
        self,
        n: int,
        page_rows: int,
        row_bytes: int = 120,
        order: Order = "key",
        device: Device | None = None,
        seed: int = 0,
    ) -> None:
        self.order, self.row_bytes = order, row_bytes
        self.device = device or Device(SOURCE_DISK, VirtualClock())
        self.version = f"{n} keys, {order} {seed}"
        self.starts = int64s(np.minimum(np.arange(-(-n // page_rows) + 1) * page_rows, n))
        self._page_rows, self._n = page_rows, n
        keys = np.arange(n)
        self._place: I64 | None = None
        if order == "none":
            keys = np.random.default_rng(seed).permutation(n)
            self._place = np.empty(n, np.int64)
            self._place[keys] = np.arange(n)
        self._rows = pa.RecordBatch.from_arrays([pa.array(keys)], schema=self.schema)

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each key, -1 of keys that are not there."""
        wanted = np.asarray(key[0].fill_null(-1) if key[0].null_count else key[0])
        inside = (wanted >= 0) & (wanted < self._n)
        some = wanted if inside.all() else np.where(inside, wanted, 0)
        place = some if self._place is None else self._place[some]
        page: I64 = place // self._page_rows
        return page if inside.all() else np.where(inside, page, -1)

    def stored_bytes(self, first: int, count: int) -> int:
        """What these pages count as."""
        return int(self.starts[first + count] - self.starts[first]) * self.row_bytes

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The keys of these pages; the device is charged."""
        start, stop = int(self.starts[first]), int(self.starts[first + count])
        rows, size = self._rows.slice(start, stop - start), (stop - start) * self.row_bytes
        return self.device.call(lambda: rows, size, place=(self, start * self.row_bytes))

    def close(self) -> None:
        """Nothing to give back."""
