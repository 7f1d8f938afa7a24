"""Runs of the speed goals, each in its own process: cold starts, joins with little memory, the demonstration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.case import Outcome, Params, Prepare, Run, prepared
from bench.cases import first_query
from bench.child import run_child
from bench.context import BenchContext
from bench.experiments.rivals import interval_pairs, interval_sides
from bench.intervals import overlap_counts

_PATIENCE_S = 900.0


def cold(function: str, kind: str) -> Prepare:
    """A function of `first_query` in a new process, with Spark as it is or as our session sets it up."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        subprocess.run([sys.executable, "-m", "dovetail.spark.warm"], check=True, capture_output=True)

        def run() -> Outcome:
            child = run_child(
                getattr(first_query, function), kind, dict(params), scratch=bench.scratch, patience_s=_PATIENCE_S
            )
            figures = dict(child.answered())
            return Outcome(int(figures.pop("answer")), figures.pop("seconds"), figures)

        return run

    return prepare


def short(name: str) -> Prepare:
    """A contestant with little memory, from its start to its end; `resident_mib` is the most of all its processes."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        def run() -> Outcome:
            given = (name, params["mib"], str(bench.fresh()), params["rows"])
            child = run_child(interval_pairs, *given, scratch=bench.scratch, patience_s=_PATIENCE_S)
            return Outcome(int(child.answered()), child.seconds, {"resident_mib": child.peak / 2**20})

        return run

    return prepare


@prepared
def demo(bench: BenchContext, params: Params) -> Run:
    """`dovetail demo` as it is installed, or `make demo` in a new copy of the repository that has nothing yet."""
    home = Path(__file__).parents[2]

    def run() -> int:
        if params["set_up"] == "installed":
            command, place = [sys.executable, "-c", "from dovetail.cli.main import run; run()", "demo"], bench.fresh()
            env = dict(os.environ)
        else:
            place = bench.fresh() / "dovetail"
            subprocess.run(["git", "clone", "-q", str(home), str(place)], check=True)  # noqa: S603, S607  (our own)
            command, env = ["make", "demo"], os.environ | {"DOVETAIL_CACHE": str(bench.fresh())}
        done = subprocess.run(command, cwd=place, env=env, check=False, capture_output=True)  # noqa: S603  (as above)
        return int(done.returncode == 0)

    return run


def rows(bench: BenchContext, params: Params) -> int:
    """As many as the point says."""
    return int(params["rows"])


def one(bench: BenchContext, params: Params) -> int:
    """That it succeeded."""
    return 1


def first_count(bench: BenchContext, params: Params) -> int:
    """Pairs of intervals of ten instants, one at each, with themselves: each meets nine before and nine behind it."""
    return int(params["rows"]) * 19 - 90


def short_pairs(bench: BenchContext, params: Params) -> int:
    """Pairs of the inputs that have little memory."""
    return int(overlap_counts(*interval_sides(params["rows"]), keyed=True).sum())
