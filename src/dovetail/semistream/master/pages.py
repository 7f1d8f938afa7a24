"""What a join sees of master data: one version of it, as numbered pages with a home page for every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import pyarrow as pa

from dovetail.engine.device import Device
from dovetail.kernels.arrays import I64

Order = Literal["key", "frequency", "none"]


class Pages(Protocol):
    """One version of master data, immutable while it is open, cut into pages that are each read in one go.

    All rows of one key lie in one page, so that a page settles every question about the keys at home in it. Segments,
    what joins load at a time, are runs of neighbouring pages that start at a multiple of their length: the disk
    buffer of the sources. Rows whose key has a null are not part of any page.
    """

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, key columns among them."""
        ...

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns."""
        ...

    @property
    def order(self) -> Order:
        """How rows lie: by key, most wanted first, or anyhow."""
        ...

    @property
    def indexed(self) -> bool:
        """Whether `home` can be asked; without an index only joins that read everything in turn work."""
        ...

    @property
    def version(self) -> str:
        """What tells this version from every other one of the same store."""
        ...

    @property
    def device(self) -> Device:
        """What counts the reads, and prices them if it is simulated."""
        ...

    @property
    def starts(self) -> I64:
        """The number of the first row of each page, and the number of all rows at the end: one more than pages."""
        ...

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page of each row's key, or -1 where there is certainly none, nulls among them. No page is read."""
        ...

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves."""
        ...

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on, in their order, by one read of the device.

        A page that cannot be read whole is an error, never fewer rows.
        """
        ...

    def close(self) -> None:
        """Give back files and connections; twice is fine."""
        ...
