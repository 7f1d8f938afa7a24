"""Runs cases and experiments: counted ones side by side in processes, measured ones alone, rivals in turn.

Every answer is checked, and no rival is left out without a reason.
"""

from __future__ import annotations

import gc
import multiprocessing
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from bench.case import (
    NOT_MEASURED,
    Case,
    CaseResult,
    Outcome,
    Params,
    PointResult,
    Rival,
    RivalResult,
    Run,
    Sample,
    Scale,
)
from bench.catalogue import Entry, load_experiments, missing
from bench.context import BenchContext
from bench.experiment import Experiment, ExperimentResult
from bench.machine import PeakMemory, commit, digest, machine, versions

FORMAT = 2
"""Version of the JSON layout; raised when a reader of older files would be misled."""
Watch = Callable[[Entry, Params, str, str], None]
"""Told before each step: case or experiment, point, rival, and what comes ("prepare", "cold", "warm 2/5")."""


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
        broken = (j for j in verdicts if j.verdict == "does not hold" or j.untested == NOT_MEASURED)
        return [f"{j.bound.explain()}: {j.untested or j.verdict}" for j in broken]

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

    With `at_once` above one, experiments that count and do not measure come first, in `at_once` processes.
    Within a point of a case the rivals take turns: every rival runs once cold, unless the case is not `warms_up`, then
    `rounds` times warm, and the first rival of a round rotates. A wrong answer or an error ends that rival's part
    at the point and is a failure of the report. So is any error of an experiment.
    """
    entries = list(entries)
    packages = {module.partition(".")[0] for entry in entries for module in _required(entry)}
    report = Report(scale, _now(), {"machine": machine(), "versions": versions(packages), "commit": commit()})
    counted = [e for e in entries if isinstance(e, Experiment) and e.ground == "counted"] if at_once > 1 else []
    told = watch or _ignore

    def tell() -> None:
        report.finished_at = _now()
        if after is not None:
            after(report)

    for found in run_counted(counted, scale, at_once, lambda e: told(e, {}, e.ground, "run")):
        report.experiments.append(found)
        tell()
    with BenchContext(scale) as bench, _imports_kept():
        for entry in (entry for entry in entries if entry.name not in {one.name for one in counted}):
            if isinstance(entry, Experiment):
                told(entry, {}, entry.ground, "run")
                report.experiments.append(run_experiment(entry, bench))
            else:
                report.results.append(_run_case(entry, bench, rounds, told))
            if bench.spark_started:
                report.environment["java"] = _java_of(bench)
            tell()
    return report


@contextmanager
def _imports_kept() -> Iterator[None]:
    """Exclude modules from garbage collection: they are no garbage of a rival, and need no look before every run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _required(entry: Entry) -> Iterable[str]:
    return entry.requires if isinstance(entry, Experiment) else (m for r in entry.rivals for m in r.requires)


def run_experiment(experiment: Experiment, bench: BenchContext) -> ExperimentResult:
    """The findings of an experiment; whatever it raises is a failure, so that no gap in a picture hides it."""
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


def _run_case(case: Case, bench: BenchContext, asked: int | None, watch: Watch) -> CaseResult:
    bench.seed = case.seed
    rounds = asked or (case.rounds if bench.scale == "full" else min(case.rounds, case.small_rounds))
    result = CaseResult(case, bench.scale, code=digest(case.measures), measured_at=_now())
    for params in case.points[bench.scale]:
        result.points.append(run_point(case, params, bench, rounds, watch))
        bench.next_point()
    return result


def run_point(case: Case, params: Params, bench: BenchContext, rounds: int, watch: Watch | None = None) -> PointResult:
    """One point: rivals take turns, once cold and `rounds` times warm."""
    told = watch or _ignore
    point = PointResult(params, case.expected(bench, params), {r.name: RivalResult(r.name) for r in case.rivals})
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for rival in case.rivals:
            told(case, params, rival.name, "prepare")
            ready = _prepare(rival, params, bench, stack, point.rivals[rival.name])
            if ready is not None:
                runs[rival.name] = ready
        for number in range(0 if case.warms_up else 1, rounds + 1):
            for rival in _rotated(case.rivals, number):
                if not number and not rival.warms_up:
                    continue
                if rival.name in runs and _goes_on(point.rivals[rival.name], case.patience_s):
                    told(case, params, rival.name, f"warm {number}/{rounds}" if number else "cold")
                    _take_turn(rival, runs[rival.name], number, point)
    return point


def _prepare(rival: Rival, params: Params, bench: BenchContext, stack: ExitStack, result: RivalResult) -> Run | None:
    if (reason := missing(rival.requires)) is not None:
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


def run_counted(
    experiments: Sequence[Experiment], scale: Scale, at_once: int, begin: Callable[[Experiment], None]
) -> Iterator[ExperimentResult]:
    """Results of experiments as they come, from `at_once` processes; `begin` is called with each before it runs.

    What they find does not depend on the clock, so that cores need not rest. Experiments of one family stay in one
    process, one after another: they share what they have counted. Only when no family is left does a process take
    experiments from the end of another's. If a process dies, each of its experiments has failed.
    """
    waiting = _Waiting(experiments, at_once)
    found: queue.SimpleQueue[ExperimentResult] = queue.SimpleQueue()

    def work(number: int) -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            while (experiment := waiting.next(number)) is not None:
                begin(experiment)
                found.put(_asked(process, experiment, scale))

    used = range(min(at_once, len(experiments)))
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in used]
    for thread in threads:
        thread.start()
    try:
        for _ in experiments:
            yield found.get()
    except BaseException:  # their results are not wanted any more
        waiting.clear()
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        for thread in threads:
            thread.join()


class _Waiting:
    """Experiments that no process has begun: whole families, and what is left of those that processes have taken."""

    def __init__(self, experiments: Sequence[Experiment], at_once: int) -> None:
        families = groupby(sorted(experiments, key=lambda one: one.family), key=lambda one: one.family)
        self._families = deque(deque(family) for _, family in families)
        self._taken: list[deque[Experiment]] = [deque() for _ in range(at_once)]
        self._lock = threading.Lock()

    def next(self, number: int) -> Experiment | None:
        """The next run of this process: of its family, else of a new one, else the last of that with the most left."""
        with self._lock:
            if not self._taken[number] and self._families:
                self._taken[number] = self._families.popleft()
            if self._taken[number]:
                return self._taken[number].popleft()
            longest = max(self._taken, key=len)
            return longest.pop() if longest else None

    def clear(self) -> None:
        """Nothing more is to be run."""
        with self._lock:
            self._families.clear()
            for family in self._taken:
                family.clear()


def _asked(process: ProcessPoolExecutor, experiment: Experiment, scale: Scale) -> ExperimentResult:
    try:
        return ExperimentResult(experiment, scale, **process.submit(_run_there, experiment.name, scale).result())
    except Exception as error:
        return ExperimentResult(experiment, scale, reason=f"{type(error).__name__}: {error}")


def _run_there(name: str, scale: Scale) -> dict[str, Any]:
    """In the other process: everything of the result but the experiment, whose functions need not travel."""
    with exit_on_signals(), BenchContext(scale) as bench:
        found = run_experiment(load_experiments()[name], bench)
    return {f.name: getattr(found, f.name) for f in fields(found) if f.name not in ("experiment", "scale")}


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the process as Ctrl-C does, so that files, servers and Spark go with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
