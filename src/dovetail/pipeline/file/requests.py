"""Checks the options of joins with the joins' own parsers, as far as that needs no data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dovetail.errors import DovetailError, XQueryError
from dovetail.joins.semistream.request import Freshness, OnMiss, dead_letter, park, ttl
from dovetail.pipeline.file.declared import Pipeline, Step, located
from dovetail.pipeline.file.keys import join_shape, options_of
from dovetail.pipeline.file.problems import Problems, nearest_line
from dovetail.pipeline.file.wiring import streams
from dovetail.request import parse_seconds


def arguments_of(pipeline: Pipeline, step: Step) -> dict[str, Any]:
    """The options of a join's function; `memory` is the pipeline's if the step has none."""
    shape = join_shape(step.type)
    plain = {"type", "watermark", *(() if step.type == "xquery" else shape.references)}
    steps = {key for _, key in step.inputs}  # options that name a step, such as limits
    given = {key: value for key, value in step.values.items() if key not in plain and key not in steps - {"query"}}
    if "memory" in pipeline.settings and "memory" in shape.keys:
        given.setdefault("memory", pipeline.settings["memory"])
    return {key: _converted(pipeline, key, value) for key, value in given.items()}


def _converted(pipeline: Pipeline, key: str, value: Any) -> Any:
    if key == "hot":
        return [tuple(part) if isinstance(part, list) else part for part in value]
    if key == "on" and isinstance(value, list):
        return [_term(term) if isinstance(term, list) else term for term in value]
    if key == "within" and isinstance(value[0], list):
        return [_term(term) for term in value]
    if key == "within":
        return tuple(_distance(part) if at >= len(value) - (1 if len(value) == 2 else 2) else part
                     for at, part in enumerate(value))  # fmt: skip
    if key == "on_miss":
        return _misses(pipeline, value)
    if key == "freshness":
        return ttl(value["ttl"]) if isinstance(value, Mapping) else Freshness.of(value)
    if key in ("suffixes", "closed") and isinstance(value, list):
        return tuple(value)
    return value


def _term(term: list[Any]) -> tuple[Any, ...]:
    """A pair of columns, or a band between two columns: ["orders.at", "items.at", "-1 hour", "2 hours"]."""
    return tuple(_distance(part) if at >= 2 else part for at, part in enumerate(term))


def _distance(bound: Any) -> Any:
    """A number unchanged; a duration, which may be negative, as a timedelta."""
    if not isinstance(bound, str):
        return bound
    text = bound.strip()
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("-").strip()
    seconds = 0.0 if text.split()[:1] == ["0"] else parse_seconds("band", text)
    return sign * timedelta(seconds=seconds)


def _misses(pipeline: Pipeline, value: Any) -> OnMiss | str:
    if isinstance(value, str):
        return value
    if "dead_letter" in value:
        return dead_letter(located(pipeline.path, value["dead_letter"]))
    return park(**value["park"])


def check_requests(pipeline: Pipeline, problems: Problems) -> None:
    """Add a problem for each join that refuses its options; joins that already have problems are skipped."""
    for step in pipeline.of("join"):
        if problems.of(step.name) or step.type == "sql":
            continue
        try:
            _check(pipeline, step)
        except XQueryError as error:
            line = query_line(pipeline, step, max(1, error.line))
            problems.at(line, f"{step.name}: {error}; correct the query here", step.name)
        except DovetailError as error:
            problems.add((*step.path, key_of(step, error)), f"{step.name}: {error}")
    for step in pipeline.of("sink"):
        trigger = step.values.get("trigger", pipeline.settings.get("trigger"))
        if trigger == "availableNow" and not problems.of(step.name):
            check_ends(pipeline, step, problems)


def key_of(step: Step, error: DovetailError, otherwise: str = "type") -> str:
    """The key that an error is about, if the step has it; else `otherwise`."""
    return error.argument if error.argument in step.values else otherwise  # type: ignore[return-value]  # a key is text


def _check(pipeline: Pipeline, step: Step) -> None:
    arguments = arguments_of(pipeline, step)
    if step.type == "xquery":
        from dovetail.xml.evaluate.calls import check_module
        from dovetail.xml.syntax.parser import parse

        check_module(parse(arguments.pop("query")))
    options_of(step.type)(**arguments).request()


def query_line(pipeline: Pipeline, step: Step, line: int) -> int:
    """The line in the file of a line of the step's query, which may begin on the line after its key."""
    start = nearest_line(pipeline.lines, (*step.path, "query"))
    first = pipeline.path.read_text(encoding="utf-8").splitlines()[start - 1]
    return start + line - (0 if first.rstrip().endswith(('"""', "'''")) else 1)


def check_ends(pipeline: Pipeline, sink: Step, problems: Problems) -> None:
    """Add a problem for each online join that would keep a run to the end of input from ending."""
    try:
        steps = pipeline.ordered(sink.name)
    except (KeyError, RecursionError):
        return  # wrong references are reported by check_wiring
    live = any(step.kind == "source" and streams(step) for step in steps)
    for step in steps:
        if problems.of(step.name):
            continue
        if live and step.type in ("online_join", "online_multijoin") and _reacts(pipeline, step):
            problems.add(
                step.path, f"{step.name} keeps work for pauses of its input, so a run to the end of input never ends",
                'owed is "idle" or "batch"', f'add owed = "batch" to [join.{step.name}]',
            )  # fmt: skip


def _reacts(pipeline: Pipeline, step: Step) -> bool:
    try:
        return bool(options_of(step.type)(**arguments_of(pipeline, step)).request().terms.reacts)
    except DovetailError:
        return False  # wrong options are reported by check_requests
