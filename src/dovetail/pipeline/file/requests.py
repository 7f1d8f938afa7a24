"""Requests of joins, checked by the joins themselves as far as that needs no data: words, sizes, queries."""

from __future__ import annotations

from dovetail.errors import DovetailError, XQueryError
from dovetail.pipeline.file.arguments import arguments_of
from dovetail.pipeline.file.declared import Pipeline, Step
from dovetail.pipeline.file.keys import options_of
from dovetail.pipeline.file.locate import nearest_line
from dovetail.pipeline.file.problems import Problems
from dovetail.pipeline.file.wiring import streams


def check_requests(pipeline: Pipeline, problems: Problems) -> None:
    """What each join says of its arguments; joins with problems of their own are left alone."""
    for step in pipeline.of("join"):
        if problems.of(step.name) or step.type == "sql":
            continue
        try:
            _check(pipeline, step)
        except XQueryError as error:
            problems.at(_query_line(pipeline, step, error), f"{step.name}: {error}; correct the query here", step.name)
        except DovetailError as error:
            problems.add((*step.path, key_of(step, error)), f"{step.name}: {error}")
    for step in pipeline.of("sink"):
        if not problems.of(step.name):
            _check_trigger(pipeline, step, problems)


def key_of(step: Step, error: DovetailError, otherwise: str = "type") -> str:
    """The key that an error is about, if the step has it."""
    return error.argument if error.argument in step.values else otherwise  # type: ignore[return-value]  # a key is text


def _check(pipeline: Pipeline, step: Step) -> None:
    arguments = arguments_of(pipeline, step)
    if step.type == "xquery":
        from dovetail.xml.evaluate.static import check_module
        from dovetail.xml.syntax.parser import parse

        check_module(parse(arguments.pop("query")))
    options_of(step.type)(**arguments).request()


def _query_line(pipeline: Pipeline, step: Step, error: XQueryError) -> int:
    """The line in the file of a line in the query, which may begin on the line after its key."""
    start = nearest_line(pipeline.lines, (*step.path, "query"))
    return start + max(0, error.line - 1) + (1 if _begins_below(pipeline, start) and error.line else 0)


def _begins_below(pipeline: Pipeline, line: int) -> bool:
    text = pipeline.path.read_text(encoding="utf-8").splitlines()[line - 1]
    return text.rstrip().endswith(('"""', "'''"))


def _check_trigger(pipeline: Pipeline, sink: Step, problems: Problems) -> None:
    """A run to the end of input needs joins that owe nothing between micro-batches."""
    trigger = sink.values.get("trigger", pipeline.settings.get("trigger"))
    if trigger == "availableNow":
        check_ends(pipeline, sink, problems)


def check_ends(pipeline: Pipeline, sink: Step, problems: Problems) -> None:
    """A problem for each online join of streams that would keep a run to the end of input from ending."""
    try:
        steps = pipeline.ordered(sink.name)
    except (KeyError, RecursionError):
        return  # references are wrong, which is told elsewhere
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
        return False  # the request is wrong, which is told elsewhere
