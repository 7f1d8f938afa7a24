"""From values of a file to arguments of the functions: lengths of time, bands, what becomes of misses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from dovetail.joins.semistream.options import Freshness, OnMiss, dead_letter, park, ttl
from dovetail.pipeline.file.declared import Pipeline, Step, located
from dovetail.pipeline.file.keys import join_shape
from dovetail.request.amounts import parse_seconds


def arguments_of(pipeline: Pipeline, step: Step) -> dict[str, Any]:
    """The arguments of a join's function but for DataFrames, stores and columns; `memory` is the pipeline's if it
    has none of its own.
    """
    shape = join_shape(step.type)
    plain = {"type", "watermark", *(() if step.type == "xquery" else shape.references)}
    given = {key: value for key, value in step.values.items() if key not in plain}
    if "memory" in pipeline.settings and "memory" in shape.keys:
        given.setdefault("memory", pipeline.settings["memory"])
    return {key: _converted(pipeline, key, value) for key, value in given.items()}


def _converted(pipeline: Pipeline, key: str, value: Any) -> Any:
    if key == "hot":
        return [tuple(part) if isinstance(part, list) else part for part in value]
    if key == "on" and isinstance(value, list):
        return [_term(term) if isinstance(term, list) else term for term in value]
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
    """A pair of columns, or a band between two, as in ["orders.at", "items.at", "-1 hour", "2 hours"]."""
    return tuple(_distance(part) if at >= 2 else part for at, part in enumerate(term))


def _distance(bound: Any) -> Any:
    """A number as it is; a length of time, which may be negative, as a timedelta."""
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
