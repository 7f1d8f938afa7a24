"""Delta tables against plain dictionaries: partitions, overlapping files, versions, deletion vectors, other schemas."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import uuid
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.semistream.master.models import KINDS, assert_is, assert_reads_many, groups_of, keys_of, master

from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.lake.delta import delta_source
from dovetail.joins.semistream.master.store import MasterStore

SORTED = [*((kind,) for kind in KINDS if kind not in ("bool", "unsigned")), ("int", "text"), ("text", "date", "bytes")]


def rows_of(store: MasterStore, version: str | None = None) -> list[dict[str, Any]]:
    pages = store.at(version)
    n_pages = len(pages.starts) - 1
    return pages.read(0, n_pages).to_pylist() if n_pages else []


@pytest.mark.parametrize("kinds", SORTED, ids="-".join)
def test_equals_the_rows(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """One file by key, then more rows over all keys: pages are cut, and have all rows of their keys."""
    rng, names = np.random.default_rng(len(kinds)), [f"k{at}" for at in range(len(kinds))]
    whole = None
    for number, (rows, keys, group) in enumerate([(300, 1000, 10), (20, 1000, 100), (30, 60, 7)]):
        table = master(rng, kinds, rows, keys)
        schema = pa.schema(table.schema)
        order = sorted(range(rows), key=lambda at: (keys_of(table, names)[at] == (None,), repr(table["k0"][at])))
        if number == 0 and kinds[0] in ("int", "text"):
            values = table["k0"].to_pylist()
            order = sorted(range(rows), key=lambda at: (values[at] is None, values[at] or type(values[0] or 0)()))
        table = table.take(pa.array(order))
        write(tmp_path / "t", table, group)
        whole = table if whole is None else pa.concat_tables([whole, table])
        store = MasterStore.delta(tmp_path / "t", names)
        pages = store.at()
        assert pages.schema.names == schema.names
        assert pages.version.startswith(f"{number}-")
        assert_rows(pages, whole, names, rng, master(rng, kinds, 200, 4 * keys))


def write(path: Path, table: pa.Table, group: int) -> None:
    from deltalake import WriterProperties

    write_deltalake(path, table, mode="append", writer_properties=WriterProperties(max_row_group_size=group))


def assert_rows(pages: Any, table: pa.Table, names: list[str], rng: Any, strangers: pa.Table) -> None:
    """As `assert_is`, but where row groups overlap pages have other numbers of rows than were estimated."""
    table = table.cast(pages.schema)
    n_pages = len(pages.starts) - 1
    if not pages.indexed:
        assert groups_of(pa.Table.from_batches([pages.read(0, n_pages)]), names) == groups_of(table, names)
        return
    if not pages._layout.cut:
        assert_is(pages, table, names, strangers)
        assert_reads_many(pages, rng)
        return
    read = [pages.read(page, 1) for page in range(n_pages)]
    assert groups_of(pa.Table.from_batches(read), names) == groups_of(table, names)
    where = {key: page for page, batch in enumerate(read) for key in keys_of(batch, names)}
    assert sum(len(set(keys_of(batch, names))) for batch in read) == len(where), "a key lies in two pages"
    known = pages.home([table.column(name).combine_chunks() for name in names])
    assert known.tolist() == [where.get(key, -1) for key in keys_of(table, names)]
    for first in range(0, n_pages, 3):
        count = min(2, n_pages - first)
        both = pa.Table.from_batches(read[first : first + count])
        assert groups_of(pa.Table.from_batches([pages.read(first, count)]), names) == groups_of(both, names)
        assert pages.stored_bytes(first, count) <= sum(pages.stored_bytes(at, 1) for at in range(first, first + count))
    assert abs(int(pages.starts[-1]) - sum(batch.num_rows for batch in read)) <= 1


def test_a_small_file_over_all_keys_costs_pages_little(tmp_path: Path) -> None:
    write(tmp_path / "t", pa.table({"k": np.arange(10_000), "v": np.zeros(10_000)}), 500)
    before = MasterStore.delta(tmp_path / "t", "k").at()
    assert len(before.starts) == 21
    write(tmp_path / "t", pa.table({"k": [17, 9_000], "v": [1.0, 1.0]}), 500)
    store = MasterStore.delta(tmp_path / "t", "k")
    after = store.at()
    assert after.indexed
    assert "row groups overlap, a page reads" in store.explain()
    home = int(after.home([pa.array([17])])[0])
    assert sorted(row["v"] for row in after.read(home, 1).to_pylist() if row["k"] == 17) == [0.0, 1.0]
    assert after.stored_bytes(home, 1) < 3 * before.stored_bytes(0, 1)


def test_files_that_all_overlap_have_no_index(tmp_path: Path) -> None:
    for seed in range(8):
        write(tmp_path / "t", pa.table({"k": np.random.default_rng(seed).permutation(1000)}), 100)
    store = MasterStore.delta(tmp_path / "t", "k")
    assert not store.at().indexed
    assert "no index: row groups overlap in 'k'" in store.explain()
    assert len(rows_of(store)) == 8000


def test_partitions_are_columns_and_an_index(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": pa.array(range(12)),
            "day": pa.array([date(2024, 1, 1 + n % 3) for n in range(12)]),
            "at": pa.array(["a b/c=%", "x", None][n % 3] for n in range(12)),
        }
    )
    write_deltalake(tmp_path / "t", table, partition_by=["day", "at"])
    store = MasterStore.delta(tmp_path / "t", "k")
    assert sorted(map(str, rows_of(store))) == sorted(map(str, table.to_pylist()))
    by_day = MasterStore.delta(tmp_path / "t", ["day", "k"])
    pages = by_day.at()
    assert (pages.indexed, len(pages.starts)) == (True, 4)
    assert pages.home([pa.array([date(2024, 1, 2), date(2025, 1, 1)]), pa.array([1, 1])]).tolist() == [1, -1]
    by_text = MasterStore.delta(tmp_path / "t", "at").at()
    assert by_text.null_rows == 4  # type: ignore[attr-defined]
    assert by_text.starts[-1] == 8


def test_versions_are_read_again_until_they_are_vacuumed(tmp_path: Path) -> None:
    path, versions = tmp_path / "t", []
    for stamp in range(3):
        write_deltalake(path, pa.table({"k": range(50), "stamp": [stamp] * 50}), mode="overwrite")
        versions.append(MasterStore.delta(path, "k").version())
    store = MasterStore.delta(path, "k")
    assert [version.partition("-")[0] for version in versions] == ["0", "1", "2"]
    for stamp, version in enumerate(versions):
        assert {row["stamp"] for row in rows_of(store, version)} == {stamp}
        assert {row["stamp"] for row in rows_of(store, str(stamp))} == {stamp}, "by its number alone"
    assert store.changed(versions[0], versions[1]) is None
    with pytest.raises(UnsupportedError, match="VACUUM"):
        store.prune(1)
    with pytest.raises(ConfigError, match=r"no version 7 \(current is 2-"):
        store.at("7")
    with pytest.raises(PlanError, match="not a version"):
        store.at("newest")
    open_one = store.at(versions[2])
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    forget()
    with pytest.raises(ConfigError, match=rf"version {versions[0]} is gone, its file .* was removed; keep"):
        store.at(versions[0])
    assert open_one.read(0, 1).num_rows == 50
    shutil.rmtree(path)
    with pytest.raises(ConfigError, match=r"is gone, its file .* was removed"):
        open_one.read(0, 1)
    with pytest.raises(ConfigError, match="no such table"):
        store.version()
    for stamp in range(3):
        write_deltalake(path, pa.table({"k": range(50), "stamp": [stamp + 10] * 50}), mode="overwrite")
    with pytest.raises(ConfigError, match=r"created again: version 2-\w+ is gone, its number now stands for 2-"):
        store.at(versions[2])


def forget() -> None:
    """As in another process."""
    from dovetail.joins.semistream.master.lake import data_files

    data_files._layouts.clear()


def test_columns_that_were_added_and_types_that_grew(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"k": pa.array([1, 2], pa.int64()), "v": ["a", "b"]}))
    old = MasterStore.delta(path, "k")
    first = old.version()
    more = pa.table({"k": pa.array([3], pa.int64()), "v": ["c"], "n": [Decimal("1.5")]})
    write_deltalake(path, more, mode="append", schema_mode="merge")
    store = MasterStore.delta(path, "k")
    expected = [{"k": 1, "v": "a", "n": None}, {"k": 2, "v": "b", "n": None}, {"k": 3, "v": "c", "n": Decimal("1.5")}]
    assert sorted(rows_of(store), key=lambda row: row["k"]) == expected
    assert rows_of(store, first) == expected[:2], "a version from before the column"
    assert [sorted(row) for row in rows_of(old)] == [["k", "v"]] * 3, (
        "a query goes on with the columns it was planned with"
    )
    write_deltalake(path, pa.table({"k": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(ConfigError, match=r"column 'v' is string in this query, and version 2-\w+ has no such column"):
        old.at()
    assert sorted(row["v"] for row in rows_of(old, first)) == ["a", "b"]
    log(tmp_path / "w", [("a.parquet", pa.table({"k": pa.array([5], pa.int32())}), {}, None),
                         ("b.parquet", pa.table({"k": pa.array([2**40], pa.int64())}), {}, None)],
        fields=[("k", "long", {})], features=["typeWidening"])  # fmt: skip
    widened = MasterStore.delta(tmp_path / "w", "k")
    assert [row["k"] for row in rows_of(widened)] == [5, 2**40]
    assert widened.at().home([pa.array([5, 2**40, 7], pa.int64())]).tolist() == [0, 1, -1]
    log(tmp_path / "x", [("a.parquet", pa.table({"k": ["5"]}), {}, None)], fields=[("k", "long", {})])
    with pytest.raises(ConfigError, match=r"a\.parquet: column 'k' is string in this file, and int64 in the table"):
        MasterStore.delta(tmp_path / "x", "k")


ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(rows: list[int]) -> dict[str, Any]:
    """Rows below 65,536 as the protocol of Delta Lake writes them into the log: a portable roaring bitmap, in Z85."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *sorted(rows))
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    padded, text = data + b"\0" * (-len(data) % 4), ""
    for at in range(0, len(padded), 4):
        number = int.from_bytes(padded[at : at + 4], "big")
        text += "".join(ALPHABET[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(rows)}


def log(
    path: Path, files: list[tuple[str, pa.Table, dict[str, str], list[int] | None]], fields: list[Any],
    features: list[str] | None = None, partitions: list[str] | None = None, mapping: str = "none",
) -> None:  # fmt: skip
    """A table as another writer would leave it, by the protocol of Delta Lake."""
    (path / "_delta_log").mkdir(parents=True)
    schema = [{"name": name, "type": kind, "nullable": True, "metadata": about} for name, kind, about in fields]
    named = features or []
    about = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "createdTime": 0,
        "schemaString": json.dumps({"type": "struct", "fields": schema}), "partitionColumns": partitions or [],
        "configuration": {"delta.columnMapping.mode": mapping} if mapping != "none" else {},
    }  # fmt: skip
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": named, "writerFeatures": named}
    actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": about}]
    for name, table, values, deleted in files:
        pq.write_table(table, path / name, row_group_size=4)
        size = (path / name).stat().st_size
        add = {"path": name, "partitionValues": values, "size": size, "modificationTime": 0, "dataChange": True}
        add["stats"] = json.dumps({"numRecords": table.num_rows})
        actions.append({"add": add | ({"deletionVector": deletion_vector(deleted)} if deleted else {})})
    text = "\n".join(json.dumps(action) for action in actions)
    (path / "_delta_log" / f"{0:020}.json").write_text(text)


