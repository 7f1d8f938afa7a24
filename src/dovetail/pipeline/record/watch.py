"""Keeps the record of a run: steps, samples, predictions, errors. The terminal and the live page read it."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place, located
from dovetail.errors import DataError, PlanError

Kind = Literal["source", "master", "join", "sql", "sink"]
State = Literal["starting", "running", "ended", "failed", "stopped"]

MOST_SAMPLES = 2_000
"""Samples kept of a step. Beyond it every other one is dropped, so that long runs take no more memory."""

_FORMAT = "dovetail-watch"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a pipeline; `detail` is one line for a reader, free of secrets."""

    name: str
    kind: Kind
    type: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise PlanError(f"kind of step {self.name!r} is {self.kind!r}; it is one of {list(get_args(Kind))}.")


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a step `at` seconds after the start; totals count from the start of the run."""

    at: float
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a partition of a topic is read: the offset after the last message read, and that after the newest."""

    topic: str
    partition: int
    read: int
    newest: int

    @property
    def behind(self) -> int:
        """Messages that were not read yet."""
        return max(0, self.newest - self.read)


class Watch:
    """The record of one run. Any thread may write and read.

    A step has at most `MOST_SAMPLES` samples, thinned evenly over the run; its first and newest are always kept, so
    totals are exact. Values that are not finite are left out. The state does not change after the end of the run, but
    later samples are still added.
    """

    def __init__(self, name: str, nodes: Sequence[Node], edges: Sequence[tuple[str, str]]) -> None:
        known = [node.name for node in nodes]
        doubled = sorted({step for step in known if known.count(step) > 1})
        loose = sorted({step for edge in edges for step in edge} - set(known))
        if doubled or loose:
            raise PlanError(f"steps of a watch must be distinct (twice: {doubled}) and edges lead to them ({loose}).")
        self.name, self.nodes, self.edges = name, tuple(nodes), tuple((a, b) for a, b in edges)
        self.started_at = time.time()
        self.ended_at: float | None = None
        self._state: State = "starting"
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._samples: dict[str, list[Sample]] = {step: [] for step in known}
        self._latest: dict[str, dict[str, float]] = {step: {} for step in known}
        self._predicted: dict[str, dict[str, str]] = {}
        self._measured: dict[str, dict[str, str]] = {}
        self._lags: dict[str, list[Lag]] = {}
        self._errors: list[tuple[float, str | None, str]] = []

    @property
    def state(self) -> State:
        """starting, running, ended, failed or stopped."""
        return self._state

    @property
    def seconds(self) -> float:
        """Seconds since the start, up to the end of the run."""
        return time.monotonic() - self._began if self.ended_at is None else self.ended_at - self.started_at

    @property
    def errors(self) -> list[tuple[float, str | None, str]]:
        """Time, step (None if it is not known) and message of each error."""
        with self._lock:
            return list(self._errors)

    def run(self) -> None:
        """Set the state to running; does nothing after the end of the run."""
        with self._lock:
            if self._state == "starting":
                self._state = "running"

    def add(self, step: str, values: Mapping[str, float]) -> None:
        """Add a sample of the step, taken now."""
        kept = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        with self._lock:
            samples = self._of(self._samples, step)
            samples.append(Sample(self.seconds, kept))
            self._latest[step].update(kept)
            if len(samples) > MOST_SAMPLES:
                samples[:] = [*samples[:-1:2], samples[-1]]

    def samples(self, step: str, since: float = -1.0) -> list[Sample]:
        """The samples taken later than `since`, oldest first."""
        with self._lock:
            return [sample for sample in self._of(self._samples, step) if sample.at > since]

    def latest(self, step: str) -> dict[str, float]:
        """The newest value of every name that the step's samples have had."""
        with self._lock:
            return dict(self._of(self._latest, step))

    def predict(self, step: str, rows: Sequence[tuple[str, str]]) -> None:
        """Set predictions of the step: pairs of name and value, in the order to show them."""
        with self._lock:
            self._of(self._samples, step)
            self._predicted.setdefault(step, {}).update((what, str(value)) for what, value in rows)

    def measured(self, step: str, rows: Mapping[str, str]) -> None:
        """Set measurements of the step, shown beside predictions of the same name; later values win."""
        with self._lock:
            self._of(self._samples, step)
            self._measured.setdefault(step, {}).update((what, str(value)) for what, value in rows.items())

    def explained(self, step: str) -> list[tuple[str, str, str | None]]:
        """Name, prediction and measurement (None until it is known); the prediction is empty if there is none."""
        with self._lock:
            self._of(self._samples, step)
            predicted, measured = self._predicted.get(step, {}), self._measured.get(step, {})
            rows: list[tuple[str, str, str | None]] = [
                (what, value, measured.get(what)) for what, value in predicted.items()
            ]
            return rows + [(what, "", value) for what, value in measured.items() if what not in predicted]

    def lag(self, step: str, lags: Sequence[Lag]) -> None:
        """Set how far each partition of a source is read; later values replace all."""
        with self._lock:
            self._of(self._samples, step)
            self._lags[step] = list(lags)

    def lags(self, step: str) -> list[Lag]:
        """How far each partition of a source is read, by the newest micro-batch; empty if it has no partitions."""
        with self._lock:
            return list(self._lags.get(step, ()))

    def error(self, step: str | None, message: str) -> None:
        """Add an error, with its step if it is known."""
        with self._lock:
            if step is not None:
                self._of(self._samples, step)
            self._errors.append((self.seconds, step, message))

    def end(self, state: State) -> None:
        """Set the final state: ended, failed or stopped. Later calls do nothing."""
        if state not in ("ended", "failed", "stopped"):
            raise PlanError(f"a run ends as 'ended', 'failed' or 'stopped', not {state!r}.")
        with self._lock:
            if self.ended_at is None:
                self.ended_at = self.started_at + self.seconds
                self._state = state

    def save(self, path: str | Place) -> Place:
        """Write the record as JSON; the file is replaced as a whole."""
        target = located(path)
        files.write(target, json.dumps(self._content(), indent=1).encode(), outlives_power=False)
        return target

    @classmethod
    def load(cls, path: str | Place) -> Watch:
        """A saved record; DataError if the file is not one."""
        try:
            content = json.loads(files.read(located(path)))
            if (content["format"], content["version"]) != (_FORMAT, _VERSION):
                raise ValueError(f"format {content['format']!r} version {content['version']!r}")
            return cls._from(content)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} is no record of a run ({type(error).__name__}: {error}); "
                "`dovetail run` writes one as watch.json beside its checkpoint."
            ) from error

    def _content(self) -> dict[str, Any]:
        with self._lock:
            return {
                "format": _FORMAT,
                "version": _VERSION,
                "name": self.name,
                "state": self._state,
                "started_at": self.started_at,
                "seconds": self.seconds,
                "nodes": [asdict(node) for node in self.nodes],
                "edges": self.edges,
                "samples": {step: [[s.at, s.values] for s in samples] for step, samples in self._samples.items()},
                "latest": self._latest,
                "predicted": self._predicted,
                "measured": self._measured,
                "lags": {step: [asdict(lag) for lag in lags] for step, lags in self._lags.items()},
                "errors": self._errors,
            }

    @classmethod
    def _from(cls, content: Mapping[str, Any]) -> Watch:
        edges = [(str(a), str(b)) for a, b in content["edges"]]
        watch = cls(str(content["name"]), [Node(**node) for node in content["nodes"]], edges)
        watch.started_at = float(content["started_at"])
        watch.ended_at = watch.started_at + float(content["seconds"])
        watch._state = content["state"]
        for step in watch._samples:
            watch._samples[step] = [Sample(float(at), dict(values)) for at, values in content["samples"][step]]
            watch._latest[step] = dict(content["latest"][step])
        watch._predicted = {step: dict(rows) for step, rows in content["predicted"].items()}
        watch._measured = {step: dict(rows) for step, rows in content["measured"].items()}
        watch._lags = {step: [Lag(**lag) for lag in lags] for step, lags in content.get("lags", {}).items()}
        watch._errors = [(float(at), step, str(message)) for at, step, message in content["errors"]]
        return watch

    def _of(self, table: dict[str, list[Sample]] | dict[str, dict[str, float]], step: str) -> Any:
        if step not in table:
            raise PlanError(f"the run has no step {step!r}; it has {[node.name for node in self.nodes]}.")
        return table[step]
