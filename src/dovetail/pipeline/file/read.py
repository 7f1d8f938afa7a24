"""Reads pipeline files and checks their text; needs neither Spark nor the files and servers that they name."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.file.declared import Pipeline, Secrets, Step, inputs_of, is_schema_text, located
from dovetail.pipeline.file.keys import KINDS, PIPELINE, Shape, shape_of, types_of
from dovetail.pipeline.file.problems import KeyPath, PipelineError, Problem, Problems, key_lines, listed, meant
from dovetail.pipeline.file.requests import check_requests
from dovetail.pipeline.file.wiring import check_wiring

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_pipeline(
    file: str | os.PathLike[str], overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Pipeline:
    """The pipeline that a file declares; `overrides` are texts such as "join.enriched.memory=20MB".

    Raises PipelineError with every problem of the text. Reads nothing but the file, and does not start Spark.
    """
    path = Path(file)
    data, text = _parsed(path)
    problems = Problems(key_lines(text))
    _override(data, overrides, problems)
    secrets = Secrets(os.environ if environment is None else environment)
    _check_secrets(data, (), secrets, problems)
    pipeline = _declared(path, data, secrets, problems)
    check_wiring(pipeline, problems)
    check_requests(pipeline, problems)
    if problems.found:
        raise PipelineError(str(path), problems.sorted())
    return pipeline


def _parsed(path: Path) -> tuple[dict[str, Any], str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error}); give the path of a pipeline file in TOML.") from error
    try:
        return tomllib.loads(text), text
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        what = _PLACE.sub("", str(error))
        problem = Problem(line, f"this is not TOML: {what}; see https://toml.io for what a value looks like.")
        raise PipelineError(str(path), [problem]) from None


def _override(data: dict[str, Any], overrides: Sequence[str], problems: Problems) -> None:
    """Apply the values of --set, before anything is checked."""
    for one in overrides:
        name, equals, text = one.partition("=")
        parts = [part.strip() for part in name.split(".")]
        if not equals or len(parts) < 2 or not all(parts):
            raise PlanError(
                f"--set {one!r} is not key=value; write for example --set join.enriched.memory=20MB.", argument="set"
            )
        table: Any = data
        for part in parts[:-1]:
            table = table.setdefault(part, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            raise PlanError(
                f"--set {one!r}: {'.'.join(parts[:-1])} is a value, not a table; see the file for its keys.",
                argument="set",
            )
        table[parts[-1]] = _override_value(text)


def _override_value(text: str) -> Any:
    """A TOML value, or the text itself, so that 20MB needs no quotes."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _check_secrets(value: Any, path: KeyPath, secrets: Secrets, problems: Problems) -> None:
    if isinstance(value, str):
        for name in secrets.missing(value):
            problems.add(
                path, f"environment variable {name} is not set", f"${{{name}}} stands for its value",
                f"set it before the command, or write $${{{name}}} if the text itself is meant",
            )  # fmt: skip
    for key, part in (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    ):
        _check_secrets(part, (*path, key), secrets, problems)


def _declared(path: Path, data: dict[str, Any], secrets: Secrets, problems: Problems) -> Pipeline:
    for name in data:
        if name not in (*KINDS, "pipeline"):
            known = ["pipeline", *KINDS]
            problems.add((name,), f"there is no table [{name}]", f"tables are {listed(known)}", meant(name, known))
    settings = data.get("pipeline", {})
    _check_settings(settings, "pipeline" in data, problems)
    settings = secrets.filled(settings) if isinstance(settings, dict) else {}
    if isinstance(settings.get("checkpoint"), str):
        settings["checkpoint"] = located(path, settings["checkpoint"])
    steps = _steps(path, data, secrets, problems)
    return Pipeline(path, str(settings.get("name", path.stem)), settings, steps, problems.lines, secrets)


def _check_settings(settings: Any, given: bool, problems: Problems) -> None:
    if not isinstance(settings, dict):
        problems.add(("pipeline",), "pipeline is a value", "it must be a table", "begin it with [pipeline]")
    elif not given:
        problems.at(1, 'table [pipeline] is missing; it holds at least a name; add [pipeline] with name = "..."')
    else:
        _check_table(("pipeline",), settings, PIPELINE, problems)


