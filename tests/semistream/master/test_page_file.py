"""Page files against plain dictionaries: every key type and order, whole key groups, runs, generations."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.models import KINDS, assert_finds, assert_is, assert_reads_many, keys_of, master
from tests.semistream.page_files import write_ordered_pages

from dovetail.engine.clock import VirtualClock
from dovetail.engine.storage.device import Device
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.keys import Texts
from dovetail.joins.semistream.master.page_file.generation import load_version
from dovetail.joins.semistream.master.page_file.tables import page_table
from dovetail.joins.semistream.master.page_file.writer import write_pages
from dovetail.joins.semistream.master.pages import check_order
from dovetail.joins.semistream.master.store import MasterStore

COMPOSITES = [("int", "text"), ("text", "int"), ("text", "text"), ("wide", "date", "bytes"), ("bool", "small")]


@pytest.mark.parametrize("order", ["key", "frequency", "hash", "none"])
@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), *COMPOSITES], ids="-".join)
def test_every_key_is_whole_in_its_home_page(kinds: tuple[str, ...], order: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(kinds) + len(kinds[0]))
    frequency = "wanted" if order == "frequency" else None
    names = [f"k{at}" for at in range(len(kinds))]
    for rows, keys, page in [(0, 5, "1KB"), (1, 1, 1), (300, 1000, 1), (700, 60, "1KB"), (500, 3000, "2KB")]:
        table, strangers = master(rng, kinds, rows, keys), master(rng, kinds, 200, 4 * keys)
        path = tmp_path / f"{rows}-{keys}"
        found = write_ordered_pages(path, table, names, order, page, frequency)  # type: ignore[arg-type]  # of parametrize
        pages = MasterStore.open(path).at()
        assert_is(pages, table, names, strangers)
        assert_finds(pages, table, names, strangers.select(names))
        assert found.null_keys == sum(None in key for key in keys_of(table, names))
        pages.close()


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), ("wide", "date", "bytes")], ids="-".join)
def test_many_pages_read_at_once_are_the_pages(kinds: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(len(kinds[0]))
    names = [f"k{at}" for at in range(len(kinds))]
    for number, (rows, keys, page) in enumerate([(0, 5, "1KB"), (300, 1000, 1), (700, 60, "1KB")]):
        table = master(rng, kinds, rows, keys)
        flags = pa.array([None if n % 5 == 0 else n % 3 == 0 for n in range(rows)], pa.bool_())
        table = table.append_column("flag", flags).append_column("long", table["word"].cast(pa.large_string()))
        for nested in (False, True):  # lists are left to Arrow
            path = tmp_path / f"{number}-{nested}"
            write_pages(path, table if nested else table.drop_columns(["list"]), names, page)
            with closing(MasterStore.open(path).at()) as pages:
                assert_reads_many(pages, rng)
                assert_finds(pages, pages_table(pages), names, table.select(names))


def pages_table(pages: Any) -> pa.Table:
    found = [pages.read(0, len(pages.starts) - 1)] if len(pages.starts) > 1 else []
    return pa.Table.from_batches(found, pages.schema)


def test_pages_that_follow_each_other_are_one_read_and_damage_is_found(tmp_path: Path) -> None:
    write_pages(tmp_path / "p", pa.table({"k": range(1000), "word": ["w"] * 1000}), "k", page=100)
    with closing(MasterStore.open(tmp_path / "p").at()) as pages:
        first, count = np.array([3, 4, 9, 30]), np.array([1, 2, 1, 5])
        pages.read_many(first, count)
        assert (pages.device.requests, pages.device.seeks) == (3, 3)
        assert pages.device.bytes_read == sum(pages.stored_bytes(*run) for run in [(3, 3), (9, 1), (30, 5)])
        with pytest.raises(IndexError):
            pages.read_many(first, np.array([1, 2, 1, 10_000]))
        key = pages.read(32, 1).column(0)
        (rows,) = (tmp_path / "p").rglob("*.rows")
        content = bytearray(rows.read_bytes())
        content[pages.stored_bytes(0, 32) + 200] ^= 1
        rows.write_bytes(content)
        with pytest.raises(ConfigError, match=r"page 32 .* is damaged"):
            pages.read_many(first, count)
        with pytest.raises(ConfigError, match=r"page 32 .* is damaged"):
            pages.read_keys([key], 1 << 20)  # type: ignore[attr-defined]
        rows.write_bytes(content[: pages.stored_bytes(0, 9) + 50])
        with pytest.raises(ConfigError, match="ends at byte"):
            pages.read_many(first, count)
        with pytest.raises(ConfigError, match="ends at byte"):
            pages.read_keys([key], 1 << 20)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="closed"):
        pages.read_many(first, count)
    with pytest.raises(ValueError, match="closed"):
        pages.read_keys([key], 1 << 20)  # type: ignore[attr-defined]


def test_rows_lie_in_the_order_asked_for(tmp_path: Path) -> None:
    table = pa.table({"k": [3, 1, 2, 1, 3], "f": [5, 9, 7, 1, 8], "row": range(5)})
    rows = {}
    for order in ("key", "frequency", "none"):
        write_ordered_pages(tmp_path / order, table, "k", order, 1, "f" if order == "frequency" else None)  # type: ignore[arg-type]
        pages = MasterStore.open(tmp_path / order).at()
        rows[order] = pages.read(0, 3).column("row").to_pylist()
        assert pages.order == order
        assert pages.starts.tolist() == [
            0,
            *np.cumsum({"key": [2, 1, 2], "frequency": [2, 2, 1]}.get(order, [2, 2, 1])),
        ]
    assert rows == {"key": [1, 3, 2, 0, 4], "frequency": [1, 3, 0, 4, 2], "none": [0, 4, 1, 3, 2]}


def test_an_index_of_hashes_takes_some_bytes_a_page_however_wide_keys_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"k": [f"{n:0500d}" for n in range(900)], "row": range(900)})
    write_ordered_pages(tmp_path / "p", table, "k", "hash", "4KB", unique=True)
    found = load_version(tmp_path / "p")
    assert found.index is None
    assert page_table(tmp_path / "p", found).column("first").type == pa.int64()
    assert "order hash, ranges of hashes, keys unique" in MasterStore.open(tmp_path / "p").explain()
    with pytest.raises(DataError, match="occur more than once"):
        write_ordered_pages(tmp_path / "p", pa.table({"k": ["a", "b", "a"]}), "k", "hash", unique=True)
    # Keys of one hash are one group: with six bits, some 14 keys share each, and all are still found and told apart.
    monkeypatch.setattr("dovetail.joins.semistream.keys.folded", lambda _, codes: codes & 63)
    write_ordered_pages(tmp_path / "q", table, "k", "hash", 1, unique=True)
    with closing(MasterStore.open(tmp_path / "q").at()) as pages:
        assert len(pages.starts) - 1 <= 64
        home = pages.home([table["k"].combine_chunks()])
        for page in range(len(pages.starts) - 1):
            assert sorted(pages.read(page, 1)["row"].to_pylist()) == np.flatnonzero(home == page).tolist()


def test_text_sorts_by_its_bytes_and_parts_one_after_the_other(tmp_path: Path) -> None:
    keys = [("a", ""), ("a", "b"), ("a\0", ""), ("a\0b", "a"), ("ab", ""), ("b", "\0"), ("é", "a"), ("\U0001f600", "z")]
    shuffled = [keys[at] for at in np.random.default_rng(1).permutation(len(keys))]
    table = pa.table({"a": [a for a, _ in shuffled], "b": [b for _, b in shuffled]})
    write_pages(tmp_path / "p", table, ["a", "b"], page=1)
    pages = MasterStore.open(tmp_path / "p").at()
    assert keys_of(pages.read(0, len(keys)), ["a", "b"]) == keys


def test_floats_are_equal_as_in_spark(tmp_path: Path) -> None:
    table = pa.table({"k": [float("nan"), -0.0, float("inf"), -1.5, 0.0, float("-inf")], "row": range(6)})
    for order in ("key", "none"):
        write_ordered_pages(tmp_path / order, table, "k", order, 1)  # type: ignore[arg-type]  # order is a plain str here
        pages = MasterStore.open(tmp_path / order).at()
        homes = pages.home([pa.array([0.0, -0.0, float("nan"), -float("nan"), -1.5, 1.5])])
        assert homes[0] == homes[1] >= 0
        assert pages.read(int(homes[0]), 1).column("row").to_pylist() == [1, 4]
        assert homes[2] == homes[3] >= 0
        assert homes[4] >= 0
        assert homes[5] == -1
    assert pages.home([pa.array([1.5], pa.float32())]).tolist() == [-1]


def test_keys_of_another_width_or_layout_are_the_same_keys(tmp_path: Path) -> None:
    write_pages(tmp_path / "n", pa.table({"k": pa.array([1, 2, 300], pa.int32())}), "k", page=1)
    numbers = MasterStore.open(tmp_path / "n").at()
    assert numbers.home([pa.array([300, 2**40, 1])]).tolist() == [2, -1, 0]
    write_ordered_pages(tmp_path / "t", pa.table({"k": ["a", "b"]}), "k", "none", 1)
    text = MasterStore.open(tmp_path / "t").at()
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert text.home([pa.array(["b", "x", None, "a"]).cast(kind)]).tolist() == [1, -1, -1, 0]
    with pytest.raises(PlanError, match="cast them"):
        text.home([pa.array([1])])
    with pytest.raises(PlanError, match="cast them"):
        numbers.home([pa.array(["1"])])


def test_columns_that_are_dictionaries_are_stored_as_values(tmp_path: Path) -> None:
    table = pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "v": pa.array([None, "x"]).dictionary_encode()})
    write_pages(tmp_path / "p", table, "k")
    pages = MasterStore.open(tmp_path / "p").at()
    assert pages.schema == pa.schema({"k": pa.string(), "v": pa.string()})
    assert pages.read(0, 1).to_pylist() == [{"k": "a", "v": None}, {"k": "b", "v": "x"}]


def test_hashes_that_clash_are_told_apart_by_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_codes = Texts.codes
    monkeypatch.setattr(Texts, "codes", lambda self: true_codes(self) & 7)
    rng = np.random.default_rng(5)
    for kinds in (("text",), ("int", "text")):
        table, names = master(rng, kinds, 300, 100), [f"k{at}" for at in range(len(kinds))]
        path = tmp_path / str(len(kinds))
        found = write_ordered_pages(path, table, names, "frequency", 64, "wanted")
        assert found.index is not None
        assert len(found.index.clashing_keys) > 50
        assert_is(MasterStore.open(path).at(), table, names, master(rng, kinds, 300, 300))


def test_unique_names_the_keys_that_are_not(tmp_path: Path) -> None:
    table = pa.table({"k": [5, 1, 5, 2, 1], "t": list("abcde")})
    with pytest.raises(DataError, match=r"not unique: \[1, 5\]"):
        write_pages(tmp_path / "p", table, "k", unique=True)
    with pytest.raises(ConfigError, match="not a page file"):
        MasterStore.open(tmp_path / "p")
    assert [e.name for e in (tmp_path / "p").iterdir()] == []
    write_pages(tmp_path / "p", table, ["k", "t"], unique=True)


def test_one_read_of_the_device_whatever_the_run(tmp_path: Path) -> None:
    table = pa.table({"k": np.arange(1000), "v": np.arange(1000.0)})
    write_pages(tmp_path / "p", table, "k", page=160)
    disk = Device("hdd", VirtualClock())
    pages = MasterStore.open(tmp_path / "p").at(device=disk)
    assert pages.device is disk
    assert (disk.requests, len(pages.starts)) == (0, 101)
    assert pages.read(20, 30).column("k").to_pylist() == list(range(200, 500))
    assert (disk.requests, disk.seeks, disk.bytes_read) == (1, 1, pages.stored_bytes(20, 30))
    assert pages.read(50, 1).column("k").to_pylist() == list(range(500, 510))
    assert (disk.requests, disk.seeks) == (2, 1)
    for first, count in [(-1, 1), (100, 1), (99, 2), (0, 0)]:
        with pytest.raises(IndexError, match="100 pages"):
            pages.read(first, count)
    pages.close()
    pages.close()
    with pytest.raises(ValueError, match="closed"):
        pages.read(0, 1)


def test_a_large_key_group_is_one_page(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sizes = [1, 40_000, 3, 1, 100_000, 2]
    keys = rng.permutation(np.repeat(np.arange(6), sizes))
    table = pa.table({"k": keys, "row": np.arange(len(keys))})
    write_pages(tmp_path / "p", table, "k", page="1KB")
    pages = MasterStore.open(tmp_path / "p").at()
    assert np.diff(pages.starts).tolist() == [1, 40_000, 4, 100_000, 2]
    assert sorted(pages.read(3, 1).column("row").to_pylist()) == np.flatnonzero(keys == 4).tolist()


def test_a_store_is_a_small_value(tmp_path: Path) -> None:
    write_pages(tmp_path / "p", pa.table({"k": np.arange(100_000)}), "k", page="1KB")
    store = MasterStore.open(tmp_path / "p")
    text = pickle.dumps(store)
    assert len(text) < 1000
    again = pickle.loads(text)  # noqa: S301  (pickled two lines above)
    assert (again, hash(again)) == (store, hash(store))
    assert again.at().read(3, 1).equals(store.at().read(3, 1))
    assert (store.key, store.order, store.schema.names) == (("k",), "key", ["k"])
    assert "key ['k'], order key, fences" in store.explain()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "x"}, "not one of the columns"),
        ({"key": []}, "one or more"),
        ({"key": "l"}, "cannot be a key"),
        ({"key": "k", "page": "huge"}, "not a size"),
    ],
)
def test_wrong_requests_are_refused(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    table = pa.table({"k": [1], "t": ["a"], "l": [[1]]})
    with pytest.raises(PlanError, match=message):
        write_pages(tmp_path / "p", table, **arguments)  # type: ignore[arg-type]  # of parametrize
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("order", "frequency", "message"),
    [
        ("size", None, r"one of \['key'"),
        ("frequency", None, "name the column"),
        ("key", "k", "no other order"),
        ("frequency", "z", "not one of the columns"),
        ("frequency", "t", "frequencies are numbers"),
    ],
)
def test_wrong_orders_are_refused(order: str, frequency: str | None, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_order(order, frequency, pa.schema({"k": pa.int64(), "t": pa.string()}))
