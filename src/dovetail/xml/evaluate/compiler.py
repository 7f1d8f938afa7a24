"""Expressions to plans: one function per kind of node, found by its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dovetail.xml.evaluate.plan import Plan, Scope
from dovetail.xml.syntax.tree import Expr

_COMPILERS: dict[type, Callable[[Any, Scope], Plan]] = {}
Function = TypeVar("Function", bound=Callable[[Any, Scope], Plan])


def compiles(kind: type) -> Callable[[Function], Function]:
    """Registers the function that compiles nodes of a type."""

    def register(function: Function) -> Function:
        _COMPILERS[kind] = function
        return function

    return register


def compile_expr(expr: Expr, scope: Scope) -> Plan:
    """The plan of an expression. Raises static errors of the names and types in it."""
    return _COMPILERS[type(expr)](expr, scope)
