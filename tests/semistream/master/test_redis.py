"""Redis hashes against plain dictionaries, on a real server: types, changes, restarts, passwords."""

from __future__ import annotations

import pickle
import traceback
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.semistream.master.debian_servers import Redis
from tests.semistream.master.models import assert_finds, assert_is, assert_reads_many

from dovetail.errors import ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.store import MasterStore

PREFIX = "pro*d?[u]ct:"  # all of it text, no pattern


def fill(server: Redis, table: pa.Table, key: list[str], prefix: str = PREFIX) -> None:
    with server.connect() as client:
        client.flushall()
        pipeline = client.pipeline()
        pipeline.set("product:7", "another table")
        for row in table.to_pylist():
            name = prefix + ":".join(str(row[part]) for part in key)
            fields = {n: str(v) for n, v in row.items() if v is not None and n not in key}
            pipeline.hset(name, mapping=fields or {"unknown": "field"})
        pipeline.execute()


@pytest.mark.parametrize(
    ("key", "kinds"), [(["a"], [pa.int64()]), (["a"], [pa.string()]), (["a", "b"], [pa.int32(), pa.string()])]
)
def test_equals_the_rows(redis_server: Redis, key: list[str], kinds: list[pa.DataType]) -> None:
    rng = np.random.default_rng(len(key))
    for rows, page in [(0, "1KB"), (1, 1), (300, "1KB"), (2500, "32KB")]:
        numbers = rng.choice(5 * rows + 1, rows, replace=False).tolist()
        texts = [f"Größe {n}" for n in numbers]
        values = {name: numbers if pa.types.is_integer(kind) else texts for name, kind in zip(key, kinds, strict=True)}
        columns = {name: pa.array(values[name], kind) for name, kind in zip(key, kinds, strict=True)}
        columns["n"] = pa.array([None if n % 5 == 0 else n for n in numbers], pa.int64())
        columns["word"] = pa.array([None if n % 7 == 0 else f"w {n}" for n in numbers], pa.string())
        table = pa.table(columns)
        fill(redis_server, table, key)
        store = MasterStore.redis(redis_server.url, PREFIX, key, schema=table.schema, page=page)
        pages = store.at()
        strangers = table.slice(0, 0).select(key)
        if rows:
            others = {"a": pa.array([10**6, -1], pa.int64()).cast(kinds[0]), "b": pa.array(["x", ""])}
            strangers = pa.table({name: others[name] for name in key}).cast(strangers.schema)
        assert_is(pages, table, key, strangers)
        assert_reads_many(pages, rng)
        assert_finds(pages, table, key, strangers)
        assert f"{rows} rows; every worker holds their keys" in store.explain()
        assert pages.held_bytes >= 8 * rows  # part of a task's memory
        assert "no versions: rows are as they are when they are read" in store.explain()


def test_fields_are_texts_of_their_types(redis_server: Redis) -> None:
    schema = pa.schema(
        [("k", pa.int32()), ("f", pa.float64()), ("d", pa.date32()), ("n", pa.decimal128(9, 2)), ("b", pa.bool_()),
         ("t", pa.timestamp("us")), ("x", pa.binary()), ("s", pa.string())]
    )  # fmt: skip
    with redis_server.connect() as client:
        client.flushall()
        fields = {"f": "1.5", "d": "2020-01-02", "n": "1.25", "b": "true", "t": "2020-01-02 03:04:05", "x": b"\xff\0"}
        client.hset("p:1", mapping=fields)
    store = MasterStore.redis(redis_server.url, "p:", "k", schema=schema)
    (row,) = store.at().read(0, 1).to_pylist()
    assert (row["f"], row["d"], row["n"], row["b"]) == (1.5, date(2020, 1, 2), Decimal("1.25"), True)
    assert (row["x"], row["s"], str(row["t"])) == (b"\xff\0", None, "2020-01-02 03:04:05")
    with redis_server.connect() as client:
        client.hset("p:1", "f", "much")
    with pytest.raises(DataError, match="'f' has a value that is not of type double"):
        store.at()


