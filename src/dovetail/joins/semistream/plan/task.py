"""What a task of an enrichment is told, where it runs, and the version of the master data that it must take."""

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
from dovetail.spark.arrow import Batches
from dovetail.spark.metrics import MetricsSink
from dovetail.spark.task import TaskAttempt

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


@dataclass(frozen=True, slots=True)
class Where:
    """The task attempt that runs: of a micro-batch if `batch` is there, else of a query's execution."""

    batch: Batch | None
    run: str = ""
    partition: int = 0
    action: str = "0"

    @classmethod
    def here(cls) -> Where:
        """Where the calling code runs."""
        at = TaskAttempt.here()
        batch = Batch(at.query, at.batch) if at.query and at.batch >= 0 else None
        return cls(batch, at.run, at.partition, at.execution or "0")


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


def open_dead_letters(task: EnrichTask, where: Where, part: str) -> DeadLetters | None:
    """Where this attempt keeps rows without a match; None if they are not kept."""
    misses = task.request.on_miss
    if not isinstance(misses, DeadLetter) or not misses.written:
        return None
    action = None if task.streams else where.action
    if where.batch is None:
        return DeadLetters(misses.path, LetterFile(task.plan, part, action=action), task.dead_letter_columns)
    if task.streams:
        _check_query(task, misses, where.batch.query)
    file = LetterFile(task.plan[:8], part, where.batch.query, where.batch.number, where.run, action)
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


def wanted_version(task: EnrichTask, where: Where) -> str | None:
    """The version that this task must read; None for the newest, where a store keeps no others."""
    if where.batch is None:
        return task.version
    task.log.check_shared()
    holds, number = holds_of(task, where), where.batch.number
    hold = None if holds is None else partial(holds.take, number)
    return task.log.entry(where.batch, task.request.freshness, task.store, hold).version


def holds_of(task: EnrichTask, where: Where) -> Holds | None:
    """Where versions are held that rows may wait for over more than one micro-batch; None if none ever are."""
    if where.batch is None or task.request.as_of != "admitted" or not isinstance(task.store.source, PageFileSource):
        return None
    return Holds(task.store.source.path, where.batch.query)


def open_version(task: EnrichTask, where: Where, version: str | None) -> Pages:
    """The pages of the version. A store without history that has moved on gives what it has, and the log says so."""
    for _ in range(_MOVES):
        try:
            return task.store.at(version)
        except ConfigError as error:
            if where.batch is None or version is None:
                raise
            if keeps_versions(task.store):
                raise _lost(task, where, version, error) from error
            if task.store.version() == version:
                raise
            version = task.log.move_on(where.batch, task.request.freshness, task.store, version).version
    raise ConfigError(f"{task.store.source} changes faster than it can be opened; build a page file from it.")


def _lost(task: EnrichTask, where: Where, version: str, error: ConfigError) -> ConfigError:
    """The store's error; if the version is not there any more, with what it was needed for and the way out."""
    current = task.store.version()
    if where.batch is None or current == version or f"version {version}" not in str(error):
        return error
    return ConfigError(
        f"{error} Micro-batch {where.batch.number} was pinned to this version so that a replay gives the same rows; to "
        f"answer it from {current} instead, remove {task.log.place(where.batch, task.request.freshness)}."
    )
