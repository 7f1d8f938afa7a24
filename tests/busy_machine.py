"""A query that failed because the machine is too busy for Spark, not because of us.

Spark gives a Python worker that it starts without its daemon ten seconds to connect back, and no setting changes that.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_TOO_SLOW = (
    "Timed out while waiting for the Python worker to connect back",
    "Python worker failed to connect back",
)


class TooBusyError(Exception):
    """The query has to be started once more."""


def raise_failure(log: Path) -> None:
    """Raises what the log of a query that has ended by itself tells: TooBusyError, once, or an AssertionError."""
    said = log.read_text()
    if any(text in said[-30_000:] for text in _TOO_SLOW):
        log.unlink()
        raise TooBusyError
    raise AssertionError(said[-4000:])


def clear_unbegun(checkpoint: Path) -> None:
    """Remove what a query left that was killed while it logged its first micro-batch, as Spark asks for."""
    if not any((checkpoint / "offsets").glob("[0-9]*")):
        for log in ("offsets", "commits", "state"):
            shutil.rmtree(checkpoint / log, ignore_errors=True)
