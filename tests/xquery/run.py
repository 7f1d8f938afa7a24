"""Queries run without Spark: as one task would run them, and by the definition that plans are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import Operator
from dovetail.xml.evaluate.calls import Static, check_module
from dovetail.xml.evaluate.compiler import Context, Scope, Slots, compile_expr
from dovetail.xml.execute.tasks import runner_of
from dovetail.xml.rules.order import rewrite
from dovetail.xml.syntax.parser import parse
from dovetail.xml.syntax.tree import Module, deep_stack


def answered(query: str, context: Context | None = None, item: str | None = None) -> Iterator[Any]:
    """The items of a query that one task answers; `item` is the address of the context document."""
    with deep_stack():
        module = parse(query)
        check_module(module)
        plan = rewrite(normalise(module, item)).plan
    return planned(plan, module, context, item)


def planned(plan: Operator, module: Module, context: Context | None = None, item: str | None = None) -> Iterator[Any]:
    """The items of a plan, before or after any rule."""
    return runner_of(module, context or Context(), item).items(plan)  # type: ignore[arg-type]  # a whole plan


def direct(module: Module, context: Context | None = None) -> list[Any]:
    """The items of a query without plan and rules: its syntax tree, compiled as one expression."""
    slots = Slots(4)
    with deep_stack():
        run = compile_expr(module.body, Scope(Static(module), slots, focus=1)).run
        return run((context or Context()).frame(slots.used))
