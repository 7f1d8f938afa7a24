"""PostgreSQL tables against plain dictionaries, on a real server: snapshots, versions, restarts, passwords."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from tests.semistream.master.models import (
    assert_finds,
    assert_is,
    assert_reads_many,
    keys_of,
    master,
    stamping,
    the_stamp,
)
from tests.semistream.master.server import PASSWORD, Server

from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.pages import Resting
from dovetail.joins.semistream.master.postgres.connection import query
from dovetail.joins.semistream.master.postgres.source import PgColumn, key_condition, sent_keys
from dovetail.joins.semistream.master.store import MasterStore

DECLARED = {
    "int": "int8", "small": "int2", "date": "date", "time": "timestamptz", "decimal": "numeric(12, 2)",
    "wide": "numeric(30, 4)", "text": "text", "bytes": "bytea", "bool": "bool",
}  # fmt: skip


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, datetime):
        return f"'{value.isoformat()}'"
    return f"'{value}'" if isinstance(value, str | date) else str(value)


def create(server: Server, table: pa.Table, declared: dict[str, str], name: str = "t", key: Sequence[str] = ()) -> None:
    columns = ", ".join(f'"{column}" {kind}' for column, kind in declared.items())
    statements = [f'DROP TABLE IF EXISTS "{name}" CASCADE', f'CREATE TABLE "{name}" ({columns})']
    rows = ", ".join(f"({', '.join(map(literal, row.values()))})" for row in table.to_pylist())
    if rows:
        statements.append(f'INSERT INTO "{name}" VALUES {rows}')
    if key:
        statements.append(f"""CREATE INDEX ON "{name}" ({", ".join(f'"{column}"' for column in key)})""")
    server.execute(*statements)


def plain(table: pa.Table) -> pa.Table:
    """Without what PostgreSQL cannot hold: the zero byte in text."""
    for at, name in enumerate(table.column_names):
        if table.schema.field(name).type == pa.string():
            words = [None if word is None else word.replace("\0", "~") for word in table.column(name).to_pylist()]
            table = table.set_column(at, name, pa.array(words, pa.string()))
    return table


@pytest.mark.parametrize(
    "kinds",
    [*((kind,) for kind in DECLARED), ("int", "text"), ("text", "date", "bytes"), ("wide", "time")],
    ids="-".join,
)
def test_equals_the_rows(postgres: Server, kinds: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(kinds))
    names = [f"k{at}" for at in range(len(kinds))]
    others = {"row": "int4", "word": "text", "wanted": "float8"}
    declared = {name: DECLARED[kind] for name, kind in zip(names, kinds, strict=True)} | others
    for rows, keys, page in [(0, 5, "1KB"), (60, 1000, 1), (400, 60, "1KB")]:
        table = plain(master(rng, kinds, rows, keys).drop_columns(["list"]))
        create(postgres, table, declared, key=names)
        store = MasterStore.postgres(postgres.url, "t", names, page=page)
        pages = store.at()
        assert (pages.order, pages.indexed, store.key) == ("key", True, tuple(names))
        strangers = plain(master(rng, kinds, 100, 4 * keys)).select(names)
        assert_is(pages, table.cast(pages.schema), names, strangers)
        whole = pages.read(0, len(pages.starts) - 1)
        assert whole.num_rows == pages.starts[-1] == sum(None not in key for key in keys_of(table, names))
        assert_reads_many(pages, rng)
        if "bytes" in kinds:
            assert not pages.finds_keys  # type: ignore[attr-defined]
        else:
            assert_finds(pages, table.cast(pages.schema), names, strangers)
        pages.close()
        pages.close()


def test_types_come_back_as_declared(postgres: Server) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS t CASCADE",
        "CREATE TABLE t (k uuid, n numeric(5, 1), m numeric, b numeric(50, 2), j jsonb, c char(6), a time, i interval)",
        "INSERT INTO t VALUES ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 1.25, 1.5, 7, '[1]', 'x', '01:02', '1 day')",
        "INSERT INTO t (k) VALUES ('00000000-0000-0000-0000-000000000000')",
    )
    store = MasterStore.postgres(postgres.url, "public.t", "k", page=1)
    kinds = [str(field.type) for field in store.schema]
    assert kinds == [
        "string", "decimal128(5, 1)", "decimal128(38, 18)", "decimal256(50, 2)",
        "string", "string", "time64[us]", "string",
    ]  # fmt: skip
    zero, full = read(store, 0, 2).to_pylist()
    assert list(zero.values()) == ["00000000-0000-0000-0000-000000000000", *[None] * 7]
    assert full["k"] == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert (full["n"], full["m"], full["j"], full["c"]) == (Decimal("1.3"), Decimal("1.5"), "[1]", "x")
    with closing(MasterStore.postgres(postgres.url, "t", "c").at()) as by_padded:
        assert by_padded.home([pa.array(["x"])]).tolist() == [0]
    postgres.execute("INSERT INTO t (k, m) VALUES ('10000000-0000-0000-0000-000000000000', 'NaN')")
    with pytest.raises(DataError, match="'m' has a value that is not of type decimal"):
        read(store, 0, 2)


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("time", ["infinity", "-infinity"])
def test_infinite_times_are_refused(postgres: Server, kind: str, time: str) -> None:
    """They would arrive as times before all others: a validity that never ends would end before it began."""
    table = f"forever_{kind}"
    postgres.execute(
        f"drop table if exists {table}",
        f"create table {table} (k int primary key, t {kind})",
        f"insert into {table} values (1, '4000-01-01 BC'), (2, null), (3, '9999-12-31')",
    )
    assert read(MasterStore.postgres(postgres.url, table, "k"), 0, 1).num_rows == 3
    postgres.execute(f"insert into {table} values (4, '{time}')")
    with pytest.raises(DataError, match=r"column 't' has the time 'infinity'.*nullif\(t"):
        read(MasterStore.postgres(postgres.url, table, "k"), 0, 1)


def test_keys_are_looked_up_by_an_index_and_never_fail_the_query(postgres: Server) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS t CASCADE",
        "CREATE TABLE t (a int4, b char(4), c date, d uuid, PRIMARY KEY (a, b))",
        "INSERT INTO t SELECT i, i % 7, '2020-01-01', gen_random_uuid() FROM generate_series(1, 20000) i",
        "ANALYZE t",
    )
    by_pair = MasterStore.postgres(postgres.url, "t", ["a", "b"]).at()
    numbers = pa.array([*range(1, 300), 5, 40_000, -1], pa.int32())
    words = pa.array([*(str(i % 7) for i in range(1, 300)), "5", "4", "x\0y"])
    with closing(by_pair):
        found = by_pair.read_keys([numbers, words], 0)  # type: ignore[attr-defined]
        assert sorted(found["a"].to_pylist()) == list(range(1, 300))
    with closing(MasterStore.postgres(postgres.url, "t", "c").at()) as by_day:  # a key with all rows
        day = pa.array([date(2020, 1, 1)])
        assert by_day.read_keys([day], 1 << 12) is None  # type: ignore[attr-defined]
        assert by_day.read_keys([day], 1 << 20).num_rows == 20_000  # type: ignore[attr-defined]
    with closing(MasterStore.postgres(postgres.url, "t", "d").at()) as by_uuid:
        assert not by_uuid.finds_keys  # type: ignore[attr-defined]  # any text may be asked for, which a uuid is not
    with closing(MasterStore.postgres(postgres.url, "t", "c").at()) as by_day:
        far = pa.array([10**7], pa.date32())
        assert by_day.read_keys([far], 0) is None  # type: ignore[attr-defined]
        assert by_day.read_keys([far.slice(0, 0)], 0).num_rows == 0  # type: ignore[attr-defined]
    columns = [PgColumn("a", "int4", pa.int32()), PgColumn("b", "bpchar", pa.string())]
    sent = sent_keys(columns, [numbers.slice(0, 3), words.slice(0, 3)])
    with dbapi.connect(postgres.url, autocommit=True) as connection:
        plan = query(connection, f"EXPLAIN SELECT * FROM t r WHERE {key_condition(columns)} LIMIT 7", sent).column(0)
        assert any("Index" in line for line in plan.to_pylist())


def test_text_is_ordered_by_its_bytes_and_its_index_is_used(postgres: Server) -> None:
    words = ["a", "A", "b", "B", "é", "Z", "z", "a ", "\U0001f600", "Ä"]
    for collation in ("", 'COLLATE "POSIX"', 'COLLATE "english"'):
        # The server has no languages; a collation that goes by another name than C is what one looks like.
        postgres.execute("DROP TABLE IF EXISTS t CASCADE", "DROP COLLATION IF EXISTS english")
        postgres.execute("CREATE COLLATION english (provider = libc, locale = 'C')")
        create(postgres, pa.table({"k": words}), {"k": f"text {collation}"})
        pages = MasterStore.postgres(postgres.url, "t", "k", page=1).at()
        assert pages.read(0, 10)["k"].to_pylist() == sorted(words)
        assert_is(pages, pa.table({"k": words}), ["k"], pa.table({"k": ["c", "", "zz", "\U0001f601"]}))
        pages.close()
        postgres.execute("INSERT INTO t SELECT i::text FROM generate_series(1, 20000) i", "ANALYZE t")
        assert "CREATE INDEX ON" in MasterStore.postgres(postgres.url, "t", "k", page="1KB").explain()
        postgres.execute("CREATE INDEX ON t (k)" if "english" not in collation else 'CREATE INDEX ON t (k COLLATE "C")')
        assert "CREATE INDEX ON" not in MasterStore.postgres(postgres.url, "t", "k", page="1KB").explain()


def test_names_are_only_names(postgres: Server) -> None:
    postgres.execute('DROP TABLE IF EXISTS "a""; DROP TABLE t; --"')
    postgres.execute('CREATE TABLE "a""; DROP TABLE t; --" ("k"", (SELECT 1), """ int4)')
    postgres.execute('INSERT INTO "a""; DROP TABLE t; --" SELECT generate_series(0, 499)')
    store = MasterStore.postgres(postgres.url, 'a"; DROP TABLE t; --', 'k", (SELECT 1), "', page="1KB")
    assert read(store, 1, 1).num_rows > 100
    with pytest.raises(ConfigError, match="no table 't;'"):
        MasterStore.postgres(postgres.url, "t;", "x")


