"""SQLite tables against plain dictionaries; versions, changes while reading, damage."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.models import (
    assert_finds,
    assert_is,
    assert_reads_many,
    keys_of,
    master,
    stamping,
    the_stamp,
)
from tests.semistream.operators.stream_cases import Case, run

from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.pages import Resting
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.operators import ALGORITHMS

DECLARED = {
    "int": "BIGINT",
    "small": "SMALLINT",
    "date": "DATE",
    "text": "VARCHAR(20)",
    "bytes": "BLOB",
    "bool": "BOOL",
}
OTHERS = {"row": "INTEGER", "word": "TEXT COLLATE NOCASE", "wanted": "REAL"}


def stored(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


def create(path: Path, table: pa.Table, declared: dict[str, str], name: str = "t", key: Sequence[str] = ()) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = ", ".join(f'"{column}" {kind}' for column, kind in declared.items())
        connection.execute(f'CREATE TABLE "{name}" ({columns})')
        if key:
            connection.execute(f"""CREATE INDEX i ON "{name}" ({", ".join(f'"{column}"' for column in key)})""")
        insert(connection, table, name)


def insert(connection: sqlite3.Connection, table: pa.Table, name: str = "t") -> None:
    rows = [tuple(stored(value) for value in row.values()) for row in table.to_pylist()]
    connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * table.num_columns)})', rows)


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in DECLARED), ("int", "text"), ("text", "date", "bytes")], ids="-".join
)
def test_equals_the_rows(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(kinds))
    names = [f"k{at}" for at in range(len(kinds))]
    declared = {name: DECLARED[kind] for name, kind in zip(names, kinds, strict=True)} | OTHERS
    for rows, keys, page in [(0, 5, "1KB"), (1, 1, 1), (400, 1000, 1), (700, 60, "1KB"), (500, 3000, "2KB")]:
        table = master(rng, kinds, rows, keys).drop_columns(["list"])
        path = tmp_path / f"{rows}.db"
        create(path, table, declared, key=names)
        store = MasterStore.sqlite(path, "t", names, page=page)
        pages = store.at()
        assert (pages.order, pages.indexed, store.key) == ("key", True, tuple(names))
        strangers = master(rng, kinds, 200, 4 * keys)
        assert_is(
            pages,
            table.cast(pages.schema),
            names,
            strangers.select(names).cast(pa.schema([pages.schema.field(n) for n in names])),
        )
        whole = pages.read(0, len(pages.starts) - 1)
        assert whole.num_rows == pages.starts[-1] == sum(None not in key for key in keys_of(table, names))
        assert pages.device.requests == len(pages.starts)
        assert_reads_many(pages, rng)
        if set(kinds) <= {"int", "small", "text"}:
            some = strangers.select(names).cast(pa.schema([pages.schema.field(n) for n in names]))
            assert_finds(pages, table.cast(pages.schema), names, some)
        else:
            assert not pages.finds_keys  # type: ignore[attr-defined]
        pages.close()


def test_types_come_back_as_declared_or_as_asked(tmp_path: Path) -> None:
    columns = {
        "k": "INTEGER",
        "d": "DATE",
        "t": "TIMESTAMP",
        "n": "DECIMAL(10, 2)",
        "b": "BOOLEAN",
        "f": "DOUBLE",
        "x": "",
    }
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
        connection.execute("INSERT INTO t VALUES (1, '2020-02-03', '2020-02-03 04:05:06.5', 3.1, 1, 2, x'00ff')")
        connection.execute("INSERT INTO t VALUES (2, NULL, NULL, '12345.67', NULL, NULL, NULL)")
    store = MasterStore.sqlite(tmp_path / "m.db", "t", "k")
    kinds = [pa.int64(), pa.date32(), pa.timestamp("us"), pa.decimal128(10, 2), pa.bool_(), pa.float64(), pa.binary()]
    assert store.schema == pa.schema(list(zip(columns, kinds, strict=True)))
    rows = [[str(value) for value in row.values()] for row in store.at().read(0, 1).to_pylist()]
    assert rows == [
        ["1", "2020-02-03", "2020-02-03 04:05:06.500000", "3.10", "True", "2.0", "b'\\x00\\xff'"],
        ["2", "None", "None", "12345.67", "None", "None", "None"],
    ]
    narrow = MasterStore.sqlite(tmp_path / "m.db", "t", "k", schema=pa.schema({"d": pa.string(), "k": pa.int32()}))
    assert narrow.at().read(0, 1).to_pylist() == [{"d": "2020-02-03", "k": 1}, {"d": None, "k": 2}]


def test_names_are_only_names(tmp_path: Path) -> None:
    name, key = 'a"; DROP TABLE t; --', 'k", (SELECT 1), "'
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute('CREATE TABLE "a""; DROP TABLE t; --" ("k"", (SELECT 1), """ INTEGER)')
        connection.executemany('INSERT INTO "a""; DROP TABLE t; --" VALUES (?)', [(n,) for n in range(500)])
    pages = MasterStore.sqlite(tmp_path / "m.db", name, key, page="1KB").at()
    assert pages.read(1, 1).column(0).to_pylist() == list(range(128, 256))
    with pytest.raises(ConfigError, match="no table"):
        MasterStore.sqlite(tmp_path / "m.db", "t;", "x")


