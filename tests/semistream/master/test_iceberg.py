"""Iceberg tables against plain dictionaries: snapshots, partitions, deleted rows, changed schemas, secrets."""

from __future__ import annotations

import pickle
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, StringType
from tests.semistream.master.models import assert_is, assert_reads_many, keys_of, master

from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.store import MasterStore

KINDS = ("int", "date", "time", "decimal", "wide", "text", "bytes")


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    found = load_catalog("house", **properties)
    found.create_namespace("db")
    return found


def create(catalog: Any, table: pa.Table, name: str = "db.t", **properties: str) -> Any:
    made = catalog.create_table(name, table.schema, properties={"write.parquet.row-group-limit": "10", **properties})
    made.append(table)
    return made


def rows_of(store: MasterStore, version: str | None = None) -> list[dict[str, Any]]:
    pages = store.at(version)
    n_pages = len(pages.starts) - 1
    return pages.read(0, n_pages).to_pylist() if n_pages else []


@pytest.mark.parametrize("kinds", [*((kind,) for kind in KINDS), ("int", "text"), ("text", "date")], ids="-".join)
def test_equals_the_rows(catalog: Any, kinds: tuple[str, ...]) -> None:
    rng, names = np.random.default_rng(len(kinds)), [f"k{at}" for at in range(len(kinds))]
    table = master(rng, kinds, 300, 100)
    keys = keys_of(table, names)
    order = sorted(range(300), key=lambda at: tuple((v is None, v if v is not None else 0) for v in keys[at][:1]))
    table = table.take(pa.array(order))
    create(catalog, table)
    store = MasterStore.iceberg(catalog, "db.t", names)
    pages = store.at()
    assert pages.indexed, store.explain()
    assert_is(pages, table.cast(pages.schema), names, master(rng, kinds, 200, 400).cast(pages.schema))
    assert_reads_many(pages, rng)
    null_keys = sum(None in key for key in keys)
    assert f"{null_keys} rows without a key" in store.explain()


def test_every_type_comes_back(catalog: Any) -> None:
    table = pa.table(
        {
            "k": pa.array([1, None], pa.int32()), "f": pa.array([1.5, None], pa.float32()), "b": [True, None],
            "d": pa.array([date(2020, 1, 2), None]), "n": pa.array([Decimal("1.25"), None], pa.decimal128(9, 2)),
            "t": pa.array([datetime(2020, 1, 2, 3), None], pa.timestamp("us")),
            "z": pa.array([datetime(2020, 1, 2, 3, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "x": pa.array([b"xyz", None], pa.binary()), "l": pa.array([["a", None], None], pa.list_(pa.string())),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"y": 1, "z": "q"}, None], pa.struct([("y", pa.int32()), ("z", pa.string())])),
            "i": pa.array([b"0123", None], pa.binary(4)),
        }
    )  # fmt: skip
    create(catalog, table)
    store = MasterStore.iceberg(catalog, "db.t", "k")
    assert rows_of(store) == table.slice(0, 1).to_pylist()
    pages = store.with_nulls().at()
    assert pages.read(1, 1).to_pylist() == table.slice(1).to_pylist()


def test_snapshots_are_read_again_until_they_expire(catalog: Any, tmp_path: Path) -> None:
    versions, table = [], None
    for stamp in range(3):
        rows = pa.table({"k": pa.array(range(50)), "stamp": pa.array([stamp] * 50)})
        if table is None:
            table = catalog.create_table("db.t", rows.schema)
            empty = MasterStore.iceberg(catalog, "db.t", "k")
            assert (empty.version(), rows_of(empty)) == ("none", [])
        (table.overwrite if versions else table.append)(rows)
        versions.append(MasterStore.iceberg(catalog, "db.t", "k").version())
        assert versions[-1] == str(table.current_snapshot().snapshot_id)
    store = MasterStore.iceberg({"name": "house", **catalog.properties}, "db.t", "k")
    for stamp, version in enumerate(versions):
        assert {row["stamp"] for row in rows_of(store, version)} == {stamp}
    assert rows_of(store, "none") == []
    table.maintenance.expire_snapshots().by_id(int(versions[0])).commit()
    with pytest.raises(ConfigError, match=f"no version {versions[0]} any more .*its snapshot has expired"):
        store.at(versions[0])
    with pytest.raises(PlanError, match="not a version"):
        store.at("newest")
    with pytest.raises(UnsupportedError, match="expire_snapshots"):
        store.prune(1)
    opened = store.at()
    shutil.rmtree(tmp_path / "warehouse" / "db" / "t" / "data")
    with pytest.raises(ConfigError, match=rf"version {versions[2]} is gone, its file .* was removed; keep more"):
        opened.read(0, 1)


