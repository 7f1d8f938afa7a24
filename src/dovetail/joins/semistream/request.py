"""What a user asks of an enrichment, checked before anything touches Spark or the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dovetail.engine.duration import parse_seconds
from dovetail.engine.memory import parse_bytes
from dovetail.errors import PlanError
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.options import CachePolicy, Drop, Freshness, How, Lookup, OnMiss, Park, on_miss_of
from dovetail.joins.semistream.sizes import Sizes

HOWS = ("inner", "left", "left_semi", "left_anti")
HOW_ALIASES = {
    "left_outer": "left", "leftouter": "left", "semi": "left_semi", "leftsemi": "left_semi", "anti": "left_anti",
    "leftanti": "left_anti",
}  # fmt: skip
MODES = ("per_batch", "carry")
TUNES = ("model", "measure", "off")
ROUTES = ("none", "master")
AS_OF = ("answered", "admitted")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A stream column and the master key column that it is compared with; `shared` names appear once in the result."""

    stream: str
    master: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request; columns are checked later, against stream and store.

    `fits_cache`: the cache was only named, so that its threshold is tuned as sizes are.
    """

    on: tuple[KeyPair, ...]
    how: How
    algorithm: str
    lookup: Lookup
    cache: CachePolicy
    mode: str
    memory: int
    tune: str
    sizes: Sizes | None
    on_miss: OnMiss
    freshness: Freshness
    route: str
    columns: tuple[str, ...] | None
    suffixes: tuple[str, str]
    versions: str | None = None
    max_wait_s: float = 10.0
    fits_cache: bool = False
    null_safe: bool = False
    as_of: str = "answered"
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


def parse_request(
    on: str | Sequence[str | tuple[str, str]],
    how: str = "inner",
    algorithm: str = "auto",
    lookup: Lookup | str | float = "guarded",
    cache: CachePolicy | str = "adaptive",
    mode: str = "per_batch",
    memory: int | str = "50MB",
    tune: str | Sizes | Mapping[str, int] = "model",
    on_miss: OnMiss | str = "drop",
    freshness: Freshness | str = "per_batch",
    route: str = "none",
    columns: Sequence[str] | None = None,
    suffixes: tuple[str, str] = ("", "_master"),
    versions: str | None = None,
    max_wait: str | float = "10 s",
    null_safe: bool = False,
    as_of: str = "answered",
    condition: Any = None,
) -> Request:
    """The request that these arguments make, or a `PlanError` that says what to change."""
    how = HOW_ALIASES.get(how, how)
    one_of("how", how, HOWS)
    one_of("algorithm", algorithm, ("auto", *ALGORITHMS))
    one_of("mode", mode, MODES)
    one_of("route", route, ROUTES)
    one_of("as_of", as_of, AS_OF)
    _check_as_of(as_of, mode)
    misses = on_miss_of(on_miss)
    _check_misses(misses, how, mode)
    named, sizes = _tune(tune)
    return Request(
        parse_on(on),
        how,  # type: ignore[arg-type]  # checked above
        algorithm,
        Lookup.of(lookup),
        cache if isinstance(cache, CachePolicy) else CachePolicy(cache),  # type: ignore[arg-type]  # checked there
        mode,
        parse_bytes(memory),
        named,
        sizes,
        misses,
        Freshness.of(freshness),
        route,
        _columns(columns),
        _suffixes(suffixes),
        _directory(versions),
        parse_seconds("max_wait", max_wait),
        not isinstance(cache, CachePolicy),
        _flag("null_safe", null_safe),
        as_of,
        _condition(condition, misses),
    )


def parse_on(on: str | Sequence[str | tuple[str, str]]) -> tuple[KeyPair, ...]:
    """Pairs of key columns from "k", ["k"], [("stream_k", "master_k")] or a mixture."""
    pairs = []
    for item in [on] if isinstance(on, str) else list(on or ()):
        if isinstance(item, str):
            pairs.append(KeyPair(item, item, True))
        elif isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            pairs.append(KeyPair(item[0], item[1], item[0] == item[1]))
        else:
            raise PlanError(f"on={on!r}: each key is a column name or a (stream name, master name) pair, not {item!r}.")
    if not pairs:
        raise PlanError(f"on={on!r} names no key; give the stream's key column, or (stream name, master name) pairs.")
    return tuple(pairs)


def key_pairs(request: Request, store: MasterStore, stream_columns: Sequence[str]) -> tuple[KeyPair, ...]:
    """The pairs in the order of the store's key, of which they may be part; a `PlanError` for what is not there."""
    for pair in request.on:
        known("on: the stream", pair.stream, stream_columns)
        known("on: the store's key", pair.master, store.key)
    by_master = {pair.master: pair for pair in request.on}
    if len(by_master) < len(request.on):
        raise PlanError(f"on={[(p.stream, p.master) for p in request.on]} names a key column of the store twice.")
    return tuple(by_master[name] for name in store.key if name in by_master)


