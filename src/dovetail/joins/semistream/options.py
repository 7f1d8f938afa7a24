"""What a request can choose: the kind of join, look-ups, cache, rows without a match, freshness."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels import waiting_pool as pool
from dovetail.request import parse_seconds

How = Literal["inner", "left", "left_semi", "left_anti"]


def check_how(how: str) -> None:
    """`PlanError` unless this is a join that a semi-stream operator gives."""
    if how not in get_args(How):
        raise PlanError(f"how={how!r} is not offered; there are {list(get_args(How))}.")


Kind = Literal["oldest", "alternate", "guarded", "position", "greedy", "greedy_oldest"]
_LOOKUP_CODES = {
    "oldest": pool.BY_OLDEST,
    "alternate": pool.BY_ALTERNATE,
    "guarded": pool.BY_GUARDED,
    "position": pool.BY_POSITION,
    "greedy": pool.BY_GREEDY,
    "greedy_oldest": pool.BY_GREEDY_OLDEST,
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up policy; `position` is a share of the queue counted from its newest end, 1 being the oldest row.

    `oldest` never starves a row. `alternate` takes the oldest row and the one at the position in turn; `guarded` does
    so only where the latter's segment has more waiting rows than the former's. `position` always takes the position,
    `greedy` the segment that most rows wait for; both can starve rows until `max_residence` steps in.
    Reference: Naeem 2014, 3 and 4; docs/algorithms/semistream.md, 2.12. Guarded look-ups are ours.

    >>> Lookup.of("guarded"), Lookup.of(0.25)
    (Lookup(kind='guarded', position=0.3), Lookup(kind='position', position=0.25))
    """

    kind: Kind = "oldest"
    position: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise PlanError(
                f"lookup={self.kind!r} is not one of {list(get_args(Kind))}; or give a position in (0, 1].",
                argument="lookup",
            )
        if not 0 < self.position <= 1:
            raise PlanError(
                f"lookup={self.position} is outside (0, 1]; 0.3 is a good one, 1 is the oldest.", argument="lookup"
            )

    @classmethod
    def of(cls, lookup: Lookup | str | float) -> Lookup:
        """The policy meant by a name or by a bare position."""
        if isinstance(lookup, Lookup):
            return lookup
        if isinstance(lookup, str):
            return cls(lookup)  # type: ignore[arg-type]  # checked there
        return cls("position", float(lookup))

    @property
    def code(self) -> int:
        """The policy's number in the kernels."""
        return _LOOKUP_CODES[self.kind]

    def __str__(self) -> str:
        return self.kind if self.kind in ("oldest", "greedy", "greedy_oldest") else f"{self.kind}({self.position:g})"


OLDEST = Lookup("oldest")


@dataclass(frozen=True, slots=True)
class Residence:
    """How long a row may wait before oldest rows go first: so many loads, so many seconds, or both."""

    loads: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.loads is not None and self.loads < 1) or (self.seconds is not None and self.seconds < 0):
            raise PlanError(f"max_residence loads={self.loads}, seconds={self.seconds}: give at least 1 load or 0 s.")


Replaces = Literal["random", "least_frequent", "adaptive"]


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How keys get into the cache and out again.

    A key enters when a load finds at least `threshold` waiting rows of it. In a full cache `random` overwrites any key,
    `least_frequent` the one with the fewest hits, and each overwriting raises the threshold: the printed rule,
    which freezes. `adaptive` compares with the least of sixteen keys drawn and replaces only a lesser one; every
    `every` loads (default: a number from that of the segments) hits count half and the threshold falls by one. It also
    remembers keys that are not in the master data.
    Reference: Naeem 2012, 8.2 and algorithm 6; Naeem 2014, 2 (SSCJ); docs/algorithms/semistream.md, 2.10 and 6.7.
    """

    replaces: Replaces = "adaptive"
    threshold: int = 2
    every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.replaces not in get_args(Replaces):
            raise PlanError(f"cache={self.replaces!r} is not one of {list(get_args(Replaces))}.", argument="cache")
        if self.threshold < 1 or (self.every is not None and self.every < 1):
            raise PlanError(
                f"cache threshold={self.threshold}, every={self.every}: both must be at least 1.", argument="cache"
            )

    def __str__(self) -> str:
        return f"{self.replaces}(threshold {self.threshold})"


ADAPTIVE, LEAST_FREQUENT = CachePolicy("adaptive"), CachePolicy("least_frequent")


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


@dataclass(frozen=True, slots=True)
class Freshness:
    """`per_batch`: every micro-batch takes the newest version. `ttl`: only when the one in use is `seconds` old.

    `pinned`: the first version serves the query, restarts included.
    """

    kind: Literal["per_batch", "ttl", "pinned"] = "per_batch"
    seconds: float = 0.0

    @classmethod
    def of(cls, given: Freshness | str) -> Freshness:
        """The freshness meant by a name or by `ttl(...)`."""
        if isinstance(given, Freshness):
            return given
        if given in ("per_batch", "pinned"):
            return cls(given)  # type: ignore[arg-type]  # one of the two names
        raise PlanError(
            f"freshness={given!r} is not known; use 'per_batch', 'pinned' or ttl(\"10 min\").", argument="freshness"
        )

    def __str__(self) -> str:
        return f"ttl({self.seconds:g} s)" if self.kind == "ttl" else self.kind


def ttl(age: str | float) -> Freshness:
    """Freshness that keeps a version until it was taken up `age` ago ("10 min", or seconds).

    >>> print(dovetail.ttl("10 min"))
    ttl(600 s)
    """
    return Freshness("ttl", parse_seconds("ttl", age))
