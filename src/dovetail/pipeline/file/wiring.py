"""Checks how steps are connected: references, cycles, unused steps, and rules between keys of one step."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.problems import Problems, listed, meant

_KAFKA_TOPICS = ("subscribe", "subscribePattern", "assign")


def check_wiring(pipeline: Pipeline, problems: Problems) -> None:
    """Add a problem for each wrong reference, cycle, unused step and broken rule."""
    for step in pipeline.steps.values():
        for name, key in step.inputs:
            _check_reference(pipeline, step, name, key, problems)
            if key == "build" and name in pipeline.steps and streams(pipeline.steps[name]):
                problems.add(
                    (*step.path, "build"), f"build of {step.name} reads the stream {name!r}", "it must read a batch",
                    f"remove stream = true from [source.{name}]",
                )  # fmt: skip
        _check_rules(pipeline, step, problems)
    cycle = _cycle(pipeline)
    if cycle:
        circle = " -> ".join([*cycle, cycle[0]])
        problems.add(
            pipeline.steps[cycle[0]].path, f"these steps read each other in a circle: {circle}",
            "a pipeline runs from sources to sinks", "let one of them read a source instead",
        )  # fmt: skip
    _check_use(pipeline, problems)


def _allowed(step: Step, key: str) -> tuple[str, ...]:
    """The kinds of steps that a key may name."""
    if key == "master":
        return ("master",)
    return ("source",) if key == "build" else ("source", "join")


def _check_reference(pipeline: Pipeline, step: Step, name: str, key: str, problems: Problems) -> None:
    kinds = _allowed(step, key)
    known = [other.name for other in pipeline.steps.values() if other.kind in kinds and other.name != step.name]
    said = f"{' and '.join(kinds)} steps are {listed(known)}"
    other = pipeline.steps.get(name)
    if other is None:
        if _declared_somewhere(problems, name):
            return  # it exists, and its own problems are reported at its line
        problems.add(
            (*step.path, key), f"{key} of {step.name} names {name!r}, which is no step", said, meant(name, known)
        )
    elif other.kind not in kinds:
        hint = f"use enrich to join with {name!r}" if other.kind == "master" else ""
        problems.add((*step.path, key), f"{key} of {step.name} names the {other.kind} {name!r}", said, hint)


def _declared_somewhere(problems: Problems, name: str) -> bool:
    return any(len(path) == 2 and path[1] == name for path in problems.lines)


def _cycle(pipeline: Pipeline) -> list[str]:
    """Steps that form a cycle; empty if there is none."""
    clean: set[str] = set()
    for start in pipeline.steps:
        found = _walk(pipeline, start, [], clean)
        if found:
            return found
    return []


def _walk(pipeline: Pipeline, name: str, trail: list[str], clean: set[str]) -> list[str]:
    if name in trail:
        return trail[trail.index(name) :][::-1]
    if name in clean or name not in pipeline.steps:
        return []
    for source in pipeline.steps[name].sources:
        found = _walk(pipeline, source, [*trail, name], clean)
        if found:
            return found
    clean.add(name)
    return []


def _check_use(pipeline: Pipeline, problems: Problems) -> None:
    sinks = pipeline.of("sink")
    if not sinks and not any(path[0] == "sink" for path in problems.lines):
        problems.at(1, "the pipeline has no sink; results go to at least one [sink.NAME]; add one with from = a step")
        return
    if any(name not in pipeline.steps for step in pipeline.steps.values() for name in step.sources):
        return  # a wrong name makes the step that was meant look unused
    used = {name for step in pipeline.steps.values() for name in step.sources}
    for step in pipeline.steps.values():
        if step.kind != "sink" and step.name not in used and sinks:
            problems.add(
                step.path, f"nothing reads the {step.kind} {step.name!r}", "every step leads to a sink",
                f"read it in a join or a sink, or remove [{step.kind}.{step.name}]",
            )  # fmt: skip


def _check_rules(pipeline: Pipeline, step: Step, problems: Problems) -> None:
    values, path = step.values, step.path
    if step.kind == "source":
        _check_source(step, problems)
    elif step.type == "pages" and "build" in values and not ("key" in values or "bounds" in values["build"]):
        problems.add(
            path, f"[master.{step.name}] builds a page file without a key", "key is a name or a list", 'add key = "..."'
        )
    elif step.type == "pages" and "key" in values and "build" not in values:
        problems.add(
            (*path, "key"),
            "key is only for building a page file",
            "a page file knows its key",
            "remove it, or add build",
        )
    elif step.type == "postgres" and step.kind == "sink":
        _check_postgres(step, problems)
    elif step.type == "kafka":
        _check_kafka(step, ("topic",), problems)


def _check_postgres(step: Step, problems: Problems) -> None:
    values, path = step.values, step.path
    if "newest" in values and "key" not in values:
        problems.add(
            (*path, "newest"),
            "newest decides between rows of one key, and there is no key",
            "",
            "add key, or remove newest",
        )
    if values.get("mode") == "update" and "key" not in values:
        problems.add(
            (*path, "mode"), "mode 'update' replaces rows by their key, and there is no key", "", 'add key = "..."'
        )


def _check_kafka(step: Step, topics: tuple[str, ...], problems: Problems) -> None:
    values, path, options = step.values, step.path, step.values.get("options")
    if isinstance(options, Mapping):
        if "kafka.bootstrap.servers" not in options:
            problems.add(
                (*path, "options"), f"options of a kafka {step.kind} lack 'kafka.bootstrap.servers'",
                "it is host:port, ...", "add it, in quotes: \"kafka.bootstrap.servers\" = \"localhost:9092\"",
            )  # fmt: skip
        if not any(name in options for name in topics):
            problems.add(
                (*path, "options"), f"options of a kafka {step.kind} name no topic", f"one of {listed(topics)}",
                f'add {topics[0]} = "topic"',
            )  # fmt: skip
    if "schema" in values and "avro" in values:
        problems.add(
            (*path, "avro"), "schema is for values of JSON and avro for values of Avro", "", "remove one of them"
        )
    if "malformed" in values and not {"schema", "avro"} & set(values):
        problems.add(
            (*path, "malformed"),
            "malformed is for values with a declared schema",
            "",
            "add schema or avro, or remove it",
        )


def _check_source(step: Step, problems: Problems) -> None:
    values, path = step.values, step.path
    if step.type == "rate" and values.get("stream") is False:
        problems.add(
            (*path, "stream"), "a rate source is always a stream", "stream may be true", "remove stream = false"
        )
    if step.type == "kafka":
        _check_kafka(step, _KAFKA_TOPICS, problems)
    if "watermark" in values and not streams(step):
        problems.add(
            (*path, "watermark"),
            "a watermark is for streams, and this source is none",
            "",
            "add stream = true, or remove it",
        )


def streams(step: Step) -> bool:
    """Whether a source is a stream."""
    return bool(step.values.get("stream", step.type in ("rate", "kafka")))
