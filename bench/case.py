"""A benchmark case: points, rivals, the right answer at every point and claims; and what a run of it found."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bench.experiment import Verdict
from dovetail.errors import PlanError

if TYPE_CHECKING:
    from bench.context import BenchContext

Scale = Literal["small", "full"]
Phase = Literal["cold", "warm"]
SCALES: tuple[Scale, ...] = ("small", "full")
Params: TypeAlias = Mapping[str, Any]
"""One point of a case: a value (int, float or str) for everything that the case varies."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run of a rival, when more than its answer matters.

    `seconds` replaces the harness's own stopwatch where a run times a part of itself (a first query without the
    start of the process around it). `figures` are further measurements by name: bytes spilled, comparisons, peaks.
    """

    answer: int
    seconds: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Run: TypeAlias = Callable[[], "int | Outcome"]
Prepare: TypeAlias = Callable[["BenchContext", Params], AbstractContextManager[Run]]


def prepared(make: Callable[[BenchContext, Params], Run]) -> Prepare:
    """A rival that leaves nothing to clear up: the function prepares it and returns the run."""

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        yield make(bench, params)

    return prepare


def _always_fits(params: Params) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Rival:
    """One contestant: `prepare` is a context manager that loads the data, yields the timed run, and clears up.

    `requires` names modules that must be importable; without them the rival is reported as unavailable.
    `sits_out` gives a reason why the rival takes no part at a point (a quadratic plan at full size), or None.
    `may_fail` is the reason why an error of this rival is a finding about it and not a failure of the benchmark.
    One that has nothing to warm up runs no cold round: it is not `warms_up`.
    """

    name: str
    prepare: Prepare
    requires: tuple[str, ...] = ()
    sits_out: Callable[[Params], str | None] = _always_fits
    may_fail: str | None = None
    warms_up: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """A claim: a figure of `rival`, divided by that of `against`, has a median of at most `at_most`.

    Without `against` the figure itself is bounded. Against several, "a | b", the least figure of those that took part
    in a round counts. With `less` the other's figure is taken off, not divided by. The claim speaks of every point
    whose values agree with `where`, at every scale or only at `scale`, and holds if it holds at each of those points.
    """

    name: str
    rival: str
    at_most: float
    against: str | None = None
    where: Params = field(default_factory=dict)
    phase: Phase = "warm"
    figure: str = "seconds"
    scale: Scale | None = None
    less: bool = False

    def explain(self) -> str:
        """The claim in one line."""
        subject = f"{self.rival} {'-' if self.less else '/'} {self.against}" if self.against else self.rival
        place = "".join(f", {key}={value}" for key, value in self.where.items())
        size = f", {self.scale} scale" if self.scale else ""
        return f"{self.name}: {subject} <= {self.at_most:g} ({self.phase} {self.figure}{place}{size})"

    @property
    def others(self) -> tuple[str, ...]:
        """The rivals that it compares with."""
        return tuple(self.against.split(" | ")) if self.against else ()

    def covers(self, params: Params) -> bool:
        """Whether the claim speaks of this point."""
        return all(key in params and params[key] == value for key, value in self.where.items())


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark: what it varies, its rivals, and the answer that each of them must give.

    `expected` computes the right answer (a row count or a checksum) by a way of its own, never by asking a rival.
    Ratios are against `baseline`. `rounds` is the number of warm runs after the cold one, at small scale no more than
    `small_rounds`; a rival that has used up `patience_s` at a point runs no more of them, but always at least one.
    Where every run is a process of its own, or rivals are warmed up as they are prepared, none is kept apart as the
    cold one: it is not `warms_up`. `measures` is the code that decides figures: the modules of its rivals with all that
    these import, and the table that describes it. Once it changes, kept figures are stale.
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
    measures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
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
        for name in (bound.rival, *bound.others):
            self._require(name in names, f"claim {bound.name!r} names {name!r}; the rivals are {names}")
        scales = (bound.scale,) if bound.scale else SCALES
        for scale in scales:
            covered = any(bound.covers(params) for params in self.points[scale])
            self._require(covered, f"claim {bound.name!r} covers no point of the {scale} scale")

    def _require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise PlanError(f"benchmark case {self.name!r}: {problem}.")


Status = Literal["ok", "wrong", "failed", "broke", "unavailable", "sat out"]
NOT_MEASURED = "it was not measured at every point"


@dataclass(frozen=True, slots=True)
class Range:
    """Median, smallest and largest of n figures."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> Range | None:
        """The range of these figures; None if there are none."""
        if not figures:
            return None
        return cls(statistics.median(figures), min(figures), max(figures), len(figures))


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one rival. `round` 0 is the cold one."""

    round: int
    seconds: float
    answer: int
    rss_peak: int
    rss_growth: int
    figures: Mapping[str, float] = field(default_factory=dict)

    def figure(self, name: str) -> float | None:
        """The figure of this name: seconds, rss_peak, rss_growth, or one that the rival reported."""
        if name in ("seconds", "rss_peak", "rss_growth"):
            return float(getattr(self, name))
        return self.figures.get(name)


@dataclass(slots=True)
class RivalResult:
    """The runs of one rival at one point; `reason` says why if it is not ok.

    "wrong" and "failed" are failures of the benchmark; "broke" is a finding about a rival that is known to break,
    "unavailable" a missing package, "sat out" a point that the case spares the rival.
    """

    name: str
    status: Status = "ok"
    reason: str | None = None
    prepare_s: float = 0.0
    samples: list[Sample] = field(default_factory=list)

    def figures(self, phase: Phase, name: str = "seconds") -> dict[int, float]:
        """The figure by round, for the cold round or for the warm ones."""
        chosen = (s for s in self.samples if (s.round == 0) == (phase == "cold"))
        return {s.round: value for s in chosen if (value := s.figure(name)) is not None}

    def range_of(self, phase: Phase, name: str = "seconds") -> Range | None:
        """Median, smallest and largest of a figure in a phase."""
        return Range.of(list(self.figures(phase, name).values()))


@dataclass(slots=True)
class PointResult:
    """The results at one point: the answer that was expected, and the runs of each rival."""

    params: Params
    expected: int
    rivals: dict[str, RivalResult]

    def ratio(self, rival: str, against: str, phase: Phase, figure: str = "seconds") -> Range | None:
        """The rival's figure over the other's, paired round by round, so that a slow moment hits both."""
        if any(self.rivals[name].status != "ok" for name in (rival, against)):
            return None
        above, below = (self.rivals[name].figures(phase, figure) for name in (rival, against))
        return Range.of([above[r] / below[r] for r in above if below.get(r)])

    def measure(self, bound: Bound) -> Range | None:
        """The figure that the claim is about, measured at this point; None if it could not be measured."""
        if bound.others:
            mine, *others = (self.rivals[name] for name in (bound.rival, *bound.others))
            by_round = [r.figures(bound.phase, bound.figure) for r in others if r.status == "ok"]
            if mine.status != "ok" or not by_round:
                return None
            found = []
            for number, value in mine.figures(bound.phase, bound.figure).items():
                if least := min((figures[number] for figures in by_round if number in figures), default=0.0):
                    found.append(value - least if bound.less else value / least)
            return Range.of(found)
        rival = self.rivals[bound.rival]
        return rival.range_of(bound.phase, bound.figure) if rival.status == "ok" else None


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and what became of it: the worst point's figure, and the verdict; or why it was not tested."""

    bound: Bound
    verdict: Verdict
    worst: Range | None = None
    at: Params | None = None
    untested: str = ""


