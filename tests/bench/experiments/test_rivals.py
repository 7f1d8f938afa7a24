"""Rivals with little memory: which count as finished, failed and wrong, each in a process of its own."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest
from bench.catalogue import load_experiments
from bench.child import Ended, run_child
from bench.context import BenchContext
from bench.experiments.rivals import Contest, figures, interval_pairs, interval_sides
from bench.rivals.intervals import overlap_counts
from tests.bench.experiments.stubborn import stubborn

from bench.experiments import rivals
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


def test_who_finished_and_who_was_quicker() -> None:
    found = figures(ALL, 7, "seven rows")
    assert (found.named["finished"], found.named["failed"]) == (["dovetail", "quick"], ["dead"])
    assert found.named["quicker"] == ["quick"]
    assert found.rows == 14


def test_each_rival_that_is_said_to_fail_does_or_does_not_or_was_not_tested() -> None:
    run = load_experiments()["rivals-short-memory-interval"].run
    fates = OURS | {"polars": DEAD["dead"], "polars-bio": QUICK["quick"], "bioframe": ABSENT["absent"]}
    found = run.judge.findings(figures(fates | {"pyjanitor": DEAD["dead"]}, 7, "seven rows", heap=512))
    assert [one.verdict for one in found.statements] == ["holds", "does not hold", "not tested here", "holds"]
    assert found.verdict == "does not hold"
    assert "dovetail, polars-bio finished, polars, pyjanitor did not; quicker than ours: polars-bio" in found.note


def test_all_contestants_have_the_same_time(bench: BenchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def child(*arguments: object, scratch: Path, patience_s: float) -> Ended:
        given.append(patience_s)
        return OURS["dovetail"]

    monkeypatch.setattr(rivals, "run_child", child)
    Contest(interval_pairs, ["dovetail", DUCKDB, "polars"], 64, bench, [300]).fates()
    assert len(given) == 3
    assert len(set(given)) == 1


def test_a_wrong_answer_is_an_error() -> None:
    with pytest.raises(DataError, match="quick gave 7, 8 is due"):
        figures({"dovetail": Ended("finished", 8, 2.0, 1), **QUICK}, 8, "eight rows")


def test_ours_must_finish() -> None:
    with pytest.raises(DataError, match="dead did not finish"):
        figures(DEAD | QUICK, 7, "seven rows")


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


def test_no_rival_goes_on_when_the_run_is_broken_off(bench: BenchContext, tmp_path: Path) -> None:
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
