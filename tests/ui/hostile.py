"""A run whose every name and message tries to become part of the page."""

from __future__ import annotations

from dovetail.pipeline.record.watch import Lag, Node, Watch

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


def hostile_watch() -> Watch:
    """A run that goes on, with one join, a sample, a prediction and an error."""
    watch = Watch(HOSTILE, [Node(HOSTILE, "join", HOSTILE, HOSTILE), Node("a" + HOSTILE, "sink", HOSTILE, HOSTILE)],
                  [(HOSTILE, "a" + HOSTILE)])  # fmt: skip
    watch.add(HOSTILE, {f"memory.{HOSTILE}": 3.0 * 2**20, f"results.{HOSTILE}": 4.0, "service_rows_per_s": 5.0})
    watch.predict(HOSTILE, [(HOSTILE, HOSTILE)])
    watch.measured(HOSTILE, {HOSTILE: HOSTILE})
    watch.lag("a" + HOSTILE, [Lag(HOSTILE, 0, 1, 2)])
    watch.error(HOSTILE, HOSTILE)
    return watch