@dataclass(slots=True)
class CaseResult:
    """All points of one case at one scale; `code` is the digest of what was measured."""

    case: Case
    scale: Scale
    points: list[PointResult] = field(default_factory=list)
    code: str = ""
    measured_at: str = ""

    @property
    def failures(self) -> list[str]:
        """One line for every rival that gave a wrong answer or broke."""
        return [
            f"{self.case.name} {_point(point.params)}: {rival.name} {rival.status}: {rival.reason}"
            for point in self.points
            for rival in point.rivals.values()
            if rival.status in ("wrong", "failed")
        ]

    def judge(self, bound: Bound) -> Judged:
        """The verdict on a claim: it holds only if it was measured, and held, at every point that it covers."""
        if bound.scale not in (None, self.scale):
            return Judged(bound, "not tested here", untested=f"it speaks of {bound.scale} scale")
        measured = [(point.measure(bound), point.params) for point in self.points if bound.covers(point.params)]
        known = [(spread, params) for spread, params in measured if spread is not None]
        if not known or len(known) < len(measured):
            return Judged(bound, "not tested here", untested=NOT_MEASURED)
        worst, at = max(known, key=lambda pair: pair[0].median)
        return Judged(bound, "holds" if worst.median <= bound.at_most else "does not hold", worst, at)

    @property
    def judged(self) -> list[Judged]:
        """Every claim of the case with its verdict."""
        return [self.judge(bound) for bound in self.case.bounds]

    def to_json(self) -> dict[str, Any]:
        """Everything measured, ready for JSON."""
        case = self.case
        return {
            **{name: getattr(case, name) for name in ("name", "question", "varies", "baseline", "answer", "seed")},
            **{name: getattr(self, name) for name in ("scale", "code", "measured_at")},
            "points": [_point_json(point, case.baseline) for point in self.points],
            "bounds": [_judged_json(judged) for judged in self.judged],
        }


def _point(params: Params) -> str:
    return "(" + ", ".join(f"{key}={value}" for key, value in params.items()) + ")"


def _point_json(point: PointResult, baseline: str) -> dict[str, Any]:
    return {
        "params": dict(point.params),
        "expected": point.expected,
        "rivals": [_rival_json(point, rival, baseline) for rival in point.rivals.values()],
    }


def _rival_json(point: PointResult, rival: RivalResult, baseline: str) -> dict[str, Any]:
    phases: tuple[Phase, Phase] = ("cold", "warm")
    return {
        "name": rival.name,
        "status": rival.status,
        "reason": rival.reason,
        "prepare_s": rival.prepare_s,
        **{f"{phase}_s": _range_json(rival.range_of(phase)) for phase in phases},
        **{f"{phase}_ratio": _range_json(point.ratio(rival.name, baseline, phase)) for phase in phases},
        "samples": [asdict(sample) for sample in rival.samples],
    }


def _judged_json(judged: Judged) -> dict[str, Any]:
    return {
        **asdict(judged.bound),
        "claim": judged.bound.explain(),
        "verdict": judged.verdict,
        "untested": judged.untested,
        "worst": _range_json(judged.worst),
        "at": None if judged.at is None else dict(judged.at),
    }


def _range_json(found: Range | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)
