"""Contestants that are given little memory, each in a process of its own: who finishes, who fails, and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil  # type: ignore[import-untyped]  # ships no type information

from bench.case import Scale
from bench.catalogue import missing
from bench.context import BenchContext
from bench.experiment import Experiment, Findings, Grid
from bench.experiments.parts import verdict_of
from bench.resident import tree_memory
from dovetail.errors import DataError

_PATIENCE_S: dict[Scale, float] = {"small": 45.0, "full": 300.0}
_OURS_S = 600.0
_LOOK_S = 0.25
_WORDS = ("rror", "memory", "panicked", "Exception")


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one contestant; without answers it failed, without a peak it did not start."""

    name: str
    outcome: str
    answers: int | None
    seconds: float
    peak: int


@dataclass(frozen=True, slots=True)
class Contest:
    """Contestants that a module runs, one a process, when it is called with a name, mebibytes, a directory and more.

    Ours comes first, and must end; the others are given less time. Should the run be broken off, nobody goes on.
    """

    module: str
    names: Sequence[str]
    mib: int
    bench: BenchContext
    arguments: Sequence[str] = ()
    needs: Mapping[str, str] = field(default_factory=dict)

    def fates(self) -> list[Fate]:
        """All of them, one after another."""
        return [self._fate(name) for name in self.names]

    def _fate(self, name: str) -> Fate:
        if (reason := missing([self.needs.get(name, "dovetail")])) is not None:
            return Fate(name, reason, None, 0.0, 0)
        place = tempfile.mkdtemp(dir=self.bench.scratch)
        command = [sys.executable, "-m", self.module, name, str(self.mib), place, *self.arguments]
        there = os.environ | {"TMPDIR": place}  # what it leaves when it dies goes away with the run
        began = time.perf_counter()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=out, stderr=errors, env=there)  # noqa: S603  (our own module)
            patience_s = _OURS_S if name == self.names[0] else _PATIENCE_S[self.bench.scale]
            peak, ended = _watched(process, patience_s)
            seconds = time.perf_counter() - began
            out.seek(0)
            errors.seek(0)
            said, complaint = out.read().decode().strip(), errors.read().decode(errors="replace")
        if process.returncode == 0:
            return Fate(name, "finished", int(json.loads(said.splitlines()[-1])["answers"]), seconds, peak)
        reason = _reason(process.returncode, f"{said}\n{complaint}") if ended else f"not done after {patience_s:.0f} s"
        return Fate(name, reason, None, seconds, peak)


def _watched(process: subprocess.Popen[bytes], patience_s: float) -> tuple[int, bool]:
    """Wait for the process, up to a limit; the most that it and its children held, and whether it ended by itself."""
    peak, over, ended = [0], threading.Event(), True

    def look() -> None:
        while not over.wait(_LOOK_S):
            try:
                peak[0] = max(peak[0], tree_memory(process.pid))
            except psutil.Error:
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        ended = False
    finally:  # whether it has ended, has used up its time, or nobody waits for it any more
        _end(process)
        over.set()
        thread.join()
    return peak[0], ended


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all that it started, if it still runs."""
    if process.poll() is None:
        started: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(process.pid).children(recursive=True)
        for child in started:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait()


def _reason(code: int, complaint: str) -> str:
    """How it failed: the line that speaks of memory, otherwise its last words."""
    words = [line.strip() for line in complaint.splitlines() if any(word in line for word in _WORDS)]
    words = [line for line in words if "OutOfMemory" in line or "out of memory" in line][:1] or words
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {words[-1][:140]}" if words else how


def short_memory(
    name: str, claim: str, run: Callable[[BenchContext], Findings], *measures: str, requires: tuple[str, ...] = ()
) -> Experiment:
    """An experiment of this kind; `measures` is what decides its figures beside kernels, engine and Spark."""
    parts = ("engine", "spark", "bench/experiments/rivals", *measures)
    whole = f"rivals-short-memory-{name}"
    return Experiment(whole, "rivals", "our own", (), claim, run, parts, "measured", requires)


def told(fates: Sequence[Fate], doomed: Sequence[str], due: int, title: str, what: str, note: str) -> Findings:
    """The verdict: ours, which comes first, has finished, and all, some or none of the `doomed` that ran have not.

    Reported, if none of them is installed. DataError if ours has not, or if anybody finished with another answer than
    the one that is due.
    """
    for fate in fates:
        if fate.answers not in (None, due):
            raise DataError(f"{fate.name} gave {fate.answers:,}, {due:,} is due.")
    if fates[0].answers is None:
        raise DataError(f"{fates[0].name} did not finish: {fates[0].outcome}")
    failed = [fate.name for fate in fates if fate.answers is None and fate.peak]
    finished = [fate for fate in fates if fate.answers is not None]
    quicker = [fate for fate in finished if fate.seconds < fates[0].seconds]
    why = f"{what}: {_list(fate.name for fate in finished)} finished, {_list(failed)} did not."
    if quicker:
        why += f" Of those that finished, {_list(fate.name for fate in quicker)} took less time than ours."
    heads = ("contestant", "outcome", "answers", "seconds", "most memory of all its processes, MiB")
    rows = [
        (f.name, f.outcome, f.answers, round(f.seconds, 1), round(f.peak / 2**20) if f.peak else None) for f in fates
    ]
    fell = [fate.answers is None for fate in fates if fate.name in doomed and fate.peak]
    verdict = verdict_of(fell) if fell else "reported"
    return Findings(verdict, f"{why} {note}", tables=[Grid(title, heads, rows)], rows=due * len(finished))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"