def test_text_is_ordered_by_its_bytes_whatever_was_declared(tmp_path: Path) -> None:
    words = ["a", "A", "b", "B", "é", "Z", "z", "a ", "\U0001f600"]
    with closing(sqlite3.connect(tmp_path / "m.db")) as connection, connection:
        connection.execute("CREATE TABLE t (k TEXT COLLATE NOCASE)")
        connection.executemany("INSERT INTO t VALUES (?)", [(word,) for word in words])
    pages = MasterStore.sqlite(tmp_path / "m.db", "t", "k", page=1).at()
    assert pages.read(0, 9)["k"].to_pylist() == sorted(words)
    assert_is(pages, pa.table({"k": words}), ["k"], pa.table({"k": ["c", "", "zz", "\U0001f601"]}))


def some_rows(first: int, stamp: int) -> pa.Table:
    return pa.table({"k": np.arange(first, first + 1000), "stamp": np.full(1000, stamp)})


def test_a_file_in_wal_mode_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=wal")
        store = MasterStore.sqlite(path, "t", "k", page="1KB")
        pages, first = store.at(), store.version()
        assert pages.version == first
        for stamp in (1, 2):
            writer.execute("UPDATE t SET stamp = ?", [stamp])
            assert set(pages.read(3, 9)["stamp"].to_pylist()) == {0}
            assert isinstance(pages, Resting)
            assert pages.wake()
            assert store.version() != first
            newer = store.at()
            assert set(newer.read(3, 9)["stamp"].to_pylist()) == {stamp}
            newer.close()
        with pytest.raises(ConfigError, match="keeps no old versions"):
            store.at(first)
        pages.close()
        assert store.at(store.version()).read(0, 1)["stamp"].to_pylist()[0] == 2
        assert store.changed(first, store.version()) is None
        with pytest.raises(UnsupportedError, match="nothing to prune"):
            store.prune(1)


def test_another_file_that_is_written_is_an_error_and_then_another_version(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
    store = MasterStore.sqlite(path, "t", "k", page="1KB")
    pages = store.at()
    assert pages.read(0, 1).num_rows == 64
    assert isinstance(pages, Resting)
    assert pages.wake()
    with closing(sqlite3.connect(path)) as writer, writer:
        insert(writer, some_rows(5000, 1))
    assert not pages.wake()
    with pytest.raises(ConfigError, match="was written while version"):
        pages.read(0, 1)
    fresh = store.at()
    assert fresh.version != pages.version
    assert fresh.home([pa.array([-7, None])]).tolist() == [0, -1]
    (home,) = fresh.home([pa.array([5500])]).tolist()
    assert 5500 in fresh.read(home, 1)["k"].to_pylist(), "new keys are in a page too"


def test_rows_added_at_the_end_get_pages_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0).slice(0, 0), {"k": "INTEGER", "stamp": "INTEGER"})
    store, whole = MasterStore.sqlite(path, "t", "k", page="1KB"), some_rows(0, 0).slice(0, 0)
    assert store.at().starts.tolist() == [0, 0]
    for first in (0, 1000, 2000):
        with closing(sqlite3.connect(path)) as writer, writer:
            insert(writer, some_rows(first, first))
        whole = pa.concat_tables([whole, some_rows(first, first)])
        for named in (store, MasterStore.sqlite(path, "t", "k", page="1KB")):
            pages = named.at()
            assert_is(pages, whole, ["k"], some_rows(first - 500, 0))
            assert np.diff(pages.starts).max() <= 2 * 64
            pages.close()
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("INSERT INTO t SELECT 2999, 7 FROM t")
    pages = store.at()
    assert (pages.read(len(pages.starts) - 2, 1)["k"].to_numpy() == 2999).sum() == 3001


def test_versions_stay_when_nothing_is_written(tmp_path: Path) -> None:
    for mode in ("wal", "delete"):
        path = tmp_path / f"{mode}.db"
        create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
        with closing(sqlite3.connect(path)) as writer:
            writer.execute(f"PRAGMA journal_mode={mode}")
        store = pickle.loads(pickle.dumps(MasterStore.sqlite(path, "t", "k")))  # noqa: S301  (pickled here)
        versions = {store.version() for _ in range(3)}
        for _ in range(3):
            pages = store.at(store.version())
            versions |= {pages.version, store.version()}
            pages.close()
        assert len(versions) == 1