def read(store: MasterStore, first: int, count: int) -> pa.RecordBatch:
    """Pages of the newest version, which is let go: an open one holds a lock against changes of the table."""
    with closing(store.at()) as pages:
        return pages.read(first, count)


def rows(stamp: int) -> list[str]:
    return ["DELETE FROM t", f"INSERT INTO t SELECT i, {stamp} FROM generate_series(0, 999) i"]


@pytest.fixture
def store(postgres: Server) -> MasterStore:
    postgres.execute("DROP TABLE IF EXISTS t CASCADE", "CREATE TABLE t (k int8 PRIMARY KEY, stamp int8)", *rows(0))
    return MasterStore.postgres(postgres.url, "t", "k", page="1KB")


def test_a_version_is_one_snapshot(postgres: Server, store: MasterStore) -> None:
    first, pages = store.version(), store.at()
    assert pages.version == first == store.version()
    for stamp in (1, 2):
        postgres.execute(*rows(stamp))
        assert set(pages.read(3, 9)["stamp"].to_pylist()) == {0}
        assert store.version() != first
        newer = store.at(store.version())
        assert set(newer.read(3, 9)["stamp"].to_pylist()) == {stamp}
        newer.close()
    with pytest.raises(ConfigError, match="keeps no old versions"):
        store.at(first)
    assert store.changed(first, store.version()) is None
    with pytest.raises(UnsupportedError, match="nothing to prune"):
        store.prune(1)
    postgres.execute("INSERT INTO t VALUES (5000, 9), (-7, 9)")
    pages.close()
    fresh = store.at()
    n_pages = len(fresh.starts) - 1
    assert fresh.home([pa.array([5000, -7, None])]).tolist() == [n_pages - 1, 0, -1]
    assert fresh.read(n_pages - 1, 1)["k"].to_pylist()[-1] == 5000
    assert fresh.read(0, 1)["k"].to_pylist()[0] == -7
    fresh.close()


