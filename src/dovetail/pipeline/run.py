"""Runs a pipeline: starts its queries, follows them into the record, and stops them."""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from dovetail.engine.storage.files import Place
from dovetail.errors import DataError, DovetailError, PlanError
from dovetail.pipeline.checkpoint import Checkpoint
from dovetail.pipeline.file.declared import Pipeline, Secrets
from dovetail.pipeline.file.problems import PipelineError, Problems
from dovetail.pipeline.file.requests import check_ends
from dovetail.pipeline.record.figures import predictions
from dovetail.pipeline.record.follow import Follower, record_batch
from dovetail.pipeline.record.watch import Watch
from dovetail.pipeline.sinks.files import held_place
from dovetail.pipeline.sinks.write import KEPT, check_place, label_of, start_stream, write_once
from dovetail.pipeline.steps.build import Lineage, build_lineage
from dovetail.spark.places import place_of
from dovetail.spark.task_errors import task_error

_POLL_S = 0.2
_PATIENCE_S = 60.0


def watch_of(pipeline: Pipeline) -> Watch:
    """The empty record of a pipeline's run."""
    return Watch(pipeline.name, [step.node() for step in pipeline.steps.values()], pipeline.edges())


@dataclass(slots=True)
class Running:
    """A running query and its follower."""

    sink: str
    query: StreamingQuery
    follower: Follower


@dataclass(slots=True)
class Run:
    """One run of a pipeline. It ends after `seconds`, or with `once` when it has read all input that exists now.

    `stop` may be called from a signal handler. The first call finishes the micro-batches that have begun; the second
    one abandons them, and the next run repeats them.
    """

    spark: SparkSession
    pipeline: Pipeline
    watch: Watch
    seconds: float | None = None
    once: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True))
    _stops: int = 0
    _is_complete: bool = False
    _woken: threading.Event = field(default_factory=threading.Event)

    @property
    def given_up(self) -> bool:
        """Whether `stop` was called twice, so that micro-batches were abandoned."""
        return self._stops > 1

    def stop(self) -> None:
        """Ask the run to end."""
        self._stops += 1
        self._woken.set()

    def finish(self) -> None:
        """End the run because its streams have produced all their rows: its state is finished, not stopped."""
        self._is_complete = True
        self._woken.set()

    def go(self) -> None:
        """Run to the end; an error is recorded and raised as a `DovetailError`."""
        try:
            self._check_once()
            with self._checkpoint() as place:
                self._go(place)
        except Exception as error:
            known = plain_error(error, self.pipeline.secrets)
            self.watch.error(None, str(known))
            self.watch.end("failed")
            raise known from (None if isinstance(known, DovetailError) else error)
        self.watch.end("stopped" if self._stops else "ended")

    def _check_once(self) -> None:
        problems = Problems(self.pipeline.lines)
        for sink in self.pipeline.of("sink") if self.once else ():
            check_ends(self.pipeline, sink, problems)
        if problems.found:
            raise PipelineError(str(self.pipeline.path), problems.sorted())

    @contextlib.contextmanager
    def _checkpoint(self) -> Iterator[Checkpoint]:
        with contextlib.ExitStack() as stack:
            place = self.pipeline.checkpoint
            if place is None:
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-run-"))
            yield stack.enter_context(Checkpoint(self.spark, self.pipeline, place))

    def _go(self, checkpoint: Checkpoint) -> None:
        writers = checkpoint.dead_letter_writers()
        sinks = self.pipeline.of("sink")
        lineages = [build_lineage(self.spark, self.pipeline, sink, dead_letter_writers=writers) for sink in sinks]
        owned = _owned(lineages)
        for lineage in lineages:
            for name, plan in lineage.plans.items():
                if name in owned[lineage.sink.name]:
                    self.watch.predict(name, predictions(plan))
        live = [lineage for lineage in lineages if lineage.streams]
        self._check_kept(live)
        checkpoint.admit([lineage.sink for lineage in live])
        for lineage in lineages:
            owner = checkpoint.owner(lineage.sink) if lineage.streams else ""
            check_place(self.spark, self.pipeline, lineage.sink, lineage.frame, owner)
        with contextlib.ExitStack() as held:
            for sink in sinks:
                if sink.type in ("parquet", "csv"):
                    held.enter_context(held_place(self.spark, sink, label_of(self.pipeline, sink)))
            self._write(lineages, live, checkpoint, owned)

    def _write(
        self,
        lineages: list[Lineage],
        live: list[Lineage],
        checkpoint: Checkpoint,
        owned: dict[str, frozenset[str]],
    ) -> None:
        self.watch.run()
        for lineage in lineages:
            if not lineage.streams and not self._stops:
                self._write_batch(lineage, owned[lineage.sink.name])
        running: list[Running] = []
        try:
            wanted = live if not self._stops else []
            running.extend(self._started(lineage, checkpoint, owned[lineage.sink.name]) for lineage in wanted)
            self._follow(running)
        finally:
            self._end(running)

    def _check_kept(self, live: list[Lineage]) -> None:
        kept = [lineage.sink for lineage in live if lineage.sink.type in KEPT]
        if kept and self.pipeline.checkpoint is None:
            raise PlanError(
                f"sink {kept[0].name!r} takes a stream, which needs a checkpoint to go on after a stop; add "
                f'checkpoint = "directory" to [pipeline].',
                argument="checkpoint",
            )

    def _write_batch(self, lineage: Lineage, owned: frozenset[str]) -> None:
        began = time.monotonic()
        seen = Observation()
        name = lineage.sink.values["from"]
        lineage.frames[name] = lineage.frames[name].observe(seen, F.count(F.lit(1)).alias("rows"))
        write_once(self.spark, self.pipeline, lineage, self.console)
        record_batch(self.watch, lineage, owned, _seen(seen), time.monotonic() - began)

    def _started(self, lineage: Lineage, checkpoint: Checkpoint, owned: frozenset[str]) -> Running:
        sink = lineage.sink
        query = start_stream(self.spark, self.pipeline, lineage, checkpoint.of(sink), checkpoint.owner(sink), self.once)
        return Running(sink.name, query, Follower(self.watch, lineage, query, owned))

    def _follow(self, running: list[Running]) -> None:
        until = None if self.seconds is None else time.monotonic() + self.seconds
        while running and not (self._stops or self._is_complete) and any(one.query.isActive for one in running):
            self._woken.wait(_POLL_S)
            for one in running:
                one.follower.poll()
            _raise_failure(running)
            if until is not None and time.monotonic() > until:
                break
        _raise_failure(running)

    def _end(self, running: list[Running]) -> None:
        """Wait for micro-batches that have begun, then stop the queries."""
        begun = {one.sink: _newest(one.query) for one in running}
        end = time.monotonic() + _PATIENCE_S
        for one in running:
            while self._is_busy(one.query, begun[one.sink]) and time.monotonic() < end and self._stops < 2:
                time.sleep(0.05)
            one.query.stop()
            one.follower.poll()

    def _is_busy(self, query: StreamingQuery, newest: int) -> bool:
        """Whether the micro-batch after `newest` still runs; in a complete run, the one after that counts, too."""
        is_running = query.isActive and bool(query.status["isTriggerActive"])
        return is_running and _newest(query) <= newest + self._is_complete


