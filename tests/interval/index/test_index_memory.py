"""The index holds what it says it holds, and refuses what its budget cannot."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import BudgetExceeded
from dovetail.joins.interval.index.overlap_index import OverlapIndex
from dovetail.joins.interval.relation import Relation

ROWS = 5_000


def columns(seed=0):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 10**6, ROWS)
    return rng.integers(0, 50, ROWS), start, start + rng.integers(1, 10**4, ROWS)


def test_parts_are_charged_when_they_are_built_and_given_back_on_close():
    budget = MemoryBudget("1 MB")
    with OverlapIndex.build(*columns(), budget=budget) as index:
        built = budget.used
        assert 24 * ROWS <= built == index.nbytes < 25 * ROWS
        index.exists(*columns(1))
        assert budget.used == built + 8 * ROWS
        index.count(*columns(1), Relation.parse("covers").table())
        assert built + 17 * ROWS < budget.used < built + 21 * ROWS
        assert budget.used < budget.peak <= budget.limit
    assert budget.used == 0


def test_too_small_a_budget_is_refused_and_holds_nothing_more():
    budget = MemoryBudget("100 KB")
    with pytest.raises(BudgetExceeded):
        OverlapIndex.build(*columns(), budget=budget)
    assert budget.used == 0


def test_a_question_that_does_not_fit_leaves_the_index_usable():
    budget = MemoryBudget(100 * ROWS)
    with OverlapIndex.build(*columns(), budget=budget) as index:
        before = budget.used
        with pytest.raises(BudgetExceeded):
            index.count(*columns(1), Relation.parse("covers").table())
        assert budget.used <= before + 8 * ROWS
        assert index.exists(*columns()).all()
