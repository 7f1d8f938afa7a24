"""Errors of a run in a few words: ours without Spark's account of where they happened, none with a secret."""

from __future__ import annotations

from dovetail.errors import BudgetExceeded, ConfigError, DataError, DovetailError, PlanError, UnsupportedError
from dovetail.pipeline.problems import PipelineError
from dovetail.pipeline.secrets import Secrets

_OURS: dict[str, type[DovetailError]] = {
    kind.__name__: kind for kind in (DataError, ConfigError, PlanError, UnsupportedError, BudgetExceeded)
}
_MARK = "dovetail.errors."


def plain_error(error: Exception, secrets: Secrets) -> DovetailError:
    """The error as one of ours; of an error of Spark, which has pages of stack, what it says first."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, DovetailError):
        error.args = (secrets.masked(str(error)), *error.args[1:])
        return error
    text = secrets.masked(str(error))
    for line in text.splitlines():
        kind, _, message = line.strip().rpartition(_MARK)[2].partition(": ")
        if _MARK in line and kind in _OURS and message:
            return _OURS[kind](message.strip())
    return DataError(f"{type(error).__name__}: {_first(text)}")


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "==", "File ", "Traceback", "..."))]
    return " ".join(told[:3])[:600]