def test_rows_added_at_the_end_get_pages_of_their_own(postgres: Server) -> None:
    postgres.execute("DROP TABLE IF EXISTS t CASCADE", "CREATE TABLE t (k numeric(10, 1), b text)")
    store, whole = MasterStore.postgres(postgres.url, "t", ["k", "b"], page="1KB"), pa.table({"k": [], "b": []})
    for first in (0, 300, 600):
        postgres.execute(f"INSERT INTO t SELECT i, i % 7 FROM generate_series({first}, {first + 299}) i")
        with closing(store.at()) as pages:
            numbers = range(first + 300)
            whole = pa.table({"k": [Decimal(n) for n in numbers], "b": [str(n % 7) for n in numbers]}).cast(
                pages.schema
            )
            assert_is(pages, whole, ["k", "b"], whole.slice(0, 5))
            assert len(pages.starts) > 6
            assert np.diff(pages.starts).max() <= 100


def test_a_marker_of_ones_own(postgres: Server, store: MasterStore) -> None:
    marked = MasterStore.postgres(postgres.url, "t", "k", marker="SELECT max(stamp) FROM t")
    assert marked.version() == "0"
    postgres.execute("CREATE TABLE IF NOT EXISTS other (x int)", "INSERT INTO other VALUES (1)")
    with closing(marked.at("0")) as pages:
        assert pages.version == marked.version() == "0"
    postgres.execute(*rows(4))
    assert marked.version() == "4"


