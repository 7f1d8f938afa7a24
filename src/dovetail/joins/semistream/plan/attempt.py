"""The current attempt at a task of an enrichment: the version that it reads, and where it keeps dead letters."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError
from dovetail.joins.semistream.dead_letters import DeadLetters, LetterFile
from dovetail.joins.semistream.master.page_file.holds import Holds
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.pages import Pages, Resting
from dovetail.joins.semistream.request import DeadLetter
from dovetail.joins.semistream.versions import Batch, keeps_versions, sync_file
from dovetail.spark.task import TaskAttempt

if TYPE_CHECKING:
    from dovetail.joins.semistream.plan.task import EnrichTask

_CHECKED: set[tuple[str, str]] = set()  # joins and the queries that keep their dead letters, seen by this worker
_WRITER = ThreadPoolExecutor(1, "dovetail-versions")  # starts its thread when it is first used, in this process
_MOVES = 1000  # tasks of a micro-batch that may each log another version of a store without history


class Attempt:
    """The current attempt at a task: its place in the query, and its access to storage.

    `batch` is the micro-batch that it belongs to; None in a batch query.
    """

    def __init__(self, task: EnrichTask) -> None:
        self.task, self._at = task, TaskAttempt.here()
        self.partition = self._at.partition
        self._syncing: Future[None] | None = None
        self._newest: Pages | None = None
        self.batch = Batch(self._at.query, self._at.batch) if self._at.query and self._at.batch >= 0 else None

    def version(self, defer: bool = False, held: Pages | None = None) -> str | None:
        """The version that this task must read; None for the newest, where a store keeps no others.

        With `defer`, its log entry is flushed to disk while the task works, until `settle`. Of a store without history
        a version is logged only once it is open, in `held` or now: a busy store has another one a moment later.
        """
        task = self.task
        if self.batch is None:
            return task.version
        task.log.check_shared()
        holds, number = self.holds(), self.batch.number
        hold = None if holds is None else partial(holds.take, number)
        later = self._sync if defer else None
        newest = None if keeps_versions(task.store) else partial(self._opened_newest, held)
        return task.log.entry(self.batch, task.request.freshness, task.store, hold, later, newest).version

    def _opened_newest(self, held: Pages | None = None) -> str:
        """The newest version of a store without history, whose pages are now open."""
        if held is not None and self.task.store.version() == held.version and is_awake(held):
            return held.version
        if self._newest is None:
            self._newest = self.task.store.at()
        return self._newest.version

    def _sync(self, place: Path) -> None:
        self._syncing = _WRITER.submit(sync_file, place)

    def settle(self) -> None:
        """Wait until the log of the version is on disk; a task must not end, and no sink commit, before that."""
        if self._newest is not None:
            self._newest.close()
        try:
            if self._syncing is not None:
                self._syncing.result()
        except OSError as error:
            raise ConfigError(f"the version log {self.task.log.path} cannot be written ({error.strerror}).") from error

    def holds(self) -> Holds | None:
        """The holds of versions that rows may wait for over several micro-batches; None if none are held."""
        source = self.task.store.source
        if self.batch is None or self.task.request.as_of != "admitted" or not isinstance(source, PageFileSource):
            return None
        return Holds(source.place, self.batch.query)

    def open(self, version: str | None) -> Pages:
        """The pages of the version. A changed store without history opens its newest version, which is logged."""
        store, log = self.task.store, self.task.log
        for _ in range(_MOVES):
            opened = self._newest
            if opened is not None and opened.version == version:
                self._newest = None
                return opened
            try:
                return store.at(version)
            except ConfigError as error:
                if self.batch is None or version is None:
                    raise
                if keeps_versions(store):
                    raise self._lost(self.batch, version, error) from error
                if opened is None and self._opened_newest() == version:
                    raise
                version = log.move_on(self.batch, self.task.request.freshness, self._opened_newest, version).version
        raise ConfigError(f"{store.source} changes faster than it can be opened; build a page file from it.")

    def _lost(self, batch: Batch, version: str, error: ConfigError) -> ConfigError:
        """The store's error; if the version is gone, with what needed it and what to do."""
        current = self.task.store.version()
        if current == version or f"version {version}" not in str(error):
            return error
        return ConfigError(
            f"{error} Micro-batch {batch.number} was pinned to this version so that a replay gives the same rows; to "
            f"answer it from {current} instead, remove {self.task.log.place(batch, self.task.request.freshness)}."
        )

    def dead_letters(self, part: str) -> DeadLetters | None:
        """Where this attempt keeps rows without a match; None if they are not kept."""
        task, misses = self.task, self.task.request.on_miss
        if not isinstance(misses, DeadLetter) or not misses.written:
            return None
        action = None if task.streams else self._at.execution or "0"
        if self.batch is None:
            file = LetterFile(task.plan, part, action=action)
            return DeadLetters(misses.path, file, task.dead_letter_columns, misses.access)
        if task.streams:
            _check_query(task, misses, self.batch.query)
        file = LetterFile(task.plan[:8], part, self.batch.query, self.batch.number, self._at.run, action)
        return DeadLetters(misses.path, file, task.dead_letter_columns, misses.access)


def _check_query(task: EnrichTask, misses: DeadLetter, query: str) -> None:
    """One join keeps the dead letters of one query: a second one would give each row without a match twice."""
    if (task.plan, query) in _CHECKED:
        return
    writer = task.log.dead_letter_writer(task.plan, query)
    if writer != query:
        raise ConfigError(
            f"rows of this join without a match are kept in {misses.path} by query {writer}; query {query} would write "
            f"each of them once more. To feed two queries, call enrich once for each query: with on_miss='drop' in all "
            f"but one, or with a directory for each."
        )
    _CHECKED.add((task.plan, query))


def is_awake(pages: Pages) -> bool:
    """Whether pages that rested between tasks still have their version; a server keeps the newest only."""
    return not isinstance(pages, Resting) or pages.wake()
