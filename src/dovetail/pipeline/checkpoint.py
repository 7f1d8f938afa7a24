"""Keeps the checkpoint of a pipeline: one run at a time, and no change that its state does not allow."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from dovetail.engine.storage.secrets import is_secret
from dovetail.errors import ConfigError
from dovetail.pipeline.file.declared import Pipeline, Step, query_keeps_state
from dovetail.pipeline.file.problems import PipelineError, Problem, Problems
from dovetail.pipeline.file.wiring import streams
from dovetail.pipeline.sinks.hadoop import Files
from dovetail.spark.places import local_place, require_shared_directory

_PACES = {"rowsperbatch", "rowspersecond", "pace", "partitions", "maxfilespertrigger", "maxbytespertrigger",
          "maxoffsetspertrigger", "minpartitions", "numpartitions"}  # fmt: skip
"""Options that set how fast a source is read, and do not change its rows."""


@contextmanager
def locked(file: Path, taken: str) -> Iterator[None]:
    """Lock a file, which is created, or a directory for the block; `ConfigError(taken)` if it is locked already."""
    with ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            held = os.open(file, os.O_RDONLY if file.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(taken) from error
        except OSError as error:
            raise ConfigError(f"cannot write to {file.parent}: {error.strerror}; check place and rights.") from error
        yield


class Checkpoint:
    """The directory that keeps the progress of streams; locked by one run at a time.

    It has one directory for each sink, with Spark's own files, and `pipeline.json`: the steps of each sink's query when
    it began, and an id that marks its output. Values are stored as the file has them: of `${NAME}` a digest is stored,
    where another value would be another source.
    """

    def __init__(self, spark: SparkSession, pipeline: Pipeline, place: str) -> None:
        self.place, self._pipeline, self._spark = place, pipeline, spark
        self._files = Files(spark, place)
        self._held = ExitStack()
        self._known: dict[str, Any] = {}

    def __enter__(self) -> Self:
        require_shared_directory(self._spark, self._files.address(self.place), "checkpoint")
        self._files.make(self.place)
        self._take()
        self._known = _read(self._files, self.place)
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _take(self) -> None:
        """Lock the directory while this process lives; a directory on a remote file system cannot be locked."""
        place = local_place(self._spark, self.place)
        if place is not None:
            taken = f"another run uses the checkpoint {self.place}; wait for it to end, or give another directory."
            self._held.enter_context(locked(place / "lock", taken))

    def of(self, sink: Step) -> str:
        """The checkpoint directory of a sink's query."""
        return f"{self.place}/{sink.name}"

    def owner(self, sink: Step) -> str:
        """The id of a sink's output in this checkpoint."""
        return str(self._known[sink.name]["id"])

    def admit(self, sinks: list[Step]) -> None:
        """Record these sinks; PipelineError for every change that a query with a checkpoint does not allow."""
        found = [problem for sink in sinks for problem in self._changes(sink)]
        if found:
            raise PipelineError(str(self._pipeline.path), sorted(set(found)))
        writers, places = self.dead_letter_writers(), _dead_letters(self._pipeline)
        for sink in sinks:
            begun = self._known[sink.name].get("id") if self._has_begun(sink) else None
            if begun is None:
                self._clear(sink)
            self._known[sink.name] = {
                "id": begun or uuid.uuid4().hex,
                "steps": self._steps(sink),
                "letters": {join: places[join] for join, writer in writers.items() if writer == sink.name},
            }
        self._files.keep(f"{self.place}/pipeline.json", json.dumps(self._known, indent=1))

    def dead_letter_writers(self) -> dict[str, str]:
        """For each join with dead letters, the one sink whose query writes them.

        It is the first sink of the file that reads the join. It does not change while the directory is the same, as
        another sink's query may have read more of the stream, or less. PipelineError if that sink is gone.
        """
        found: dict[str, str] = {}
        problems = Problems(self._pipeline.lines)
        for join, place in _dead_letters(self._pipeline).items():
            readers = [sink.name for sink in self._pipeline.of("sink") if join in self._steps(sink)]
            writers = [name for name, known in self._known.items() if known.get("letters", {}).get(join) == place]
            if writers and readers and writers[0] not in readers:
                problems.add(
                    ("join", join, "on_miss"),
                    f"dead letters of {join} in {place} were written for sink {writers[0]!r}, which no longer reads it",
                    "another sink would repeat some, or leave some out",
                    "put the sink back, or give on_miss another directory, which begins where the other sinks are",
                )
            begun = [name for name in readers if name in self._known]
            if readers:
                found[join] = next(iter([*writers, *begun, *readers]))
        if problems.found:
            raise PipelineError(str(self._pipeline.path), problems.sorted())
        return found

    def _steps(self, sink: Step) -> dict[str, Any]:
        steps = self._pipeline.ordered(sink.name)
        kept = {step.name: {"kind": step.kind, **json.loads(json.dumps(step.written, default=str))} for step in steps}
        for step in steps:
            filled = _filled(step)
            if filled:
                kept[step.name][_FILLED] = filled
        return kept

    def _has_begun(self, sink: Step) -> bool:
        """Whether the query of a sink has a checkpoint; if its files were removed, it starts again."""
        return _has_begun(self._files, self.of(sink))

    def _clear(self, sink: Step) -> None:
        """Remove what a run left that was killed while it logged its first micro-batch; Spark wants the place empty."""
        for log in ("offsets", "commits", "state"):
            self._files.delete(f"{self.of(sink)}/{log}")

    def _changes(self, sink: Step) -> Iterator[Problem]:
        if not self._has_begun(sink):
            yield from self._renamed(sink)
            return
        if sink.name not in self._known:
            raise ConfigError(
                f"{self.of(sink)} is a checkpoint that was not made by this pipeline; give another directory."
            )
        before, now = self._known[sink.name]["steps"], self._steps(sink)
        problems = Problems(self._pipeline.lines)
        for name in dict.fromkeys([*before, *now]):
            for key, old, new in _refused_changes(name, before, now, name == sink.name):
                kind = now.get(name, before.get(name))["kind"]
                problems.add(
                    (kind, name, key),
                    f"{kind}.{name}{f'.{key}' if key else ''} was {old} when the checkpoint began and is {new} now",
                    "its state fits the former only",
                    f"put it back, or give another checkpoint than {self.place}, which starts from the beginning",
                )
        sources = [[name for name, step in steps.items() if _is_stream(step)] for steps in (before, now)]
        if sources[0] != sources[1] and set(sources[0]) == set(sources[1]):
            problems.add(
                ("sink", sink.name, ""),
                f"sink {sink.name!r} read {', '.join(sources[0])} when the checkpoint began and reads "
                f"{', '.join(sources[1])} now",
                "Spark keeps how far it read by the order of sources, and would read them again",
                f"put the order back, or give another checkpoint than {self.place}, which starts from the beginning",
            )
        yield from problems.found

    def _renamed(self, sink: Step) -> Iterator[Problem]:
        """Problems of a sink that would write all rows of a removed sink again, to the same place."""
        names, mine = {one.name for one in self._pipeline.of("sink")}, _target(self._steps(sink)[sink.name])
        problems = Problems(self._pipeline.lines)
        for name, known in self._known.items():
            begun = name not in names and _has_begun(self._files, f"{self.place}/{name}")
            if begun and mine is not None and _target(known["steps"][name]) == mine:
                problems.add(
                    ("sink", sink.name, ""),
                    f"sink {sink.name!r} writes what sink {name!r} of this checkpoint wrote, to the same place",
                    "all rows would be there twice",
                    "put the name back, or give another place",
                )
        yield from problems.found


