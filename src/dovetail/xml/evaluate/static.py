"""Static context of a query: declared functions and variables, and errors found before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate import calls, constructors, control, flwor, operators, paths, types
from dovetail.xml.evaluate.compiler import Compiled, Items, Run, Scope, Slots, compile_expr, located
from dovetail.xml.evaluate.context import Environment
from dovetail.xml.evaluate.types import converter, matcher, mismatch, written
from dovetail.xml.syntax.names import FN, QName, SequenceType
from dovetail.xml.syntax.stack import deep_stack
from dovetail.xml.syntax.tree import (
    FunctionCall,
    FunctionDeclaration,
    Module,
    VariableDeclaration,
    VariableRef,
)

LOOPS_PER_CALL = 8
"""A call of a function with more loops counts as several calls: each loop takes a part of the C stack."""
PARTS = (calls, constructors, control, flwor, operators, paths, types)  # loaded: each registers what it compiles


class Function:
    """A declared function; its body is compiled after all functions are known."""

    __slots__ = ("conversions", "result", "run", "size", "weight")

    def __init__(self, declaration: FunctionDeclaration) -> None:
        name = declaration.name
        self.conversions = [
            None if part.type is None else converter(part.type, f"argument {at} of {name}()")
            for at, part in enumerate(declaration.parameters, 1)
        ]
        self.result = None if declaration.type is None else converter(declaration.type, f"the result of {name}()")
        self.run: Run = lambda frame: []
        self.size, self.weight = 0, 1

    def compile(self, declaration: FunctionDeclaration, static: Static) -> None:
        """Fills in the body."""
        slots = Slots()
        places = {part.name: slots.take() for part in declaration.parameters}
        self.run = compile_expr(declaration.body, Scope(static, slots, places, repeated=True)).run
        self.size, self.weight = slots.used, 1 + slots.loops // LOOPS_PER_CALL


class Static:
    """The static context of a query: its functions and global variables."""

    def __init__(self, module: Module) -> None:
        self.base_uri = module.base_uri
        self.collections_used = _collection_calls(module.body, module.variables, module.functions)
        self.functions: dict[tuple[QName, int], Function] = {}
        self.variables = {declaration.name: declaration for declaration in module.variables}
        self._values: dict[QName, Callable[[Environment], Items]] = {}
        for declaration in module.functions:
            self.functions[declaration.name, len(declaration.parameters)] = _placed(declaration, Function)
        for declaration in module.functions:
            self.functions[declaration.name, len(declaration.parameters)].compile(declaration, self)
        for variable in module.variables:
            self._values[variable.name] = self._global(variable)

    def global_value(self, reference: VariableRef) -> Callable[[Environment], Items]:
        """How the value of a global variable is found. Raises XPST0008 if there is none."""
        name = reference.name
        if name not in self.variables:
            raise located(XQueryError("XPST0008", f"${name} is not declared"), reference)

        def value(environment: Environment) -> Items:
            found = environment.globals.get(name)
            if found is None:
                found = environment.globals[name] = self._values[name](environment)
            return found

        return value

    def _global(self, declaration: VariableDeclaration) -> Callable[[Environment], Items]:
        slots = Slots(4)
        scope = Scope(self, slots, focus=1)
        compiled = None if declaration.value is None else compile_expr(declaration.value, scope)
        check = None if declaration.type is None else _placed(declaration, lambda d: _checked(d.type, d.name))
        pending: set[int] = set()

        def value(environment: Environment) -> Items:
            if id(environment) in pending:
                raise located(XQueryError("XQDY0054", f"${declaration.name} needs its own value"), declaration)
            pending.add(id(environment))
            try:
                items = self._given(declaration, environment)
                if items is None:
                    items = self._computed(declaration, compiled, environment, slots.used)
                return check(items) if check is not None else items
            except XQueryError as error:
                raise located(error, declaration) from None
            finally:
                pending.discard(id(environment))

        return value

    @staticmethod
    def _given(declaration: VariableDeclaration, environment: Environment) -> Items | None:
        given = environment.context.variables
        if not declaration.external or str(declaration.name) not in given:
            return None
        return list(given[str(declaration.name)])

    @staticmethod
    def _computed(
        declaration: VariableDeclaration, value: Compiled | None, environment: Environment, size: int
    ) -> Items:
        if value is None:
            raise XQueryError("XPDY0002", f"the external variable ${declaration.name} was given no value")
        return value.run(environment.frame(size))


def _placed(node: Any, make: Callable[[Any], Any]) -> Any:
    try:
        return make(node)
    except XQueryError as error:
        raise located(error, node) from None


def _checked(kind: SequenceType, name: QName) -> Callable[[Items], Items]:
    matches = matcher(kind)

    def check(items: Items) -> Items:
        if not matches(items):
            raise mismatch(items, written(kind), f"${name}")
        return items

    return check


def _collection_calls(*parts: Any) -> int:
    """How many places of the trees call `collection`."""
    found, pending = 0, list(parts)
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
        elif dataclasses.is_dataclass(node):
            found += isinstance(node, FunctionCall) and node.name == QName(FN, "collection")
            pending += [getattr(node, part.name) for part in dataclasses.fields(node)]
    return found


def check_module(module: Module) -> None:
    """Raises the static errors of a query: unknown names, functions, types."""
    with deep_stack():
        compile_expr(module.body, Scope(Static(module), Slots(4), focus=1))
