"""Hashes of a Redis server as master data: their keys in order as pages, and rows asked for by many keys at once.

Redis has no snapshots: a row is as it is when it is read. The keys are listed when a version is opened, and again when
the server was written since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import format_bytes, parse_bytes
from dovetail.engine.storage.device import Device
from dovetail.engine.storage.secrets import censored, check_escaped, shown
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.keys import Fences, KeyForm, key_form
from dovetail.joins.semistream.master.pages import Counted, NoHistory, Order, read_each

T = TypeVar("T")
_AT_ONCE = 1000  # keys of a request
_LISTED = 5000  # keys of a step of SCAN
_LEAST_ASKED = 16  # keys at a time
_SAMPLE = 100  # rows whose size stands for all
_KEPT = 2  # lists of keys that this process caches
_lists: dict[tuple[object, ...], KeyList] = {}


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of a moment in order, the rows that a page has, and the bytes of an average row."""

    keys: tuple[pa.Array, ...]
    fences: Fences
    page_rows: int
    row_bytes: float

    @property
    def starts(self) -> I64:
        """The number of the first key of each page, and of all keys."""
        rows = len(self.keys[0])
        return np.append(np.arange(0, rows, self.page_rows), rows).astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes that the list holds."""
        return int(sum(column.nbytes for column in self.keys))


@dataclass(frozen=True, slots=True)
class RedisSource(NoHistory):
    """Hashes whose names begin with a prefix; the password is in the value but never shown."""

    url: str = field(repr=False)
    prefix: str
    key: tuple[str, ...]
    schema: pa.Schema
    separator: str
    page_bytes: int
    marker: str | None

    def by(self, key: tuple[str, ...], schema: pa.Schema) -> RedisSource:
        """Refused: a hash is found by its whole name."""
        raise PlanError(
            f"{self} is found by its whole key {list(self.key)}, not by {list(key)}; build a page file.", argument="on"
        )

    def version(self) -> str:
        """The value at the marker, or what changes with every write to the server: it does not name old rows."""
        with as_config_errors(self.url):
            client = _client(os.getpid(), self.url)
            if self.marker is not None:
                return str((client.get(self.marker) or b"none").decode(errors="replace"))
            found = {**client.info("server"), **client.info("persistence")}
            return f"{found['run_id'][:8]}-{found['rdb_last_save_time']}-{found['rdb_changes_since_last_save']}"

    def open(self, version: str | None = None, device: Device | None = None) -> RedisPages:
        """The rows as they are now; a `ConfigError` if the server was written since the requested version."""
        found = self.version()
        if version not in (None, found):
            raise ConfigError(
                f"{self} has changed: version {version} is gone, now it is {found}. Redis keeps no old versions; build "
                f"a page file where a query must be able to read one again."
            )
        return RedisPages(self, found, self.listed(found), device)

    def explain(self) -> str:
        """The hashes in some lines, and what it means that they have no versions."""
        found = self.listed(self.version())
        return (
            f"{self}\n  key {list(self.key)}, order key, {len(found.starts) - 1} pages of about "
            f"{format_bytes(self.page_bytes)}\n  {len(found.keys[0])} rows; every worker holds their keys, "
            f"{format_bytes(found.nbytes)}\n  no versions: rows are as they are when they are read, and a micro-batch "
            f"that runs again may give others"
        )

    def __str__(self) -> str:
        return f"Redis hashes {self.prefix!r}* at {shown(self.url)}"

    def listed(self, version: str) -> KeyList:
        """The keys there are, listed once for a version in this process."""
        name = (os.getpid(), self, version)
        if name not in _lists:
            while len(_lists) >= _KEPT:
                _lists.pop(next(iter(_lists)))
            _lists[name] = self._list()
        return _lists[name]

    def _list(self) -> KeyList:
        with as_config_errors(self.url):
            client = _client(os.getpid(), self.url)
            names = set(client.scan_iter(match=_glob(self.prefix), count=_LISTED))
        columns = self._parsed(sorted(names))
        form = key_form(self.schema, self.key)
        order = form.normal(columns)[0].sorted_rows()
        columns = tuple(column.take(pa.array(order)) for column in columns)
        places = pa.array(np.unique(np.linspace(0, max(len(names) - 1, 0), _SAMPLE).astype(np.int64))[: len(names)])
        sample = self.rows([column.take(places) for column in columns])
        row_bytes = max(1.0, sample.nbytes / max(sample.num_rows, 1))
        rows = max(1, int(self.page_bytes / row_bytes))
        normal, firsts = form.normal(columns)[0], np.arange(0, len(names), rows)
        lasts = np.append(firsts[1:], len(names))[: len(firsts)] - 1
        return KeyList(columns, Fences(normal.take(firsts), normal.take(lasts)), rows, row_bytes)

    def _parsed(self, names: Sequence[bytes]) -> tuple[pa.Array, ...]:
        """The key columns of the names of hashes; a `DataError` for one that has another form."""
        kinds = [self.schema.field(name).type for name in self.key]
        start, cut, parts = len(self.prefix.encode()), self.separator.encode(), list[list[bytes]]()
        for name in names:
            found = name[start:].split(cut) if len(kinds) > 1 else [name[start:]]
            if len(found) != len(kinds):
                raise self._other_form(name)
            parts.append(found)
        columns = list(zip(*parts, strict=True)) or [()] * len(kinds)
        try:
            keys = tuple(
                pa.array(values, pa.binary()).cast(pa.string()).cast(kind)
                for values, kind in zip(columns, kinds, strict=True)
            )
        except pa.ArrowException as error:
            raise DataError(f"{error}; {self._other_form(b'')}", argument="prefix") from error
        for name, asked in zip(names, self._names(keys), strict=True):
            if asked.encode() != name:  # 007 for 7: a look-up would not find it
                raise self._other_form(name)
        return keys

    def _other_form(self, name: bytes) -> DataError:
        form = self.separator.join(f"<{part} {self.schema.field(part).type}>" for part in self.key)
        shown = f"{name.decode(errors='replace')!r} is" if name else "some are"
        return DataError(
            f"names that begin with {self.prefix!r} are not all of the form {self.prefix}{form}: {shown} not; give "
            f"another prefix= or separator=.",
            argument="prefix",
        )

    def rows(self, key: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows of these keys that are there, by a request for each thousand."""
        names, fields = self._names(key), [name for name in self.schema.names if name not in self.key]
        found, there = list[list[bytes | None]](), list[bool]()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            with as_config_errors(self.url):
                values = _values(_client(os.getpid(), self.url), some, fields)
            found += [row or [None] * len(fields) for row in values]
            there += [row is not None for row in values]
        columns = dict(zip(fields, zip(*found, strict=True), strict=False)) if found else {}
        given = dict(zip(self.key, key, strict=True))
        arrays = [
            given[f.name].cast(f.type) if f.name in given else _column(columns.get(f.name, ()), f) for f in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema).filter(pa.array(there, pa.bool_()))

    def _names(self, key: Sequence[pa.Array]) -> list[str]:
        texts = [column.cast(pa.string()).to_pylist() for column in key]
        return [self.prefix + self.separator.join(parts) for parts in zip(*texts, strict=True)]