def _steps(path: Path, data: dict[str, Any], secrets: Secrets, problems: Problems) -> dict[str, Step]:
    tables = [(kind, name, table) for kind in KINDS for name, table in _tables(kind, data, problems)]
    names = frozenset(name for _, name, _ in tables)
    steps: dict[str, Step] = {}
    for kind, name, table in tables:
        if name in steps:
            other = steps[name].kind
            problems.add(
                (kind, name), f"the name {name!r} is taken: [{other}.{name}] has it", "every step has its own name",
                f"rename one of them, for example [{kind}.{name}_{kind}]",
            )  # fmt: skip
            continue
        step = _step(path, kind, name, table, names, secrets, problems)
        if step is not None:
            steps[name] = step
    return steps


def _tables(kind: str, data: dict[str, Any], problems: Problems) -> list[tuple[str, dict[str, Any]]]:
    found = data.get(kind, {})
    if not isinstance(found, dict):
        problems.add((kind,), f"{kind} is a value", "it must hold tables", f"write [{kind}.some_name]")
        return []
    tables = []
    for name, table in found.items():
        if not isinstance(table, dict):
            problems.add(
                (kind, name),
                f"{kind}.{name} is a value",
                f"[{kind}.NAME] is a table",
                f"write [{kind}.some_name] above it",
            )
        elif not _NAME.fullmatch(name):
            problems.add(
                (kind, name), f"{name!r} cannot be the name of a step", "names are letters, digits and _, as in SQL",
                f"for example {re.sub('[^A-Za-z0-9_]', '_', name)!r}",
            )  # fmt: skip
        else:
            tables.append((name, table))
    return tables


def _step(
    file: Path, kind: str, name: str, table: dict[str, Any], names: frozenset[str], secrets: Secrets, problems: Problems
) -> Step | None:
    place, given = (kind, name), table.get("type")
    known = types_of(kind)
    if given is None:
        problems.add(place, f"[{kind}.{name}] has no type", f"types are {listed(known)}", f'add type = "{known[0]}"')
        return None
    shape = shape_of(kind, given) if isinstance(given, str) else None
    if shape is None:
        what = f"type of [{kind}.{name}] is {given!r}"
        problems.add((*place, "type"), what, f"types are {listed(known)}", meant(str(given), known))
        return None
    _check_table(place, table, shape, problems)
    values = _with_places(file, secrets.filled(table), shape)
    return Step(kind, name, given, values, table, tuple(inputs_of(kind, given, table, names)))


def _with_places(file: Path, table: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """The table with its paths made absolute, also in tables of paths."""
    for key in shape.paths:
        value = table.get(key)
        if isinstance(value, str):
            table[key] = value if key == "avro" and is_schema_text(value) else located(file, value)
        elif isinstance(value, dict):
            table[key] = {one: located(file, place) for one, place in value.items() if isinstance(place, str)}
        elif isinstance(value, list):
            table[key] = [located(file, place) for place in value if isinstance(place, str)]
    return table


def _check_table(place: KeyPath, table: Mapping[str, Any], shape: Shape, problems: Problems) -> None:
    title = f"[{'.'.join(map(str, place))}]"
    for key, value in table.items():
        kind = shape.keys.get(key)
        if kind is None:
            what = f"{title} has no key {key!r}"
            problems.add((*place, key), what, f"keys are {listed(shape.keys)}", meant(key, shape.keys))
            continue
        why = kind.fault(value)
        if why is not None:
            problems.add((*place, key), f"{key} of {title} does not fit: {why}", f"it must be {kind.said}")
        elif key in shape.words and value not in shape.words[key]:
            words = shape.words[key]
            problems.add((*place, key), f"{key} is {value!r}", f"allowed: {listed(words)}", meant(str(value), words))
    for key in shape.required:
        if key not in table:
            problems.add(
                place, f"{title} has no {key}", f"it must be {shape.keys[key].said}", f"add {key} = ... to the table"
            )