def known(what: str, name: str, names: Sequence[str]) -> None:
    """A `PlanError`, with the nearest name, unless the name is one of these."""
    if name not in names:
        near = get_close_matches(name, list(names), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PlanError(f"{what} has no column {name!r}; it has {list(names)}.{hint}")


def one_of(name: str, given: Any, allowed: Sequence[str]) -> None:
    """A `PlanError`, with the nearest word, unless the word is allowed."""
    if given not in allowed:
        near = get_close_matches(str(given), allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise PlanError(f"{name}={given!r} is not known{hint} Known: {', '.join(allowed)}.")


def _check_misses(misses: OnMiss, how: str, mode: str) -> None:
    if isinstance(misses, Drop):
        return
    if how != "inner":
        raise PlanError(f"on_miss={misses} is for how='inner'; how={how!r} has its own answer to a miss. Leave it out.")
    if isinstance(misses, Park) and mode != "carry":
        raise PlanError(f"on_miss={misses} keeps rows from one micro-batch to the next; use mode='carry' with it.")


def _check_as_of(as_of: str, mode: str) -> None:
    if as_of == "admitted" and mode != "carry":
        raise PlanError(
            "as_of='admitted' is for mode='carry': without it rows are answered in the micro-batch they come in, from "
            "the version of which both are as of. Leave it out."
        )


def _condition(condition: Any, misses: OnMiss) -> Any:
    if isinstance(condition, str) and not condition.strip():
        raise PlanError(f"condition={condition!r} is empty; write it over the columns of the result, or leave it out.")
    if condition is not None and isinstance(misses, Park):
        raise PlanError(
            f"condition={condition!r} with on_miss={misses}: rows are parked by their key alone; use "
            f"dead_letter(path), or how='left'."
        )
    return condition


def _flag(name: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise PlanError(f"{name}={given!r} must be True or False.")
    return given


def _tune(tune: str | Sizes | Mapping[str, int]) -> tuple[str, Sizes | None]:
    if isinstance(tune, Sizes):
        return "explicit", tune
    if isinstance(tune, Mapping):
        names = [field.name for field in fields(Sizes)]
        for name in tune:
            one_of("tune: size", name, names)
        return "explicit", Sizes(**tune)
    one_of("tune", tune, TUNES)
    return tune, None


def _directory(versions: str | Path | None) -> str | None:
    if versions is None:
        return None
    if not str(versions) or "://" in str(versions):
        raise PlanError(
            f"versions={str(versions)!r} is no path of a directory; the log of versions is kept on a file system that "
            f"driver and executors have at the same path: give such a path."
        )
    return str(Path(versions).absolute())


def _columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not columns or not all(isinstance(name, str) for name in columns):
        raise PlanError(f"columns={columns!r} must be a list of output column names.")
    if len(set(columns)) < len(columns):
        raise PlanError(f"columns={list(columns)} has a name twice; give each once.")
    return tuple(columns)


def _suffixes(suffixes: tuple[str, str]) -> tuple[str, str]:
    if len(suffixes) != 2 or not all(isinstance(suffix, str) for suffix in suffixes):
        raise PlanError(f"suffixes={suffixes!r} must be two strings, for the stream's and the master's clashing names.")
    return (suffixes[0], suffixes[1])
