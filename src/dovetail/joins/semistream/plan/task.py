"""A task of an enrichment: what it is told, and the attempt that runs, with its version and its dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from dovetail.errors import ConfigError
from dovetail.joins.semistream.dead_letters import DeadLetters, LetterFile
from dovetail.joins.semistream.decision import Decision, Wiring
from dovetail.joins.semistream.master.page_file.generation import Holds
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.options import DeadLetter, Drop, Park
from dovetail.joins.semistream.request import Request
from dovetail.joins.semistream.versions import Batch, VersionLog, keeps_versions
from dovetail.spark.frames import Batches
from dovetail.spark.task import MetricsSink, TaskAttempt

_CHECKED: set[tuple[str, str]] = set()  # joins and the queries that keep their dead letters, as far as this worker saw
_MOVES = 20  # times that a store without history may change while a task tries to open it


@dataclass(frozen=True, slots=True)
class EnrichTask:
    """One planned enrichment as its tasks see it.

    Columns have neutral names inside, so that none can clash: the stream's by position, `wiring.on` among them.
    `stream` has the columns that operators get, `picked` is, for each output column, its position among the operator's.
    `dead_letter_columns` are the stream's columns as the user named them. `streams`: the planned frame is a stream.
    `learns`: the first rows decide sizes, as nothing was known of the stream when it was planned.
    """

    plan: str
    store: MasterStore
    request: Request
    decision: Decision
    wiring: Wiring
    n_stream: int
    stream: pa.Schema
    picked: tuple[int, ...]
    output: pa.Schema
    dead_letter_columns: pa.Schema
    log: VersionLog
    version: str | None
    learns: bool
    sink: MetricsSink
    streams: bool = False

    def stream_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch from Spark under our names; timestamps that are keys in the master's unit and zone, a name only."""
        arrays, names = batch.columns[: self.n_stream], stream_names(self.n_stream)
        for name, key in zip(self.wiring.on, self.store.key, strict=True):
            at, kind = names.index(name), self.store.schema.field(key).type
            if pa.types.is_timestamp(kind):
                arrays[at] = _as(arrays[at], kind)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def answer_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """An operator's batch as the result has it."""
        arrays = [_as(batch.column(at), field.type) for at, field in zip(self.picked, self.output, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def split_misses(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """The rows of an operator's batch that match, and the stream's columns of the others, None if not wanted."""
        if isinstance(self.request.on_miss, Drop):
            return batch, None
        met = batch.column(batch.num_columns - 1)
        return batch.filter(met), batch.filter(pc.invert(met)).select(range(self.n_stream))

    def dead_letter_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The stream's part of an operator's batch, under the user's names."""
        arrays = [_as(batch.column(at), field.type) for at, field in enumerate(self.dead_letter_columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.dead_letter_columns)


def stream_names(n: int) -> list[str]:
    """The names of the stream's columns inside tasks."""
    return [f"\0{at}" for at in range(n)]


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else array.cast(kind)


class Attempt:
    """The attempt at a task that runs: its place in the query, and what it takes from and leaves in storage.

    `batch` is the micro-batch that it belongs to; None in a batch query.
    """

    def __init__(self, task: EnrichTask) -> None:
        self.task, self._at = task, TaskAttempt.here()
        self.partition = self._at.partition
        self.batch = Batch(self._at.query, self._at.batch) if self._at.query and self._at.batch >= 0 else None

    def version(self) -> str | None:
        """The version that this task must read; None for the newest, where a store keeps no others."""
        task = self.task
        if self.batch is None:
            return task.version
        task.log.check_shared()
        holds, number = self.holds(), self.batch.number
        hold = None if holds is None else partial(holds.take, number)
        return task.log.entry(self.batch, task.request.freshness, task.store, hold).version

    def holds(self) -> Holds | None:
        """Where versions are held that rows may wait for over more than one micro-batch; None if none ever are."""
        source = self.task.store.source
        if self.batch is None or self.task.request.as_of != "admitted" or not isinstance(source, PageFileSource):
            return None
        return Holds(source.path, self.batch.query)

    def open(self, version: str | None) -> Pages:
        """The pages of the version. A store without history that has moved on gives what it has, and is logged so."""
        store, log = self.task.store, self.task.log
        for _ in range(_MOVES):
            try:
                return store.at(version)
            except ConfigError as error:
                if self.batch is None or version is None:
                    raise
                if keeps_versions(store):
                    raise self._lost(self.batch, version, error) from error
                if store.version() == version:
                    raise
                version = log.move_on(self.batch, self.task.request.freshness, store, version).version
        raise ConfigError(f"{store.source} changes faster than it can be opened; build a page file from it.")

    def _lost(self, batch: Batch, version: str, error: ConfigError) -> ConfigError:
        """The store's error; if the version is not there any more, with what it was needed for and the way out."""
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
            return DeadLetters(misses.path, LetterFile(task.plan, part, action=action), task.dead_letter_columns)
        if task.streams:
            _check_query(task, misses, self.batch.query)
        file = LetterFile(task.plan[:8], part, self.batch.query, self.batch.number, self._at.run, action)
        return DeadLetters(misses.path, file, task.dead_letter_columns)


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


def matched(
    task: EnrichTask, batches: Batches, dead: DeadLetters | None, parked: list[pa.RecordBatch] | None = None
) -> Batches:
    """Batches as the result has them, without rows that go to the dead letters or are parked."""
    for batch in batches:
        found, missed = task.split_misses(batch)
        if dead is not None and missed is not None:
            dead.add(task.dead_letter_rows(missed))
        elif parked is not None and missed is not None and missed.num_rows and isinstance(task.request.on_miss, Park):
            parked.append(missed)
        if found.num_rows:
            yield task.answer_rows(found)
