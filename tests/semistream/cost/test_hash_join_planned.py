"""Planning takes a plain hash join when the master data fits in half of memory, and enough rows ask for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dovetail import MasterStore
from dovetail.errors import PlanError
from dovetail.joins.semistream.decision import Decision, Sample, Wiring, decide
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.request import EnrichOptions

STREAM = pa.schema([("c0", pa.int64())])


def decided(tmp_path: Path, rows: int, sample: Sample | None = None, **options: Any) -> Decision:
    path = tmp_path / f"{rows}.pages"
    if not path.exists():
        write_pages(path, pa.table({"k": np.arange(rows), "v": np.arange(rows)}), "k")
    request = EnrichOptions(on="k", **{"memory": "8MB", **options}).request()
    with closing(MasterStore.open(path).at()) as pages:
        return decide(request, Wiring(("c0",), ("v",), "left"), pages, STREAM, sample)


def asked(n: int, once: bool) -> Sample:
    return Sample(np.random.default_rng(1).integers(0, 5_000, n), n, once)


def test_master_data_that_fits_is_joined_by_a_hash_join(tmp_path: Path) -> None:
    found = decided(tmp_path, 5_000)
    assert (found.algorithm, found.origin) == ("hash_join", "the master data fits in memory")
    assert found.choice is not None
    assert "5,000 master rows fit in memory" in found.choice.note
    assert found.price is not None
    assert found.price.rate > 0
    assert found.price.micro_batch_s(1_000, 0) == pytest.approx(1_000 / found.price.rate)


def test_rows_of_a_task_are_told(tmp_path: Path) -> None:
    found = decided(tmp_path, 5_000, asked(20_000, True))
    assert found.algorithm == "hash_join"
    assert found.price is not None
    assert found.price.batch is not None
    assert found.price.batch.rows == 20_000
    assert found.skew is not None


@pytest.mark.parametrize(
    "options", [{"memory": "1MB"}, {"mode": "carry"}, {"algorithm": "cachejoin"}, {"tune": {"waiting": 100}}], ids=str
)
def test_other_joins_are_taken(tmp_path: Path, options: dict[str, Any]) -> None:
    assert decided(tmp_path, 5_000, **options).algorithm != "hash_join"


def test_one_batch_that_asks_for_few_rows_does_not_read_all(tmp_path: Path) -> None:
    assert decided(tmp_path, 20_000, asked(3, True), memory="64MB").algorithm != "hash_join"
    assert decided(tmp_path, 20_000, asked(3, False), memory="64MB").algorithm == "hash_join"  # more batches follow


def test_a_named_hash_join_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot hold all 50,000 master rows"):
        decided(tmp_path, 50_000, algorithm="hash_join", memory="1MB")


def test_footers_of_files_are_part_of_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"k": np.arange(20_000), "v": np.arange(20_000)}), path, row_group_size=50)

    def planned(memory: str) -> Decision:
        request = EnrichOptions(on="k", memory=memory, algorithm="hash_join").request()
        with closing(MasterStore.parquet(path, "k").at()) as pages:
            assert 100_000 < pages.held_bytes < 2_000_000  # 400 row groups
            assert request.beside(pages).memory == request.memory - pages.held_bytes
            return decide(request, Wiring(("c0",), ("v",), "left"), pages, STREAM, None)

    assert planned("8MB").algorithm == "hash_join"
    with pytest.raises(PlanError, match=r"the index of the master data takes .* more than half; give at least"):
        planned("200KB")


def test_only_counts_of_this_version_are_taken_for_what_fits(tmp_path: Path) -> None:
    database = tmp_path / "m.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER); INSERT INTO t VALUES (1, 2)")
    with closing(MasterStore.sqlite(database, "t", "k").at()) as pages:
        assert pages.counted == "before"
        request = EnrichOptions(on="k", memory="8MB").request()
        assert decide(request, Wiring(("c0",), ("v",), "left"), pages, STREAM, None).algorithm != "hash_join"
