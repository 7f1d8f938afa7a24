"""What a benchmark is: points, rivals, the right answer at every point, and the claims it is to decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dovetail.errors import PlanError

if TYPE_CHECKING:
    from bench.context import BenchContext

Scale = Literal["small", "full"]
Phase = Literal["cold", "warm"]
SCALES: tuple[Scale, ...] = ("small", "full")

BENCH = (
    "bench/cases",
    "bench/enrichment.py",
    "bench/enrichment_server.py",
    "bench/lookups.py",
    "bench/online_streams.py",
    "bench/xquery_weather.py",
)
"""Code of the benchmarks that decides figures of cases as well."""

Params: TypeAlias = Mapping[str, Any]
"""One point of a case: a value (int, float or str) for everything that the case varies."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a rival gave, when more than its answer matters.

    `seconds` replaces the harness's own stopwatch where a run times a part of itself (a first query without the
    start of the process around it). `figures` are further measurements by name: bytes spilled, comparisons, peaks.
    """

    answer: int
    seconds: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Run: TypeAlias = Callable[[], "int | Outcome"]
Prepare: TypeAlias = Callable[["BenchContext", Params], AbstractContextManager[Run]]


def _always_fits(params: Params) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Rival:
    """One contestant: `prepare` is a context manager that loads the data, yields the timed run, and clears up.

    `requires` names modules that must be importable; without them the rival is reported as unavailable.
    `sits_out` gives a reason why the rival takes no part at a point (a quadratic plan at full size), or None.
    `may_fail` is the reason why an error of this rival is a finding about it and not a failure of the benchmark.
    """

    name: str
    prepare: Prepare
    requires: tuple[str, ...] = ()
    sits_out: Callable[[Params], str | None] = _always_fits
    may_fail: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A claim: a figure of `rival`, divided by that of `against`, has a median of at most `at_most`.

    Without `against` the figure itself is bounded. It speaks of every point whose values agree with `where`, at
    every scale or only at `scale`, and holds if it holds at each of those points.
    """

    name: str
    rival: str
    at_most: float
    against: str | None = None
    where: Params = field(default_factory=dict)
    phase: Phase = "warm"
    figure: str = "seconds"
    scale: Scale | None = None

    def explain(self) -> str:
        """The claim in one line."""
        subject = f"{self.rival} / {self.against}" if self.against else self.rival
        place = "".join(f", {key}={value}" for key, value in self.where.items())
        size = f", {self.scale} scale" if self.scale else ""
        return f"{self.name}: {subject} <= {self.at_most:g} ({self.phase} {self.figure}{place}{size})"

    def covers(self, params: Params) -> bool:
        """Whether the claim speaks of this point."""
        return all(key in params and params[key] == value for key, value in self.where.items())


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark: what it varies, who takes part, and the answer that everybody must give.

    `expected` computes the right answer (a row count or a checksum) by a way of its own, never by asking a rival.
    Ratios are against `baseline`. `rounds` is the number of warm runs after the cold one, at small scale no more than
    `small_rounds`; a rival that has used up `patience_s` at a point runs no more of them, but always at least one.
    Where every run is a process of its own, or rivals are warmed up as they are prepared, none is kept apart as the
    cold one: it is not `warms_up`. `measures` are the parts of the library whose code decides the figures, beside the
    cases' own: once one of them changes, kept figures are stale.
    """

    name: str
    question: str
    varies: tuple[str, ...]
    points: Mapping[Scale, Sequence[Params]]
    rivals: tuple[Rival, ...]
    expected: Callable[[BenchContext, Params], int]
    baseline: str
    bounds: tuple[Bound, ...] = ()
    answer: str = "rows"
    rounds: int = 5
    small_rounds: int = 2
    warms_up: bool = True
    patience_s: float = 60.0
    seed: int = 0
    measures: tuple[str, ...] = ("engine",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "measures", tuple(dict.fromkeys((*self.measures, *BENCH))))
        names = [rival.name for rival in self.rivals]
        self._require(len(set(names)) == len(names) > 0, f"rivals are {names}; names must be given and distinct")
        self._require(self.baseline in names, f"baseline {self.baseline!r} is none of the rivals {names}")
        for name, rounds in (("rounds", self.rounds), ("small_rounds", self.small_rounds)):
            self._require(rounds >= 1, f"{name} is {rounds}; at least one warm run is needed")
        self._require(set(self.points) == set(SCALES), f"points are given for {sorted(self.points)}, not for {SCALES}")
        for params in (p for scale in SCALES for p in self.points[scale]):
            self._require(set(params) == set(self.varies), f"point {dict(params)} does not set exactly {self.varies}")
        for bound in self.bounds:
            self._check_bound(bound, names)

    def _check_bound(self, bound: Bound, names: list[str]) -> None:
        for name in filter(None, (bound.rival, bound.against)):
            self._require(name in names, f"claim {bound.name!r} names {name!r}; the rivals are {names}")
        scales = (bound.scale,) if bound.scale else SCALES
        for scale in scales:
            covered = any(bound.covers(params) for params in self.points[scale])
            self._require(covered, f"claim {bound.name!r} covers no point of the {scale} scale")

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise PlanError(f"benchmark case {self.name!r}: {problem}.")

    def explain(self) -> str:
        """The case in one line."""
        names = ", ".join(rival.name for rival in self.rivals)
        return f"{self.name}: {self.question} Varies {', '.join(self.varies)}. Rivals: {names}."