def _values(client: Any, names: Sequence[str], fields: Sequence[str]) -> list[list[bytes | None] | None]:
    """The fields of hashes; None for one that is not there."""
    pipeline = client.pipeline(transaction=False)
    for name in names:
        if fields:
            pipeline.hmget(name, fields)
        else:
            pipeline.exists(name)
    found = pipeline.execute()
    if not fields:
        return [[] if there else None for there in found]
    empty = [at for at, row in enumerate(found) if all(value is None for value in row)]
    for at in empty:
        pipeline.exists(names[at])
    for at, there in zip(empty, pipeline.execute() if empty else (), strict=True):
        found[at] = found[at] if there else None
    return list(found)


def _column(values: Sequence[bytes | None], column: pa.Field) -> pa.Array:
    """The values of a field, which are texts, in the column's type."""
    try:
        raw = pa.array(values, pa.binary())
        return raw if pa.types.is_binary(column.type) else raw.cast(pa.string()).cast(column.type)
    except pa.ArrowException as error:
        raise DataError(
            f"field {column.name!r} has a value that is not of type {column.type}: {error}", argument="schema"
        ) from error


def redis_source(
    url: str, prefix: str, key: str | Sequence[str], schema: pa.Schema, separator: str, page: int | str,
    marker: str | None,
) -> RedisSource:  # fmt: skip
    """The hashes of a server; a `PlanError` if they cannot be described so."""
    if url.partition("://")[0] not in ("redis", "rediss", "unix"):
        raise PlanError("the url does not begin with redis://; give redis://:password@host:port/0.", argument="uri")
    check_escaped(url)
    if not prefix:
        raise PlanError(
            "prefix is empty; name what the hashes of this table begin with, such as 'product:'.", argument="prefix"
        )
    form = key_form(schema, key)
    for name, kind in zip(form.names, form.types, strict=True):
        if not (pa.types.is_signed_integer(kind) or pa.types.is_string(kind)):
            raise PlanError(
                f"key column {name!r} is of type {kind}; in Redis keys are whole numbers or text.", argument="key"
            )
    nested = [f.name for f in schema if f.type.num_fields or pa.types.is_dictionary(f.type)]
    if nested:
        raise PlanError(f"column {nested[0]!r} is nested; fields of a hash are plain values.", argument="schema")
    if len(form.names) > 1 and not separator:
        raise PlanError("separator is empty; the parts of a key need one, such as ':'.", argument="separator")
    return RedisSource(url, prefix, form.names, schema, separator, parse_bytes(page, "page"), marker)


