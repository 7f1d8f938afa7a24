"""Translates errors of tasks: a `DovetailError` of a worker is raised as such on the driver, by any action.

PySpark turns every error of a task into an exception of its own, with our class and message somewhere in the text.
`translate_task_errors` adds a step to that conversion: an exception whose text holds an error of ours becomes an
instance of both classes, so that `except XQueryError` and `except PythonException` both catch it.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import AnalysisException

from dovetail import errors
from dovetail.errors import DovetailError, XQueryError

MARK = "dovetail.errors."
"""The prefix of an error class in the message of a worker or of a Spark expression."""
_RAISED = re.compile(
    r"(dovetail(?:\.\w+)*\.[A-Z]\w*): (.+?)(?= SQLSTATE: |\n\s*\n|\n\s+at |\nCaused by: |\Z)", re.DOTALL
)
_XQUERY = re.compile(r"\[([^\]\s]+)\] ?(.*?)(?: \(line (\d+), column (\d+)\))?", re.DOTALL)
_UNKNOWN = "UnknownException"
"""PySpark drops such a conversion, and raises Py4J's error."""
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_PLACE = re.compile(r"line \d+,? pos \d+")
_MODULES = ("pyspark.errors.exceptions.captured", "pyspark.errors.exceptions.connect")


def task_error(text: str) -> DovetailError | None:
    """The `DovetailError` in Spark's text of a failure; None if there is none."""
    above_frames = re.split(r"\n\s+at ", text, maxsplit=1)[0]  # the same errors are repeated below
    told = _RAISED.findall(above_frames) or _RAISED.findall(text)[:1]
    found = [(kind, message.strip()) for name, message in told if (kind := _kind(name)) is not None]
    if not found:
        return None
    kind, message = found[-1]
    parts = _XQUERY.fullmatch(message)
    if kind is XQueryError:
        return None if parts is None else XQueryError(parts[1], parts[2], int(parts[3] or 0), int(parts[4] or 0))
    return kind(message)


def _kind(name: str) -> type[DovetailError] | None:
    """The public class of an error by its full name; the public base of an internal class."""
    waiting = [DovetailError]
    while waiting:
        kind = waiting.pop()
        if f"{kind.__module__}.{kind.__qualname__}" == name:
            return next(base for base in kind.__mro__ if base.__module__ == errors.__name__)
        waiting += kind.__subclasses__()
    return None


@functools.cache
def translate_task_errors() -> None:
    """Make Spark's actions raise our errors as such, in classic sessions and over Spark Connect."""
    for name in _MODULES:
        try:
            module: Any = importlib.import_module(name)
        except ImportError:  # Spark Connect needs packages that need not be there
            continue
        if hasattr(module, "recover_python_exception"):
            module.recover_python_exception = _translating(module.recover_python_exception)


def _translating(recover: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def recovered(error: Any) -> Any:
        error = recover(error)
        cause = getattr(error, "_cause", None)
        if isinstance(cause, DovetailError) and type(error).__name__ == _UNKNOWN:
            return cause  # translated already; PySpark raises no exception that it does not know
        # An error of analysis shows the plan, which may contain texts of our errors that were not raised.
        text = str(error).partition(";\n")[0] if isinstance(error, AnalysisException) else str(error)
        ours = task_error(text)
        return error if ours is None else _both(ours, error)

    return recovered


def _both(ours: DovetailError, theirs: Any) -> Exception:
    """One exception of both classes, with the message of ours and the attributes of both."""
    made = Exception.__new__(_class_of_both(type(ours), type(theirs)))  # their constructors ask the JVM
    made.__dict__.update(vars(ours) | vars(theirs))
    made.args = ours.args
    return made.with_traceback(theirs.__traceback__)


def _class_of_both(ours: type[DovetailError], theirs: type[Exception]) -> type[Exception]:
    base = theirs.__mro__[1] if theirs.__name__ == _UNKNOWN else theirs
    inside = {"__module__": ours.__module__, "__str__": DovetailError.__str__, "__reduce__": _reduced}
    return type(ours.__name__, (ours, base), inside)


def _reduced(error: Any) -> tuple[object, ...]:
    """Pickle as the worker's message: the copy is of our class only."""
    return task_error, (f"{MARK}{type(error).__name__}: {error}",)


def spark_says(error: Exception) -> str:
    """The first sentence of Spark's message, without plan and stack trace; or the error of ours inside it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.rpartition("dovetail.errors.")[2] for line in lines if "dovetail.errors." in line]
    if ours:
        return ours[0].partition(": ")[2].rstrip(". ")
    kept: list[str] = []
    for line in lines:
        if line.startswith(("==", "'", "+-", "JVM stacktrace", ";", "at ")):
            break
        kept.append(_CLASS.sub("", line.removeprefix(": ")))
    told = [line for line in kept if not line.startswith("An error occurred while calling")]
    text, _, rest = " ".join(told).partition(" SQLSTATE:")
    place = _PLACE.search(rest)
    return text.rstrip(";. ") + (f" ({place[0]})" if place else "")
