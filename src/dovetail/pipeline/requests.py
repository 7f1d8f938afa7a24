"""Requests of joins, checked by the joins themselves as far as that needs no data: words, sizes, queries."""

from __future__ import annotations

import re
from typing import Any

from dovetail.errors import DovetailError, XQueryError
from dovetail.joins.online.request import REACTS
from dovetail.pipeline.arguments import arguments_of
from dovetail.pipeline.declared import Pipeline, Step
from dovetail.pipeline.locate import nearest_line
from dovetail.pipeline.problems import Problems
from dovetail.pipeline.wiring import streams

_KEY = re.compile(r"^(\w+)(?:=|:| )")


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
            problems.add((*step.path, key_of(step, str(error))), f"{step.name}: {error}")
    for step in pipeline.of("sink"):
        if not problems.of(step.name):
            _check_trigger(pipeline, step, problems)


def key_of(step: Step, message: str) -> str:
    """The key that a message is about, if it begins with one: "how='outer' is not known"."""
    found = _KEY.match(message)
    return found[1] if found and found[1] in step.values else "type"


def _check(pipeline: Pipeline, step: Step) -> None:
    arguments = arguments_of(pipeline, step)
    if step.type == "enrich":
        from dovetail.joins.semistream.request import parse_request

        parse_request(**arguments)
    elif step.type == "online_join":
        from dovetail.joins.online.request import parse_request as parse_online

        _defaulted(parse_online, arguments, "on", "within", "how", "algorithm", "memory", "buckets", "wait", "owed",
                   "retain", "with_phase", memory="32MB")  # fmt: skip
    elif step.type == "online_multijoin":
        _check_multijoin(arguments)
    elif step.type == "interval_join":
        from dovetail.joins.interval.request import parse_request as parse_interval

        parse_interval(**arguments)
    else:
        from dovetail.xml.evaluate.static import check_module
        from dovetail.xml.syntax.parser import parse

        check_module(parse(arguments["query"]))


def _defaulted(parse: Any, given: dict[str, Any], *names: str, memory: str) -> None:
    defaults = {"on": None, "within": None, "how": "inner", "algorithm": "diner", "memory": memory, "buckets": None,
                "wait": "25 ms", "owed": "idle", "retain": None, "with_phase": False}  # fmt: skip
    parse(*(given.get(name, defaults[name]) for name in names))


def _check_multijoin(arguments: dict[str, Any]) -> None:
    from dovetail.joins.online.multiway.registry import MULTIWAY
    from dovetail.joins.online.request import parse_terms

    terms = {"algorithm": "miner", **arguments}
    names = ("algorithm", "memory", "buckets", "wait", "owed", "retain", "with_phase")
    _defaulted(lambda *rest: parse_terms(tuple(MULTIWAY), *rest), terms, *names, memory="64MB")


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
        usual = {"online_join": "diner", "online_multijoin": "miner"}.get(step.type)
        reacts = usual is not None and step.values.get("algorithm", usual) in REACTS
        if live and reacts and step.values.get("owed") != "batch":
            problems.add(
                step.path, f"{step.name} keeps work for pauses of its input, so a run to the end of input never ends",
                'owed is "idle" or "batch"', f'add owed = "batch" to [join.{step.name}]',
            )  # fmt: skip