def test_a_table_by_its_directory_and_by_its_metadata_file(catalog: Any, tmp_path: Path) -> None:
    table = create(catalog, pa.table({"k": [1, 2]}))
    file = table.metadata_location
    by_file = MasterStore.iceberg(None, file, "k")
    hint = tmp_path / "warehouse" / "db" / "t" / "metadata" / "version-hint.text"
    hint.write_text(Path(file.removeprefix("file://")).name)
    by_place = MasterStore.iceberg(None, tmp_path / "warehouse" / "db" / "t", "k")
    table.append(pa.table({"k": [3]}))
    hint.write_text(Path(table.metadata_location.removeprefix("file://")).name)
    assert len(rows_of(by_file)) == 2
    assert len(rows_of(by_place)) == 3


def test_columns_that_were_added_renamed_and_widened(catalog: Any) -> None:
    table = create(catalog, pa.table({"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]}))
    old = MasterStore.iceberg(catalog, "db.t", "k")
    first = old.version()
    with table.update_schema() as update:
        update.update_column("k", LongType())
        update.add_column("n", DoubleType())
        update.rename_column("v", "word")
    table.append(pa.table({"k": pa.array([2**40]), "word": ["c"], "n": [1.5]}))
    store = MasterStore.iceberg(catalog, "db.t", "k")
    expected = [{"k": 1, "word": "a", "n": None}, {"k": 2, "word": "b", "n": None}]
    found = sorted(rows_of(store), key=lambda row: row["k"])
    assert found == [*expected, {"k": 2**40, "word": "c", "n": 1.5}]
    assert rows_of(store, first) == expected, "a snapshot from before the columns had these names and types"
    assert store.at().home([pa.array([2, 2**40, 5])]).tolist() == [0, 1, -1]
    with pytest.raises(ConfigError, match=r"column 'k' is int32 in this query, and version \d+ has int64"):
        old.at()
    with table.update_schema() as update:
        update.delete_column("word")
    table.append(pa.table({"k": pa.array([7]), "n": [1.5]}))
    with pytest.raises(ConfigError, match=r"'word' is string in this query, and version .* has no such column"):
        store.at()
    with table.update_schema() as update:
        update.add_column("word", DoubleType())
    again = MasterStore.iceberg(catalog, "db.t", "k")
    assert {row["word"] for row in rows_of(again)} == {None}, "another column of the same name"


def test_partitions(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", pa.schema([("k", pa.int64()), ("p", pa.string()), ("d", pa.date32())]))
    with table.update_spec() as update:
        update.add_identity("p")
    rows = pa.table({"k": [1, 2, 3], "p": ["x", None, "a b/c"], "d": pa.array([1, 2, 3], pa.date32())})
    table.append(rows)
    store = MasterStore.iceberg(catalog, "db.t", "k")
    assert sorted(map(str, rows_of(store))) == sorted(map(str, rows.to_pylist()))
    lacking = tmp_path / "p=q.parquet"
    pq.write_table(rows.slice(0, 1).drop_columns(["p"]), lacking)
    file = data_file(table, lacking, 1, partition=Record("q"))
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
    append(table, file)
    found = sorted(rows_of(MasterStore.iceberg(catalog, "db.t", "k")), key=lambda row: (row["k"], str(row["p"])))
    assert [(row["k"], row["p"]) for row in found] == [(1, "q"), (1, "x"), (2, None), (3, "a b/c")]


def data_file(table: Any, path: Path, rows: int, **more: Any) -> DataFile:
    more.setdefault("content", DataFileContent.DATA)
    more.setdefault("partition", Record())
    more.setdefault("file_format", FileFormat.PARQUET)
    made = DataFile.from_args(
        file_path=f"file://{path}", record_count=rows, file_size_in_bytes=path.stat().st_size, **more
    )
    made.spec_id = table.spec().spec_id
    return made


def append(table: Any, file: DataFile) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        update.append_data_file(file)


def delete_rows(table: Any, file: DataFile, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import manifest

    monkeypatch.setattr(manifest.ManifestWriterV2, "content", lambda self: manifest.ManifestContent.DELETES)
    original = manifest.ManifestWriterV2.to_manifest_file

    def to_manifest_file(self: Any) -> Any:
        found = original(self)
        found[3] = manifest.ManifestContent.DELETES
        return found

    monkeypatch.setattr(manifest.ManifestWriterV2, "to_manifest_file", to_manifest_file)
    append(table, file)
    monkeypatch.undo()
    table.refresh()


@pytest.mark.parametrize("seed", range(3))
def test_position_deletes(catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = [None if rng.random() < 0.2 else int(k) for k in np.sort(rng.integers(0, 60, 60))]
    rows = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(range(60))})
    table = create(catalog, rows)
    before = MasterStore.iceberg(catalog, "db.t", "k").version()
    gone = sorted(rng.choice(60, 25, replace=False).tolist())
    (path,) = [task.file.file_path for task in table.scan().plan_files()]
    pq.write_table(pa.table({"file_path": [path] * 25, "pos": gone}), tmp_path / "gone.parquet")
    delete_rows(table, data_file(table, tmp_path / "gone.parquet", 25, content=DataFileContent.POSITION_DELETES),
                monkeypatch)  # fmt: skip
    left = rows.take(pa.array([at for at in range(60) if at not in gone]))
    store = MasterStore.iceberg(catalog, "db.t", "k")
    assert_is(store.at(), left, ["k"], pa.table({"k": [1000, None]}))
    nulls = store.with_nulls().at()
    assert sorted(nulls.read(0, len(nulls.starts) - 1)["v"].to_pylist()) == sorted(left["v"].to_pylist())
    assert len(rows_of(store, before)) == sum(key is not None for key in keys)


def test_equality_deletes_are_refused(catalog: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog, pa.table({"k": [1, 2]}))
    store = MasterStore.iceberg(catalog, "db.t", "k")
    pq.write_table(pa.table({"k": [1]}), tmp_path / "equal.parquet")
    file = data_file(table, tmp_path / "equal.parquet", 1, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    delete_rows(table, file, monkeypatch)
    with pytest.raises(UnsupportedError, match=r"equality deletes, which are not read: .*equal\.parquet.*rewrite_data"):
        store.at()


def test_failures_say_what_is_wrong_and_show_no_secret(catalog: Any, tmp_path: Path) -> None:
    create(catalog, pa.table({"k": [1]}))
    with pytest.raises(ConfigError, match=r"cannot read Iceberg table db\.u"):
        MasterStore.iceberg(catalog, "db.u", "k")
    with pytest.raises(PlanError, match="not one of the columns"):
        MasterStore.iceberg(catalog, "db.t", "x")
    with pytest.raises(PlanError, match="the catalog is a int"):
        MasterStore.iceberg(3, "db.t", "k")
    with pytest.raises(ConfigError, match="cannot read Iceberg table"):
        MasterStore.iceberg(None, tmp_path / "nowhere", "k")
    properties = {"name": "house", **catalog.properties, "s3.secret-access-key": "s3cret", "token": "t0ken"}
    store = MasterStore.iceberg(properties, "db.t", "k")
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    for text in (repr(store), str(store), store.explain()):
        assert "s3cret" not in text
        assert "t0ken" not in text
    wrong = {"type": "sql", "uri": "nodriver://user:s3cret@127.0.0.1:1/db", "warehouse": "x"}
    with pytest.raises(ConfigError) as caught:
        MasterStore.iceberg(wrong, "db.t", "k")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    for uri in ("http://s3cret@127.0.0.1:1/v1", "http://127.0.0.1:1/v1?token=s3cret", "http://u:a/s3cret@127.0.0.1:1"):
        with pytest.raises(ConfigError) as caught:
            MasterStore.iceberg({"type": "rest", "uri": uri}, "db.t", "k")
        assert "s3cret" not in str(caught.value), uri


def test_a_dropped_column_is_told_though_schema_numbers_come_again(catalog: Any) -> None:
    table = create(catalog, pa.table({"id": [1], "a": ["x"]}))
    with table.update_schema() as update:
        update.add_column("b", StringType())
    table.append(pa.table({"id": [2], "a": ["y"], "b": ["B"]}))
    store = MasterStore.iceberg(catalog, "db.t", key="id")
    older = store.version()
    with table.update_schema() as update:
        update.delete_column("b")
    catalog.load_table("db.t").append(pa.table({"id": [3], "a": ["z"]}))
    with pytest.raises(ConfigError, match=r"column .b. is string in this query, .* no such column"):
        store.at()
    assert [row["b"] for row in rows_of(store, older)] == [None, "B"]
