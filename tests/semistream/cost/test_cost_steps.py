"""Costs of segments beside their reads: measured on real joins, kept in the profile, and used by the models."""

from __future__ import annotations

from dataclasses import replace

from dovetail.calibrate.kernel_costs import load_step_s, small_store, visit_step_s
from dovetail.engine.profile import Cost, Profile
from dovetail.joins.semistream.cost.setting import from_profile


def test_steps_are_timed_on_a_small_store() -> None:
    with small_store(200) as pages:
        assert 0 < load_step_s(pages) < 2e-3
        assert 0 < visit_step_s(pages, 50e-9) < 2e-3


def test_measured_steps_are_what_models_use() -> None:
    measured = replace(Profile(), segment_load=Cost(7e-6, 6e-6, 8e-6, 5), segment_visit=Cost(9e-6, 8e-6, 9e-6, 5))
    costs = from_profile(measured)
    assert (costs.load, costs.visit) == (7e-6, 9e-6)
