"""What a user asks of an enrichment, checked before anything touches Spark or the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.options import (
    CachePolicy,
    Drop,
    Freshness,
    How,
    Lookup,
    OnMiss,
    Park,
    Replaces,
    on_miss_of,
)
from dovetail.joins.semistream.sizes import Sizes
from dovetail.request import (
    DEFAULT_MEMORY,
    HowName,
    Key,
    Keys,
    known_column,
    nearest,
    one_of,
    parse_columns,
    parse_flag,
    parse_how,
    parse_keys,
    parse_seconds,
    parse_size,
    parse_suffixes,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

Algorithm = Literal[
    "auto", "inlj", "meshjoin", "r_meshjoin", "partitioned", "ssij", "hybridjoin", "x_hybridjoin",
    "optimised_x_hybridjoin", "cachejoin", "sscj",
]  # fmt: skip
Mode = Literal["per_batch", "carry"]
Tune = Literal["model", "measure", "off"]
Exchange = Literal["none", "master"]
AsOf = Literal["answered", "admitted"]


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request; columns are checked later, against stream and store.

    `fits_cache`: the cache was only named, so that its threshold is tuned as sizes are.
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

    @property
    def join_memory(self) -> int:
        """The budget of the join itself; in mode "carry" a sixteenth of the whole is for rows that arrive."""
        return self.memory - self.arrival_memory

    @property
    def arrival_memory(self) -> int:
        """Bytes of arriving rows that are kept in memory until the join takes them; what is more waits on disk."""
        return self.memory // 16 if self.mode == "carry" else 0

    @property
    def gives_master(self) -> bool:
        """Whether master columns appear in the result."""
        return self.how in ("inner", "left")


@dataclass(frozen=True, kw_only=True)
class EnrichOptions:
    """The options of `enrich`."""

    on: Keys
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

    def request(self) -> Request:
        """The enrichment, or a `PlanError` that says what to change."""
        how: Any = parse_how(self.how, get_args(How))
        mode = one_of("mode", self.mode, get_args(Mode))
        misses = on_miss_of(self.on_miss)
        _check_misses(misses, how, mode)
        named, sizes = _tune(self.tune)
        return Request(
            parse_keys(self.on, required=True),
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
        )


def key_pairs(request: Request, store: MasterStore, stream_columns: Sequence[str]) -> tuple[Key, ...]:
    """The keys in the order of the store's key, of which they may be part; a `PlanError` for what is not there."""
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


def _condition(condition: Any, misses: OnMiss) -> Any:
    if isinstance(condition, str) and not condition.strip():
        raise PlanError(
            f"condition={condition!r} is empty; write it over the columns of the result, or leave it out.",
            argument="condition",
        )
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
    if not str(versions) or "://" in str(versions):
        raise PlanError(
            f"versions={str(versions)!r} is no path of a directory; the log of versions is kept on a file system that "
            f"driver and executors have at the same path: give such a path.",
            argument="versions",
        )
    return str(Path(versions).absolute())