def _newest(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def _raise_failure(running: list[Running]) -> None:
    for one in running:
        error = one.query.exception() if not one.query.isActive else None
        if error is not None:
            raise error


def _owned(lineages: list[Lineage]) -> dict[str, frozenset[str]]:
    """For each sink the steps that its query reports: those that no earlier sink has."""
    taken: set[str] = set()
    owned = {}
    for lineage in lineages:
        mine = {step.name for step in lineage.steps} - taken
        owned[lineage.sink.name] = frozenset(mine)
        taken |= mine
    return owned


_PATIENCE_S = 2.0


def _seen(observation: Observation) -> int | None:
    """Rows that Spark counted; None if Spark ran nothing, as for a plan that it found to be empty."""
    found: list[int] = []

    def ask() -> None:
        found.append(int(observation.get["rows"]))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    return found[0] if found else None


def record_place(pipeline: Pipeline) -> Place:
    """Where the record of a run is saved: in the checkpoint, or beside the file if there is none that we can write."""
    if pipeline.checkpoint is not None:
        with contextlib.suppress(PlanError):
            return place_of(SparkSession.getActiveSession(), f"{pipeline.checkpoint}/watch.json")
    return pipeline.path.with_name(f"{pipeline.path.stem}.watch.json")


_LONGEST = 600
_CLASSED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.+?)(?: SQLSTATE:|$)", re.MULTILINE)
_PYTHON = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED", "FAILED_EXECUTE_UDF"}
"""Error classes that only wrap another error."""


def plain_error(error: Exception, secrets: Secrets) -> DovetailError:
    """The error as a `DovetailError` without secrets; of a Spark error the cause, without the stack trace."""
    if isinstance(error, PipelineError):
        return error
    if isinstance(error, DovetailError):
        error.args = (secrets.masked(str(error)), *error.args[1:])
        return error
    text = secrets.masked(str(error))
    ours = task_error(text)
    if ours is not None:
        return ours
    return DataError(f"{type(error).__name__}: {_first(text)}")


def _first(text: str) -> str:
    """The cause in a Spark message: the first error with a class of its own that is not a wrapper."""
    told = [found for found in _CLASSED.findall(text) if found[0].partition(".")[0] not in _WRAPPERS]
    if told:
        return f"[{told[0][0]}] {told[0][1].strip()}"[:_LONGEST]
    raised = _PYTHON.findall(text.partition("\n\tat ")[0])
    if raised:  # by a sink of ours, on the driver
        return ": ".join(raised[-1])[:_LONGEST]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    plain = [line for line in lines if not line.startswith(("at ", "==", "File ", "Traceback", "...", "^"))]
    return " ".join(plain[:3])[:_LONGEST]
