"""Contestants with little memory: what counts as finished, failed and wrong, and that processes are told apart."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest
from bench.child import Ended, run_child
from bench.context import BenchContext
from bench.experiments.rivals import Contest, interval_pairs, interval_sides, told
from bench.intervals import overlap_counts
from tests.bench.experiments.stubborn import stubborn

from dovetail.errors import DataError, DovetailError

pytestmark = pytest.mark.sampled(3)  # its tests start processes with little memory

DUCKDB = "duckdb"
OURS = {"dovetail": Ended("finished", 7, 2.0, 3 << 20)}
QUICK = {"quick": Ended("finished", 7, 1.0, 3 << 20)}
DEAD = {"dead": Ended("killed by signal 9", None, 1.0, 3 << 20)}
ABSENT = {"absent": Ended("not installed: absent", None, 0.0, 0)}
ALL = OURS | QUICK | DEAD | ABSENT


@pytest.fixture
def bench() -> Iterator[BenchContext]:
    with BenchContext("small") as made:
        yield made


def test_the_claim_holds_where_another_fails() -> None:
    found = told(ALL, ["dead", "absent"], 7, "title", "seven rows", "")
    assert found.verdict == "holds"
    assert "dovetail, quick finished, dead did not" in found.why
    assert "quick took less time than ours" in found.why
    assert found.rows == 14


def test_the_claim_is_of_those_that_it_names() -> None:
    """Others may fail or not; some of them, and none of them."""
    of_two = (["dead", "quick"], "holds in part"), (["quick", "absent"], "does not hold")
    for doomed, verdict in (*of_two, (["absent"], "reported")):
        assert told(ALL, doomed, 7, "title", "seven rows", "").verdict == verdict


def test_a_wrong_answer_is_an_error() -> None:
    with pytest.raises(DataError, match="quick gave 7, 8 is due"):
        told({"dovetail": Ended("finished", 8, 2.0, 1), **QUICK}, ["quick"], 8, "title", "eight rows", "")


def test_ours_must_finish() -> None:
    with pytest.raises(DataError, match="dead did not finish"):
        told(DEAD | QUICK, ["quick"], 7, "title", "seven rows", "")


def test_a_contestant_answers_in_a_process_of_its_own(bench: BenchContext) -> None:
    """DuckDB's pairs, and its refusal where it may have next to nothing."""
    due = int(overlap_counts(*interval_sides(300), keyed=True).sum())
    fate = Contest(interval_pairs, [DUCKDB], 256, bench, [300]).fates()[DUCKDB]
    assert (fate.outcome, fate.answer) == ("finished", due)
    assert fate.peak > 0
    fate = Contest(interval_pairs, [DUCKDB], 1, bench, [20_000]).fates()[DUCKDB]
    assert fate.answer is None
    assert fate.outcome.startswith("exit code 1: ")
    assert "emory" in fate.outcome


def test_a_contestant_that_is_not_installed_does_not_start(bench: BenchContext) -> None:
    contest = Contest(interval_pairs, ["polars"], 64, bench, [300], {"polars": "no_such_module"})
    assert contest.fates() == {"polars": Ended("not installed: no_such_module", None, 0.0, 0)}


def test_what_a_dead_contestant_leaves_goes_away_with_the_run(tmp_path: Path) -> None:
    with BenchContext("small") as bench:
        fate = Contest(stubborn, ["dies"], 64, bench, [str(tmp_path)]).fates()["dies"]
        left = Path((tmp_path / "dies").read_text().split()[1])
        assert fate.outcome == "killed by signal 9"
        assert left.exists()
        assert bench.scratch in left.parents
    assert not left.exists()


def test_who_is_not_done_in_time_is_ended(bench: BenchContext, tmp_path: Path) -> None:
    ended = run_child(stubborn, "sleeps", 64, "", str(tmp_path), scratch=bench.scratch, patience_s=4)
    assert (ended.outcome, ended.answer) == ("not done after 4 s", None)
    with pytest.raises(DovetailError, match="not done after 4 s"):
        ended.answered()


def test_nobody_goes_on_when_the_run_is_broken_off(bench: BenchContext, tmp_path: Path) -> None:
    """Of two that would sleep, one has begun when the signal comes; the other never does."""

    def broken_off(number: int, frame: FrameType | None) -> None:
        raise InterruptedError("enough")

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, broken_off)
    signal.setitimer(signal.ITIMER_REAL, 6)
    try:
        with pytest.raises(InterruptedError, match="enough"):
            Contest(stubborn, ["first", "second"], 64, bench, [str(tmp_path)]).fates()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 60
    (note,) = tmp_path.iterdir()
    assert note.name == "first"
    assert not psutil.pid_exists(int(note.read_text().split()[0]))
