"""Random master data of every key type, and what a store must say about it, in plain dictionaries."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.joins.semistream.master.pages import KeyedPages, Pages

KINDS: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "small": pa.int16(),
    "unsigned": pa.uint64(),
    "date": pa.date32(),
    "time": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(12, 2),
    "wide": pa.decimal128(30, 4),
    "text": pa.string(),
    "bytes": pa.binary(),
    "bool": pa.bool_(),
}


def value(kind: str, n: int) -> Any:
    """The n-th value of a kind, n from -2^14 to 2^14; different n give different values, but of bool."""
    return {
        "int": n * 2**40,
        "small": n,
        "unsigned": n + 2**63,
        "date": date(2000, 1, 1) + timedelta(days=n),
        "time": datetime(2000, 1, 1) + timedelta(microseconds=n * 777_777_777),
        "decimal": Decimal(n) / 100,
        "wide": Decimal(n) * 10**18 / 10**4,
        "text": f"{'é' * (n % 3)}{n}" if n % 7 else f"\0{n}",
        "bytes": bytes([n % 256, 0, abs(n) // 256 % 256, n % 2]) + bytes(n % 5) + str(n).encode(),
        "bool": n % 2 == 0,
    }[kind]


def column(kind: str, numbers: Sequence[int | None]) -> pa.Array:
    """A column of those values; None stands for null."""
    return pa.array([None if n is None else value(kind, n) for n in numbers], KINDS[kind])


def master(rng: np.random.Generator, kinds: Sequence[str], rows: int, keys: int, nulls: float = 0.1) -> pa.Table:
    """Rows with key columns k0, k1, ... of these kinds, with duplicates and nulls, and columns of several types."""
    columns = {}
    for at, kind in enumerate(kinds):
        numbers = rng.integers(-keys // 2, keys // 2 + 1, rows).tolist()
        missing = rng.random(rows) < nulls
        columns[f"k{at}"] = column(kind, [None if gone else n for n, gone in zip(numbers, missing, strict=True)])
    words = [None if rng.random() < 0.2 else "w" * int(rng.integers(0, 20)) for _ in range(rows)]
    return pa.table(
        {
            **columns,
            "row": pa.array(np.arange(rows)),
            "word": pa.array(words, pa.string()),
            "wanted": pa.array(rng.integers(0, 50, rows)),
            "list": pa.array([[int(n)] * int(n % 3) for n in range(rows)], pa.list_(pa.int32())),
        }
    )


def keys_of(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The key of each row."""
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def groups_of(table: pa.Table, names: Sequence[str]) -> dict[tuple[Any, ...], Counter[str]]:
    """The model: for each key without a null, the rows it has."""
    found: dict[tuple[Any, ...], Counter[str]] = {}
    for key, row in zip(keys_of(table, names), table.to_pylist(), strict=True):
        if None not in key:
            found.setdefault(key, Counter())[repr(row)] += 1
    return found


def assert_is(pages: Pages, table: pa.Table, names: Sequence[str], strangers: pa.Table) -> None:
    """The pages are exactly the table's rows with a key, each key whole in its home page, strangers have no rows."""
    model = groups_of(table, names)
    n_pages = len(pages.starts) - 1
    read = [pages.read(page, 1) for page in range(n_pages)]
    assert [batch.num_rows for batch in read] == np.diff(pages.starts).tolist()
    assert groups_of(pa.Table.from_batches(read, pages.schema), names) == model
    where = {key: page for page, batch in enumerate(read) for key in keys_of(batch, names)}
    assert sum(len(set(keys_of(batch, names))) for batch in read) == len(model), "a key lies in two pages"
    known = pages.home([table.column(name).combine_chunks() for name in names])
    assert known.tolist() == [where.get(key, -1) for key in keys_of(table, names)]
    homes = pages.home([strangers.column(name).combine_chunks() for name in names])
    for key, home in zip(keys_of(strangers, names), homes.tolist(), strict=True):
        assert -1 <= home < n_pages
        assert key not in where or home == where[key]
        assert None not in key or home == -1


def assert_reads_many(pages: Pages, rng: np.random.Generator) -> None:
    """Runs of pages read at once are the rows of those pages, none and empty runs included."""
    n_pages = len(pages.starts) - 1
    for _ in range(4):
        cuts = np.unique(rng.integers(0, n_pages + 1, int(rng.integers(0, 12))))
        first = np.append(cuts[:-1:2], cuts[-1:][: rng.integers(2)])
        count = np.append(np.diff(cuts)[::2], [0])[: len(first)]
        batch, offsets = pages.read_many(first, count)
        assert offsets.tolist() == [0, *np.cumsum(pages.starts[first + count] - pages.starts[first]).tolist()]
        runs = [pages.read(int(at), int(n)) for at, n in zip(first, count, strict=True) if n]
        batch.validate(full=True)
        assert pa.Table.from_batches([batch], pages.schema).equals(pa.Table.from_batches(runs, pages.schema))


def assert_finds(pages: Any, table: pa.Table, names: Sequence[str], strangers: pa.Table) -> None:
    """Rows asked for by key, some twice and some that are not there, are all rows of those keys, each once."""
    assert isinstance(pages, KeyedPages)
    model = groups_of(table, names)
    wanted = pa.concat_tables([table.select(names).slice(0, 150), strangers.cast(table.select(names).schema)])
    keep = [at for at, key in enumerate(keys_of(wanted, names)) if None not in key]
    wanted = wanted.take(pa.array([*keep, *keep[:3]], pa.int64())).combine_chunks()
    asked = {key: rows for key, rows in model.items() if key in set(keys_of(wanted, names))}
    key = [wanted.column(name).combine_chunks() for name in names]
    found = pages.read_keys(key, 1 << 20)
    assert found is not None
    found.validate(full=True)
    assert groups_of(pa.Table.from_batches([found], pages.schema), names) == asked
    if pages.reads_homes:
        assert found.equals(pages.read_keys(key, 2 * found.nbytes + 512))  # fewer pages at a time
        assert pages.read_keys(key, found.nbytes // 2) is None or not found.num_rows


@contextmanager
def stamping(execute: Callable[[str], object], every_s: float = 0.0) -> Iterator[None]:
    """Meanwhile a thread stamps all rows of the table t with 1, 2, ..."""
    done = threading.Event()

    def stamp() -> None:
        number = 0
        while not done.wait(every_s):
            number += 1
            execute(f"UPDATE t SET stamp = {number}")

    thread = threading.Thread(target=stamp)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def the_stamp(pages: Pages) -> int:
    """The stamp that all rows have."""
    (found,) = {s for page in range(len(pages.starts) - 1) for s in pages.read(page, 1)["stamp"].to_pylist()}
    return int(found)