def mapped(name: str, number: int) -> dict[str, Any]:
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


@pytest.mark.parametrize("seed", range(4))
def test_deletion_vectors_and_column_mapping(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = [
        ("k", "long", mapped("col-1", 1)),
        ("v", "string", mapped("col-2", 2)),
        ("p", "integer", mapped("col-3", 3)),
    ]
    files, expected = [], []
    for number in range(3):
        keys = [None if rng.random() < 0.2 else int(k) + 100 * number for k in np.sort(rng.integers(0, 50, 30))]
        words = [f"{number} {at}" for at in range(30)]
        deleted = sorted(rng.choice(30, int(rng.integers(1, 30)), replace=False).tolist())
        table = pa.table({"col-2": words, "col-1": pa.array(keys, pa.int64())})
        files.append((f"{number}.parquet", table, {"col-3": str(number)}, deleted if number else None))
        expected += [(k, w, number) for at, (k, w) in enumerate(zip(keys, words, strict=True))
                     if not (number and at in deleted)]  # fmt: skip
    log(tmp_path / "t", files, fields, ["deletionVectors", "columnMapping"], ["p"], "name")
    store = MasterStore.delta(tmp_path / "t", "k")
    pages = store.with_nulls().at()
    found = [tuple(row.values()) for row in pages.read(0, len(pages.starts) - 1).to_pylist()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    by_its_own_reader = pa.table(DeltaTable(tmp_path / "t").scan(["k", "v", "p"]))
    assert sorted(map(repr, (tuple(row.values()) for row in by_its_own_reader.to_pylist()))) == sorted(map(repr, found))
    keyed = pa.table({"k": [k for k, _, _ in expected], "v": [w for _, w, _ in expected],
                      "p": pa.array([p for _, _, p in expected], pa.int32())})  # fmt: skip
    assert_is(store.at(), keyed, ["k"], pa.table({"k": [1000, None]}))
    read = delta_source(str(tmp_path / "t"), "k", None).files(None)[1]
    groups = [group for page in read.layout.pages for group in page]
    assert pa.concat_tables(read.scan(groups, 7)).equals(pa.concat_tables(read.scan(groups, None)))


def test_mapping_by_id_reads_fields_by_their_number(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "7"})])
    log(tmp_path / "t", [("a.parquet", pa.table({"other": [4, 5]}, schema), {}, None)],
        [("k", "long", mapped("col-1", 7))], ["columnMapping"], mapping="id")  # fmt: skip
    assert rows_of(MasterStore.delta(tmp_path / "t", "k")) == [{"k": 4}, {"k": 5}]


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    log(tmp_path / "t", [("a.parquet", pa.table({"k": [4]}), {}, None)], [("k", "long", {})], ["variantType"])
    with pytest.raises((UnsupportedError, ConfigError), match="variantType"):
        MasterStore.delta(tmp_path / "t", "k")
    with pytest.raises(ConfigError, match="no such table; correct the path"):
        MasterStore.delta(tmp_path / "nowhere", "k")
    write_deltalake(tmp_path / "u", pa.table({"k": [1]}))
    with pytest.raises(PlanError, match="not one of the columns"):
        MasterStore.delta(tmp_path / "u", "x")
    store = MasterStore.delta(tmp_path / "u", "k")
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    file = next((tmp_path / "u").glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    forget()
    with pytest.raises(ConfigError, match=r"cannot read Delta table .*/u: .*\.parquet"):
        store.at()


def test_files_that_its_own_writer_merged(tmp_path: Path) -> None:
    """Their text says of itself that it is of another layout."""
    table = pa.table({"k": list(range(40)), "word": ["first"] * 40, "x": [b"a"] * 40})
    write_deltalake(tmp_path / "t", table)
    merge = DeltaTable(tmp_path / "t").merge(
        table.slice(0, 5).set_column(1, "word", pa.array(["second"] * 5)), "t.k = s.k", source_alias="s",
        target_alias="t",
    )  # fmt: skip
    merge.when_matched_update_all().execute()
    found = {row["k"]: row["word"] for row in rows_of(MasterStore.delta(tmp_path / "t", "k"))}
    assert found == {k: "second" if k < 5 else "first" for k in range(40)}


def test_an_empty_table(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema([("k", pa.int64()), ("v", pa.string())]))
    pages = MasterStore.delta(tmp_path / "t", "k").at()
    assert pages.starts.tolist() == [0]
    assert pages.home([pa.array([1])]).tolist() == [-1]


def test_a_renamed_partition_column_keeps_its_values(tmp_path: Path) -> None:
    place = tmp_path / "renamed"
    fields = [("k", "long", mapped("col-1", 1)), ("p", "integer", mapped("col-3", 3))]
    file = ("0.parquet", pa.table({"col-1": [1, 2]}), {"col-3": "7"}, None)
    log(place, [file], fields, ["columnMapping"], ["p"], "name")
    store = MasterStore.delta(place, "k")
    before = rows_of(store)
    lines = map(json.loads, (place / "_delta_log" / f"{0:020}.json").read_text().splitlines())
    (line,) = (one for one in lines if "metaData" in one)
    schema = json.loads(line["metaData"]["schemaString"])
    schema["fields"][1]["name"] = "q"
    line["metaData"] |= {"schemaString": json.dumps(schema), "partitionColumns": ["q"]}
    (place / "_delta_log" / f"{1:020}.json").write_text(json.dumps(line))
    assert rows_of(store) == before
    assert {row["p"] for row in before} == {7}


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_files_of_a_shallow_clone_are_another_tables(tmp_path: Path, scheme: str) -> None:
    """A clone names its files by their whole paths."""
    write_deltalake(tmp_path / "first", pa.table({"k": range(10), "word": [str(n) for n in range(10)]}))
    shutil.copytree(tmp_path / "first" / "_delta_log", tmp_path / "clone" / "_delta_log")
    log = next((tmp_path / "clone" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = f"{scheme}{tmp_path}/first/{line['add']['path']}"
    log.write_text("\n".join(map(json.dumps, lines)))
    clone = MasterStore.delta(tmp_path / "clone", "k")
    assert sorted(row["k"] for row in rows_of(clone)) == list(range(10))


def test_a_percent_sign_that_would_be_another_character_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "a b", pa.table({"k": range(3)}))
    with pytest.raises(UnsupportedError, match="rename the directory"):
        MasterStore.delta(tmp_path / "a%20b", "k")


@pytest.mark.parametrize("name", ["a b", "5%", "a#b", "a?b", "ü"])
def test_tables_at_odd_places(tmp_path: Path, name: str) -> None:
    write_deltalake((tmp_path / name).as_uri(), pa.table({"k": range(3)}))
    assert (tmp_path / name / "_delta_log").is_dir()
    assert sorted(row["k"] for row in rows_of(MasterStore.delta(tmp_path / name, "k"))) == [0, 1, 2]
