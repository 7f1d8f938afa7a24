"""A pipeline as its file declares it: steps, their inputs and order, and secrets from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.engine.storage.secrets import HIDDEN, censored, hidden, is_secret
from dovetail.functions import FINITE
from dovetail.pipeline.file.keys import shape_of
from dovetail.pipeline.file.problems import KeyPath
from dovetail.pipeline.record.watch import Kind, Node

_NAMED = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(slots=True)
class Secrets:
    """Values from the environment: fills them into texts, and hides them in messages."""

    environment: Mapping[str, str] = field(repr=False)
    values: dict[str, str] = field(default_factory=dict, repr=False)

    def missing(self, text: str) -> list[str]:
        """Names in the text that are not in the environment, in order."""
        return [name for escaped, name in _NAMED.findall(text) if not escaped and name not in self.environment]

    def filled(self, value: Any) -> Any:
        """The value with every `${NAME}` in its texts replaced; `$${NAME}` becomes `${NAME}`."""
        if isinstance(value, str):
            return _NAMED.sub(self._replaced, value)
        if isinstance(value, Mapping):
            return {key: self.filled(part) for key, part in value.items()}
        return [self.filled(part) for part in value] if isinstance(value, list) else value

    def _replaced(self, found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        self.values[found[2]] = value = self.environment.get(found[2], "")
        return value

    def masked(self, text: str) -> str:
        """The text with all of the values hidden, also in their URL encoding."""
        return censored(text, (), self.values.values())


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL = re.compile(rf"\b({'|'.join(FINITE)})\s*\(", re.IGNORECASE)


def tables_of(query: str, steps: frozenset[str]) -> list[str]:
    """Names of the tables that a query reads, in the order in which Spark reads them, without those that WITH defines.

    If the parser cannot read the query, or it calls table functions of ours, every step whose name occurs in it counts.
    """
    import logging

    import sqlglot
    from sqlglot import expressions as e

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = sqlglot.parse_one(query, read="spark")
    except sqlglot.errors.SqlglotError:
        tree = None
    if tree is None or _CALL.search(query):
        return list(dict.fromkeys(word for word in _WORD.findall(query) if word in steps))
    defined = {cte.alias_or_name.lower(): cte.this for cte in tree.find_all(e.CTE)}
    for clause in list(tree.find_all(e.With)):
        clause.pop()
    by_fold = {step.lower(): step for step in steps}
    return list(dict.fromkeys(by_fold.get(name.lower(), name) for name in _reads(tree, defined)))


def _reads(tree: Any, defined: Mapping[str, Any]) -> Iterator[str]:
    """The tables that a query reads, from left to right; what WITH defines is read where its name stands."""
    from sqlglot import expressions as e

    for table in tree.find_all(e.Table, bfs=False):
        if not isinstance(table.this, e.Identifier) or table.db:
            continue
        name = table.name.lower()
        if name in defined:
            yield from _reads(defined[name], {other: query for other, query in defined.items() if other != name})
        else:
            yield table.name


def query_keeps_state(query: str) -> bool:
    """Whether a query over a stream may keep state between micro-batches: it groups, joins, counts or compares rows."""
    import sqlglot
    from sqlglot import expressions as e

    try:
        tree = sqlglot.parse_one(query, read="spark")
    except sqlglot.errors.SqlglotError:
        return True
    kinds = (e.Group, e.Distinct, e.Join, e.Window, e.Having, e.AggFunc, e.Intersect, e.Except, e.Exists, e.Limit)
    if any(True for _ in tree.find_all(*kinds)):
        return True
    unions, lists = tree.find_all(e.Union), tree.find_all(e.In)
    return any(one.args.get("distinct") for one in unions) or any(one.args.get("query") for one in lists)


@dataclass(frozen=True, slots=True)
class Step:
    """One table of the file: `values` with secrets filled in, `written` as the file has them."""

    kind: str
    name: str
    type: str
    values: Mapping[str, Any] = field(repr=False)
    written: Mapping[str, Any] = field(repr=False)
    inputs: tuple[tuple[str, str], ...]
    """Names of the steps that it reads, each with the key that names the step."""

    @property
    def path(self) -> KeyPath:
        """Its path in the file."""
        return (self.kind, self.name)

    @property
    def sources(self) -> tuple[str, ...]:
        """The steps that it reads, in order."""
        return tuple(name for name, _ in self.inputs)

    def node(self) -> Node:
        """The step as the record of a run shows it."""
        kind: Kind = "sql" if self.type == "sql" else self.kind  # type: ignore[assignment]  # the tables' names
        shown = {k: val for k, val in self.written.items() if k not in ("type", "query", "schema", "avro", "from")}
        promise = ["at least once"] if (self.kind, self.type) == ("sink", "kafka") else []
        detail = ", ".join([*promise, *(f"{key}={_short(value)}" for key, value in shown.items())])
        return Node(self.name, kind, self.type, detail)


def _short(value: Any) -> str:
    """The value in a few words, without passwords: a record of the run must not hold them."""
    if isinstance(value, Mapping):
        value = {key: HIDDEN if is_secret(str(key)) else part for key, part in value.items()}
    text = hidden(" ".join(str(value).split()), users=True)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline file that was read and is valid by itself."""

    path: Path
    name: str
    settings: Mapping[str, Any]
    steps: Mapping[str, Step]
    lines: dict[KeyPath, int]
    secrets: Secrets

    def of(self, kind: str) -> list[Step]:
        """The steps of a kind, in the order of the file."""
        return [step for step in self.steps.values() if step.kind == kind]

    def ordered(self, sink: str | None = None) -> list[Step]:
        """Steps in an order in which each comes after those it reads; with `sink`, only the steps that it needs."""
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
        """Pairs of a step and a step that reads it, each pair once."""
        pairs = ((name, step.name) for step in self.steps.values() for name in step.sources)
        return list(dict.fromkeys(pairs))

    @property
    def checkpoint(self) -> str | None:
        """The directory of checkpoints, if the file names one."""
        return self.settings.get("checkpoint")


def located(file: Path, place: str) -> str:
    """A path that a file names, made absolute; relative paths start at the file, and URIs stay as they are."""
    return place if _ADDRESS.match(place) else str((file.parent / Path(place).expanduser()).absolute())


def is_schema_text(given: str) -> bool:
    """Whether `avro` is the JSON text of a schema, and not the path of a file."""
    return given.lstrip().startswith(("{", "[", '"'))


def inputs_of(kind: str, type_: str, values: Mapping[str, Any], steps: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Names of the steps that a table reads, whether they exist or not, each with the key that names the step."""
    shape = shape_of(kind, type_)
    for key in shape.references if shape else ():
        given = values.get(key)
        named: Iterable[Any] = (
            given.values() if isinstance(given, Mapping) else given if isinstance(given, list) else [given]
        )
        yield from ((name, key) for name in named if isinstance(name, str))
    if type_ == "sql" and "inputs" not in values and isinstance(values.get("query"), str):
        yield from ((name, "query") for name in tables_of(values["query"], steps))
    if type_ == "interval_complement" and isinstance(values.get("limits"), str):
        yield values["limits"], "limits"
    build = values.get("build")
    if kind == "master" and isinstance(build, Mapping) and isinstance(build.get("from"), str):
        yield build["from"], "build"
