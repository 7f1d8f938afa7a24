"""Ends queries with `trigger(availableNow=True)` whose joins work in pauses.

Spark runs micro-batches of such a query for ever, since timers could fire. So a thread of the driver waits for the
first micro-batch of each query, which tells its id, and looks at its trigger. It stops a query that has read all that
was available once its joins have done the work of a pause. An interrupted micro-batch is repeated by the next run, as
after any stop, so that every pair comes once.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from pyspark.sql import SparkSession

from dovetail.spark.frames import is_connect
from dovetail.spark.task import MetricsSink

_LOOK_S = 0.5
_MARGIN_S = 1.0  # a timer fires in a later micro-batch than the one that its time comes in
_MOST = 64
_log = logging.getLogger("dovetail")
_waiting: list[tuple[SparkSession, MetricsSink, float]] = []
"""Joins whose queries have not begun, the newest ones; with the length of a pause in seconds."""
_lock = threading.Lock()
_thread: threading.Thread | None = None


def end_when_done(spark: SparkSession, sink: MetricsSink, wait_s: float) -> None:
    """End queries of a join if their trigger is availableNow; `sink` gets the metrics of the join."""
    global _thread
    if is_connect(spark):
        return
    with _lock:
        _waiting.append((spark, sink, wait_s))
        del _waiting[:-_MOST]
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_watch, name="dovetail-available-now", daemon=True)
            _thread.start()


def _watch() -> None:
    """Wait for the first micro-batches of joins, while there are joins whose queries have not begun."""
    global _thread
    while True:
        time.sleep(_LOOK_S)
        with _lock:
            begun = [each for each in _waiting if each[1].streams()]
            _waiting[:] = [each for each in _waiting if each not in begun]
            if not _waiting:
                _thread = None
        for spark, sink, wait_s in begun:
            for stream in sink.streams():
                threading.Thread(target=_end, args=(spark, sink, stream, wait_s), daemon=True).start()
        if _thread is None:
            return


def _end(spark: SparkSession, sink: MetricsSink, stream: str, wait_s: float) -> None:
    try:
        query = spark.streams.get(stream)
        if query is None or "AvailableNow" not in _trigger(query):
            return
        _log.warning(
            "a join with owed='idle' runs under trigger(availableNow=True): the query ends after a pause, when all "
            "that was available has been joined. Pairs that the work of a pause does not reach stay owed to the next "
            "run, or to the end of input. With owed='batch' all pairs come in the micro-batch of their rows."
        )
        _wait_until_done(query, sink, stream, wait_s)
        query.stop()
    except Exception:  # the query or the session has ended by itself
        _log.debug("a query could not be ended", exc_info=True)


def _trigger(query: Any) -> str:
    return str(query._jsq.streamingQuery().trigger().toString())


def _wait_until_done(query: Any, sink: MetricsSink, stream: str, wait_s: float) -> None:
    """Wait for a micro-batch without rows in which no join was called, long enough after the last that called one."""
    last, since = -1, time.monotonic()
    while query.isActive:
        called = max(sink.batches(stream), default=-1)
        progress = query.lastProgress
        if called != last or progress is None or progress["numInputRows"] > 0:
            last, since = called, time.monotonic()
        elif progress["batchId"] > called and time.monotonic() - since > wait_s + _MARGIN_S:
            return
        time.sleep(_LOOK_S)