def _has_begun(files: Files, place: str) -> bool:
    """Whether a micro-batch was logged there."""
    return next(files.files(f"{place}/offsets"), None) is not None


def _target(step: Mapping[str, Any]) -> dict[str, Any] | None:
    """The target of a sink, as the file has it; None for console and memory."""
    if step["type"] in ("console", "memory"):
        return None
    return {key: step.get(key) for key in ("type", "from", "path", "uri", "table", "format", "options")}


def _read(files: Files, place: str) -> dict[str, Any]:
    text = files.kept(f"{place}/pipeline.json")
    return {} if text is None else dict(json.loads(text))


def owner_of(spark: SparkSession, pipeline: Pipeline, sink: Step) -> str:
    """The id of a sink's output in the checkpoint as it is now; empty if its query has not begun."""
    place = pipeline.checkpoint
    if place is None or not _has_begun(Files(spark, place), f"{place}/{sink.name}"):
        return ""
    return str(_read(Files(spark, place), place).get(sink.name, {}).get("id", ""))


def _dead_letters(pipeline: Pipeline) -> dict[str, str]:
    """The joins that write dead letters, each with its directory as the file has it."""
    misses = {step.name: step.written.get("on_miss") for step in pipeline.of("join")}
    return {name: str(given["dead_letter"]) for name, given in misses.items()
            if isinstance(given, Mapping) and "dead_letter" in given}  # fmt: skip