def _glob(prefix: str) -> str:
    """The pattern of names that begin so, whatever characters the prefix has."""
    return "".join(f"\\{c}" if c in r"*?[]^\-" else c for c in prefix) + "*"


@lru_cache(maxsize=8)
def _client(pid: int, url: str) -> Any:  # workers are forked: they connect themselves
    try:
        import redis
    except ImportError as error:
        raise ConfigError("Redis needs the package redis: pip install 'dovetail[redis]'.") from error
    return redis.Redis.from_url(url, socket_connect_timeout=10)


@contextmanager
def as_config_errors(url: str) -> Iterator[None]:
    """Errors of server and driver become ours, without the password."""
    try:
        yield
    except (ConfigError, DataError, PlanError):
        raise
    except Exception as error:  # those of the driver, which may not be installed
        reason = censored(" ".join(str(error).split()), [url])
        if "WRONGTYPE" in reason:
            raise DataError(
                f"{reason}; rows are hashes: give a prefix that only hashes have.", argument="prefix"
            ) from None
        # The driver's own error is not kept as the cause: its text may show what is hidden here.
        raise ConfigError(
            f"cannot read from {shown(url)}: {reason}; check that the server runs and the password."
        ) from None


class RedisPages:
    """The hashes as they are, in pages of their keys. Keys that came after the list are found when asked for."""

    def __init__(self, source: RedisSource, version: str, listed: KeyList, device: Device | None) -> None:
        self.schema, self.key, self.version = source.schema, source.key, version
        self.order: Order = "key"
        self.counted: Counted = "pages"
        self.held_bytes = listed.nbytes
        self.indexed = True
        self.device = device or Device("real")
        self._source, self._listed = source, listed
        self._form: KeyForm = key_form(self.schema, self.key)
        self.starts: I64 = listed.starts

    finds_keys = True
    reads_homes = False
    null_rows = 0
    null_bytes = 0

    def home(self, key: Sequence[pa.Array]) -> I64:
        """The page in whose range a key lies; -1 where there is none."""
        return self._listed.fences.home(*self._form.normal(key))

    def stored_bytes(self, first: int, count: int) -> int:
        """Bytes that reading these pages moves, by an average row."""
        return round(int(self.starts[first + count] - self.starts[first]) * self._listed.row_bytes)

    def stored_many(self, first: I64, count: I64) -> I64:
        """Bytes that reading each of these runs of pages moves, by an average row."""
        rows = self.starts[first + count] - self.starts[first]
        moved: I64 = np.round(rows * self._listed.row_bytes).astype(np.int64)
        return moved

    def read(self, first: int, count: int) -> pa.RecordBatch:
        """The rows of `count` pages from `first` on that are still there."""
        if first < 0 or count < 1 or first + count >= len(self.starts):
            raise IndexError(f"there are {len(self.starts) - 1} pages, from 0; {count} from {first} on are not there.")
        start, stop = int(self.starts[first]), int(self.starts[first + count])
        return self._fetched(lambda: self._source.rows([k.slice(start, stop - start) for k in self._listed.keys]))

    def read_many(self, first: I64, count: I64) -> tuple[pa.RecordBatch, I64]:
        """The rows of many ascending runs of pages and where each run begins, by a read for each."""
        return read_each(self, first, count)

    def read_keys(self, key: Sequence[pa.Array], room: int) -> pa.RecordBatch | None:
        """All rows with one of these keys, asked for in parts; None if they have more than `room` bytes."""
        kinds = [self.schema.field(name).type for name in self.key]
        once = pa.table([k.cast(kind) for k, kind in zip(key, kinds, strict=True)], list(self.key))
        once = once.group_by(list(self.key)).aggregate([]).combine_chunks()
        columns = [pa.concat_arrays([pa.array([], c.type), *c.chunks]) for c in once.columns]
        step = max(_LEAST_ASKED, int(room / (4 * self._listed.row_bytes)))
        found, size = [pa.RecordBatch.from_pylist([], self.schema)], 0
        for first in range(0, once.num_rows, step):
            some = [column.slice(first, step) for column in columns]
            found.append(self._fetched(lambda some=some: self._source.rows(some)))  # type: ignore[misc]  # bound now
            size += found[-1].nbytes
            if size > max(room, 0) and first + step < once.num_rows:
                return None
        return pa.concat_batches(found)

    def read_nulls(self) -> pa.RecordBatch:
        """No rows: every hash has a key."""
        return pa.RecordBatch.from_pylist([], self.schema)

    def _fetched(self, read: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        return self.device.call(read, nbytes=lambda batch: int(batch.nbytes))

    def close(self) -> None:
        """Nothing is held open between reads but the connection of this process."""
