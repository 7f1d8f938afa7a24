"""Enriches streams from a database by hand: looks up rows one by one or a batch at a time, beside a cache."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = tuple[Any, ...]
Answer: TypeAlias = Callable[["Lookups", list[int]], list[Row | None]]
_NODE = 104 + 64  # of a key in an OrderedDict: its slot in the table, and the link of the order
_ONE = "SELECT checksum, payload FROM {table} WHERE key = $1"
_ALL = "SELECT key, checksum, payload FROM {table}"
_MANY = "SELECT key, checksum, payload FROM {table} WHERE key = ANY($1)"


class LruCache:
    """Rows by key in at most `limit` bytes of Python objects; the least recently used one goes first.

    Keys without a row are remembered as well.
    """

    def __init__(self, limit: int) -> None:
        self._rows: OrderedDict[int, Row | None] = OrderedDict()
        self._limit, self._used = limit, 0

    def __contains__(self, key: int) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def used(self) -> int:
        """Bytes of all that is kept."""
        return self._used

    def get(self, key: int) -> Row | None:
        """The row of a key that is here; None if it is known to have none."""
        self._rows.move_to_end(key)
        return self._rows[key]

    def put(self, key: int, row: Row | None) -> None:
        """Keep a row, for which others may have to go."""
        self._rows[key] = row
        self._used += _entry_bytes(key, row)
        while self._used > self._limit:
            self._used -= _entry_bytes(*self._rows.popitem(last=False))


def _entry_bytes(key: int, row: Row | None) -> int:
    held = 0 if row is None else sys.getsizeof(row) + sum(map(sys.getsizeof, row))
    return _NODE + sys.getsizeof(key) + held


class Lookups:
    """One connection to the server and one cache, as a worker keeps them."""

    def __init__(self, url: str, table: str, limit: int) -> None:
        from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information

        self._cursor = dbapi.connect(url, autocommit=True).cursor()
        self._table, self.cache = table, LruCache(limit)

    def one(self, key: int) -> Row | None:
        """The row of a key, by a query of its own."""
        self._cursor.execute(_ONE.format(table=self._table), (key,))
        found: Row | None = self._cursor.fetchone()
        return found

    def many(self, keys: Iterable[int]) -> dict[int, Row]:
        """The rows of keys, all by one query."""
        wanted = pa.record_batch([pa.array([list(keys)], pa.list_(pa.int64()))], ["keys"])
        self._cursor.execute(_MANY.format(table=self._table), wanted)
        return self._by_key()

    def everything(self) -> pa.Table:
        """The whole table, read again."""
        self._cursor.execute(_ALL.format(table=self._table))
        return self._cursor.fetch_arrow_table()

    def _by_key(self) -> dict[int, Row]:
        found = self._cursor.fetch_arrow_table()
        key, *columns = (column.to_pylist() for column in found.columns)
        return dict(zip(key, zip(*columns, strict=True), strict=True))


def without_cache(here: Lookups, keys: list[int]) -> list[Row | None]:
    """Every key is looked up when its turn comes."""
    return [here.one(key) for key in keys]


def full_read(here: Lookups, keys: list[int]) -> list[Row | None]:
    """The whole table is read for the batch and joined with it in memory, as a static side behind JDBC is."""
    wanted = pa.table({"at": pa.array(range(len(keys)), pa.int64()), "key": pa.array(keys, pa.int64())})
    found = wanted.join(here.everything(), "key", join_type="inner").to_pydict()
    answers: list[Row | None] = [None] * len(keys)
    for at, checksum, payload in zip(found["at"], found["checksum"], found["payload"], strict=True):
        answers[at] = (checksum, payload)
    return answers


def row_by_row(here: Lookups, keys: list[int]) -> list[Row | None]:
    """Every key that the cache lacks is looked up when its turn comes."""
    answers: list[Row | None] = []
    for key in keys:
        if key in here.cache:
            answers.append(here.cache.get(key))
        else:
            answers.append(here.one(key))
            here.cache.put(key, answers[-1])
    return answers


def batch_by_batch(here: Lookups, keys: list[int]) -> list[Row | None]:
    """The distinct keys of the batch that the cache lacks are looked up together, before any row is answered."""
    known = {key: here.cache.get(key) for key in dict.fromkeys(keys) if key in here.cache}
    missing = [key for key in dict.fromkeys(keys) if key not in known]
    found = here.many(missing) if missing else {}
    for key in missing:
        known[key] = found.get(key)
        here.cache.put(key, known[key])
    return [known[key] for key in keys]


@dataclass(frozen=True, slots=True)
class LookupTask:
    """The settings of a worker: server, table, bytes of cache, and how keys are answered."""

    name: str
    url: str
    table: str
    limit: int
    answer: Answer


_HERE: dict[str, Lookups] = {}


def looked_up(task: LookupTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stream rows that have a master row, with its columns behind theirs; connection and cache stay in the worker."""
    for batch in batches:
        if task.name not in _HERE:
            _HERE[task.name] = Lookups(task.url, task.table, task.limit)
        rows = task.answer(_HERE[task.name], batch.column("key").to_pylist())
        at = [number for number, row in enumerate(rows) if row is not None]
        checksums, payloads = zip(*(row for row in rows if row is not None), strict=True) if at else ((), ())
        kept = batch.take(pa.array(at, pa.int64()))
        columns = [*kept.columns, pa.array(checksums, pa.int64()), pa.array(payloads, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "checksum", "payload"])
