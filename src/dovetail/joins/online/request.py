"""What a user asks of an online join, checked before anything touches Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from dovetail.engine.duration import parse_ms
from dovetail.engine.layout import HOWS, Key
from dovetail.engine.memory import parse_bytes
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.online.predicate import Band
from dovetail.joins.online.registry import ALGORITHMS

OWED = ("idle", "batch")
REACTS = ("diner", "xjoin", "hmj", "rpj", "miner")
"""Joins with a reactive phase."""
_MOST_BUCKETS = 100_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked of an online join whatever it joins. Times are milliseconds, memory bytes."""

    algorithm: str
    memory: int
    buckets: int | None
    wait_ms: int
    owed: str
    retain_ms: int | None
    with_phase: bool

    @property
    def reacts(self) -> bool:
        """Whether pauses are used."""
        return self.owed == "idle" and self.algorithm in REACTS


def parse_terms(
    known: Sequence[str],
    algorithm: str,
    memory: int | str,
    buckets: int | None,
    wait: str | float,
    owed: str,
    retain: str | float | None,
    with_phase: bool,
) -> Terms:
    """The terms that these arguments make for one of the algorithms known, or an error that says what to change."""
    _one_of("algorithm", algorithm, known)
    _one_of("owed", owed, OWED)
    if buckets is not None and (isinstance(buckets, bool) or not 1 <= buckets <= _MOST_BUCKETS):
        raise PlanError(f"buckets={buckets!r} is not possible; give a whole number from 1 to {_MOST_BUCKETS:,}.")
    retain_ms = None if retain is None else parse_ms("retain", retain)
    return Terms(algorithm, parse_bytes(memory), buckets, parse_ms("wait", wait), owed, retain_ms, bool(with_phase))


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request for a join of two inputs; columns are checked later, against both."""

    on: tuple[Key, ...]
    within: Band | None
    terms: Terms


def parse_request(
    on: str | Sequence[str | tuple[str, str]] | None,
    within: Band | Sequence[Any] | None,
    how: str,
    algorithm: str,
    memory: int | str,
    buckets: int | None,
    wait: str | float,
    owed: str,
    retain: str | float | None,
    with_phase: bool,
) -> Request:
    """The request that these arguments make, or an error that says what to change."""
    _check_how(how)
    terms = parse_terms(tuple(ALGORITHMS), algorithm, memory, buckets, wait, owed, retain, with_phase)
    keys, band = _keys(on), None if within is None else Band.of(within)
    ALGORITHMS[algorithm](on=keys, within=band)  # refuses what this algorithm cannot find
    return Request(keys, band, terms)


def _check_how(how: str) -> None:
    if how == "inner":
        return
    _one_of("how", how, HOWS)
    raise UnsupportedError(
        f"how={how!r}: online joins give matching pairs as they come and are inner joins only; use Spark's own "
        f"stream-stream join with a watermark for outer and semi joins."
    )


def _keys(on: str | Sequence[str | tuple[str, str]] | None) -> tuple[Key, ...]:
    """Keys from "k", ["k", ...], [("left_k", "right_k"), ...] or a mixture."""
    keys: list[Key] = []
    for item in [on] if isinstance(on, str) else list(on or ()):
        if isinstance(item, str):
            keys.append(item)
        elif isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
            keys.append((item[0], item[1]))
        else:
            raise PlanError(f"on={on!r}: each key is a column name or a (left name, right name) pair, not {item!r}.")
    return tuple(keys)


def _one_of(name: str, given: Any, allowed: Sequence[str]) -> None:
    if given not in allowed:
        near = get_close_matches(str(given), allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise PlanError(f"{name}={given!r} is not known{hint} Known: {', '.join(allowed)}.")
