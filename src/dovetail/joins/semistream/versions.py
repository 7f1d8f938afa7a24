"""Logs the version of the master data that each micro-batch reads, so that a replay reads the same one.

versions/
    .shared              the driver's mark: a worker that does not see it has another disk
    <query id>/
        17.0.json        what batch 17 takes: the version, and when it was adopted
        pinned.0.json    what all batches take, where the version is pinned
    letters/
        <plan>.0.json    the query that keeps the dead letters of a planned join
    logs/
        <id>.json        the place of another log of this page file, given by `versions=`
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place, located
from dovetail.engine.storage.remote import Access, Remote
from dovetail.engine.storage.secrets import hidden
from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.page_file.generation import sync_directory
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.request import Freshness

MARK = ".shared"
_OTHERS = "logs"
_NOT_QUERIES = (_OTHERS, "letters")
_SHARED: set[str] = set()  # marks that this process has seen
_KEPT = 200  # batches a query keeps; Spark itself replays only the newest one
_REPLAYED = 2  # newest batches of a query that may run again, or run now
_WRITER_S = 90 * 86_400  # that a join is known whose dead letters a query keeps
_LOST_S = 60  # that an entry may be empty while it is written, on a file system without links
_ATTEMPTS = 200  # to read an entry that another task is just writing
T = TypeVar("T")
Hold: TypeAlias = Callable[[str], bool]
"""Holds a version; False if it is gone."""
Defer: TypeAlias = Callable[[Path], object]
"""Takes a file that must still be flushed to disk."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version, and when it was the newest, in seconds since 1970."""

    version: str
    taken_at: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch by query and number."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class VersionLog:
    """A directory that driver and executors share, with one small file for each micro-batch.

    The first task of a batch to ask writes the entry, in one step; all others, and every replay, read it. So a batch
    has one version however many tasks, attempts and restarts it takes. `legacy` is the place of entries from before
    stores in one directory had separate logs.
    """

    path: str
    mark: str | None = None
    legacy: str | None = None
    access: Access | None = field(default=None, repr=False, compare=False)

    @property
    def home(self) -> Place:
        """Where it is."""
        return located(self.path, self.access)

    def marked(self) -> VersionLog:
        """The same log with a mark written by the driver, by which tasks recognise the directory."""
        place = self.home / MARK
        if isinstance(place, Remote):
            self._reached(lambda: files.check_creates(place.parent))
        self._publish(place, json.dumps(uuid.uuid4().hex))
        return replace(self, mark=str(self._json(place)))

    def check_shared(self) -> None:
        """`ConfigError` unless this process sees the directory that the driver marked."""
        if self.mark is None or self.mark in _SHARED:
            return
        place = self.home / MARK
        if MARK not in self._reached(lambda: files.names(place.parent)) or self._json(place) != self.mark:
            raise ConfigError(
                f"{socket.gethostname()} does not see what the driver wrote to {self.path}, where the versions of "
                f"micro-batches are kept: it must be a directory that driver and all executors share. Give enrich one "
                f"on a shared file system, versions=..."
            )
        _SHARED.add(self.mark)

    def entry(
        self,
        batch: Batch,
        freshness: Freshness,
        store: MasterStore,
        hold: Hold | None = None,
        defer: Defer | None = None,
        newest: Callable[[], str] | None = None,
    ) -> Entry:
        """The version that the batch takes: as logged, else what `freshness` says now.

        `newest` gives the newest version, by default that of the store. With `hold`, a version is logged only after it
        is held. A new entry of a store that keeps old versions is on
        disk when this returns; with `defer`, it is visible to other tasks, and the caller flushes it.
        """
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        names = self._names(batch.query)
        found = _last_attempt(names, name)
        if found is not None and not self._is_lost(self._file(batch.query, name, found)):
            return self._read(batch.query, name, found)
        proposal = self._held(self._proposal(batch, freshness, store, newest or store.version, names), store, hold)
        self._forget(batch, names)
        attempt = 0 if found is None else found + 1
        return self._write(batch.query, name, attempt, proposal, keeps_versions(store), defer)

    def _is_lost(self, place: Place) -> bool:
        """Whether a power failure left an empty entry, whose micro-batch has not ended."""
        if isinstance(place, Remote):
            return False
        found = self._reached(place.stat)
        return found.st_size == 0 and time.time() - found.st_mtime > _LOST_S

    def _held(self, proposal: Entry, store: MasterStore, hold: Hold | None) -> Entry:
        for _ in range(_ATTEMPTS):
            if hold is None or hold(proposal.version):
                return proposal
            proposal = Entry(store.version(), time.time())
        raise ConfigError(f"{store.source} is pruned faster than versions can be held; keep more of them.")

    def dead_letter_writer(self, plan: str, query: str) -> str:
        """The query that keeps the dead letters of a planned join: the first one that asked."""
        place = self._file("letters", plan, 0)
        if self._publish(place, json.dumps(query), outlives_power=False):
            self._forget_writers(place.parent)
        return str(self._json(place))

    def _forget_writers(self, directory: Place) -> None:
        for entry in files.entries(directory):
            if time.time() - entry.changed_at > _WRITER_S:
                files.remove(directory / entry.name)

    def move_on(self, batch: Batch, freshness: Freshness, newest: Callable[[], str], gone: str) -> Entry:
        """The version that replaces one which the store no longer has: what another task logged, else the newest."""
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        attempt = self._newest(batch.query, name)
        if attempt is not None:
            logged = self._read(batch.query, name, attempt)
            if logged.version != gone:
                return logged
        return self._write(batch.query, name, (attempt or 0) + 1, Entry(newest(), time.time()), False)

    def place(self, batch: Batch, freshness: Freshness) -> Place:
        """Where the entry of a batch is."""
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        return self._file(batch.query, name, self._newest(batch.query, name) or 0)

    def batches(self, query: str) -> dict[int, str]:
        """The logged version of every batch of a query that is still kept."""
        names = self._names(query)
        return {n: self._read(query, str(n), _last_attempt(names, str(n)) or 0).version for n in _numbers(names)}

    def needed(self) -> set[str]:
        """Versions that a replay may read: those of the newest micro-batches of every query in this log."""
        found = set[str]()
        for query in self._reached(lambda: files.names(self.home)):
            names = [] if query.startswith(".") or query in _NOT_QUERIES else self._names(query)
            pinned = ["pinned"] if _last_attempt(names, "pinned") is not None else []
            for name in [*map(str, _numbers(names)[-_REPLAYED:]), *pinned]:
                with contextlib.suppress(ConfigError):  # not whole yet, or forgotten meanwhile
                    found.add(self._read(query, name, _last_attempt(names, name) or 0).version)
        return found

    def remember(self, other: VersionLog) -> None:
        """Note in this log, that of a page file, that another one has versions which may be replayed."""
        if other.path != self.path:
            name = uuid.uuid5(uuid.NAMESPACE_URL, other.path).hex
            with contextlib.suppress(OSError):  # where it cannot be written, the page file cannot change either
                files.create(self.home / _OTHERS / f"{name}.json", json.dumps(other.path).encode())

    def others(self) -> list[str]:
        """The places of logs that were noted."""
        home = self.home / _OTHERS
        names = self._reached(lambda: files.names(home))
        return [str(self._json(home / name)) for name in names if name.endswith(".json")]  # others are not whole

    def _proposal(
        self, batch: Batch, freshness: Freshness, store: MasterStore, newest: Callable[[], str], names: Sequence[str]
    ) -> Entry:
        now, known = time.time(), self._legacy_entry(batch, freshness, store)
        if known is not None:
            return known
        if freshness.kind == "ttl":
            before = [n for n in _numbers(names) if n < batch.number]
            if before:
                last = self._read(batch.query, str(before[-1]), _last_attempt(names, str(before[-1])) or 0)
                if 0 <= now - last.taken_at < freshness.seconds:
                    return last
        return Entry(newest(), now)

    def _legacy_entry(self, batch: Batch, freshness: Freshness, store: MasterStore) -> Entry | None:
        if self.legacy is None or not isinstance(store.source, PageFileSource):
            return None
        old, name = (
            VersionLog(self.legacy, access=self.access),
            "pinned" if freshness.kind == "pinned" else str(batch.number),
        )
        attempt = old._newest(batch.query, name)
        found = None if attempt is None else old._read(batch.query, name, attempt)
        return found if found is not None and found.version in store.source.versions() else None

    def _newest(self, query: str, name: str) -> int | None:
        return _last_attempt(self._names(query), name)

    def _names(self, query: str) -> list[str]:
        return [name for name in self._reached(lambda: files.names(self.home / query)) if name.endswith(".json")]

    def _file(self, query: str, name: str, attempt: int) -> Place:
        return self.home / query / f"{name}.{attempt}.json"

    def _read(self, query: str, name: str, attempt: int) -> Entry:
        place = self._file(query, name, attempt)
        try:
            return Entry(**self._json(place))
        except TypeError as error:
            raise _damaged(place) from error

    def _json(self, place: Place) -> Any:
        for _ in range(_ATTEMPTS):
            text = self._reached(lambda: files.read_small(place))
            with contextlib.suppress(ValueError):
                return json.loads(text)
            time.sleep(0.01)
        raise _damaged(place)

    def _write(
        self, query: str, name: str, attempt: int, entry: Entry, outlives_power: bool, defer: Defer | None = None
    ) -> Entry:
        """Logs an entry, and returns it or that of another task, which was first.

        The entry of a store without old versions need not survive a power failure.
        """
        place = self._file(query, name, attempt)
        if not self._publish(place, json.dumps(asdict(entry)), outlives_power and defer is None):
            return self._read(query, name, attempt)
        if outlives_power and defer is not None and isinstance(place, Path):
            defer(place)
        return entry

    def _publish(self, place: Place, text: str, outlives_power: bool = True) -> bool:
        """Write the file; False if it exists."""
        return self._reached(lambda: files.create(place, text.encode(), outlives_power))

    def _forget(self, batch: Batch, names: Sequence[str]) -> None:
        """Remove the entries of batches that are long done."""
        for name in names:
            number = name.partition(".")[0]
            if number.isdigit() and int(number) < batch.number - _KEPT:
                files.remove(self.home / batch.query / name)

    def _reached(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise ConfigError(
                f"the versions of micro-batches cannot be kept in {self.path} ({error.strerror}); give enrich a "
                f"directory that driver and executors can write to, versions=..."
            ) from error


def _last_attempt(names: Sequence[str], name: str) -> int | None:
    """The highest number of an entry's files; None if it has none."""
    attempts = [n.split(".")[1] for n in names if n.startswith(f"{name}.")]
    return max((int(attempt) for attempt in attempts if attempt.isdigit()), default=None)


def _numbers(names: Sequence[str]) -> list[int]:
    """The micro-batches that have entries, in order."""
    return sorted({int(number) for name in names if (number := name.partition(".")[0]).isdigit()})


def _damaged(place: Place) -> ConfigError:
    is_entry = place.parent.name != "letters" and place.name != MARK
    then = "to answer its batch from the current version" if is_entry else "and start again"
    return ConfigError(f"{place} is damaged; remove it {then}.")


def sync_file(place: Path) -> None:
    """Flush a file and its directory entry to disk."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_directory(place.parent)


def keeps_versions(store: MasterStore) -> bool:
    """Whether the store can open versions other than the newest."""
    return store.source.keeps_versions


def log_of(store: MasterStore, versions: str | None, access: Access | None = None) -> VersionLog:
    """The log of a store: in the directory that was given, which stores can share, else the default one."""
    if versions is None:
        return default_log(store)
    return VersionLog(str(located(versions, access) / _identity(store)), legacy=versions, access=access)


def _identity(store: MasterStore) -> str:
    """A name for the log of a store; tables of one name in catalogs at different addresses have different ones."""
    at = dict(getattr(store.source, "properties", ())).get("uri", "")
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{store.source}{hidden(at)}").hex


def default_log(store: MasterStore) -> VersionLog:
    """The log inside a page file, beside other local files, and in the user's state directory for servers."""
    if isinstance(store.source, PageFileSource):
        return VersionLog(str(store.source.place / ".versions"), access=store.source.access)
    path = getattr(store.source, "path", None)
    if path is None or "://" in str(path):
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dovetail" / "versions"
        return VersionLog(str(base / _identity(store)))
    place = Path(path)
    return VersionLog(str(place.with_name(f".{place.name}.versions")))
