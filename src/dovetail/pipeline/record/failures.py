"""Errors of a run in a few words: ours without Spark's account of where they happened, none with a secret."""

from __future__ import annotations

import re

from dovetail.errors import DataError, DovetailError
from dovetail.pipeline.file.problems import PipelineError
from dovetail.pipeline.file.secrets import Secrets
from dovetail.spark.task_errors import task_error

_LONGEST = 600
_CLASSED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.+?)(?: SQLSTATE:|$)", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF"}
"""Errors that only say where another one came through."""


def plain_error(error: Exception, secrets: Secrets) -> DovetailError:
    """The error as one of ours; of an error of Spark, which has pages of stack, what it says first."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, DovetailError):
        error.args = (secrets.masked(str(error)), *error.args[1:])
        return error
    text = secrets.masked(str(error))
    ours = task_error(text)
    if ours is not None:
        return ours
    return DataError(f"{type(error).__name__}: {_first(text)}")


def _first(text: str) -> str:
    """What went wrong, out of all that was wrapped around it: the first error that Spark gives a class of its own."""
    told = [found for found in _CLASSED.findall(text) if found[0].partition(".")[0] not in _WRAPPERS]
    if told:
        return f"[{told[0][0]}] {told[0][1].strip()}"[:_LONGEST]
    raised = _PYTHON.findall(text.partition("\n\tat ")[0])
    if raised:  # by a sink of ours, on the driver
        return ": ".join(raised[-1])[:_LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("at ", "==", "File ", "Traceback", "...", "^"))]
    return " ".join(plain[:3])[:_LONGEST]
