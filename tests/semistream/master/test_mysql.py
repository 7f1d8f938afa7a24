"""MySQL tables against plain dictionaries, on a real MariaDB server: snapshots, restarts, collations, passwords."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.debian_servers import PASSWORD, MariaDb
from tests.semistream.master.models import (
    assert_finds,
    assert_is,
    assert_reads_many,
    keys_of,
    master,
    stamping,
    the_stamp,
)

from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master import mysql as mysql_source_module
from dovetail.joins.semistream.master.pages import Resting
from dovetail.joins.semistream.master.store import MasterStore

DECLARED = {
    "int": "bigint", "small": "smallint", "date": "date", "time": "timestamp(6) NULL", "decimal": "decimal(12, 2)",
    "wide": "decimal(30, 4)", "text": "varchar(60) COLLATE utf8mb4_nopad_bin", "bytes": "varbinary(60)",
}  # fmt: skip


def plain(table: pa.Table) -> pa.Table:
    """With times that a MySQL timestamp can hold, from 1970 to 2038."""
    for at, name in enumerate(table.column_names):
        if pa.types.is_timestamp(table.schema.field(name).type):
            numbers = [None if v is None else abs(v) % 10**15 + 10**6 for v in table[name].cast(pa.int64()).to_pylist()]
            column = pa.array(numbers, pa.int64()).cast(table.schema.field(name).type)
            table = table.set_column(at, name, column)
    return table


def create(server: MariaDb, table: pa.Table, declared: dict[str, str], key: Sequence[str], name: str = "t") -> None:
    columns = ", ".join(f"`{column}` {kind}" for column, kind in declared.items())
    index = f", INDEX ({', '.join(f'`{part}`' for part in key)})"
    server.execute(f"DROP TABLE IF EXISTS `{name}`", f"CREATE TABLE `{name}` ({columns}{index}) ENGINE=InnoDB")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        places = ", ".join(["%s"] * table.num_columns)
        cursor.executemany(
            f"INSERT INTO `{name}` VALUES ({places})", [tuple(row.values()) for row in table.to_pylist()]
        )


@pytest.mark.parametrize(
    "kinds", [*((kind,) for kind in DECLARED), ("int", "text"), ("text", "date", "bytes"), ("wide", "time")],
    ids="-".join,
)  # fmt: skip
def test_equals_the_rows(mariadb: MariaDb, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(kinds))
    names = [f"k{at}" for at in range(len(kinds))]
    others = {"row": "int", "word": "text", "wanted": "double"}
    declared = {name: DECLARED[kind] for name, kind in zip(names, kinds, strict=True)} | others
    for rows, keys, page in [(0, 5, "1KB"), (60, 1000, 1), (400, 60, "1KB")]:
        table = plain(master(rng, kinds, rows, keys).drop_columns(["list"]))
        create(mariadb, table, declared, names)
        store = MasterStore.mysql(mariadb.url, "t", names, page=page)
        with closing(store.at()) as pages:
            assert (pages.order, pages.indexed, store.key) == ("key", True, tuple(names))
            strangers = plain(master(rng, kinds, 100, 4 * keys)).select(names)
            assert_is(pages, table.cast(pages.schema), names, strangers)
            whole = pages.read(0, len(pages.starts) - 1)
            assert whole.num_rows == pages.starts[-1] == sum(None not in key for key in keys_of(table, names))
            assert_reads_many(pages, rng)
            assert_finds(pages, table.cast(pages.schema), names, strangers)
        nulls = store.with_nulls().at()
        assert nulls.read(0, len(nulls.starts) - 1).num_rows == rows
        nulls.close()


def test_a_day_that_is_none_is_said_so(mariadb: MariaDb) -> None:
    mariadb.execute(
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t (k int, d date)",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (1, '0000-00-00')",
    )
    with pytest.raises(DataError, match=r"column 'd' has a value.*make a view with nullif\(d, '0000-00-00'\)"):
        MasterStore.mysql(mariadb.url, "t", "k")


def test_a_time_out_is_whole_seconds() -> None:
    with pytest.raises(PlanError, match="connect_timeout=abc; give whole seconds"):
        MasterStore.mysql("mysql://user@localhost/shop?connect_timeout=abc", "t", "k")


def test_types_come_back_as_declared(mariadb: MariaDb) -> None:
    mariadb.execute(
        "DROP TABLE IF EXISTS t",
        "CREATE TABLE t (k int unsigned, b bigint unsigned, f float, g double, n decimal(50, 2), y year, d date, "
        "a datetime(6), z timestamp(6) NULL, h time, e enum('x', 'a'), j json, u uuid, x binary(4), c char(6), o bool)",
        "SET time_zone = '+00:00'",
        "INSERT INTO t VALUES (4294967295, 18446744073709551615, 1.1, 1e300, 1.25, 2020, '2020-01-02', "
        "'2020-01-02 03:04:05.678901', '2020-01-02 03:04:05.678901', '-01:02:03', 'a', '[1]', "
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'ab', 'x ', true)",
        "INSERT INTO t (k) VALUES (1)",
    )
    store = MasterStore.mysql(mariadb.url, "shop.t", "k", page=1)
    with closing(store.at()) as pages:
        empty, full = pages.read(0, 2).to_pylist()
    assert list(empty.values()) == [1, *[None] * 15]
    assert full["b"] == Decimal(2**64 - 1)
    assert (full["f"], full["g"], full["n"]) == (float(np.float32(1.1)), 1e300, Decimal("1.25"))
    assert (full["y"], full["d"]) == (2020, date(2020, 1, 2))
    moment = datetime(2020, 1, 2, 3, 4, 5, 678901)
    assert full["a"] == moment
    assert full["h"] == "-01:02:03"
    assert (full["e"], full["j"], full["x"], full["c"], full["o"]) == ("a", "[1]", b"ab\0\0", "x", 1)
    assert full["u"] == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert full["z"].tzinfo is not None
    assert store.schema.field("z").type == pa.timestamp("us", "UTC")
    assert abs((full["z"] - moment.replace(tzinfo=UTC)).days) <= 1


def test_text_of_another_collation_is_compared_by_its_bytes(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["a", "A", "b", "B", "é", "e", "Z", "z", "a ", "\U0001f600", "Ä", ""]
    for kind in ("varchar(20) COLLATE utf8mb4_general_ci", "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"):
        create(mariadb, pa.table({"k": words}), {"k": kind}, ["k"])
        store = MasterStore.mysql(mariadb.url, "t", "k", page=1)
        strangers = pa.table({"k": ["c", "É", "zz", "\U0001f601", "a  "]})
        with closing(store.at()) as pages:
            assert pages.read(0, 12)["k"].to_pylist() == sorted(words, key=str.encode)
            assert_is(pages, pa.table({"k": words}), ["k"], strangers)
            for sent in (2000, 1):  # keys that the collation takes for equal, in one statement and in several
                monkeypatch.setattr(mysql_source_module, "_SENT", sent)
                found = pages.read_keys([pa.array(["a", "A", "q"])], 0)["k"].to_pylist()  # type: ignore[attr-defined]
                assert sorted(word for word in found if word in ("a", "A")) == ["A", "a"]
        assert "is not stored in the order of bytes" in store.explain()


@pytest.mark.parametrize(("characters", "key"), [("latin1", "日本"), ("ascii", "é"), ("utf8mb3", "😀")])
def test_a_key_that_the_column_cannot_have_is_not_found(mariadb: MariaDb, characters: str, key: str) -> None:
    """One row of a stream must not stop it."""
    mariadb.execute(
        "DROP TABLE IF EXISTS texts",
        f"CREATE TABLE texts (k varchar(20) CHARACTER SET {characters} PRIMARY KEY, v int)",
        "INSERT INTO texts VALUES ('abc', 1), ('x', 2)",
    )
    # A version of its own: the server's housekeeping after DROP TABLE is not one.
    with closing(MasterStore.mysql(mariadb.url, "texts", "k", marker="SELECT 1").at()) as pages:
        assert pages.read_keys([pa.array(["abc", "x"])], 1 << 20).num_rows == 2
        found = pages.read_keys([pa.array(["abc", key])], 1 << 20)
        assert found is None, "the pages answer, which have no such key"
        assert pages.home([pa.array(["abc", key])]).tolist() == [0, 0]


def test_names_are_only_names(mariadb: MariaDb) -> None:
    name, column = 'a"; DROP TABLE t; -- %s `', 'k", (SELECT 1), " %d'
    quoted = name.replace("`", "``")
    mariadb.execute(f"DROP TABLE IF EXISTS `{quoted}`", f"CREATE TABLE `{quoted}` (`{column}` int)")
    mariadb.execute(f"INSERT INTO `{quoted}` SELECT seq FROM seq_0_to_499")
    store = MasterStore.mysql(mariadb.url, name, column, page="1KB")
    with closing(store.at()) as pages:
        assert pages.read(1, 1).num_rows > 100
    with pytest.raises(ConfigError, match="no table 'x;'"):
        MasterStore.mysql(mariadb.url, "x;", "x")


def rows(stamp: int) -> list[str]:
    return [f"REPLACE INTO t SELECT seq, {stamp} FROM seq_0_to_999"]


@pytest.fixture
def store(mariadb: MariaDb) -> MasterStore:
    mariadb.execute("DROP TABLE IF EXISTS t", "CREATE TABLE t (k bigint PRIMARY KEY, stamp bigint)", *rows(0))
    return MasterStore.mysql(mariadb.url, "t", "k", page="1KB")


MARKER = "SELECT max(stamp) FROM t"


def test_a_version_is_one_snapshot(mariadb: MariaDb, store: MasterStore) -> None:
    marked = MasterStore.mysql(mariadb.url, "t", "k", page="1KB", marker=MARKER)
    first, pages = marked.version(), marked.at()
    assert pages.version == first == "0"
    for stamp in (1, 2):
        mariadb.execute(*rows(stamp))
        assert set(pages.read(3, 9)["stamp"].to_pylist()) == {0}
        assert marked.version() == str(stamp)
        with closing(marked.at(str(stamp))) as newer:
            assert set(newer.read(3, 9)["stamp"].to_pylist()) == {stamp}
    with pytest.raises(ConfigError, match="keeps no old versions"):
        marked.at(first)
    assert marked.changed(first, marked.version()) is None
    with pytest.raises(UnsupportedError, match="nothing to prune"):
        marked.prune(1)
    pages.close()
    mariadb.execute("INSERT INTO t VALUES (5000, 9), (-7, 9)")
    with closing(marked.at()) as fresh:
        n_pages = len(fresh.starts) - 1
        assert fresh.home([pa.array([5000, -7, None])]).tolist() == [n_pages - 1, 0, -1]
        assert fresh.read(n_pages - 1, 1)["k"].to_pylist()[-1] == 5000
    before = store.version()
    mariadb.execute(*rows(3))
    assert store.version() != before, "the log of the server moves with every commit"


def test_pages_that_rest_wake_up_if_their_version_is_still_there(mariadb: MariaDb, store: MasterStore) -> None:
    marked = MasterStore.mysql(mariadb.url, "t", "k", page="1KB", marker=MARKER)
    with closing(marked.at()) as pages:
        assert isinstance(pages, Resting)
        assert pages.wake()
        pages.rest()
        assert pages.wake()
        mariadb.execute("UPDATE t SET stamp = 9")
        assert set(pages.read(3, 9)["stamp"].to_pylist()) == {0}
        pages.rest()
        assert not pages.wake()
        with pytest.raises(ConfigError, match="keeps no old versions"):
            pages.read(3, 9)


def test_a_reader_sees_one_version_while_others_write(mariadb: MariaDb, store: MasterStore) -> None:
    seen: dict[str, int] = {}
    with mariadb.connect() as connection, connection.cursor() as cursor, stamping(cursor.execute):
        while len(seen) < 4:
            with closing(store.at()) as pages:
                stamp = the_stamp(pages)
                assert seen.setdefault(pages.version, stamp) == stamp, "one version, one state of the table"


def test_a_server_that_stops_is_an_error_and_a_server_that_is_back_is_read_on(
    mariadb: MariaDb, store: MasterStore
) -> None:
    marked = MasterStore.mysql(mariadb.url, "t", "k", page="1KB", marker=MARKER)
    pages = marked.at()
    before = pages.read(2, 1)
    mariadb.stop()
    try:
        for call in (lambda: pages.read(2, 1), marked.at, marked.version):
            with pytest.raises(ConfigError, match="check that the server runs"):
                call()
    finally:
        mariadb.start()
    assert pages.read(2, 1).equals(before)
    mariadb.stop()
    mariadb.start()
    mariadb.execute(*rows(1))
    with pytest.raises(ConfigError, match=r"version .* is gone"):
        pages.read(2, 1)


def test_passwords_are_never_shown(mariadb: MariaDb, store: MasterStore) -> None:
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    shown = [repr(store), str(store), store.explain(), repr(store.source), str(store.source)]
    wrong = mariadb.url.replace("tester", "stranger")
    for url in (wrong, wrong.replace(str(mariadb.port), "1")):
        with pytest.raises(ConfigError) as caught:
            MasterStore.mysql(url, "t", "k")
        shown.append("".join(traceback.format_exception(caught.value)))
    for text in shown:
        assert "s3cret" not in text
        assert "w%3Ard" not in text
    with pytest.raises(PlanError, match="not of the form") as refused:
        MasterStore.mysql(f"postgresql://u:{PASSWORD}@h/d", "t", "k")
    assert "s3cret" not in str(refused.value)


def test_failures_say_what_is_wrong(mariadb: MariaDb, store: MasterStore) -> None:
    with pytest.raises(PlanError, match=r"\['x'\] is not one of the columns \['k', 'stamp'\]"):
        MasterStore.mysql(mariadb.url, "t", "x")
    mariadb.execute("DROP TABLE IF EXISTS u", "CREATE TABLE u (j json, k double) ENGINE=MyISAM")
    with pytest.raises(UnsupportedError, match="storage engine MyISAM"):
        MasterStore.mysql(mariadb.url, "u", "j")
    mariadb.execute("ALTER TABLE u ENGINE=InnoDB")
    with pytest.raises(PlanError, match="'k' is of type double; a key is one of"):
        MasterStore.mysql(mariadb.url, "u", "k")
    mariadb.execute("ALTER TABLE t RENAME COLUMN stamp TO other")
    with pytest.raises(ConfigError, match=r"now has columns \[k bigint, other bigint\]"):
        store.at()
    mariadb.execute("DROP TABLE t")
    with pytest.raises(ConfigError, match=r"cannot read from|no table"):
        store.at()
    mariadb.execute("CREATE TABLE t (k bigint PRIMARY KEY, d date)", "SET SESSION sql_mode = ''")
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute("INSERT INTO t VALUES (1, '0000-00-00')")
    with pytest.raises(DataError, match="'d' has a value that is not of type date32"):
        MasterStore.mysql(mariadb.url, "t", "k")
