"""The packed rows of an owner's micro-batch until the join takes them: in memory as far as allowed, else on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from dovetail.engine.spill import SpillFile
from dovetail.joins.semistream.state import table_of

_SCHEMA = pa.schema([("rows", pa.large_binary())])


class Arrivals:
    """Packets of rows, taken in any order and given in that of their partitions, as they were read.

    At most `limit` bytes stay in memory; later packets are written to a spill file, and read again one at a time.
    """

    def __init__(self, limit: int, directory: Path | None = None) -> None:
        self._limit, self._held = limit, 0
        self._kept: dict[tuple[int, int], bytes] = {}
        self._blocks: dict[tuple[int, int], int] = {}
        self._file = SpillFile(_SCHEMA, directory, "arrivals")
        self.latest_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows."""
        return not self._kept and not self._blocks

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to disk."""
        return self._file.bytes_written

    @property
    def held_bytes(self) -> int:
        """Bytes of packets in memory."""
        return self._held

    def add(self, part: int, number: int, now_ms: int, data: bytes) -> None:
        """Take packet `number` of a partition; one without rows only tells the time."""
        self.latest_ms = max(self.latest_ms, now_ms)
        if not data:
            return
        if self._held + len(data) <= self._limit:
            self._held += len(data)
            self._kept[part, number] = data
        else:
            block = pa.RecordBatch.from_pydict({"rows": pa.array([data], pa.large_binary())})
            self._blocks[part, number] = self._file.append(block)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in the order of partitions and packets; a packet is let go when its rows were taken."""
        for name in sorted([*self._kept, *self._blocks]):
            yield from (batch for batch in table_of(self._packet(name)).to_batches() if batch.num_rows)

    def head(self) -> list[pa.RecordBatch]:
        """The rows of the first packet, which are given again."""
        for name in sorted([*self._kept, *self._blocks])[:1]:
            data = self._kept[name] if name in self._kept else self._from_disk(name)
            return [batch for batch in table_of(data).to_batches() if batch.num_rows]
        return []

    def _packet(self, name: tuple[int, int]) -> bytes:
        if name not in self._kept:
            return self._from_disk(name)
        data = self._kept.pop(name)
        self._held -= len(data)
        return data

    def _from_disk(self, name: tuple[int, int]) -> bytes:
        return bytes(self._file.read(self._blocks[name]).column(0)[0].as_buffer())

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.clear()
        self._file.close()
