"""Online joins that are stopped at any moment and restored by another operator, as the state of a bucket does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dovetail.joins.online.operators.base import OnlineOperator

Step = tuple[str, Any, Any]


class Restartable:
    """A running join, the rows whose answers were all given, and what happened since: the tail.

    A restart loads the rows and replays the tail. So that a tail has the same answers again, a drain restarts too.
    """

    def __init__(self, opens: Callable[[], OnlineOperator]) -> None:
        self._opens, self.operator = opens, opens()
        self.settled: list[tuple[str, pa.RecordBatch]] = []
        self._tail: list[Step] = []

    def push(self, side: str, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows arrive."""
        return self._done(("push", side, batch))

    def idle(self, units: int) -> list[pa.RecordBatch]:
        """A pause of `units` units of work."""
        return self._done(("idle", units, None))

    def _done(self, step: Step) -> list[pa.RecordBatch]:
        self._tail.append(step)
        return list(self._played(step))

    def _played(self, step: Step) -> Iterator[pa.RecordBatch]:
        kind, what, batch = step
        return self.operator.push(what, batch) if kind == "push" else self.operator.idle(steps(what))

    def drain(self) -> list[pa.RecordBatch]:
        """Nothing is owed afterwards."""
        out = list(self.operator.drain())
        self.settled += [(side, batch) for kind, side, batch in self._tail if kind == "push"]
        self._tail = []
        self.restart()
        return out

    def restart(self) -> int:
        """Another operator goes on; how many rows it compared to take up the settled ones."""
        self.operator.close()
        self.operator = self._opens()
        assert not list(self.operator.restore(self.settled))
        compared = self.operator.metrics.value("comparisons")
        for step in self._tail:
            list(self._played(step))
        return compared

    def finish(self) -> list[pa.RecordBatch]:
        """The end of all inputs."""
        out = list(self.operator.finish())
        self.operator.close()
        return out


def steps(n: int) -> Callable[[], bool]:
    """What lets an idle operator do n units of work."""
    left = [n]

    def until() -> bool:
        left[0] -= 1
        return left[0] <= 0

    return until
