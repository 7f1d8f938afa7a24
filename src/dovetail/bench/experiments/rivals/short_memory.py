"""Interval joins whose result does not fit the memory they are given: who finishes, who fails, and how."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # ships no type information

from dovetail.bench.case import Scale
from dovetail.bench.cases.interval_overlap import overlap_counts
from dovetail.bench.catalogue import missing
from dovetail.bench.experiment import Experiment, Findings, Grid, Opinion
from dovetail.bench.experiments.rivals.short_memory_child import JOINS, sides
from dovetail.bench.resident import tree_rss
from dovetail.bench.workbench import Workbench
from dovetail.errors import DataError

CHILD = "dovetail.bench.experiments.rivals.short_memory_child"
SIZES: dict[Scale, tuple[int, int]] = {"small": (40_000, 256), "full": (120_000, 1_024)}
"""Rows a side, and MiB that a library may have."""

_NEEDS = {"polars": "polars", "polars-bio": "polars_bio", "bioframe": "bioframe", "pyjanitor": "janitor"}
_PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one rival."""

    name: str
    outcome: str
    pairs: int | None
    seconds: float
    peak: int


def _run(name: str, rows: int, mib: int, scratch: Path) -> Fate:
    if (reason := missing([_NEEDS.get(name, "dovetail")])) is not None:
        return Fate(name, reason, None, 0.0, 0)
    place = tempfile.mkdtemp(dir=scratch)
    command = [sys.executable, "-m", CHILD, name, str(rows), str(mib), place]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)  # noqa: S603  (our own module)
        peak = _watched(process)
        seconds = time.perf_counter() - began
        out.seek(0)
        errors.seek(0)
        said, complaint = out.read().decode().strip(), errors.read().decode(errors="replace")
    if process.returncode == 0:
        return Fate(name, "finished", int(json.loads(said.splitlines()[-1])["pairs"]), seconds, peak)
    return Fate(name, _reason(process.returncode, complaint), None, seconds, peak)


def _watched(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process, up to a limit; the most that it and its children held."""
    peak, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            try:
                peak[0] = max(peak[0], tree_rss(process.pid))
            except psutil.Error:
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()
    finally:
        over.set()
        thread.join()
    return peak[0]


def _reason(code: int, complaint: str) -> str:
    """How it failed, in its own last words."""
    words = [
        line.strip() for line in complaint.splitlines() if "rror" in line or "memory" in line or "panicked" in line
    ]
    how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {words[-1][:140]}" if words else how


def _short(bench: Workbench) -> Findings:
    rows, mib = SIZES[bench.scale]
    due = int(overlap_counts(*sides(rows), keyed=True).sum())
    fates = [_run(name, rows, mib, bench.scratch) for name in JOINS]
    for fate in fates:
        if fate.pairs not in (None, due):
            raise DataError(f"{fate.name} wrote {fate.pairs:,} pairs, {due:,} are due.")
    ours = fates[0]
    if ours.pairs is None:
        raise DataError(f"our own join did not finish: {ours.outcome}")
    heads = ("join", "outcome", "pairs", "seconds", "peak of all its processes, MiB")
    table = [(f.name, f.outcome, f.pairs, f.seconds, f.peak / 2**20 if f.peak else None) for f in fates]
    failed = [f.name for f in fates if f.pairs is None and f.peak]
    finished = [f.name for f in fates if f.pairs is not None]
    why = (
        f"{due:,} pairs of two inputs of {rows:,} rows, written to Parquet, with {mib} MiB: {', '.join(finished)} "
        f"finished, {', '.join(failed) or 'nobody'} did not. Ours runs with 32 MB a task beside a Java heap of "
        f"{max(512, mib)} MiB. The limit is the system's for libraries of one process, counted from when they have "
        "loaded their input."
    )
    title = f"{due:,} pairs to Parquet, {mib} MiB"
    verdict: Opinion = "holds" if failed else "holds in part"
    return Findings(verdict, why, tables=[Grid(title, heads, table)], rows=due * len(finished))


EXPERIMENTS = (
    Experiment(
        name="rivals-short-memory",
        family="rivals",
        source="our own",
        places=(),
        claim="A join that keeps to a budget finishes where its result is larger than memory; a library that "
        "builds its result in memory does not.",
        run=_short,
        measures=("kernels", "engine", "interval", "spark", "bench/experiments/rivals"),
        ground="measured",
    ),
)
