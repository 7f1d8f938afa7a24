"""Recognises Spark Connect clients, and asks both kinds of sessions the same questions."""

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
    """How many tasks the session runs at once; a guess over Spark Connect."""
    return 8 if is_connect(spark) else max(2, int(spark.sparkContext.defaultParallelism))


def plan_text(frame: Any) -> str:
    """The plan of a DataFrame as Spark prints it."""
    if is_connect(frame):
        return str(frame._explain_string(extended=True))
    return str(frame._jdf.queryExecution().analyzed().toString())


def has_subqueries(frame: Any) -> bool:
    """Whether a DataFrame has subqueries, if each of its steps has one input: they are branches of its plan."""
    return any(line.startswith(":") for line in plan_text(frame).splitlines())


def observation(frame: Any, name: str) -> Any:
    """What `frame.observe` takes, so that `observed` finds its metrics by this name."""
    if not is_connect(frame):
        return name
    from pyspark.sql.connect.observation import Observation

    return Observation(name)


def observed(frame: Any, observation: Any) -> dict[str, Any]:
    """The metrics that a run of the frame observed; none if Spark left that part of its plan out."""
    if not isinstance(observation, str):
        return dict(observation.get)
    found = frame._jdf.queryExecution().observedMetrics().get(observation)
    if not found.isDefined():
        return {}
    row = found.get()
    return {name: row.get(number) for number, name in enumerate(row.schema().fieldNames())}
