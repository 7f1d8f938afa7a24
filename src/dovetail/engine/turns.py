"""Bounds the results of each call of an operator: the rest comes with the calls that follow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Ends, Operator, Until
from dovetail.engine.rows.packing import unpack_rows
from dovetail.engine.storage.spool import HeldBytes
from dovetail.errors import PlanError


class _Waiting(NamedTuple):
    """Rows of a side that the operator has not taken, or the end of a side."""

    side: str
    schema: pa.Schema | None
    ticket: pa.Buffer | int


class InTurns:
    """An operator whose `push`, `idle` and `finish` give at most `most_rows` result rows a call, in the same order.

    What a call has to leave is given by the next ones, of any kind; `pending` says whether there is some. Rows that are
    pushed meanwhile wait, in memory up to `waiting_bytes` and then on disk, and the operator takes them when the
    results of earlier ones were given. After `finish`, call it again while results are `pending`.

    >>> from dovetail.engine.memory import MemoryBudget
    >>> from dovetail.joins.online.operators import Diner
    >>> rows = pa.RecordBatch.from_pydict({"k": [1] * 10})
    >>> schemas = {"left": rows.schema, "right": rows.schema}
    >>> with InTurns(Diner(on=("k",)).open(MemoryBudget("1MB"), schemas), most_rows=30) as join:
    ...     given = [sum(b.num_rows for b in join.push(side, rows)) for side in ("left", "right")]
    ...     while join.pending:
    ...         given.append(sum(b.num_rows for b in join.finish()))
    >>> given[:4], sum(given)
    ([0, 30, 30, 30], 100)
    """

    def __init__(
        self, operator: Operator, most_rows: int, waiting_bytes: int = 1 << 20, directory: Path | None = None
    ) -> None:
        if most_rows < 1:
            raise PlanError(f"most_rows={most_rows} is too small; a call gives at least one row.", argument="most_rows")
        self.operator, self.most_rows = operator, most_rows
        self._inbox: deque[_Waiting] = deque()
        self._held = HeldBytes(waiting_bytes, directory, "waiting rows")
        self._current: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._until: Until = _never
        self._last: Callable[[], Iterator[pa.RecordBatch]] | None = None
        self._ends = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch of the result."""
        return self.operator.schema

    @property
    def metrics(self) -> Metrics:
        """The operator's metrics, and the most batches that waited."""
        return self.operator.metrics

    @property
    def pending(self) -> bool:
        """Whether another call may give results of what was pushed or finished before."""
        return bool(self._rest or self._current or self._inbox or self._last)

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one side; results that are possible by now."""
        if self.pending:
            self._inbox.append(_Waiting(side, batch.schema, self._held.keep(batch.serialize())))
            self.metrics.peak("batches_waiting", len(self._inbox), unit="batches")
        else:
            self._current = self.operator.push(side, batch)
        return self._turn()

    def end(self, side: str) -> None:
        """Note that no more rows of this side are pushed."""
        self._inbox.append(_Waiting(side, None, 0))

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Results that are pending; if there are none, deferred work until `until()`."""
        self._until = until
        if not self.pending:
            self._current = self.operator.idle(lambda: self._until())
        return self._turn()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Results of the end of all inputs; to be called again while there are some `pending`."""
        if not self._ends:
            self._ends, self._last = True, self.operator.finish
        return self._turn()

    def _turn(self) -> Iterator[pa.RecordBatch]:
        left = self.most_rows
        while left and (batch := self._next()) is not None:
            self._rest = batch.slice(left) if batch.num_rows > left else None
            given = batch.slice(0, left)
            left -= given.num_rows
            if given.num_rows:
                yield given

    def _next(self) -> pa.RecordBatch | None:
        """The next batch of results; None if there are none before another call."""
        while True:
            if self._rest is not None:
                found, self._rest = self._rest, None
                return found
            if self._current is not None and (batch := next(self._current, None)) is not None:
                return batch
            self._current = self._started()
            if self._current is None:
                return None

    def _started(self) -> Iterator[pa.RecordBatch] | None:
        """The results of the next call that the operator waits for, if there is one."""
        while self._inbox:
            side, schema, ticket = self._inbox.popleft()
            if schema is not None:
                batch = unpack_rows(self._held.read(ticket), schema)
                self._held.let_go(ticket)
                return self.operator.push(side, batch)
            if isinstance(self.operator, Ends):
                self.operator.end(side)
        last, self._last = self._last, None
        return None if last is None else last()

    def close(self) -> None:
        """Free memory and files, whatever is pending."""
        self._held.close()
        self.operator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _never() -> bool:
    return False