def test_pages_that_rest_wake_up_if_their_version_is_still_there(postgres: Server, store: MasterStore) -> None:
    with closing(store.at()) as pages:
        assert isinstance(pages, Resting)
        assert pages.wake()  # they do not rest yet
        pages.rest()
        assert pages.wake()
        postgres.execute("UPDATE t SET stamp = 9")
        assert set(pages.read(3, 9)["stamp"].to_pylist()) == {0}  # awake, they have a snapshot
        pages.rest()
        assert not pages.wake()
        with pytest.raises(ConfigError, match="keeps no old versions"):
            pages.read(3, 9)


def test_a_reader_sees_one_version_while_others_write(postgres: Server, store: MasterStore) -> None:
    with stamping(postgres.execute, 0.01):
        for _ in range(5):
            with closing(store.at()) as pages:
                the_stamp(pages)


def test_a_server_that_stops_is_an_error_and_a_server_that_is_back_is_read_on(
    postgres: Server, store: MasterStore
) -> None:
    pages = store.at()
    before = pages.read(2, 1)
    postgres.stop()
    try:
        for call in (lambda: pages.read(2, 1), store.at, store.version):
            with pytest.raises(ConfigError, match="check that the server runs"):
                call()
    finally:
        postgres.start()
    assert pages.read(2, 1).equals(before)
    postgres.stop()
    postgres.start()
    assert pages.read(2, 1).equals(before), "a lost connection is made again in the read itself"
    postgres.stop()
    postgres.start()
    postgres.execute(*rows(1))
    with pytest.raises(ConfigError, match=r"version .* is gone"):
        pages.read(2, 1)
    assert set(read(store, 0, 9)["stamp"].to_pylist()) == {1}


def test_passwords_are_never_shown(postgres: Server, store: MasterStore) -> None:
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    assert read(again, 0, 1).num_rows == 64
    shown = [repr(store), str(store), store.explain(), repr(store.source), str(store.source)]
    wrong = postgres.url.replace("tester", "stranger")
    option = f"postgresql://tester@127.0.0.1:{postgres.port}/nowhere?password={quote(PASSWORD, safe='')}"
    for url in (wrong, option, wrong.replace(str(postgres.port), "1")):
        with pytest.raises(ConfigError) as caught:
            MasterStore.postgres(url, "t", "k")
        shown.append("".join(traceback.format_exception(caught.value)))
    assert all("127.0.0.1" in text or "PostgresSource" in text for text in shown)
    for text in shown:
        assert "s3cret" not in text
        assert "w:rd" not in text
        assert "w%3Ard" not in text
    with pytest.raises(PlanError, match="does not begin") as refused:
        MasterStore.postgres(f"mysql://u:{PASSWORD}@h/d", "t", "k")
    assert "s3cret" not in str(refused.value)


def test_failures_say_what_is_wrong(postgres: Server, store: MasterStore) -> None:
    with pytest.raises(PlanError, match=r"\['x'\] is not one of the columns \['k', 'stamp'\]"):
        MasterStore.postgres(postgres.url, "t", "x")
    postgres.execute("DROP TABLE IF EXISTS u", "CREATE TABLE u (j jsonb)")
    with pytest.raises(PlanError, match="'j' is of type jsonb; a key is one of"):
        MasterStore.postgres(postgres.url, "u", "j")
    postgres.execute("ALTER TABLE t RENAME COLUMN stamp TO other")
    with pytest.raises(ConfigError, match=r"now has columns \[k int8, other int8\]"):
        store.at()
    postgres.execute("ALTER TABLE t RENAME COLUMN other TO stamp")
    assert read(store, 0, 1).num_rows == 64
    postgres.execute("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    guest = f"postgresql://guest:guest@127.0.0.1:{postgres.port}/postgres"
    with pytest.raises(ConfigError, match="permission denied for table t"):
        MasterStore.postgres(guest, "t", "k")
    postgres.execute("GRANT SELECT ON t TO guest")
    allowed = MasterStore.postgres(guest, "t", "k")
    postgres.execute("REVOKE SELECT ON t FROM guest")
    with pytest.raises(ConfigError, match="permission denied for table t"):
        read(allowed, 0, 1)
    postgres.execute("DROP TABLE t")
    with pytest.raises(ConfigError, match=r"cannot read from|no table"):
        store.at()
