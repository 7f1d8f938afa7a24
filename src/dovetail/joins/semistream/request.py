"""The options of an enrichment, checked before Spark or the store is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dovetail.engine.memory import format_bytes
from dovetail.engine.storage.files import located
from dovetail.engine.storage.remote import Access
from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels import waiting_pool as pool
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.sizes import Sizes
from dovetail.joins.semistream.within import Overlap, RangeKey, Within, parse_on, parse_withins
from dovetail.request import (
    DEFAULT_MEMORY,
    Closed,
    HowName,
    Key,
    Keys,
    known_column,
    nearest,
    one_of,
    parse_columns,
    parse_condition,
    parse_flag,
    parse_how,
    parse_seconds,
    parse_size,
    parse_suffixes,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

    from dovetail.joins.semistream.master.pages import Pages

How = Literal["inner", "left", "left_semi", "left_anti"]


def check_how(how: str) -> None:
    """`PlanError` unless this is a join that a semi-stream operator gives."""
    if how not in get_args(How):
        raise PlanError(f"how={how!r} is not offered; there are {list(get_args(How))}.", argument="how")


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
        if not isinstance(self.kind, str) or self.kind not in get_args(Kind):
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
        if isinstance(lookup, (int, float)) and not isinstance(lookup, bool):
            return cls("position", lookup)
        return cls(lookup)  # type: ignore[arg-type]  # checked there

    @property
    def code(self) -> int:
        """The policy's number in the kernels."""
        return _LOOKUP_CODES[self.kind]

    def __str__(self) -> str:
        return self.kind if self.kind in ("oldest", "greedy", "greedy_oldest") else f"{self.kind}({self.position:g})"


OLDEST = Lookup("oldest")


@dataclass(frozen=True, slots=True)
class Residence:
    """The longest wait of a row before the oldest rows go first, in loads, in seconds, or both."""

    loads: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.loads is not None and self.loads < 1) or (self.seconds is not None and self.seconds < 0):
            raise PlanError(
                f"max_residence loads={self.loads}, seconds={self.seconds}: give at least 1 load or 0 s.",
                argument="max_residence",
            )


