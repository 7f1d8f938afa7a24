"""What a benchmark run found: samples, ratios with their spread, verdicts on claims, and the JSON of it all."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from bench.case import Bound, Case, Params, Phase, Scale
from bench.experiment import Experiment, Findings

Status = Literal["ok", "wrong", "failed", "broke", "unavailable", "sat out"]
Verdict = Literal["holds", "does not hold", "not measured", "other scale"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of n figures."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread | None:
        """The spread of these figures; None if there are none."""
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
    """What one rival did at one point; `reason` says why if it is not ok.

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

    def spread(self, phase: Phase, name: str = "seconds") -> Spread | None:
        """Median, smallest and largest of a figure in a phase."""
        return Spread.of(list(self.figures(phase, name).values()))


@dataclass(slots=True)
class PointResult:
    """What happened at one point: the answer that was expected and what each rival did."""

    params: Params
    expected: int
    rivals: dict[str, RivalResult]

    def ratio(self, rival: str, against: str, phase: Phase, figure: str = "seconds") -> Spread | None:
        """The rival's figure over the other's, paired round by round, so that a slow moment hits both."""
        if any(self.rivals[name].status != "ok" for name in (rival, against)):
            return None
        above, below = (self.rivals[name].figures(phase, figure) for name in (rival, against))
        return Spread.of([above[r] / below[r] for r in above if below.get(r)])

    def measure(self, bound: Bound) -> Spread | None:
        """What the claim speaks of, measured at this point; None if it could not be measured."""
        if bound.against is not None:
            return self.ratio(bound.rival, bound.against, bound.phase, bound.figure)
        rival = self.rivals[bound.rival]
        return rival.spread(bound.phase, bound.figure) if rival.status == "ok" else None


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim and what became of it: the worst point's figure, and the verdict."""

    bound: Bound
    verdict: Verdict
    worst: Spread | None = None
    at: Params | None = None


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
            return Judged(bound, "other scale")
        measured = [(point.measure(bound), point.params) for point in self.points if bound.covers(point.params)]
        known = [(spread, params) for spread, params in measured if spread is not None]
        if not known or len(known) < len(measured):
            return Judged(bound, "not measured")
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
            "name": case.name,
            "question": case.question,
            "varies": list(case.varies),
            "baseline": case.baseline,
            "answer": case.answer,
            "seed": case.seed,
            "scale": self.scale,
            "code": self.code,
            "measured_at": self.measured_at,
            "points": [_point_json(point, case.baseline) for point in self.points],
            "bounds": [_judged_json(judged) for judged in self.judged],
        }


@dataclass(slots=True)
class ExperimentResult:
    """What an experiment found at one scale, or why it found nothing, which is a failure."""

    experiment: Experiment
    scale: Scale
    code: str
    measured_at: str
    seconds: float = 0.0
    findings: Findings | None = None
    reason: str | None = None

    @property
    def failures(self) -> list[str]:
        """The line that says what broke, if something did."""
        return [] if self.findings is not None else [f"{self.experiment.name}: {self.reason}"]

    def to_json(self) -> dict[str, Any]:
        """Everything found, ready for JSON."""
        return {
            "name": self.experiment.name,
            "scale": self.scale,
            "code": self.code,
            "measured_at": self.measured_at,
            "seconds": self.seconds,
            "reason": self.reason,
            "findings": None if self.findings is None else self.findings.to_json(),
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
        **{f"{phase}_s": _spread_json(rival.spread(phase)) for phase in phases},
        **{f"{phase}_ratio": _spread_json(point.ratio(rival.name, baseline, phase)) for phase in phases},
        "samples": [asdict(sample) for sample in rival.samples],
    }


def _judged_json(judged: Judged) -> dict[str, Any]:
    return {
        **asdict(judged.bound),
        "claim": judged.bound.explain(),
        "verdict": judged.verdict,
        "worst": _spread_json(judged.worst),
        "at": None if judged.at is None else dict(judged.at),
    }


def _spread_json(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
