"""Compares direct evaluation of a query, its first plan, and the plan after each single rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from xml.etree.ElementTree import canonicalize

from tests.xquery.algebra.validity import validate
from tests.xquery.rules.sample import context
from tests.xquery.run import direct, planned

from dovetail.errors import XQueryError
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import Operator
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.rules.order import rewrite
from dovetail.xml.syntax.parser import parse
from dovetail.xml.xdm.markup import serialise
from dovetail.xml.xdm.values import type_name

Answer = list[tuple[str, str]] | str
"""Type and text of each item, or the code of an error."""


def answer(items: Callable[[], Iterable[Any]]) -> Answer:
    try:
        return [(type_name(item), written(item)) for item in items()]
    except XQueryError as error:
        return error.code


def written(item: Any) -> str:
    """The text of an item; of an element the canonical one: a copy may declare its namespaces in another order."""
    text = serialise(item)
    return canonicalize(text) if type_name(item) == "element()" else text


def check(query: str, world: Callable[[], Context] = context) -> list[str]:
    """The rules that fired, after every plan gave the items of direct evaluation.

    A query that fails may give an answer after rewriting, since what fails may not be needed any more; never the
    reverse.
    """
    module = parse(query)
    expected = answer(lambda: direct(module, world()))
    rewriting = rewrite(normalise(module))
    before: Operator | None = None
    for name, plan in [("first plan", rewriting.before), *((step.rule, step.plan) for step in rewriting.trace)]:
        validate(plan)
        found = answer(partial(planned, plan, module, world()))
        if isinstance(expected, str):
            continue
        assert found == expected, explained(query, name, before, plan)
        before = plan
    return [step.rule for step in rewriting.trace]


def explained(query: str, name: str, before: Operator | None, plan: Operator) -> str:
    shown = print_plan(before) if before is not None else ""
    return f"{query}\nis answered differently after {name}:\n{shown}=>\n{print_plan(plan, annotations=True)}"
