"""Logs the version of the master data that each micro-batch reads, so that a replay reads the same one.

versions/
    .shared              the driver's mark: a worker that does not see it has another disk
    <query id>/
        17.0.json        what batch 17 takes: the version, and when it was adopted
        pinned.0.json    what all batches take, where the version is pinned
    letters/
        <plan>.0.json    the query that keeps the dead letters of a planned join
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from dovetail.errors import ConfigError
from dovetail.joins.semistream.master.page_file.generation import sync_directory
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.request import Freshness

MARK = ".shared"
_SHARED: set[str] = set()  # marks that this process has seen
_KEPT = 200  # batches a query keeps; Spark itself replays only the newest one
_WRITER_S = 90 * 86_400  # that a join is known whose dead letters a query keeps
_LOST_S = 60  # that an entry may be empty while it is written, on a file system without links
_ATTEMPTS = 200  # to read an entry that another task is just writing
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

    def marked(self) -> VersionLog:
        """The same log with a mark written by the driver, by which tasks recognise the directory."""
        place = Path(self.path) / MARK
        self._publish(place, json.dumps(uuid.uuid4().hex))
        return replace(self, mark=str(self._json(place)))

    def check_shared(self) -> None:
        """`ConfigError` unless this process sees the directory that the driver marked."""
        if self.mark is None or self.mark in _SHARED:
            return
        place = Path(self.path) / MARK
        if not place.exists() or self._json(place) != self.mark:
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
    ) -> Entry:
        """The version that the batch takes: as logged, else what `freshness` says now.

        With `hold`, a version is logged only after it is held. A new entry of a store that keeps old versions is on
        disk when this returns; with `defer`, it is visible to other tasks, and the caller flushes it.
        """
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        found = self._newest(batch.query, name)
        if found is not None and not self._is_lost(self._file(batch.query, name, found)):
            return self._read(batch.query, name, found)
        proposal = self._held(self._proposal(batch, freshness, store), store, hold)
        attempt = 0 if found is None else found + 1
        return self._write(batch.query, name, attempt, proposal, keeps_versions(store), defer)

    def _is_lost(self, place: Path) -> bool:
        """Whether a power failure left an empty entry, whose micro-batch has not ended."""
        try:
            found = place.stat()
        except OSError as error:
            raise self._unreachable(error) from error
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

    def _forget_writers(self, directory: Path) -> None:
        with os.scandir(directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - entry.stat().st_mtime > _WRITER_S:
                        Path(entry.path).unlink()

    def move_on(self, batch: Batch, freshness: Freshness, store: MasterStore, gone: str) -> Entry:
        """The version that replaces one which the store no longer has; the same for all tasks."""
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        attempt = self._newest(batch.query, name)
        if attempt is not None:
            logged = self._read(batch.query, name, attempt)
            if logged.version != gone:
                return logged
        return self._write(batch.query, name, (attempt or 0) + 1, Entry(store.version(), time.time()), False)

    def place(self, batch: Batch, freshness: Freshness) -> Path:
        """Where the entry of a batch is."""
        name = "pinned" if freshness.kind == "pinned" else str(batch.number)
        return self._file(batch.query, name, self._newest(batch.query, name) or 0)

    def batches(self, query: str) -> dict[int, str]:
        """The logged version of every batch of a query that is still kept."""
        names = {name.partition(".")[0] for name in self._names(query)}
        numbers = sorted(int(name) for name in names if name.isdigit())
        return {n: self._read(query, str(n), self._newest(query, str(n)) or 0).version for n in numbers}

    def _proposal(self, batch: Batch, freshness: Freshness, store: MasterStore) -> Entry:
        now, known = time.time(), self._legacy_entry(batch, freshness, store)
        if known is not None:
            return known
        if freshness.kind == "ttl":
            before = [n for n in self.batches(batch.query) if n < batch.number]
            if before:
                last = self._read(batch.query, str(before[-1]), self._newest(batch.query, str(before[-1])) or 0)
                if 0 <= now - last.taken_at < freshness.seconds:
                    return last
        return Entry(store.version(), now)

    def _legacy_entry(self, batch: Batch, freshness: Freshness, store: MasterStore) -> Entry | None:
        if self.legacy is None or not isinstance(store.source, PageFileSource):
            return None
        old, name = VersionLog(self.legacy), "pinned" if freshness.kind == "pinned" else str(batch.number)
        attempt = old._newest(batch.query, name)
        found = None if attempt is None else old._read(batch.query, name, attempt)
        return found if found is not None and found.version in store.source.versions() else None

    def _newest(self, query: str, name: str) -> int | None:
        attempts = [n.split(".")[1] for n in self._names(query) if n.startswith(f"{name}.")]
        return max((int(attempt) for attempt in attempts if attempt.isdigit()), default=None)

    def _names(self, query: str) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(Path(self.path) / query) if entry.name.endswith(".json")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreachable(error) from error

    def _file(self, query: str, name: str, attempt: int) -> Path:
        return Path(self.path) / query / f"{name}.{attempt}.json"

    def _read(self, query: str, name: str, attempt: int) -> Entry:
        place = self._file(query, name, attempt)
        try:
            return Entry(**self._json(place))
        except TypeError as error:
            raise _damaged(place) from error

    def _json(self, place: Path) -> Any:
        for _ in range(_ATTEMPTS):
            try:
                text = place.read_bytes()
            except OSError as error:
                raise self._unreachable(error) from error
            with contextlib.suppress(ValueError):
                return json.loads(text)
            time.sleep(0.01)
        raise _damaged(place)

    def _write(
        self, query: str, name: str, attempt: int, entry: Entry, outlives_power: bool, defer: Defer | None = None
    ) -> Entry:
        """Logs an entry and returns it; that of a store without old versions need not survive a power failure."""
        place = self._file(query, name, attempt)
        if self._publish(place, json.dumps(asdict(entry)), outlives_power and defer is None):
            if outlives_power and defer is not None:
                defer(place)
            if name.isdigit():
                self._forget(query, int(name))
        return self._read(query, name, attempt)

    def _publish(self, place: Path, text: str, outlives_power: bool = True) -> bool:
        """Write the file; False if it exists."""
        temporary = place.with_name(f".{uuid.uuid4().hex}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(temporary, text, outlives_power)
            try:
                return _published(temporary, place)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise self._unreachable(error) from error

    def _forget(self, query: str, newest: int) -> None:
        for name in self._names(query):
            number = name.partition(".")[0]
            if number.isdigit() and int(number) < newest - _KEPT:
                (Path(self.path) / query / name).unlink(missing_ok=True)

    def _unreachable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"the versions of micro-batches cannot be kept in {self.path} ({error.strerror}); give enrich a directory "
            f"that driver and executors can write to, versions=..."
        )


def _damaged(place: Path) -> ConfigError:
    is_entry = place.parent.name != "letters" and place.name != MARK
    then = "to answer its batch from the current version" if is_entry else "and start again"
    return ConfigError(f"{place} is damaged; remove it {then}.")


def _write(place: Path, text: str, outlives_power: bool) -> None:
    with place.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if outlives_power:
            os.fsync(file.fileno())


def sync_file(place: Path) -> None:
    """Flush a file and its directory entry to disk."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_directory(place.parent)


def _published(temporary: Path, place: Path) -> bool:
    """Publish the file under its name, atomically; False if the name is taken."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        return False
    except OSError:  # a file system without links: created by one, and read by others once it is whole
        try:
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(temporary.read_text(encoding="utf-8"))
    return True


def keeps_versions(store: MasterStore) -> bool:
    """Whether the store can open versions other than the newest."""
    return isinstance(store.source, PageFileSource)


def log_of(store: MasterStore, versions: str | None) -> VersionLog:
    """The log of a store: in the directory that was given, which stores can share, else the default one."""
    if versions is None:
        return default_log(store)
    return VersionLog(str(Path(versions) / _identity(store)), legacy=versions)


def _identity(store: MasterStore) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, str(store.source)).hex


def default_log(store: MasterStore) -> VersionLog:
    """The log inside a page file, beside other local files, and in the user's state directory for servers."""
    path = getattr(store.source, "path", None)
    if path is None or "://" in str(path):
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dovetail" / "versions"
        return VersionLog(str(base / _identity(store)))
    place = Path(path)
    if keeps_versions(store):
        return VersionLog(str(place / ".versions"))
    return VersionLog(str(place.with_name(f".{place.name}.versions")))
