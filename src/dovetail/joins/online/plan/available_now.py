"""Ends queries with `trigger(availableNow=True)` whose joins work in pauses.

Spark runs micro-batches of such a query for ever, since timers could fire. So a thread of the driver waits for the
first micro-batch of each query, which has its id, and checks its trigger. It stops a query that has read all available
input once its joins have done the work of a pause. An interrupted micro-batch is repeated by the next run, as after any
stop, so that every pair comes once.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from dovetail.spark.frames import is_connect
from dovetail.spark.task import MetricsSink

_LOOK_S = 0.5
_MARGIN_S = 1.0  # a timer fires one micro-batch after its time has passed
_MOST = 64
_log = logging.getLogger("dovetail")


@dataclass(slots=True, eq=False)
class _Join:
    """A join whose queries may have to be ended: its metrics, the length of a pause, and by stream the last
    micro-batch that was seen."""

    spark: SparkSession
    sink: MetricsSink
    wait_s: float
    seen: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """End a query with new micro-batches, if its trigger is availableNow; a separate thread waits for the time."""
        for stream in self.sink.streams():
            last = max(self.sink.batches(stream), default=-1)
            if last > self.seen.get(stream, -1) and stream not in _stopping:
                self.seen[stream] = last
                query = self.spark.streams.get(stream)
                if query is not None and "AvailableNow" in _trigger(query):
                    _stopping.add(stream)
                    threading.Thread(target=_end, args=(query, self, stream), daemon=True).start()


_joins: list[_Join] = []
_stopping: set[str] = set()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def end_when_done(spark: SparkSession, sink: MetricsSink, wait_s: float) -> None:
    """End queries of a join if their trigger is availableNow; `sink` gets the metrics of the join.

    Of many joins the newest ones are watched. Over Spark Connect, where triggers are not seen, none are.
    """
    global _thread
    if is_connect(spark):
        _log.warning(
            "over Spark Connect, a query with owed='idle' and trigger(availableNow=True) does not end by itself: give "
            "owed='batch', or stop the query."
        )
        return
    with _lock:
        _joins.append(_Join(spark, sink, wait_s))
        del _joins[:-_MOST]
        if _thread is None:
            _thread = threading.Thread(target=_watch, name="dovetail-available-now", daemon=True)
            _thread.start()


def _watch() -> None:
    while True:
        time.sleep(_LOOK_S)
        with _lock:
            joins = list(_joins)
        for join in joins:
            try:
                join.look()
            except Exception:  # its session has ended
                with _lock:
                    _joins.remove(join)


def _end(query: Any, join: _Join, stream: str) -> None:
    _log.warning(
        "a join with owed='idle' runs under trigger(availableNow=True): the query ends after a pause, when all that "
        "was available has been joined. Pairs that the work of a pause does not reach come in the next run, or at "
        "the end of input. With owed='batch' all pairs come in the micro-batch of their rows."
    )
    try:
        _wait_until_done(query, join.sink, stream, join.wait_s)
        query.stop()
    except Exception:  # the query or the session has ended by itself
        _log.debug("a query could not be ended", exc_info=True)
    finally:
        _stopping.discard(stream)


def _trigger(query: Any) -> str:
    return str(query._jsq.streamingQuery().trigger().toString())


def _wait_until_done(query: Any, sink: MetricsSink, stream: str, wait_s: float) -> None:
    """Wait for a micro-batch without rows and without a call of a join, long enough after the last call."""
    last, since = -1, time.monotonic()
    while query.isActive:
        called = max(sink.batches(stream), default=-1)
        progress = query.lastProgress
        is_reading = progress is None or progress["numInputRows"] > 0 or query.status["isDataAvailable"]
        if called != last or is_reading:
            last, since = called, time.monotonic()
        elif progress["batchId"] > called and time.monotonic() - since > wait_s + _MARGIN_S:
            return
        time.sleep(_LOOK_S)
