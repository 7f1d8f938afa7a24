"""The simulation of tasks on many executors: bounds that hold by arithmetic, and the limit that is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.experiments.scale.out import Fleet, Measured, Work, limit, simulated, work_of

EVEN = Fleet(spread=0.0, hot=0.0, slow=0.0, launch_s=0.0)


def test_even_work_is_divided_by_the_cores() -> None:
    work = Work(4e6, 1e-4, 2.0)
    for executors in (1, 10, 100):
        fleet = replace(EVEN, executors=executors)
        assert simulated(work, fleet) == pytest.approx(2.0 + 400 / fleet.slots, rel=0.01)
        assert limit(replace(work, fixed_s=0.0), fleet) == "processors"


def test_a_query_takes_no_less_than_its_largest_partition_the_driver_and_the_store_do() -> None:
    work, many = Work(1e9, 1e-6, 0.0, shuffle_row_bytes=1.0), replace(EVEN, executors=100)
    assert simulated(work, replace(many, hot=0.2)) > 0.2 * 1e9 * 1e-6 / 2
    assert limit(work, replace(many, hot=0.2)) == "skew and slow hosts"
    slow_driver = replace(many, launch_s=0.05)
    tasks = round(1e9 * work.row_bytes / many.split_bytes) + many.slots * many.waves
    assert simulated(work, slow_driver) >= 0.05 * tasks
    assert limit(work, slow_driver) == "the driver's launches"
    asking = replace(work, shuffle_row_bytes=0.0, row_requests=0.01)
    assert simulated(asking, many) >= 1e9 * 0.01 / many.store
    assert limit(asking, many) == "requests to the store"
    wide = replace(work, shuffle_row_bytes=10_000.0)
    assert limit(wide, many) == "the network"
    assert limit(replace(work, fixed_s=60.0), many) == "planning and collecting in the driver"


def test_costs_come_from_two_sizes() -> None:
    found = work_of(Measured(1e5, 1.2, 0.0, 0.0), Measured(4e5, 1.8, 8e6, 40.0), 100.0)
    assert (found.row_s, found.fixed_s) == (pytest.approx(2e-6), pytest.approx(1.0))
    assert (found.shuffle_row_bytes, found.row_requests) == (20.0, 1e-4)
    assert simulated(found, replace(EVEN, cores=1)) == pytest.approx(1.8, rel=0.01)