Replaces = Literal["random", "least_frequent", "adaptive"]


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """How keys enter and leave the cache.

    A key enters when a load finds at least `threshold` waiting rows of it. In a full cache `random` overwrites any key,
    `least_frequent` the one with the fewest hits, and each overwriting raises the threshold: the printed rule,
    which freezes. `adaptive` compares with the least of sixteen random keys and replaces it only if it is lesser; every
    `every` loads (default: a number from that of the segments) hits count half and the threshold falls by one. It also
    remembers keys that are not in the master data.
    Reference: Naeem 2012, 8.2 and algorithm 6; Naeem 2014, 2 (SSCJ); docs/algorithms/semistream.md, 2.10 and 6.7.
    """

    replaces: Replaces = "adaptive"
    threshold: int = 2
    every: int | None = None

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
    access: Access | None = field(default=None, repr=False, compare=False)

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
    """Keep rows without a match as Parquet under `path`, a directory: local, or at an address such as s3a://.

    There is one file for each call of `enrich`, micro-batch and partition that had any, so that several joins can share
    the directory. An attempt that fails leaves none, a repeated micro-batch replaces its files, and so does a second
    action on the same DataFrame when it has read as many rows: each row is there once. A join keeps the dead letters of
    one query: to feed two queries, call `enrich` for each, with a directory of its own or with on_miss="drop".

    >>> print(dovetail.dead_letter("/data/unknown"))
    dead_letter(/data/unknown)
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise PlanError(f"dead_letter({path!r}) needs a directory; give its path.", argument="path")
    return DeadLetter(str(path) if ":/" in str(path) else str(Path(path).absolute()))


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
    """Whether rows without a match are kept."""
    return not isinstance(on_miss, Drop)


def on_miss_of(given: OnMiss | str) -> OnMiss:
    """The value for "drop" or for a call of `dead_letter` or `park`."""
    if isinstance(given, (Drop, DeadLetter, Park)):
        return given
    if isinstance(given, str) and given == "drop":
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
        if isinstance(given, str) and given in ("per_batch", "pinned"):
            return cls(given)  # type: ignore[arg-type]  # one of the two names
        raise PlanError(
            f"freshness={given!r} is not known; use 'per_batch', 'pinned' or ttl(\"10 min\").", argument="freshness"
        )

    def __str__(self) -> str:
        return f"ttl({self.seconds:g} s)" if self.kind == "ttl" else self.kind


def ttl(age: str | float) -> Freshness:
    """Freshness that keeps a version for `age` ("10 min", or seconds) after its adoption.

    >>> print(dovetail.ttl("10 min"))
    ttl(600 s)
    """
    return Freshness("ttl", parse_seconds("ttl", age))


Algorithm = Literal[
    "auto", "inlj", "meshjoin", "r_meshjoin", "partitioned", "ssij", "hybridjoin", "x_hybridjoin",
    "optimised_x_hybridjoin", "cachejoin", "sscj", "hash_join",
]  # fmt: skip
Mode = Literal["per_batch", "carry"]
Tune = Literal["model", "measure", "off"]
Exchange = Literal["none", "master"]
AsOf = Literal["answered", "admitted"]


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request; columns are checked later, against stream and store.

    `fits_cache`: the cache was given by name only, so that its threshold is tuned.
    """

    on: tuple[Key, ...]
    how: How
    algorithm: str
    lookup: Lookup
    cache: CachePolicy
    mode: Mode
    memory: int
    tune: str
    sizes: Sizes | None
    on_miss: OnMiss
    freshness: Freshness
    exchange: Exchange
    columns: tuple[str, ...] | None
    suffixes: tuple[str, str]
    versions: str | None = None
    max_wait_s: float = 10.0
    fits_cache: bool = False
    null_safe: bool = False
    as_of: AsOf = "answered"
    condition: Any = None
    ranged: Within | None = None
    validity: Within | None = None
    overlap: Overlap = "error"

    @property
    def withins(self) -> tuple[Within, ...]:
        """The ranges that a stream row's values must lie in: that of the key, and the validity."""
        return tuple(one for one in (self.ranged, self.validity) if one is not None)

    @property
    def join_memory(self) -> int:
        """The budget of the join itself; in mode "carry" a sixteenth of the whole is for rows that arrive."""
        return self.memory - self.arrival_memory

    def beside(self, pages: Pages) -> Request:
        """The request with the memory that is left beside what the store holds: keys, or the footers of files."""
        held = pages.held_bytes
        if held > self.memory // 2:
            raise PlanError(
                f"memory={format_bytes(self.memory)}: the index of the master data takes {format_bytes(held)} of it in "
                f"every task, more than half; give at least {format_bytes(2 * held)}, or build a page file, whose "
                f"index is on disk: MasterStore.build(...).",
                argument="memory",
            )
        return replace(self, memory=self.memory - held) if held else self

    @property
    def arrival_memory(self) -> int:
        """Bytes of arriving rows that are kept in memory until the join takes them; the rest waits on disk."""
        return self.memory // 16 if self.mode == "carry" else 0

    @property
    def gives_master(self) -> bool:
        """Whether master columns appear in the result."""
        return self.how in ("inner", "left")


@dataclass(frozen=True, kw_only=True)
class EnrichOptions:
    """The options of `enrich`."""

    on: Keys | RangeKey | Sequence[str | tuple[str, str] | RangeKey]
    how: HowName = "inner"
    algorithm: Algorithm = "auto"
    lookup: Lookup | Literal["oldest", "alternate", "guarded"] | float = "guarded"
    cache: CachePolicy | Replaces = "adaptive"
    mode: Mode = "per_batch"
    memory: int | str = DEFAULT_MEMORY
    tune: Tune | Sizes | Mapping[str, int] = "model"
    on_miss: OnMiss | Literal["drop"] = "drop"
    freshness: Freshness | Literal["per_batch", "pinned"] = "per_batch"
    exchange: Exchange = "none"
    columns: Sequence[str] | None = None
    suffixes: tuple[str, str] = ("", "_master")
    versions: str | Path | None = None
    max_wait: str | float = "10 s"
    null_safe: bool = False
    as_of: AsOf = "answered"
    condition: Column | str | None = None
    at: str | None = None
    valid: tuple[str, str] | None = None
    closed: Closed | None = None
    overlap: Overlap = "error"

    def request(self) -> Request:
        """The enrichment, or a `PlanError` that says what to change."""
        how: Any = parse_how(self.how, get_args(How))
        mode = one_of("mode", self.mode, get_args(Mode))
        misses = on_miss_of(self.on_miss)
        _check_misses(misses, how, mode)
        named, sizes = _tune(self.tune)
        on, ranged = parse_on(self.on)
        return Request(
            on,
            how,
            one_of("algorithm", self.algorithm, get_args(Algorithm)),
            Lookup.of(self.lookup),
            _cache(self.cache),
            mode,
            parse_size("memory", self.memory),
            named,
            sizes,
            misses,
            Freshness.of(self.freshness),
            one_of("exchange", self.exchange, get_args(Exchange)),
            parse_columns(self.columns),
            parse_suffixes(self.suffixes),
            _directory(self.versions),
            parse_seconds("max_wait", self.max_wait),
            not isinstance(self.cache, CachePolicy),
            parse_flag("null_safe", self.null_safe),
            _as_of(self.as_of, mode),
            _condition(self.condition, misses),
            *parse_withins(self.at, self.valid, self.closed, self.overlap, ranged),
            self.overlap,
        )


