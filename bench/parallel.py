"""Counted experiments side by side: what they find does not depend on the clock, so that cores need not rest.

Experiments of one family stay in one process, one after another: they share what they have counted. Only when no family
is left does a process take experiments from the end of another's.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import groupby
from typing import Any

from bench.case import Scale
from bench.catalogue import load_experiments
from bench.context import BenchContext
from bench.experiment import Experiment
from bench.result import ExperimentResult
from bench.signals import exit_on_signals

Run = Callable[[Experiment, BenchContext], ExperimentResult]


def run_counted(
    experiments: Sequence[Experiment], scale: Scale, at_once: int, run: Run, begin: Callable[[Experiment], None]
) -> Iterator[ExperimentResult]:
    """Their results, as they come; `begin` is told of each before it runs, `run` is a function that has a name.

    A process that dies takes with it what its experiments would have found, which is a failure of each of them.
    """
    waiting = _Waiting(experiments, at_once)
    found: queue.SimpleQueue[ExperimentResult] = queue.SimpleQueue()

    def work(number: int) -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            while (experiment := waiting.next(number)) is not None:
                begin(experiment)
                found.put(_asked(process, experiment, scale, run))

    used = range(min(at_once, len(experiments)))
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in used]
    for thread in threads:
        thread.start()
    try:
        for _ in experiments:
            yield found.get()
    except BaseException:  # nobody waits for what they would find
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
        """What this number is to run: of its family, else of a new one, else the last of who has the most left."""
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


def _asked(process: ProcessPoolExecutor, experiment: Experiment, scale: Scale, run: Run) -> ExperimentResult:
    try:
        return ExperimentResult(experiment, scale, **process.submit(_run, experiment.name, scale, run).result())
    except Exception as error:
        return ExperimentResult(experiment, scale, "", "", reason=f"{type(error).__name__}: {error}")


def _run(name: str, scale: Scale, run: Run) -> dict[str, Any]:
    """In the other process: everything of the result but the experiment, whose functions need not travel."""
    with exit_on_signals(), BenchContext(scale) as bench:
        found = run(load_experiments()[name], bench)
    return {
        field.name: getattr(found, field.name) for field in fields(found) if field.name not in ("experiment", "scale")
    }
