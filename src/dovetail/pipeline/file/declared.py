"""A pipeline as its file declares it: steps by name, what each reads, and the order in which they can be built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.pipeline.file.keys import shape_of
from dovetail.pipeline.file.locate import KeyPath
from dovetail.pipeline.file.secrets import Secrets
from dovetail.pipeline.file.sql_tables import tables_of
from dovetail.pipeline.record.watch import Kind, Node


@dataclass(frozen=True, slots=True)
class Step:
    """One table of the file. `values` are as the step gets them, `written` as the file has them: without secrets."""

    kind: str
    name: str
    type: str
    values: Mapping[str, Any]
    written: Mapping[str, Any]
    inputs: tuple[tuple[str, str], ...]
    """Names of the steps that it reads, each with the key that names it."""

    @property
    def path(self) -> KeyPath:
        """Where it stands in the file."""
        return (self.kind, self.name)

    @property
    def sources(self) -> tuple[str, ...]:
        """The steps that it reads, in order."""
        return tuple(name for name, _ in self.inputs)

    def node(self) -> Node:
        """The step as the record of a run shows it."""
        kind: Kind = "sql" if self.type == "sql" else self.kind  # type: ignore[assignment]  # the tables' names
        shown = {k: val for k, val in self.written.items() if k not in ("type", "query", "schema", "from")}
        detail = ", ".join(f"{key}={_short(value)}" for key, value in shown.items())
        return Node(self.name, kind, self.type, detail)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A file that was read and found to be right in itself."""

    path: Path
    name: str
    settings: Mapping[str, Any]
    steps: Mapping[str, Step]
    lines: dict[KeyPath, int]
    secrets: Secrets

    def of(self, kind: str) -> list[Step]:
        """The steps of a kind, as they stand in the file."""
        return [step for step in self.steps.values() if step.kind == kind]

    def ordered(self, sink: str | None = None) -> list[Step]:
        """Steps so that each comes after those it reads; of one sink, those that it needs."""
        done: dict[str, Step] = {}
        wanted = [self.steps[sink]] if sink else list(self.steps.values())
        for step in wanted:
            self._visit(step, done)
        return list(done.values())

    def _visit(self, step: Step, done: dict[str, Step]) -> None:
        if step.name not in done:
            for name in step.sources:
                self._visit(self.steps[name], done)
            done[step.name] = step

    def edges(self) -> list[tuple[str, str]]:
        """From each step that is read to the step that reads it, once."""
        pairs = ((name, step.name) for step in self.steps.values() for name in step.sources)
        return list(dict.fromkeys(pairs))

    @property
    def checkpoint(self) -> str | None:
        """The directory of checkpoints, if the file names one."""
        return self.settings.get("checkpoint")

    def located(self, place: str) -> str:
        """A path of the file: as it is if it is absolute or a URI, else beside the file."""
        return located(self.path, place)


def located(file: Path, place: str) -> str:
    """A path that the file names: as it is if it is absolute or a URI, else beside the file."""
    return place if "://" in place else str((file.parent / Path(place).expanduser()).absolute())


def inputs_of(kind: str, type_: str, values: Mapping[str, Any], steps: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The names of the steps that a table reads, whether they exist or not, each with the key that names it."""
    shape = shape_of(kind, type_)
    for key in shape.references if shape else ():
        given = values.get(key)
        named: Iterable[Any] = (
            given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else [given]
        )
        yield from ((name, key) for name in named if isinstance(name, str))
    if type_ == "sql" and "inputs" not in values and isinstance(values.get("query"), str):
        yield from ((name, "query") for name in tables_of(values["query"], steps))
    build = values.get("build")
    if kind == "master" and isinstance(build, Mapping) and isinstance(build.get("from"), str):
        yield build["from"], "build"