def key_pairs(request: Request, store: MasterStore, stream_columns: Sequence[str]) -> tuple[Key, ...]:
    """The keys in the order of the store's key, or part of it; a `PlanError` for missing columns."""
    for key in request.on:
        known_column("on: the stream", key.left, stream_columns, "on")
        known_column("on: the store's key", key.right, store.key, "on")
    by_master = {key.right: key for key in request.on}
    if len(by_master) < len(request.on):
        raise PlanError(
            f"on={[(key.left, key.right) for key in request.on]} names a key column of the store twice.", argument="on"
        )
    return tuple(by_master[name] for name in store.key if name in by_master)


def _check_misses(misses: OnMiss, how: str, mode: str) -> None:
    if isinstance(misses, Drop):
        return
    if how != "inner":
        raise PlanError(
            f"on_miss={misses} is for how='inner'; how={how!r} has its own answer to a miss. Leave it out.",
            argument="on_miss",
        )
    if isinstance(misses, Park) and mode != "carry":
        raise PlanError(
            f"on_miss={misses} keeps rows from one micro-batch to the next; use mode='carry' with it.",
            argument="on_miss",
        )


def _as_of(given: AsOf, mode: Mode) -> AsOf:
    as_of = one_of("as_of", given, get_args(AsOf))
    if as_of == "admitted" and mode != "carry":
        raise PlanError(
            "as_of='admitted' is for mode='carry': without it a row is admitted and answered in one micro-batch, from "
            "one version. Leave it out.",
            argument="as_of",
        )
    return as_of  # type: ignore[no-any-return]  # one of its words


def _cache(given: CachePolicy | Replaces) -> CachePolicy:
    if isinstance(given, CachePolicy):
        return given
    return CachePolicy(one_of("cache", given, get_args(Replaces)))


def _condition(given: Any, misses: OnMiss) -> Any:
    condition = parse_condition(given)
    if condition is not None and isinstance(misses, Park):
        raise PlanError(
            f"condition={condition!r} with on_miss={misses}: rows are parked by their key alone; use "
            f"dead_letter(path), or how='left'.",
            argument="condition",
        )
    return condition


def _tune(tune: Tune | Sizes | Mapping[str, int]) -> tuple[str, Sizes | None]:
    if isinstance(tune, Sizes):
        return "explicit", tune
    if isinstance(tune, Mapping):
        names = [field.name for field in fields(Sizes)]
        for name in tune:
            if name not in names:
                near = nearest(name, names)
                hint = "" if near is None else f" Did you mean {near!r}?"
                raise PlanError(
                    f"tune={dict(tune)} has no size {name!r}; sizes: {', '.join(names)}.{hint}", argument="tune"
                )
        return "explicit", Sizes(**tune)
    return one_of("tune", tune, get_args(Tune)), None


def _directory(versions: str | Path | None) -> str | None:
    if versions is None:
        return None
    if not isinstance(versions, (str, Path)) or not str(versions):
        raise PlanError(
            f"versions={versions!r} is no path; the log of versions is kept in a directory that all hosts share: give "
            "it.",
            argument="versions",
        )
    try:
        return str(located(versions))
    except PlanError as error:
        raise PlanError(f"versions: {error}", argument="versions") from error
