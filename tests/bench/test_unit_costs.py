"""Calibration: every unit cost is measured, has a spread, and lands in the profile."""

import os
import statistics
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dovetail.calibrate import measure, page_costs
from dovetail.calibrate.kernel_costs import KERNEL_COSTS, wide_batch
from dovetail.calibrate.unit_cost import Effort, cost_of, repeated
from dovetail.engine.profile import Cost, Profile
from dovetail.errors import ConfigError

TINY = Effort(
    repeats=3,
    rows=2_000,
    spark_repeats=1,
    spark_rows=20_000,
    file_bytes=1 << 20,
    page_sizes=(4096, 65_536),
    page_reads=4,
)


def test_a_cost_is_the_median_between_quartiles() -> None:
    assert cost_of([5.0, 1.0, 4.0, 2.0, 3.0]) == Cost(3.0, 2.0, 4.0, 5)
    assert cost_of([2.0]) == Cost(2.0, 2.0, 2.0, 1)


def test_a_difference_below_zero_counts_as_nothing() -> None:
    assert cost_of([-1.0, -2.0, 3.0]) == Cost(0.0, 0.0, 1.5, 3)


def test_the_warm_up_is_not_a_sample() -> None:
    values = iter([99.0, 1.0, 2.0, 3.0])
    assert repeated(lambda: next(values), 3) == Cost(2.0, 1.5, 2.5, 3)


@pytest.mark.parametrize("name", KERNEL_COSTS)
def test_kernel_costs_are_measured(name: str) -> None:
    cost = KERNEL_COSTS[name](TINY)
    assert cost.samples == TINY.repeats
    assert 0 < cost.seconds < 1e-3


def test_the_rows_that_costs_are_stated_for() -> None:
    batch = wide_batch(2_000)
    assert batch.num_rows == 2_000
    assert batch.schema.names == ["n0", "n1", "n2", "n3", "n4", "n5", "t0", "t1"]
    assert batch["t0"][1].as_py() == "word 7"


def test_pages_are_read_and_written_and_nothing_is_left(tmp_path: Path) -> None:
    with page_costs.page_file(tmp_path, TINY.file_bytes) as path:
        assert path.stat().st_size == TINY.file_bytes
        for measure in (page_costs.random_reads, page_costs.sequential_reads):
            page = measure(path, 4096, TINY)
            assert (page.nbytes, page.cost.samples) == (4096, 3)
            assert page.cost.seconds > 0
    assert page_costs.writes(tmp_path, 4096, TINY).cost.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_the_page_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SPARK_LOCAL_DIRS"), page_costs.page_file(tmp_path / "missing", 1 << 20):
        pass


def test_residency_follows_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(np.random.default_rng(0).bytes(1 << 20))
    handle = os.open(path, os.O_RDONLY)
    os.pread(handle, 1 << 20, 0)
    assert page_costs.resident_share(handle, 1 << 20) == 1.0
    os.close(handle)


def test_a_calibration_measures_every_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_costs, "cache_can_be_dropped", lambda place: True)
    seen: list[str] = []
    done = measure.calibrate(TINY, tmp_path, with_spark=False, watch=lambda name, number, total: seen.append(name))
    profile = done.profile
    assert profile.measured
    assert profile.versions["numba"]
    for field in fields(Profile):
        value = getattr(profile, field.name)
        costs = (
            [value] if isinstance(value, Cost) else [p.cost for p in value] if field.name.startswith("page_") else []
        )
        needs_spark = field.name in ("python_to_jvm_row", "shuffle_row")
        assert all(cost.samples == (0 if needs_spark else 3) for cost in costs), field.name
    assert [page.nbytes for page in profile.page_read_random] == [4096, 65_536]
    assert len(seen) == 3 * len(TINY.page_sizes) + len(KERNEL_COSTS)
    assert len(done.notes) == 1
    kernels = [getattr(profile, name).seconds / getattr(Profile(), name).seconds for name in KERNEL_COSTS]
    assert profile.shuffle_row.seconds == pytest.approx(statistics.median(kernels) * Profile().shuffle_row.seconds)


def test_reads_that_would_measure_the_cache_stay_typical(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_costs, "cache_can_be_dropped", lambda place: False)
    monkeypatch.setattr(measure, "KERNEL_COSTS", {"sort": KERNEL_COSTS["sort"]})
    done = measure.calibrate(TINY, tmp_path, with_spark=False)
    assert done.profile.page_read_random == Profile().page_read_random
    assert done.profile.page_write != Profile().page_write
    assert "cannot be dropped from the page cache" in done.notes[0]


def test_rows_through_spark_are_measured(spark) -> None:
    for cost_of_row in (measure.python_to_jvm_row, measure.shuffle_row):
        cost = cost_of_row(spark, TINY)
        assert cost.samples == 1


def test_the_rows_sent_to_the_jvm_are_those_counted(spark) -> None:
    frame = spark.range(0, 2, 1, 2).mapInArrow(lambda given: measure._rows(3, given), measure.SCHEMA)
    assert frame.count() == 2 * 3 * measure.BATCH_ROWS
