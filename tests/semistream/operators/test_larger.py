"""All joins over a page file on disk, some ten thousand rows, against Arrow's own join, at small budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.compiled import compiled_signatures

from dovetail.engine.kernels.compile import warm
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS, CacheJoin, HybridJoin, Inlj
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes

MASTER, STREAM = 8_000, 8_000


@pytest.fixture(scope="module", params=["int", "string"])
def store(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[MasterStore, pa.Table, pa.Table]:
    rng = np.random.default_rng(1)
    numbers = np.repeat(np.arange(MASTER), rng.integers(0, 3, MASTER))

    def keys(values: Any) -> pa.Array:
        return pa.array(values) if request.param == "int" else pa.array([f"key/{v}" for v in values.tolist()])

    texts = pa.array(["x" * int(n) for n in rng.integers(0, 60, len(numbers))])
    master = pa.table({"k": keys(numbers), "r": np.arange(len(numbers)), "text": texts})
    wanted = rng.zipf(1.2, STREAM) % (MASTER + 200)
    words = pa.array(["w" * int(n) if n else None for n in rng.integers(0, 20, STREAM)])
    stream = pa.table({"id": np.arange(STREAM), "k": keys(wanted), "word": words})
    path: Path = tmp_path_factory.mktemp("pages") / f"{request.param}.pages"
    write_pages(path, master, "k", page=4096)
    return MasterStore.open(path), master, stream


def ran(spec: Any, stream: pa.Table, memory: str, rows: int) -> tuple[pa.Table, Any, MemoryBudget]:
    budget, out = MemoryBudget(memory), []
    with spec.open(budget, {"stream": stream.schema}) as operator:
        for batch in stream.to_batches(max_chunksize=rows):
            out += operator.push("stream", batch)
        out += operator.finish()
    assert budget.used == 0
    return pa.Table.from_batches(out, operator.schema), operator, budget


def in_order(table: pa.Table) -> pa.Table:
    return table.select(["id", "r", "text", "word"]).sort_by([("id", "ascending"), ("r", "ascending")]).combine_chunks()


@pytest.mark.parametrize("memory", ["700KB", "4MB"])
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("inlj", "hash_join")])
def test_left_joins_equal_arrows(store: Any, name: str, memory: str) -> None:
    source, master, stream = store
    pages = source.at()
    got, operator, budget = ran(ALGORITHMS[name](pages=pages, on=("k",), how="left"), stream, memory, 3_000)
    expected = stream.join(master, "k", join_type="left outer")
    assert in_order(got).equals(in_order(expected))
    assert budget.peak <= budget.limit
    assert operator.metrics.value("loads") > 0
    pages.close()


def test_answers_come_in_large_batches_though_memory_is_full(store: Any) -> None:
    source, _, stream = store
    pages, sizes = source.at(), []
    spec = CacheJoin(pages=pages, on=("k",), lookup=Lookup("guarded"), cache=CachePolicy("adaptive"))
    with spec.open(MemoryBudget("4MB"), {"stream": stream.schema}) as operator:
        for batch in stream.to_batches(max_chunksize=5_000):
            sizes += [out.num_rows for out in operator.push("stream", batch)]
        sizes += [out.num_rows for out in operator.finish()]
    assert np.median(np.repeat(sizes, sizes)) > 500  # of the batch that an answer comes in
    pages.close()


def test_no_kernel_is_compiled_while_a_join_runs(store: Any) -> None:
    source, _, stream = store
    warm()
    before, pages = compiled_signatures(), source.at()
    for name in ALGORITHMS:
        ran(ALGORITHMS[name](pages=pages, on=("k",), how="left_anti"), stream.slice(0, 300), "4MB", 100)
    assert {k: n for k, n in compiled_signatures().items() if n != before[k]} == {}
    pages.close()


def test_inlj_with_a_page_cache_reads_less(store: Any) -> None:
    source, master, stream = store
    few, loads = stream.slice(0, 1_000), {}
    for kept in (0, 20):
        pages = source.at()
        spec = Inlj(pages=pages, on=("k",), how="left", sizes=Sizes(page_cache=kept, together=1))
        got, operator, _ = ran(spec, few, "2MB", 400)
        assert in_order(got).equals(in_order(few.join(master, "k", join_type="left outer")))
        loads[kept] = operator.metrics.value("loads")
        pages.close()
    assert loads[20] < 0.8 * loads[0]


def test_a_drained_batch_leaves_nothing_behind(store: Any) -> None:
    source, master, stream = store
    pages = source.at()
    spec = HybridJoin(pages=pages, on=("k",), how="left")
    with spec.open(MemoryBudget("2MB"), {"stream": stream.schema}) as operator:
        for batch in stream.to_batches(max_chunksize=6_000):
            out = [*operator.push("stream", batch), *operator.drain()]
            expected = pa.Table.from_batches([batch]).join(master, "k", join_type="left outer")
            assert in_order(pa.Table.from_batches(out)).equals(in_order(expected))
            assert operator.waiting_rows == 0
    pages.close()
