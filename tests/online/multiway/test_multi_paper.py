"""Online shares of MINER and MJoin below the sources' scale, against docs/algorithms/online.md, 6.4."""

from __future__ import annotations

import pytest
from bench.experiments.online.many import share
from bench.experiments.online.streams import PRINTED
from tests.online.multiway.paper import TRIALS, evidence_table, verdicts

ROWS, BLOCK = 10_000, 10


@pytest.mark.slow
def test_miner_gives_shares_near_the_reference_counts() -> None:
    """Blocks and inputs are smaller than there, which costs some points."""
    for line in ("chain of 2, MINER", "chain of 4, MINER", "star of 4, MINER"):
        assert share(line, 20, 2 * ROWS, 2 * BLOCK) == pytest.approx(PRINTED["many"][line][-1], abs=8.0), line


def test_more_inputs_leave_less_memory_for_each() -> None:
    two, four = (share(f"chain of {n}, MINER", 10, ROWS, BLOCK) for n in (2, 4))
    assert two > 1.3 * four > 0


def test_miner_beats_mjoin_unless_that_evicts_its_smallest_bucket() -> None:
    miner, largest, smallest = (share(f"star of 4, {name}", 15, ROWS, BLOCK) for name in NAMES)
    assert miner > 30 * largest
    assert smallest > 0.8 * miner


NAMES = ("MINER", "MJoin largest", "MJoin smallest")


@pytest.mark.sampled(3)
def test_the_table_of_evidence_shows_nothing_lost_or_twice() -> None:
    lines = [line.split() for line in evidence_table(0.02).splitlines()[1:]]
    assert [line[0] for line in lines] == list(TRIALS)
    assert all(line[-2:] == ["0", "0"] for line in lines)


def test_verdicts_follow_from_the_figures() -> None:
    found = [one.verdict == "holds" for one in verdicts(PRINTED["many"])]
    assert found == [False, False, False, True, True, False]
