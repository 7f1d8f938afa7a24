"""Buckets of online joins of batch DataFrames: one after the other, their rows in the order of reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from dovetail.engine.rows.packing import as_schema, unpack_rows
from dovetail.engine.storage.spool import HeldBytes
from dovetail.joins.online.bucket_join import Running
from dovetail.joins.online.events import Event
from dovetail.joins.online.plan.task import OnlineTask, counts_by_side
from dovetail.joins.online.sizes import beside_bytes
from dovetail.joins.online.unmatched import ChunkFile, Outer, RowBits
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.batch import Bucketed
from dovetail.spark.hosts.exchange import Packet


def join_buckets(task: OnlineTask, packets: Bucketed) -> Batches:
    """The answers of a partition: the rows of each of its buckets, one bucket after the other."""
    running: _Bucket | None = None
    current, dropped, keys = -1, [0] * len(task.join.names), task.key_counter()
    try:
        for bucket, packet in packets:
            dropped[packet.side] += packet.dropped
            if packet.rows is None:
                continue
            if running is None or bucket != current:
                if running is not None:
                    yield from running.finished()
                running, current = _bucket(task), bucket
            keys.take(packet.side, packet.n, packet.rows)
            yield from running.took(packet)
        if running is not None:
            yield from running.finished()
        task.sink.task(counts_by_side("null_keys", task.join.names, dropped).include(keys.metrics))
    finally:
        if running is not None:
            running.close()


def _bucket(task: OnlineTask) -> _Bucket:
    return _OuterBucket(task) if task.join.what.preserved else _Bucket(task)


class _Bucket:
    """The join of one bucket."""

    def __init__(self, task: OnlineTask) -> None:
        self.task, self._running = task, Running(task.join)

    def took(self, packet: Packet) -> Batches:
        """The answers of arriving rows."""
        return self._shaped(self._running.apply(Event("push", packet.side, rows=packet.rows)))

    def finished(self) -> Batches:
        """All answers that are still owed."""
        task = self.task
        with closing(self._running.operator) as operator:
            yield from self._shaped(self._running.apply(Event("finish")))
            peak = operator.budget.peak
        operator.metrics.peak("memory_peak", peak)
        rows = sum(operator.metrics.value("rows", name) for name in task.join.names)
        operator.metrics.peak("bucket_rows", rows, unit="rows")
        task.sink.task(operator.metrics)

    def _shaped(self, batches: Iterator[pa.RecordBatch]) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield as_schema(batch, self.task.output)

    def close(self) -> None:
        """Free memory and files."""
        self._running.close()


class _OuterBucket(_Bucket):
    """The join of one bucket that gives unmatched rows at the end, or each row at its first match.

    Rows of preserved sides are held a second time, on disk if they are many, since the operator forgets them.
    """

    def __init__(self, task: OnlineTask) -> None:
        super().__init__(task)
        room = beside_bytes(task.join.memory) // 2
        self._file, self._held = ChunkFile(), HeldBytes(room, name="preserved")
        self._outer = Outer(task.join, task.output, RowBits(self._file, room))
        self._tickets: list[tuple[int, pa.Buffer | int]] = []
        self._numbered, self._unmatched = 0, [0, 0]

    def took(self, packet: Packet) -> Batches:
        """The answers of arriving rows, and those that can match nothing."""
        side, join, outer = packet.side, self.task.join, self._outer
        batch = unpack_rows(packet.rows, join.schemas[join.names[side]])
        if side in outer.sides:
            batch, others = outer.split(side, batch)
            yield from self._alone(side, outer.alone(side, others))
        rows = outer.numbered(side, batch, self._numbered).serialize()
        if side in join.what.preserved:
            self._numbered += batch.num_rows
        if side in outer.sides:
            self._tickets.append((side, self._held.keep(rows)))
        yield from self._shaped(self._running.apply(Event("push", side, rows=rows)))

    def finished(self) -> Batches:
        """All answers that are still owed, then the unmatched rows."""
        join = self.task.join
        yield from super().finished()
        for side, ticket in self._tickets:
            batch = unpack_rows(self._held.read(ticket), join.stored[join.names[side]])
            yield from self._alone(side, self._outer.unmatched(side, batch))
        self.task.sink.task(counts_by_side("unmatched", join.names, self._unmatched))
        self._close_files()

    def _shaped(self, batches: Iterator[pa.RecordBatch]) -> Batches:
        for batch in batches:
            found = self._outer.pairs(batch)
            if found.num_rows:
                yield found

    def _alone(self, side: int, rows: pa.RecordBatch) -> Batches:
        self._unmatched[side] += rows.num_rows
        if rows.num_rows:
            yield rows

    def close(self) -> None:
        """Free memory and files."""
        super().close()
        self._close_files()

    def _close_files(self) -> None:
        self._held.close()
        self._file.close()
