"""Unit costs: the source's own, this machine's, and reads by size."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.experiments.semistream.media import measured_reads
from bench.simulation import SimulatedPages

from dovetail.engine.profile import Profile
from dovetail.engine.storage.device import PRESETS
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import drained, predict
from dovetail.joins.semistream.cost.reads import look_up_s, store_reads
from dovetail.joins.semistream.cost.setting import SOURCE_COSTS, SOURCE_ENTRIES, ReadCosts, Setting, from_profile
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.sizes import Sizes


def test_the_sources_disk() -> None:
    read = SOURCE_COSTS.read
    assert read.seconds(60_000) == pytest.approx(9.94e-3)
    assert read.seconds(60_000, sequential=True) == pytest.approx(5.94e-3)
    assert read.seconds(8192) == pytest.approx(4.81e-3, abs=1e-5)
    assert read.seconds(5_000_000) == pytest.approx(4e-3 + 5 * 0.099)


def test_the_sources_loop_adds_up() -> None:
    w = 109
    loop = SOURCE_COSTS.read.seconds(60_000) + SOURCE_COSTS.probing_s(500, w)
    loop += w * (SOURCE_COSTS.emit + SOURCE_COSTS.evict + SOURCE_COSTS.receive + SOURCE_COSTS.admit)
    assert loop == pytest.approx(0.012837, abs=2e-6)


def test_the_sources_entries() -> None:
    assert (SOURCE_ENTRIES.waiting, SOURCE_ENTRIES.chunked) == (8 * 20 + 12, 8 * 20 + 4)
    setting = Setting(50 * 2**20, Zipf(2_000_000), page_bytes=120)
    assert setting.cached_bytes == 260
    assert predict("hybridjoin", setting, Sizes(per_segment=500)).sizes.waiting == pytest.approx(304_470, abs=1)


def test_reads_between_and_beyond_measured_sizes_lie_on_lines() -> None:
    read = ReadCosts(((1000.0, 1.0), (2000.0, 2.0), (4000.0, 3.0)), ((1000.0, 0.5),))
    sizes = (1, 1000, 1500, 3000, 6000)
    assert [read.seconds(n) for n in sizes] == [1.0, 1.0, 1.5, 2.5, 4.0]
    assert read.seconds(9999, sequential=True) == 0.5


def test_a_profile_gives_the_costs_of_this_machine() -> None:
    profile = Profile()
    costs = from_profile(profile)
    assert costs.probes == "smaller"
    assert costs.load_s(65_536) == pytest.approx(profile.page_read_s(65_536) + 0.5e-6)
    assert costs.read.seconds(4096, sequential=True) == pytest.approx(profile.page_read_s(4096, sequential=True))
    assert (costs.probe, costs.admit, costs.evict, costs.visit) == (50e-9, 80e-9, 80e-9, 40e-6)
    other = ReadCosts.linear(0.1, 1e6)
    assert from_profile(profile, read=other).read == other


def test_a_simulated_device_gives_its_own_reads() -> None:
    for name in ("hdd", "ssd", "database", "object_store"):
        model = PRESETS[name]
        read = ReadCosts.of_device(model)
        for nbytes in (100, 8192, 3_000_000):
            assert read.seconds(nbytes) == pytest.approx(model.read_s(nbytes))
            assert read.seconds(nbytes, sequential=True) == pytest.approx(model.read_s(nbytes, sequential=True))
    with pytest.raises(PlanError, match="measured profile"):
        ReadCosts.of_device(PRESETS["real"])


def test_reads_of_a_simulated_store_are_found_to_cost_what_its_model_says() -> None:
    pages = SimulatedPages(20_000, 50, 120)
    found, model = measured_reads(pages, most_bytes=400_000), pages.device.model
    for nbytes in (6000, 24_000, 50_000, 200_000, 1_000_000):
        assert found.seconds(nbytes) == pytest.approx(model.read_s(nbytes), rel=0.001)
        assert found.seconds(nbytes, sequential=True) == pytest.approx(model.read_s(nbytes, sequential=True), rel=0.001)


def test_a_store_of_one_page_can_be_measured_too_and_an_empty_one_not() -> None:
    found = measured_reads(SimulatedPages(10, 50, 120))
    assert len(found.random) == 1
    with pytest.raises(PlanError, match="0 pages"):
        measured_reads(SimulatedPages(0, 50, 120))


def test_a_store_is_timed_as_joins_read_it(tmp_path: Path) -> None:
    keys = np.arange(30_000)
    write_pages(tmp_path / "p", pa.table({"k": keys, "word": pa.array(["w" * 90] * len(keys))}), "k")
    with closing(MasterStore.open(tmp_path / "p").at()) as pages:
        found = store_reads(pages)
    assert [size for size, _ in found.random] == sorted({float(pages.stored_bytes(0, n)) for n in (1, 4, 16, 64, 256)})
    assert all(0 < seconds < 1 for points in (found.random, found.sequential) for _, seconds in points)
    with pytest.raises(PlanError, match="no pages"):
        store_reads(SimulatedPages(0, 50, 120))


def test_rounds_of_a_simulated_store_cost_single_reads() -> None:
    pages = SimulatedPages(2_000_000, 50, 120)
    for nbytes, seconds in store_reads(pages).random:
        assert seconds == pytest.approx(pages.device.model.read_s(int(nbytes)), rel=0.05)


def test_single_keys_of_a_database_cost_alike_wherever_they_lie(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, word TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "w" * 50) for n in range(5000)])
    with closing(MasterStore.sqlite(tmp_path / "m.db", "t", "k", page="4KB").at()) as pages:
        found, each = store_reads(pages), look_up_s(pages)
    assert found.random == found.sequential
    assert each is not None
    assert 0 < each < found.seconds(1 << 20)
    assert look_up_s(SimulatedPages(1000, 50, 120)) is None


def test_keys_that_are_looked_up_cost_each_and_segments_nothing() -> None:
    here = Setting(50 * 2**20, Zipf(2_000_000), page_bytes=120)
    sizes = Sizes(per_segment=500, cached=1000, pinned=1000, resident=2)
    keyed = replace(here, costs=replace(here.costs, look_up=5e-6))
    for name in ("inlj", "hybridjoin", "cachejoin", "x_hybridjoin", "optimised_x_hybridjoin"):
        pages, keys = (predict(name, setting, sizes) for setting in (here, keyed))
        assert keys.miss_s == pytest.approx(pages.miss_s + 5e-6)
        assert keys.step_s < pages.step_s - 0.9 * here.costs.load_s(here.read_bytes(500))
    assert predict("ssij", keyed, sizes) == predict("ssij", here, sizes)


def test_resident_segments_cost_a_visit_each() -> None:
    here = Setting(50 * 2**20, Zipf(2_000_000), page_bytes=120, batch_rows=10_000)
    found = predict("ssij", here, Sizes(per_segment=500, resident=200))
    visiting = replace(here, costs=replace(here.costs, visit=40e-6))
    more = drained(found, visiting, 10_000).seconds - drained(found, here, 10_000).seconds
    each = 40e-6 + 500 * here.costs.probe
    assert 100 * each < more <= 200 * each
    assert drained(replace(found, algorithm="hybridjoin"), visiting, 10_000) == drained(
        replace(found, algorithm="hybridjoin"), here, 10_000
    )


def test_stored_bytes_decide_what_a_read_costs() -> None:
    wide = Setting(50 * 2**20, Zipf(2_000_000), page_bytes=120)
    packed = replace(wide, stored_row_bytes=60.0)
    saved = (
        predict("hybridjoin", wide, Sizes(per_segment=500)).step_s
        - predict("hybridjoin", packed, Sizes(per_segment=500)).step_s
    )
    assert saved == pytest.approx(500 * 60 * 0.099e-6)


def test_wrong_costs_say_what_is_allowed() -> None:
    with pytest.raises(PlanError, match="sizes rising"):
        ReadCosts(((2.0, 1.0), (1.0, 1.0)), ((1.0, 1.0),))
    with pytest.raises(PlanError, match="at least one"):
        ReadCosts((), ((1.0, 1.0),))
    with pytest.raises(PlanError, match="not negative"):
        replace(SOURCE_COSTS, probe=-1.0)
    with pytest.raises(PlanError, match="'smaller'"):
        replace(SOURCE_COSTS, probes="all")  # type: ignore[arg-type]  # what is tested
