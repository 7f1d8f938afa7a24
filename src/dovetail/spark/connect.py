"""Whether a session is a Spark Connect client, and what to say where that is not enough."""

from __future__ import annotations

from typing import Any

from dovetail.errors import UnsupportedError


def is_connect(thing: Any) -> bool:
    """True for a session, DataFrame or column of Spark Connect; needs no Connect package to be installed."""
    return any(cls.__module__.startswith("pyspark.sql.connect.") for cls in type(thing).__mro__)


def require_classic(thing: Any, what: str, instead: str) -> None:
    """Raises UnsupportedError on Spark Connect, saying what does not work there and what to use instead."""
    if is_connect(thing):
        raise UnsupportedError(f"{what} does not work over Spark Connect; {instead}")


def parallelism(spark: Any) -> int:
    """How many tasks the session runs at once; a guess over Spark Connect, whose clients cannot know."""
    return 8 if is_connect(spark) else max(2, int(spark.sparkContext.defaultParallelism))
