"""Cold start: what the first query of a fresh session pays for kernels, with Spark's worker daemon and with ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.case import Bound, Case, Outcome, Params, Prepare, Rival, Run
from bench.coldstart import EXPECTED_MATCHES, Workers, measure_cold_start
from bench.context import BenchContext


def _workers(kind: Workers) -> Prepare:
    """A rival whose every run is a process, a JVM and a session of its own; timed is the first query alone."""

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        def run() -> Outcome:
            start = measure_cold_start(kind, params["kernel_cache"])
            figures = {
                "session_s": start.session_s,
                "second_query_s": start.second_query_s,
                "kernel_s": start.kernel_s,
            }
            return Outcome(start.matches, start.first_query_s, figures)

        yield run

    return prepare


def _expected(bench: BenchContext, params: Params) -> int:
    return EXPECTED_MATCHES


LATER: Params = {"kernel_cache": "filled"}
POINTS: list[Params] = [{"kernel_cache": "empty"}, LATER]

CASE = Case(
    name="cold_start",
    question="What does the first query of a fresh session cost, with workers that start with compiled kernels?",
    varies=("kernel_cache",),
    points={"small": [LATER], "full": POINTS},
    rivals=(Rival("warm workers", _workers("warm")), Rival("plain workers", _workers("plain"))),
    expected=_expected,
    baseline="plain workers",
    # With an empty cache nobody has kernels yet: those figures show what set-up saves, and claim nothing.
    bounds=(
        Bound("workers inherit kernels", "warm workers", 0.1, against="plain workers", where=LATER, figure="kernel_s"),
        Bound("first query not slower", "warm workers", 1.0, against="plain workers", where=LATER),
    ),
    answer="matches",
    measures=("engine", "spark"),
    small_rounds=1,
    warms_up=False,
)
