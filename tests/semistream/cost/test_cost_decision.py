"""Decisions for a request: the cache's threshold beside the sizes, and reads as the store makes them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.simulation import SimulatedPages

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.cost import reads as io_costs
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.hybridjoin import suitable_threshold
from dovetail.joins.semistream.decision import Decision, Sample, Wiring, decide, setting_for, specification, timed_costs
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.request import CachePolicy, EnrichOptions
from dovetail.workloads.zipf import ZipfLaw

STREAM = pa.schema([("key", pa.int64()), ("id", pa.int64())])
WIRING = Wiring(("key",), ("key",), "inner")
PAGES = SimulatedPages(2_000_000, 60, 120)


def decided(batch_rows: int | None, **asked: Any) -> Decision:
    request = EnrichOptions(on="key", algorithm="cachejoin", lookup="oldest", **asked).request()
    return decide(request, WIRING, PAGES, STREAM, Sample(np.empty(0, np.int64), batch_rows))


def test_a_cache_that_is_only_named_takes_every_key_of_small_batches_and_wanted_ones_of_an_endless_stream() -> None:
    small, endless = decided(10_000), decided(None)
    assert small.sizes.threshold == 1
    assert endless.sizes.threshold is not None
    assert endless.sizes.threshold > 1
    request = EnrichOptions(on="key").request()
    line = specification(request, WIRING, PAGES, "cachejoin", small.sizes).explain()
    assert "cache=adaptive(threshold 1)" in line


@pytest.mark.parametrize("spare", [-10, 0, 500])
def test_a_cache_for_nearly_all_rows_takes_any_key(spare: int) -> None:
    law = Zipf(200_000, 1.0)
    assert suitable_threshold(law, law.rows + spare, 10_000, least=1, most=10_000) == 1


def test_a_cache_that_is_given_keeps_its_threshold() -> None:
    given = decided(10_000, cache=CachePolicy(threshold=3))
    assert given.sizes.threshold is None
    request = EnrichOptions(on="key", cache=CachePolicy(threshold=3)).request()
    assert "threshold 3" in specification(request, WIRING, PAGES, "cachejoin", given.sizes).explain()


def test_a_micro_batch_is_timed_on_the_store(tmp_path: Path) -> None:
    stream = pa.schema([("key", pa.int32()), ("id", pa.int64()), ("at", pa.timestamp("us"))])
    write_pages(tmp_path / "m.pages", pa.table({"key": np.arange(5000), "text": ["x"] * 5000}), "key")
    pages, request = MasterStore.open(tmp_path / "m.pages").at(), EnrichOptions(on="key", memory="1MB").request()
    found = timed_costs(request, Wiring(("key",), ("text",), "left"), pages, stream)
    assert found is not None
    assert 1e-6 < found.micro_batch < 1
    assert found.read == found.times(1.0).read
    assert found.times(3.0).micro_batch == found.micro_batch
    simulated = timed_costs(request, WIRING, PAGES, STREAM)
    assert simulated is not None
    assert simulated.micro_batch == 0
    pages.close()


def test_sizes_of_joins_without_a_cache_have_no_threshold() -> None:
    request = EnrichOptions(on="key", algorithm="hybridjoin", lookup="oldest").request()
    found = decide(request, WIRING, PAGES, STREAM, Sample(np.empty(0, np.int64), 10_000))
    assert found.sizes.threshold is None


def test_large_pages_are_not_read_to_see_what_that_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = np.arange(2000)
    path = tmp_path / "m.parquet"
    pq.write_table(pa.table({"key": keys, "text": pa.array([f"{n}" * 9 for n in keys])}), path, row_group_size=500)
    request = EnrichOptions(on="key").request()
    with closing(MasterStore.parquet(path, "key").at()) as pages:
        setting_for(request, pages, STREAM, None)
        assert pages.device.requests > 0
    monkeypatch.setattr(io_costs, "LARGE_PAGE", 100)
    with closing(MasterStore.parquet(path, "key").at()) as pages:
        setting, _ = setting_for(request, pages, STREAM, None)
        assert pages.device.requests == 0
    assert setting.costs.load > 0
    assert replace(setting.costs, load=0.0).load_s(8192) < setting.costs.load_s(8192)


def test_joins_that_ask_for_keys_give_nearly_all_memory_to_the_cache(tmp_path: Path) -> None:
    """Where pages are read, a third of it is for them and for answers. All stay inside the budget."""
    keys, rng = np.arange(60_000), np.random.default_rng(1)
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE t (key INTEGER PRIMARY KEY, word TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "w" * 90) for n in range(len(keys))])
    write_pages(tmp_path / "p", pa.table({"key": keys, "word": pa.array(["w" * 90] * len(keys))}), "key")
    memory, law, cached = 8 << 20, ZipfLaw(len(keys), 1.0), []
    request, wiring = (
        EnrichOptions(on="key", memory=memory, algorithm="cachejoin").request(),
        Wiring(("key",), ("word",), "inner"),
    )
    for store in (MasterStore.sqlite(tmp_path / "m.db", "t", "key"), MasterStore.open(tmp_path / "p")):
        with closing(store.at()) as pages:
            found = decide(request, wiring, pages, STREAM, Sample(law.ranks(rng, 2000) - 1, 2000))
            cached.append(found.sizes.cached or 0)
            spec, budget = specification(request, wiring, pages, "cachejoin", found.sizes), MemoryBudget(memory)
            with spec.open(budget, {"stream": STREAM}) as operator:
                for _ in range(20):
                    rows = pa.record_batch({"key": law.ranks(rng, 2000) - 1, "id": np.arange(2000)}, STREAM)
                    answered = sum(
                        b.num_rows for part in (operator.push("stream", rows), operator.drain()) for b in part
                    )
                    assert answered == 2000
            assert budget.peak <= memory
    assert cached[0] > cached[1]
    with closing(MasterStore.sqlite(tmp_path / "m.db", "t", "key").at()) as pages:
        setting, _ = setting_for(EnrichOptions(on="key", memory="50MB").request(), pages, STREAM, None)
    assert setting.keyed is not None
    assert setting.keyed.fixed < 0.2 * setting.memory
    assert setting.keyed.fixed < 0.6 * setting.entries.fixed
