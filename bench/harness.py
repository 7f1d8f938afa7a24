"""Run cases: rivals take turns round by round, every answer is checked, and nobody is dropped in silence."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bench.case import Case, Outcome, Params, Rival, Run, Scale
from bench.catalogue import Entry, missing
from bench.code import digest
from bench.context import BenchContext
from bench.experiment import Experiment
from bench.machine import commit, machine, versions
from bench.parallel import run_counted
from bench.resident import PeakMemory
from bench.result import CaseResult, ExperimentResult, PointResult, RivalResult, Sample

FORMAT = 1
"""Version of the JSON layout; raised when a reader of older files would be misled."""

Watch = Callable[[Entry, Params, str, str], None]
"""Told before each step: case or experiment, point, rival, and what comes ("prepare", "cold", "warm 2/5")."""


def unavailable(rival: Rival) -> str | None:
    """Why the rival cannot run here (a package that it needs is missing); None if it can."""
    return missing(rival.requires)


@dataclass(slots=True)
class Report:
    """The results of a run and where they were measured."""

    scale: Scale
    started_at: str
    environment: dict[str, Any]
    results: list[CaseResult] = field(default_factory=list)
    experiments: list[ExperimentResult] = field(default_factory=list)
    finished_at: str | None = None

    @property
    def failures(self) -> list[str]:
        """One line for every wrong answer, broken rival or broken experiment."""
        of_cases = [line for result in self.results for line in result.failures]
        return of_cases + [line for result in self.experiments for line in result.failures]

    @property
    def broken_claims(self) -> list[str]:
        """Claims that do not hold, and claims that could not be measured: neither may be relied on."""
        verdicts = (judged for result in self.results for judged in result.judged)
        return [f"{j.bound.explain()}: {j.verdict}" for j in verdicts if j.verdict in ("does not hold", "not measured")]

    def to_json(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "format": FORMAT,
            "scale": self.scale,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            **self.environment,
            "failures": self.failures,
            "cases": [result.to_json() for result in self.results],
            "experiments": [result.to_json() for result in self.experiments],
        }


def run(
    entries: Iterable[Entry],
    scale: Scale,
    rounds: int | None = None,
    watch: Watch | None = None,
    after: Callable[[Report], None] | None = None,
    at_once: int = 1,
) -> Report:
    """Run cases and experiments one after another in one context; `after` is given the report so far after each.

    With `at_once` above one, experiments that count and do not measure come first, in so many processes at a time.

    Within a point of a case the rivals take turns: every rival runs once cold, unless the case says that nobody warms
    up, then `rounds` times warm, and who goes first rotates. A wrong answer or an error ends that rival's part at the
    point and is a failure of the report. So is any error of an experiment.
    """
    entries = list(entries)
    packages = {module.partition(".")[0] for entry in entries for module in _required(entry)}
    environment = {"machine": machine(), "versions": versions(packages), "commit": commit()}
    report = Report(scale, _now(), environment)
    counted = [e for e in entries if isinstance(e, Experiment) and e.ground == "counted"] if at_once > 1 else []
    told = watch or _ignore
    for found in run_counted(counted, scale, at_once, run_experiment, lambda e: told(e, {}, e.ground, "run")):
        report.experiments.append(found)
        report.finished_at = _now()
        if after is not None:
            after(report)
    with BenchContext(scale) as bench:
        for entry in (entry for entry in entries if entry.name not in {one.name for one in counted}):
            if isinstance(entry, Experiment):
                told(entry, {}, entry.ground, "run")
                report.experiments.append(run_experiment(entry, bench))
            else:
                bench.seed = entry.seed
                turns = rounds or (entry.rounds if scale == "full" else min(entry.rounds, entry.small_rounds))
                report.results.append(_run_case(entry, bench, turns, told))
            if bench.spark_started:
                environment["java"] = _java_of(bench)
            report.finished_at = _now()
            if after is not None:
                after(report)
    return report


def _required(entry: Entry) -> Iterable[str]:
    return entry.requires if isinstance(entry, Experiment) else (m for r in entry.rivals for m in r.requires)


def run_experiment(experiment: Experiment, bench: BenchContext) -> ExperimentResult:
    """What an experiment found; whatever it raises is a failure, so that no gap in a picture hides it."""
    bench.seed = 0
    result = ExperimentResult(experiment, bench.scale, digest(experiment.measures), _now())
    if (reason := missing(experiment.requires)) is not None:
        result.reason = reason
        return result
    began = time.perf_counter()
    try:
        result.findings = experiment.run(bench)
    except Exception as error:
        result.reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    finally:
        result.seconds = time.perf_counter() - began
        bench.next_point()
    return result


def _run_case(case: Case, bench: BenchContext, rounds: int, watch: Watch) -> CaseResult:
    result = CaseResult(case, bench.scale, code=digest(case.measures), measured_at=_now())
    for params in case.points[bench.scale]:
        result.points.append(_run_point(case, params, bench, rounds, watch))
        bench.next_point()
    return result


def _run_point(case: Case, params: Params, bench: BenchContext, rounds: int, watch: Watch) -> PointResult:
    point = PointResult(params, case.expected(bench, params), {r.name: RivalResult(r.name) for r in case.rivals})
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for rival in case.rivals:
            watch(case, params, rival.name, "prepare")
            ready = _prepare(rival, params, bench, stack, point.rivals[rival.name])
            if ready is not None:
                runs[rival.name] = ready
        for number in range(0 if case.warms_up else 1, rounds + 1):
            for rival in _rotated(case.rivals, number):
                if rival.name in runs and _goes_on(point.rivals[rival.name], case.patience_s):
                    watch(case, params, rival.name, f"warm {number}/{rounds}" if number else "cold")
                    _take_turn(rival, runs[rival.name], number, point)
    return point


def _prepare(rival: Rival, params: Params, bench: BenchContext, stack: ExitStack, result: RivalResult) -> Run | None:
    if (reason := unavailable(rival)) is not None:
        result.status, result.reason = "unavailable", reason
        return None
    if (reason := rival.sits_out(params)) is not None:
        result.status, result.reason = "sat out", reason
        return None
    began = time.perf_counter()
    try:
        context = rival.prepare(bench, params)
        ready = context.__enter__()  # not stack.enter_context: an error while closing is this rival's alone
    except Exception as error:
        _broke(rival, result, error)
        return None
    stack.callback(_close, rival, context, result)
    result.prepare_s = time.perf_counter() - began
    return ready


def _close(rival: Rival, context: AbstractContextManager[Run], result: RivalResult) -> None:
    try:
        context.__exit__(None, None, None)
    except Exception as error:
        _broke(rival, result, error)


def _goes_on(result: RivalResult, patience_s: float) -> bool:
    spent = sum(sample.seconds for sample in result.samples)
    return result.status == "ok" and (len(result.samples) < 2 or spent < patience_s)


def _take_turn(rival: Rival, ready: Run, number: int, point: PointResult) -> None:
    result = point.rivals[rival.name]
    try:
        sample = _measure(ready, number)
    except Exception as error:
        _broke(rival, result, error)
        return
    result.samples.append(sample)
    if sample.answer != point.expected:
        result.status, result.reason = "wrong", f"answered {sample.answer:,}, expected {point.expected:,}"


def _measure(ready: Run, number: int) -> Sample:
    gc.collect()  # so that no rival pays for the garbage of the one before
    with PeakMemory() as memory:
        began = time.perf_counter()
        answer = ready()
        seconds = time.perf_counter() - began
    outcome = answer if isinstance(answer, Outcome) else Outcome(int(answer))
    timed = seconds if outcome.seconds is None else outcome.seconds
    return Sample(number, timed, outcome.answer, memory.peak, memory.growth, dict(outcome.figures))


def _broke(rival: Rival, result: RivalResult, error: Exception) -> None:
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if rival.may_fail is None:
        result.status, result.reason = "failed", what
    else:
        result.status, result.reason = "broke", f"{what} ({rival.may_fail})"


def _rotated(rivals: tuple[Rival, ...], number: int) -> tuple[Rival, ...]:
    cut = number % len(rivals)
    return rivals[cut:] + rivals[:cut]


def _java_of(bench: BenchContext) -> str:
    jvm: Any = bench.spark._jvm
    return str(jvm.java.lang.System.getProperty("java.version"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _ignore(entry: Entry, params: Params, rival: str, step: str) -> None:
    return None
