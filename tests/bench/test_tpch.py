"""TPC-H from the program on PyPI: published sizes, shipping intervals, and what happens without the program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.experiments.tpch import shipping_intervals, tpch_files, tpch_table

from bench.experiments import tpch
from dovetail.errors import ConfigError, PlanError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tpch")
    tpch_files(0.01, home)
    return home


def test_tables_have_the_published_sizes_and_keys_that_fit(home: Path) -> None:
    orders, customer, lineitem = (tpch_table(name, 0.01, home) for name in ("orders", "customer", "lineitem"))
    assert [t.num_rows for t in (orders, customer, lineitem)] == [15_000, 1_500, 60_175]
    assert set(orders["o_custkey"].to_pylist()) <= set(customer["c_custkey"].to_pylist())
    assert set(lineitem["l_orderkey"].to_pylist()) == set(orders["o_orderkey"].to_pylist())
    assert pa.string_view() not in orders.schema.types


def test_shipping_intervals_overlap_in_44_million_pairs(home: Path) -> None:
    table = shipping_intervals(tpch_table("lineitem", 0.01, home))
    start, end = table["start"].to_numpy(), table["end"].to_numpy()
    assert table.schema.names == ["id", "key", "start", "end"]
    assert ((end - start).min(), (end - start).max()) == (1, 30)
    begun_before_end = np.searchsorted(np.sort(start), end, side="left").sum()
    ended_by_start = np.searchsorted(np.sort(end), start, side="right").sum()
    assert begun_before_end - ended_by_start == 44_536_209


def test_files_are_made_once_and_only_the_missing_ones(home: Path) -> None:
    before = {name: path.stat().st_mtime_ns for name, path in tpch_files(0.01, home).items()}
    (home / "sf0.01" / "orders.parquet").unlink()
    after = {name: path.stat().st_mtime_ns for name, path in tpch_files(0.01, home).items()}
    assert after["lineitem"] == before["lineitem"]
    assert after["orders"] > before["orders"]
    assert sorted(path.name for path in (home / "sf0.01").iterdir()) == [
        "customer.parquet",
        "lineitem.parquet",
        "orders.parquet",
    ]


def test_a_table_without_a_directory_is_the_same(home: Path) -> None:
    assert tpch_table("customer", 0.01).equals(tpch_table("customer", 0.01, home))


def test_without_the_program_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match=r"pip install 'dovetail\[tpch\]'"):
        tpch_files(0.01, tmp_path)
    assert list((tmp_path / "sf0.01").iterdir()) == []


def test_a_program_that_fails_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho disk on fire >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(tpch, "_program", lambda: str(broken))
    with pytest.raises(ConfigError, match="failed with code 3: disk on fire"):
        tpch_files(0.01, tmp_path / "out")
    assert list((tmp_path / "out" / "sf0.01").iterdir()) == []


def test_unknown_tables_and_scales_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"unknown TPC-H tables \['part'\]"):
        tpch_files(0.01, tmp_path, ["part"])  # type: ignore[list-item]  # wrong on purpose
    with pytest.raises(PlanError, match="scale factor"):
        tpch_files(0, tmp_path)
