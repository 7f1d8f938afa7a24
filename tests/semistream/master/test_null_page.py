"""Rows with a null in the key, in every store: one more page, home to every such key."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.semistream.master.models import assert_is, assert_reads_many, keys_of
from tests.semistream.master.server import Server
from tests.semistream.page_files import write_ordered_pages

from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.null_page import WithNulls
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import KeyedPages
from dovetail.joins.semistream.master.store import MasterStore

NUMBERS = [None if n % 9 == 0 else n // 2 for n in range(300)]
TABLE = pa.table(
    {
        "k0": pa.array(NUMBERS, pa.int64()),
        "k1": pa.array([None if n % 7 == 3 else f"t{n % 5}" for n in range(300)]),
        "row": pa.array(range(300), pa.int64()),
    }
)


def page_file(place: Path, key: list[str], order: Any) -> MasterStore:
    frequency = "row" if order == "frequency" else None
    write_ordered_pages(place / "m.pages", TABLE, key, order, page=512, frequency=frequency, keep_nulls=True)
    return MasterStore.open(place / "m.pages")


def parquet_file(place: Path, key: list[str]) -> MasterStore:
    parquet.write_table(TABLE.sort_by(key[0]), place / "m.parquet", row_group_size=40)
    return MasterStore.parquet(place / "m.parquet", key)


def sqlite_file(place: Path, key: list[str]) -> MasterStore:
    with closing(sqlite3.connect(place / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE m (k0 INTEGER, k1 TEXT, row INTEGER)")
        connection.executemany("INSERT INTO m VALUES (?, ?, ?)", [tuple(r.values()) for r in TABLE.to_pylist()])
    return MasterStore.sqlite(place / "m.db", "m", key, page=512)


def postgres_table(server: Server, key: list[str]) -> MasterStore:
    rows = ", ".join(
        f"({r['k0'] if r['k0'] is not None else 'NULL'}, {repr(r['k1']) if r['k1'] else 'NULL'}, {r['row']})"
        for r in TABLE.to_pylist()
    )
    server.execute(
        "DROP TABLE IF EXISTS with_nulls", "CREATE TABLE with_nulls (k0 bigint, k1 text, row bigint)",
        f"INSERT INTO with_nulls VALUES {rows}",
    )  # fmt: skip
    return MasterStore.postgres(server.url, "with_nulls", key, page=512)


@pytest.mark.parametrize("key", [["k0"], ["k0", "k1"]])
@pytest.mark.parametrize("store", ["key", "frequency", "none", "parquet", "sqlite", "postgres"])
def test_every_store_has_them_when_asked(tmp_path: Path, postgres: Server, store: str, key: list[str]) -> None:
    makers = {"parquet": parquet_file, "sqlite": sqlite_file}
    if store == "postgres":
        named = postgres_table(postgres, key)
    else:
        named = makers[store](tmp_path, key) if store in makers else page_file(tmp_path, key, store)
    strangers = pa.table({"k0": pa.array([None, 999, 3, None]), "k1": pa.array(["t1", None, "no", None])}).select(key)
    with closing(named.at()) as plain:
        assert_is(plain, TABLE, key, strangers)
    with closing(named.with_nulls().at()) as pages:
        assert isinstance(pages, WithNulls)
        check(pages, key, strangers)
        assert_reads_many(pages, np.random.default_rng(1))
        if isinstance(pages, KeyedPages) and pages.finds_keys:
            check_found(pages, key, strangers)


def check(pages: Any, key: list[str], strangers: pa.Table) -> None:
    last = len(pages.starts) - 2
    kept = pages.read(last, 1)
    expected = [row for row, k in zip(TABLE.to_pylist(), keys_of(TABLE, key), strict=True) if None in k]
    assert sorted(kept.to_pylist(), key=lambda row: row["row"]) == expected
    assert int(pages.starts[-1]) == TABLE.num_rows
    homes = pages.home([strangers.column(name).combine_chunks() for name in key]).tolist()
    assert [home == last for home in homes] == [None in k for k in keys_of(strangers, key)]
    assert pages.read(0, last + 1).num_rows == TABLE.num_rows
    assert pages.stored_bytes(0, last + 1) == pages.stored_bytes(0, last) + pages.stored_bytes(last, 1)


def check_found(pages: Any, key: list[str], strangers: pa.Table) -> None:
    found = pages.read_keys([strangers.column(name).combine_chunks() for name in key], 1 << 20)
    wanted = set(keys_of(strangers, key))
    rows = rows_with(found, key, wanted)
    assert rows == rows_with(pa.RecordBatch.from_struct_array(TABLE.to_struct_array().chunk(0)), key, wanted)


def rows_with(batch: pa.RecordBatch, key: list[str], wanted: set[Any]) -> list[int]:
    return sorted(row["row"] for row in batch.to_pylist() if tuple(row[k] for k in key) in wanted)


def test_a_page_file_built_without_them_is_refused(tmp_path: Path) -> None:
    write_pages(tmp_path / "m.pages", TABLE, "k0", page=512)
    store = MasterStore.open(tmp_path / "m.pages")
    with pytest.raises(PlanError, match=r"built without its 34 rows .*keep_nulls=True"):
        store.with_nulls().at()
    assert "34 rows without a key left out" in store.explain()
    write_pages(tmp_path / "m.pages", TABLE.filter(TABLE["k0"].is_valid()), "k0", page=512)
    with closing(store.with_nulls().at()) as pages:
        assert not isinstance(pages, WithNulls)
    assert store.with_nulls().changed(store.version(), store.version()) is None


def test_damage_is_found(tmp_path: Path) -> None:
    store = page_file(tmp_path, ["k0"], "key")
    assert "kept apart" in store.explain()
    generation = tmp_path / "m.pages" / "generation-1"
    with closing(store.with_nulls().at()) as pages:
        part = generation / pages._inner.generation.null_part.rows_file  # type: ignore[attr-defined]
    shutil.copy(part, tmp_path / "kept")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with closing(store.with_nulls().at()) as pages, pytest.raises(ConfigError, match="is damaged"):
        pages.read(len(pages.starts) - 2, 1)
    part.write_bytes(data[:-1])
    with pytest.raises(ConfigError, match="bytes instead of"):
        store.with_nulls().at()
