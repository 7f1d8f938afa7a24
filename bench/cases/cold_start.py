"""Cold start: what the first query of a fresh session pays for kernels, with Spark's worker daemon and with ours."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run, prepared
from bench.cases.first_query import EXPECTED_MATCHES, first_queries
from bench.child import run_child
from bench.context import BenchContext

_PATIENCE_S = 600.0


def _workers(kind: str) -> Prepare:
    """A rival whose every run is a process, a JVM and a session of its own; timed is the first query alone.

    `plain` workers are forked by Spark's own daemon and prepare kernels themselves; `warm` ones by ours. An `empty`
    cache is that of the first run ever; a `filled` one of every later run.
    """

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        def run() -> Outcome:
            environment = {}
            if params["kernel_cache"] == "empty":
                cache = tempfile.mkdtemp(dir=bench.scratch)
                environment = {"DOVETAIL_CACHE": cache, "NUMBA_CACHE_DIR": cache}
            else:
                subprocess.run([sys.executable, "-m", "dovetail.spark.warm"], check=True, capture_output=True)
            ended = run_child(first_queries, kind, scratch=bench.scratch, env=environment, patience_s=_PATIENCE_S)
            figures = dict(ended.answered())
            return Outcome(int(figures.pop("matches")), figures.pop("first_query_s"), figures)

        return run

    return prepare


LATER: Params = {"kernel_cache": "filled"}
CASES = (
    Case(
        name="cold_start",
        question="What does the first query of a fresh session cost, with workers that start with compiled kernels?",
        varies=("kernel_cache",),
        points={"small": [LATER], "full": [{"kernel_cache": "empty"}, LATER]},
        rivals=(Rival("warm workers", _workers("warm")), Rival("plain workers", _workers("plain"))),
        expected=lambda bench, params: EXPECTED_MATCHES,
        baseline="plain workers",
        # With an empty cache nobody has kernels yet: those figures show what set-up saves, and claim nothing.
        bounds=(
            Bound(
                "workers inherit kernels", "warm workers", 0.1, against="plain workers", where=LATER, figure="kernel_s"
            ),
            Bound("first query not slower", "warm workers", 1.0, against="plain workers", where=LATER),
        ),
        answer="matches",
        measures=("engine", "spark"),
        small_rounds=1,
        warms_up=False,
    ),
)