def _refused_changes(
    name: str, before: Mapping[str, Any], now: Mapping[str, Any], is_sink: bool
) -> Iterator[tuple[str, str, str]]:
    """Changes of a step that its query's checkpoint does not allow: key, former value, present value."""
    old, new = before.get(name), now.get(name)
    if old is None or new is None:
        present = old or new
        if present is not None and _keeps_state(present):
            yield "", "absent" if old is None else "there", "absent" if new is None else "there"
        return
    for key in dict.fromkeys([*old, *new]):
        a, b = old.get(key), new.get(key)
        if key == "options":
            a, b = _kept_options(a or {}, b or {})
        if key == _FILLED:
            yield from _refilled(a or {}, b or {})
            continue
        if a != b and not _is_allowed(old, new, key, is_sink):
            yield key, repr(a), repr(b)


def _is_stream(step: Mapping[str, Any]) -> bool:
    return step["kind"] == "source" and _keeps_state(step)


_FILLED = "filled"


def _filled(step: Step) -> dict[str, list[str]]:
    """Digests of what `${NAME}` stands for where a source is named; of servers one for each."""
    if step.kind != "source":
        return {}
    options, written = (one.get("options") or {} for one in (step.values, step.written))
    given = {key: (step.values.get(key), step.written.get(key)) for key in ("path", "table")}
    given |= {f"options.{name}": (value, written.get(name)) for name, value in options.items() if _names_rows(name)}
    return {key: [_digest(part) for part in str(value).split(",")] for key, (value, as_is) in given.items()
            if value != as_is and "${" in str(as_is)}  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def _refilled(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> Iterator[tuple[str, str, str]]:
    """Values of `${NAME}` that name other rows than before; servers of one cluster are the same."""
    for key in sorted(old.keys() & new.keys()):
        is_same = bool(set(old[key]) & set(new[key])) if key == f"options.{_SERVERS}" else old[key] == new[key]
        if not is_same:
            yield key, "another value of the same ${NAME}", "this one"


_SERVERS = "kafka.bootstrap.servers"


def _names_rows(option: str) -> bool:
    """Whether an option of a source decides which rows it has."""
    word = option.replace("_", "").lower()
    return word not in _PACES and (not word.startswith("kafka.") or word == _SERVERS) and not is_secret(option)


def _kept_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Options that decide which rows a source has.

    Of Kafka's own settings these are the servers, unless one is in both lists: then they are one cluster.
    """
    servers = [{one.strip() for one in str(options.get(_SERVERS, "")).split(",")} for options in (old, new)]
    one_cluster = bool(servers[0] & servers[1])

    def is_kept(name: str) -> bool:
        return _names_rows(name) and (name.lower() != _SERVERS or not one_cluster)

    return [{name: value for name, value in options.items() if is_kept(name)} for options in (old, new)]


def _keeps_state(step: Mapping[str, Any]) -> bool:
    """Whether a checkpoint has state of the step: offsets of a source, operator state of a join."""
    kind, type_ = step["kind"], step["type"]
    if kind == "source":
        return streams(Step(kind, "", type_, step, step, ()))
    if type_ == "sql":
        return query_keeps_state(step["query"])
    return type_ in ("online_join", "online_multijoin") or (type_ == "enrich" and step.get("mode") == "carry")


def _is_allowed(old: Mapping[str, Any], new: Mapping[str, Any], key: str, is_sink: bool) -> bool:
    """Whether a query may continue after this key of a step has changed."""
    if is_sink:
        return key not in ("from", "mode")
    if key in ("rows_per_second", "wait", "end_of_input", "memory", "retain"):
        return True  # joins adopt these at a restart
    if old["kind"] == "join" and old["type"] == "enrich" and key == "stream":
        return False
    return not (_keeps_state(old) or _keeps_state(new))
