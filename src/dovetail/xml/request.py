"""Checks the options of an XQuery query, before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from dovetail.errors import PlanError
from dovetail.request import DEFAULT_MEMORY, MIN_MEMORY, items_of, one_of, parse_partitions, parse_size
from dovetail.xml.scan.files import address_of

Output = Literal["items", "columns"]
OnError = Literal["fail", "skip"]
Route = Literal["auto", "tuples", "one_task"]
"""How a query runs: by the best valid plan, with every element built, or all of it in one task."""


@dataclass(frozen=True, slots=True)
class Request:
    """A validated request; collections and variables are checked later, against the query."""

    collections: Mapping[str, str | Path]
    variables: Mapping[str, Any]
    output: Output
    skips: bool
    partitions: int | None
    memory: int
    context: str | None
    route: Route
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class XQueryOptions:
    """The options of `xquery`, and the collections that it reads, which may be given by position."""

    collections: Mapping[str, str | Path] | None = None
    _: KW_ONLY
    variables: Mapping[str, Any] | None = None
    output: Output = "items"
    on_error: OnError = "fail"
    partitions: int | None = None
    memory: int | str = DEFAULT_MEMORY
    context: str | Path | None = None
    route: Route = "auto"
    documents: Sequence[str | Path] = ()

    def request(self) -> Request:
        """The request, or a `PlanError` that says what to change."""
        return Request(
            _named("collections", self.collections),
            _named("variables", self.variables),
            one_of("output", self.output, get_args(Output)),
            one_of("on_error", self.on_error, get_args(OnError)) == "skip",
            parse_partitions(self.partitions),
            parse_size("memory", self.memory, MIN_MEMORY),
            _context(self.context),
            one_of("route", self.route, get_args(Route)),
            _addresses(self.documents),
        )


def _context(given: Any) -> str | None:
    if given is not None and not (isinstance(given, (str, Path)) and str(given)):
        raise PlanError(f"context={given!r} must be the place of one XML file.", argument="context")
    return None if given is None else str(given)


def _addresses(given: Sequence[str | Path]) -> tuple[str, ...]:
    found = items_of(given)
    if found is None or not all(isinstance(one, (str, Path)) and str(one) for one in found):
        raise PlanError(
            f"documents={given!r} must be a list of files, directories or addresses, such as ['data/rates.xml'].",
            argument="documents",
        )
    return tuple(address_of(str(one)) for one in found)


def _named(argument: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise PlanError(f"{argument}={given!r} must be a mapping by name.", argument=argument)
    return given or {}
