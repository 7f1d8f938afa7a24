"""Runs of the speed goals, each in its own process: cold starts, joins with little memory."""

from __future__ import annotations

import subprocess
import sys

from bench.case import Outcome, Params, Prepare, Run, prepared
from bench.cases import first_query
from bench.child import run_child
from bench.context import BenchContext
from bench.experiments.rivals import interval_pairs, interval_sides
from bench.rivals.intervals import overlap_counts

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


def rows(bench: BenchContext, params: Params) -> int:
    """As many as the point says."""
    return int(params["rows"])


def first_count(bench: BenchContext, params: Params) -> int:
    """Pairs of intervals of ten instants, one at each, with themselves: each meets nine before and nine behind it."""
    return int(params["rows"]) * 19 - 90


def short_pairs(bench: BenchContext, params: Params) -> int:
    """Pairs of the inputs that have little memory."""
    return int(overlap_counts(*interval_sides(params["rows"]), keyed=True).sum())