def test_rows_are_as_they_are_and_versions_move_with_writes(redis_server: Redis) -> None:
    table = pa.table({"k": pa.array(range(200)), "word": ["first"] * 200})
    fill(redis_server, table, ["k"])
    store = MasterStore.redis(redis_server.url, PREFIX, "k", schema=table.schema, page="1KB")
    marked = MasterStore.redis(redis_server.url, PREFIX, "k", schema=table.schema, page="1KB", marker="version")
    first, pages = store.version(), store.at()
    assert (store.version(), marked.version()) == (first, "none")
    with redis_server.connect() as client:
        client.hset(f"{PREFIX}3", "word", "second")
        client.hset(f"{PREFIX}5000", "word", "new")
        client.delete(f"{PREFIX}4")
    assert store.version() != first
    assert marked.version() == "none"
    asked = pages.read_keys([pa.array([3, 4, 5000, 3])], 0).to_pylist()  # type: ignore[attr-defined]
    assert sorted((row["k"], row["word"]) for row in asked) == [(3, "second"), (5000, "new")]
    assert 4 not in pages.read(0, 1)["k"].to_pylist()
    with pytest.raises(ConfigError, match=f"version {first} is gone"):
        store.at(first)
    newer = store.at()
    assert newer.starts[-1] == 200
    assert newer.home([pa.array([5000, 4])]).tolist()[0] == len(newer.starts) - 2
    with redis_server.connect() as client:
        client.set("version", "2")
    assert marked.version() == "2"
    with pytest.raises(UnsupportedError, match="nothing to prune"):
        store.prune(1)


def test_failures_say_what_is_wrong_and_show_no_password(redis_server: Redis) -> None:
    schema = pa.schema([("k", pa.int64()), ("word", pa.string())])
    fill(redis_server, pa.table({"k": [1], "word": ["a"]}), ["k"], "p:")

    def named(**more: Any) -> MasterStore:
        options = {"uri": redis_server.url, "prefix": "p:", "key": "k", "schema": schema} | more
        return MasterStore.redis(**options)

    with pytest.raises(PlanError, match="keys are whole numbers or text"):
        named(schema=pa.schema([("k", pa.date32())]))
    with pytest.raises(PlanError, match="does not begin with redis://"):
        named(uri="http://h")
    with pytest.raises(PlanError, match="prefix is empty"):
        named(prefix="")
    with pytest.raises(DataError, match=r"not all of the form product:<k int64>|WRONGTYPE"):
        named(prefix="product:")
    with redis_server.connect() as client:
        client.hset("p:1:stock", "word", "x")
    with pytest.raises(DataError, match="give another prefix= or separator="):
        named()
    with redis_server.connect() as client:
        client.delete("p:1:stock")
    store = named()
    again = pickle.loads(pickle.dumps(store))  # noqa: S301  (pickled here)
    assert (again, hash(again)) == (store, hash(store))
    with pytest.raises(PlanError, match="found by its whole key"):
        store.by(["word"])
    shown = [repr(store), str(store), store.explain()]
    redis_server.stop()
    try:
        for call in (store.at, store.version, lambda: named(uri=redis_server.url.replace("redis://:", "redis://u:"))):
            with pytest.raises(ConfigError, match="check that the server runs") as caught:
                call()
            shown.append("".join(traceback.format_exception(caught.value)))
    finally:
        redis_server.start()
    for text in shown:
        assert "s3cret" not in text
        assert "w%3Ard" not in text
    assert store.version(), "a server that is back is read on"


def test_wide_hashes_are_read_within_the_room(redis_server: Redis) -> None:
    """The sample is of all keys, and keys are asked for in parts: hashes that come later may be wider."""
    words = ["x" if number < 100 else "x" * 20_000 for number in range(200)]
    table = pa.table({"k": pa.array(range(200)), "word": words})
    fill(redis_server, table, ["k"])
    pages = MasterStore.redis(redis_server.url, PREFIX, "k", schema=table.schema, page="64KB").at()
    assert max(pages.read(page, 1).nbytes for page in range(len(pages.starts) - 1)) < 4 * 64 << 10
    assert pages.read_keys([pa.array(range(200))], 1 << 18) is None
    found = pages.read_keys([pa.array(range(200))], 1 << 22)
    assert found is not None
    assert found.num_rows == 200
