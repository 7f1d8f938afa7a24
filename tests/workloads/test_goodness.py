"""The yardstick itself: it accepts what fits and refuses what is a little off."""

from __future__ import annotations

import numpy as np
from tests.workloads.goodness import ENOUGH, chi_square_p


def test_a_fair_die_fits_and_a_slightly_loaded_one_does_not() -> None:
    rng = np.random.default_rng(1)
    fair = np.full(6, 1 / 6)
    loaded = np.array([0.98, 1, 1, 1, 1, 1.02]) / 6
    rolls = rng.integers(1, 7, 500_000)
    assert chi_square_p(rolls, fair, first=1) > ENOUGH
    assert chi_square_p(rng.choice(6, 500_000, p=loaded) + 1, fair, first=1) < 1e-10


def test_a_value_outside_the_law_never_fits() -> None:
    assert chi_square_p(np.array([1, 2, 7]), np.full(6, 1 / 6), first=1) == 0.0


def test_a_wrong_tail_shows_although_rare_values_are_pooled() -> None:
    rng = np.random.default_rng(2)
    k = np.arange(1, 2001, dtype=np.float64)
    p, q = k**-2.0, k**-2.1
    sample = rng.choice(2000, 300_000, p=q / q.sum()) + 1
    assert chi_square_p(sample, p, first=1) < 1e-10
    assert chi_square_p(sample, q, first=1) > ENOUGH