def test_reads_are_of_one_version_during_writes(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
    store = MasterStore.sqlite(path, "t", "k", page="1KB")
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with closing(writer), stamping(writer.execute, 0.03):
        for _ in range(10):
            with closing(store.at()) as pages:
                the_stamp(pages)


def test_failures_say_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
    store = MasterStore.sqlite(path, "t", "k", page="1KB")
    whole = path.read_bytes()
    with pytest.raises(ConfigError, match=r"no table 'u'; it has \['t'\]"):
        MasterStore.sqlite(path, "u", "k")
    with pytest.raises(PlanError, match="not one of the columns"):
        MasterStore.sqlite(path, "t", "x")
    with pytest.raises(PlanError, match="no column"):
        MasterStore.sqlite(path, "t", "x", schema=pa.schema({"x": pa.int64()}))
    with pytest.raises(PlanError, match="in SQLite keys are"):
        MasterStore.sqlite(path, "t", "k", schema=pa.schema({"k": pa.timestamp("us")}))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError, match=r"SQLite cannot read .*m\.db"):
        store.at().read(0, 16)
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(ConfigError, match="not a database"):
        store.at()
    path.unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        store.at()
    with pytest.raises(ConfigError, match="does not exist"):
        store.version()
    path.write_bytes(whole)
    assert store.at().read(0, 1).num_rows == 64
    with closing(sqlite3.connect(path)) as writer, writer:
        writer.execute("ALTER TABLE t RENAME COLUMN stamp TO other")
    with pytest.raises(ConfigError, match=r"no column \['stamp'\] any more"):
        store.at()


def test_values_of_other_types_are_errors_not_missing_rows(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (k INTEGER, d DATE, v INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(1, "2020-01-01", 1), ("x", "2020-1-2", "y")])
    with pytest.raises(DataError, match=r"'k' of 't' is of type int64 but has \['x'\]"):
        MasterStore.sqlite(path, "t", "k")
    with pytest.raises(DataError, match="2020-1-2"):
        MasterStore.sqlite(path, "t", "d", schema=pa.schema({"d": pa.date32()}))
    with pytest.raises(DataError, match="'v' has a value"):
        MasterStore.sqlite(path, "t", "d", schema=pa.schema({"d": pa.string(), "v": pa.int64()}))


def test_explain(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    create(path, some_rows(0, 0), {"k": "INTEGER PRIMARY KEY", "stamp": "INTEGER"})
    text = MasterStore.sqlite(path, "t", "k", page="1KB").explain()
    assert text == (
        f"SQLite table 't' in {path}\n  key ['k'], order key, 16 key ranges of about 1 KiB\n"
        f"  1000 rows when the store was named; 0 rows without a key left out"
    )


def test_every_join_answers_rows_that_came_between_the_pages(tmp_path: Path) -> None:
    """Pages hold more rows than when the store was named."""
    path = tmp_path / "grown.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table t(k integer, r integer, text text)")
        connection.execute("create index i on t(k)")
        rows = [(n * 10, n, "x" * 20) for n in range(200)]
        connection.executemany("insert into t values(?, ?, ?)", rows)
        connection.commit()
        store = MasterStore.sqlite(path, "t", "k", page=600)
        more = [(n, 1000 + n, "y" * 20) for n in range(300, 600) if n % 10]
        connection.executemany("insert into t values(?, ?, ?)", more)
        connection.commit()
    pages = store.at()
    master = pages.read(0, len(pages.starts) - 1)
    assert master.num_rows == len(rows) + len(more)
    stream = pa.table({"id": range(700), "k": range(700), "word": ["w"] * 700})
    case = Case(stream, pages, pa.Table.from_batches([master]), ("k",), 100)
    for name in set(ALGORITHMS) - {"x_hybridjoin", "optimised_x_hybridjoin"}:  # these are refused on stores by key
        found = run(ALGORITHMS[name](pages=pages, on=("k",), how="inner"), case, 400_000)
        assert found.bag == case.expected("inner"), name
    pages.close()


def test_a_key_with_far_more_rows_than_there_is_room_for_is_not_fetched_whole(tmp_path: Path) -> None:
    table = pa.table({"k": [7] * 5000 + list(range(100, 200)), "word": ["a word of some length"] * 5100})
    create(tmp_path / "m.db", table, {"k": "BIGINT", "word": "TEXT"}, key=["k"])
    with closing(MasterStore.sqlite(tmp_path / "m.db", "t", "k").at()) as pages:
        assert pages.read_keys([pa.array([7])], 1 << 12) is None  # type: ignore[attr-defined]
        assert pages.read_keys([pa.array([7])], 1 << 20).num_rows == 5000  # type: ignore[attr-defined]
        assert pages.read_keys([pa.array(range(100, 200))], 0).num_rows == 100  # type: ignore[attr-defined]
