"""Parquet files against plain dictionaries: with and without an index, partitions, changes, damage."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.semistream.master.models import KINDS, assert_is, assert_reads_many, groups_of, keys_of, master

from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.store import MasterStore

SORTED = [*((kind,) for kind in KINDS if kind != "bool"), ("int", "text"), ("text", "date", "bytes")]


DEFAULT_POOL = pa.default_memory_pool()
POOL = pa.proxy_memory_pool(DEFAULT_POOL)  # which must outlive all that is allocated from it


def write(path: Path, table: pa.Table, row_group: int, files: int = 1) -> None:
    path.mkdir(exist_ok=True)
    each = -(-table.num_rows // files) or 1
    for number in range(files):
        part = table.slice(number * each, each)
        pq.write_table(part, path / f"part-{number}.parquet", row_group_size=row_group)


@pytest.mark.parametrize("kinds", SORTED, ids="-".join)
def test_sorted_files_have_their_statistics_as_an_index(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(kinds))
    names = [f"k{at}" for at in range(len(kinds))]
    for rows, keys, group, files in [(300, 1000, 10, 3), (700, 60, 30, 1), (500, 3000, 100, 2)]:
        table = master(rng, kinds, rows, keys)
        table = table.take(pa.array(sorted(range(rows), key=sort_key(table, names))))
        path = tmp_path / f"{rows}"
        write(path, table, group, files)
        store = MasterStore.parquet(path, names)
        pages = store.at()
        assert (pages.indexed, pages.order) == (True, "key"), store.explain()
        assert_is(pages, table, names, master(rng, kinds, 200, 4 * keys))
        assert_reads_many(pages, rng)
        whole = pages.read(0, len(pages.starts) - 1)
        assert whole.num_rows == pages.starts[-1]
        null_keys = sum(None in key for key in keys_of(table, names))
        assert "index by statistics of 'k0'" in store.explain()
        assert f"{null_keys} rows without a key" in store.explain()


def sort_key(table: pa.Table, names: list[str]):  # type: ignore[no-untyped-def]  # of any order
    keys = keys_of(table, names)
    encoded = [
        tuple((value is not None, v.encode() if isinstance(v := value, str) else value) for value in key)
        for key in keys
    ]
    order = sorted(
        range(len(keys)), key=lambda row: tuple((known, value if known else 0) for known, value in encoded[row])
    )
    rank = {row: place for place, row in enumerate(order)}
    return rank.__getitem__


def test_row_groups_that_share_a_key_are_one_page(tmp_path: Path) -> None:
    table = pa.table({"k": [1, 1, 2, 2, 2, 2, 2, 3, 4, 5], "row": range(10)})
    write(tmp_path / "p", table, 2)
    pages = MasterStore.parquet(tmp_path / "p", "k").at()
    assert pages.starts.tolist() == [0, 2, 8, 10]
    assert pages.home([pa.array([1, 2, 3, 4, 5, 6, None])]).tolist() == [0, 1, 1, 2, 2, -1, -1]
    assert pages.read(1, 1)["row"].to_pylist() == [2, 3, 4, 5, 6, 7]
    assert pages.device.requests == 1
    assert pages.device.bytes_read == pages.stored_bytes(1, 1) > 0


def test_files_lie_by_key_whatever_they_are_called(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for name, first in (("a", 200), ("b", 0), ("c", 100)):
        pq.write_table(
            pa.table({"k": np.arange(first, first + 100)}), tmp_path / "p" / f"{name}.parquet", row_group_size=50
        )
    pages = MasterStore.parquet(tmp_path / "p", "k").at()
    assert pages.read(0, 6)["k"].to_pylist() == list(range(300))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"k": np.random.default_rng(0).permutation(100)}), "row groups overlap in 'k'"),
        (pa.table({"k": np.arange(100.0)}), "a float, do not cover NaN"),
    ],
)
def test_without_an_index_the_reason_is_told_and_rows_are_all_there(
    tmp_path: Path, table: pa.Table, reason: str
) -> None:
    write(tmp_path / "p", table, 10)
    store = MasterStore.parquet(tmp_path / "p", "k")
    pages = store.at()
    assert (pages.indexed, pages.order, len(pages.starts)) == (False, "none", 11)
    assert reason in store.explain()
    assert groups_of(pa.Table.from_batches([pages.read(0, 10)]), ["k"]) == groups_of(table, ["k"])
    with pytest.raises(UnsupportedError, match=r"has no index: .*Build a page file"):
        pages.home([table["k"].combine_chunks()])


def test_no_statistics(tmp_path: Path) -> None:
    table = pa.table({"k": [1, None, 2, None], "j": [None, 1, 2, None]})
    for statistics in (False, ["j"], True):
        pq.write_table(table, tmp_path / f"{statistics}.parquet", write_statistics=statistics)
        store = MasterStore.parquet(tmp_path / f"{statistics}.parquet", ["k", "j"])
        pages = store.at()
        assert pages.starts.tolist() == [0, 1], "nulls are counted by reading where no footer counts them"
        assert pages.read(0, 1).to_pylist() == [{"k": 2, "j": 2}]
        assert pages.indexed == (statistics is True)
        assert ("no statistics of 'k'" in store.explain()) == (statistics is not True)


def test_hive_partitions_and_dictionaries_are_columns(tmp_path: Path) -> None:
    for year in (2020, 2021):
        place = tmp_path / "p" / f"year={year}"
        place.mkdir(parents=True)
        words = pa.array([f"w{year}a", f"w{year}b"]).dictionary_encode()
        pq.write_table(pa.table({"k": [year * 2, year * 2 + 1], "word": words}), place / "x.parquet")
    store = MasterStore.parquet(tmp_path / "p", "k")
    assert store.schema == pa.schema({"k": pa.int64(), "word": pa.string(), "year": pa.int32()})
    assert store.at().read(1, 1).to_pylist() == [
        {"k": 4042, "word": "w2021a", "year": 2021}, {"k": 4043, "word": "w2021b", "year": 2021},
    ]  # fmt: skip
    by_year = MasterStore.parquet(tmp_path / "p", ["year", "k"]).at()
    assert (by_year.indexed, by_year.starts.tolist()) == (False, [0, 2, 4])


def test_times_as_spark_writes_them_by_default_are_in_utc(tmp_path: Path) -> None:
    """INT96, also beyond the years that nanoseconds reach; times without a zone are stored otherwise, and stay."""
    (path := tmp_path / "p").mkdir()
    moments = [0, 253_402_300_799_999_999, None]  # the last microsecond of 9999
    rows = pa.table({"k": pa.array(moments, pa.timestamp("us", "UTC")), "until": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(rows.select(["k"]), path / "old.parquet", use_deprecated_int96_timestamps=True)
    assert MasterStore.parquet(path, "k").schema == rows.select(["k"]).schema
    pages = MasterStore.parquet(path, "k").at()
    assert pages.read(0, len(pages.starts) - 1)["k"].cast(pa.int64()).to_pylist() == moments[:2]
    pq.write_table(rows, tmp_path / "new.parquet")
    assert MasterStore.parquet(tmp_path / "new.parquet", "k").schema == rows.schema


def test_uris_and_values(tmp_path: Path) -> None:
    write(tmp_path / "p", pa.table({"k": np.arange(100)}), 10)
    store = MasterStore.parquet(f"file://{tmp_path}/p", "k")
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    assert again.at(store.version()).read(3, 1)["k"].to_pylist() == list(range(30, 40))


def test_another_version(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write(path, pa.table({"k": np.arange(100)}), 10)
    store = MasterStore.parquet(path, "k")
    first, pages = store.version(), store.at()
    assert store.version() == first == pages.version
    pq.write_table(pa.table({"k": np.arange(100, 150)}), path / "more.parquet")
    assert store.version() != first
    with pytest.raises(ConfigError, match=f"version {first} is gone"):
        store.at(first)
    assert pages.read(0, 10).num_rows == 100, "its own files are as they were"
    newer = store.at(store.version())
    assert newer.starts[-1] == 150
    pq.write_table(pa.table({"k": np.arange(1000, 1100)}), path / "part-0.parquet", row_group_size=10)
    with pytest.raises(ConfigError, match=r"was written while|cannot read"):
        newer.read(0, 1)
    assert store.changed(first, store.version()) is None
    with pytest.raises(UnsupportedError, match="nothing to prune"):
        store.prune(1)


def test_failures_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        MasterStore.parquet(tmp_path / "nowhere", "k")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no files"):
        MasterStore.parquet(tmp_path / "empty", "k")
    path = tmp_path / "p"
    write(path, pa.table({"k": np.arange(1000), "v": np.arange(1000)}), 100)
    with pytest.raises(PlanError, match="not one of the columns"):
        MasterStore.parquet(path, "x")
    store, file = MasterStore.parquet(path, "k"), path / "part-0.parquet"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1], b"x" * 100, b""):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"cannot read Parquet .*/p"):
            store.at()
    file.unlink()
    with pytest.raises(ConfigError, match="has no files"):
        store.at()
    file.write_bytes(whole)
    assert store.at().read(9, 1)["k"].to_pylist() == list(range(900, 1000))
    pq.write_table(pa.table({"k": ["a"], "v": [1]}), path / "zz.parquet")
    with pytest.raises(ConfigError, match=r"zz\.parquet: column 'k' is int64 in other files, here string"):
        store.at()
    pq.write_table(pa.table({"k": [1]}), path / "zz.parquet")
    with pytest.raises(ConfigError, match=r"zz\.parquet: column 'v' .* here no such column"):
        store.at()


def test_a_changed_page_is_an_error_not_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "p"
    write(path, pa.table({"k": np.arange(1000)}), 100)
    pages, file = MasterStore.parquet(path, "k").at(), path / "part-0.parquet"
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 3] ^= 255
    file.write_bytes(whole)
    with pytest.raises(ConfigError):
        pages.read(0, 10)


def test_credentials_are_not_shown() -> None:
    from dovetail.joins.semistream.master.parquet import ParquetSource

    source = ParquetSource("s3://user:secret@bucket/x", ("k",))
    assert str(source) == repr(source) == "Parquet s3://bucket/x"


def test_a_page_of_a_shared_row_group_decodes_its_own_rows_only(tmp_path: Path) -> None:
    """A small file of updates cuts a row group of 20 MB: a page of it must not have all of them in memory."""
    wide = [f"{n:02d}" * 100 for n in range(10)]

    def write(name: str, keys: Sequence[int]) -> None:
        rows = pa.table({"k": pa.array(keys), "payload": [wide[k % 10] for k in keys]})
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=100_000)

    write("large", range(0, 200_000, 2))
    for at in range(20):
        write(f"update-{at}", [10_000 * at + 1, 10_000 * at + 3])
    for at in range(1, 7):  # so that reading every page does not read too much in all
        write(f"other-{at}", range(at * 1_000_000, at * 1_000_000 + 100_000))
    store = MasterStore.parquet(tmp_path, key="k")
    with closing(store.at()) as pages:
        assert "row groups overlap" in store.explain()
        home = int(pages.home([pa.array([50_000])])[0])
        pa.set_memory_pool(POOL)
        try:
            found = pages.read(home, 1)
        finally:
            pa.set_memory_pool(DEFAULT_POOL)
        low, high = 40_001, 50_001  # where updates begin
        updates = [10_000 * at + more for at in range(20) for more in (1, 3)]
        assert set(found.column("k").to_pylist()) == {k for k in [*range(0, 200_000, 2), *updates] if low <= k < high}
        assert found.nbytes < 2_500_000
        assert POOL.max_memory() < 8_000_000  # 20 MB before


@pytest.mark.parametrize(("log", "told"), [("_delta_log", "MasterStore.delta"), ("_spark_metadata", "with Spark")])
def test_files_that_a_log_lists_are_not_read_without_it(tmp_path: Path, log: str, told: str) -> None:
    """Among them are files that were removed from the table, or never committed."""
    pq.write_table(pa.table({"k": [1]}), tmp_path / "part.parquet")
    (tmp_path / log).mkdir()
    with pytest.raises(ConfigError, match=told):
        MasterStore.parquet(tmp_path, "k")
