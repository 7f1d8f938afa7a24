"""What becomes of stream rows without a match in an inner join."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import PlanError
from dovetail.request.amounts import parse_seconds


@dataclass(frozen=True, slots=True)
class Drop:
    """Rows without a match are left out."""

    def __str__(self) -> str:
        return "drop"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Rows without a match are kept as Parquet files in a directory that all tasks can write to.

    If they are not `written`, they are left out here: another query over the same rows writes them.
    """

    path: str
    written: bool = True

    def __str__(self) -> str:
        return f"dead_letter({self.path})"


@dataclass(frozen=True, slots=True)
class Park:
    """Rows without a match are tried again every `retry_s`, until they are `deadline_s` old; then they are left out."""

    retry_s: float
    deadline_s: float

    def __str__(self) -> str:
        return f"park(retry {self.retry_s:g} s, deadline {self.deadline_s:g} s)"


OnMiss = Drop | DeadLetter | Park


def dead_letter(path: str | Path) -> DeadLetter:
    """Keep rows without a match as Parquet under `path`, a directory or a URI that Arrow knows.

    There is one file for each call of `enrich`, micro-batch and partition that had any, so that several joins can share
    the directory. An attempt that fails leaves none, a repeated micro-batch replaces its files, and so does a second
    action on the same DataFrame when it has read as many rows: each row is there once. A join keeps the letters of one
    query: to feed two queries, call `enrich` for each, with a directory of its own or with on_miss="drop".

    >>> print(dovetail.dead_letter("/data/unknown"))
    dead_letter(/data/unknown)
    """
    if not str(path):
        raise PlanError("dead_letter needs a directory; give its path.", argument="path")
    return DeadLetter(str(path) if "://" in str(path) else str(Path(path).absolute()))


def park(*, retry: str | float = "5s", deadline: str | float = "10 min") -> Park:
    """Keep rows without a match in the stream's state and try them again, for master rows that arrive late.

    They are tried every `retry` and left out once they are `deadline` old.

    >>> print(dovetail.park(retry="30 s", deadline="1 hour"))
    park(retry 30 s, deadline 3600 s)
    """
    found = Park(parse_seconds("retry", retry), parse_seconds("deadline", deadline))
    if found.retry_s > found.deadline_s:
        raise PlanError(
            f"park: retry={retry!r} is longer than deadline={deadline!r}; give a longer deadline.", argument="deadline"
        )
    return found


def sets_aside(on_miss: OnMiss) -> bool:
    """Whether rows without a match are wanted for something."""
    return not isinstance(on_miss, Drop)


def on_miss_of(given: OnMiss | str) -> OnMiss:
    """What is meant by "drop" or by a call of `dead_letter` or `park`."""
    if isinstance(given, (Drop, DeadLetter, Park)):
        return given
    if given == "drop":
        return Drop()
    raise PlanError(
        f"on_miss={given!r} is not known; use 'drop', dead_letter(path) or park(retry, deadline).", argument="on_miss"
    )
