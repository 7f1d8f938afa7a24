"""Cold start: what the first query of a fresh session pays for kernels, with Spark's worker daemon and with ours."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from bench.case import Outcome, Params, Prepare, Run, prepared
from bench.cases.first_query import EXPECTED_MATCHES, first_queries
from bench.child import run_child
from bench.context import BenchContext

_PATIENCE_S = 600.0


def workers(kind: str) -> Prepare:
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


def expected(bench: BenchContext, params: Params) -> int:
    """Matches of the hash join."""
    return EXPECTED_MATCHES
