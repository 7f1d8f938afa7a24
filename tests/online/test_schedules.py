"""Every pair exactly once, for every algorithm, under random schedules, budgets, pauses and restarts.

`python -m tests.online.sweep two 3000` runs many more of them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.online.schedules import EVERY, drive, random_case, wrong
from tests.online.sweep import swept

TRIALS = 16


@pytest.mark.parametrize("name", list(EVERY))
def test_every_pair_comes_exactly_once_under_random_schedules(name: str) -> None:
    phases: Counter[str] = Counter()
    for seed in range(TRIALS):
        case = random_case(name, seed)
        got, results = drive(case, seed)
        assert wrong(got, case) == (0, 0), (name, seed, case.spec.explain())
        phases.update(results)
    has_pauses = name in ("xjoin", "hmj", "rpj", "diner", "oldest")
    assert phases["arriving"] > 50
    assert (phases["reactive"] > 10) == has_pauses
    assert (phases["cleanup"] > 50) == (name != "shj")


@pytest.mark.parametrize("name", ["diner", "pmj", "hmj", "rpj"])
def test_longer_runs_with_many_blocks_are_right_too(name: str) -> None:
    case = random_case(name, 10_001, most_rows=260)
    got, _ = drive(case, 1, idle=0.5, restart=0.02)
    assert wrong(got, case) == (0, 0), (name, case.spec.explain())


@pytest.mark.parametrize("kind", ["two", "many"])
def test_a_selection_of_the_sweep(kind: str) -> None:
    assert swept(kind, 20, seed=1)["schedules"] == 20
