"""Whole queries compiled: declared functions and variables, static errors before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.evaluate import calls, constructors, control, flwor, operators, paths, types
from dovetail.xml.evaluate.compiler import compile_expr
from dovetail.xml.evaluate.context import Context, Environment
from dovetail.xml.evaluate.plan import Frame, Items, Plan, Run, Scope, Slots, located
from dovetail.xml.evaluate.types import converter, matcher, mismatch, written
from dovetail.xml.syntax.names import FN, QName, SequenceType
from dovetail.xml.syntax.stack import deep_stack
from dovetail.xml.syntax.tree import (
    Expr,
    FunctionCall,
    FunctionDeclaration,
    Module,
    VariableDeclaration,
    VariableRef,
)

PARTS = (calls, constructors, control, flwor, operators, paths, types)  # loaded: each registers what it compiles


class Function:
    """A declared function; its body is compiled after all functions are known."""

    __slots__ = ("conversions", "result", "run", "size")

    def __init__(self, declaration: FunctionDeclaration) -> None:
        name = declaration.name
        self.conversions = [
            None if part.type is None else converter(part.type, f"argument {at} of {name}()")
            for at, part in enumerate(declaration.parameters, 1)
        ]
        self.result = None if declaration.type is None else converter(declaration.type, f"the result of {name}()")
        self.run: Run = lambda frame: []
        self.size = 0

    def compile(self, declaration: FunctionDeclaration, static: Static) -> None:
        """Fills in the body."""
        slots = Slots()
        places = {part.name: slots.take() for part in declaration.parameters}
        self.run = compile_expr(declaration.body, Scope(static, slots, places, repeated=True)).run
        self.size = slots.used


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
        plan = None if declaration.value is None else compile_expr(declaration.value, scope)
        check = None if declaration.type is None else _placed(declaration, lambda d: _checked(d.type, d.name))
        pending: set[int] = set()

        def value(environment: Environment) -> Items:
            if id(environment) in pending:
                raise located(XQueryError("XQDY0054", f"${declaration.name} needs its own value"), declaration)
            pending.add(id(environment))
            try:
                items = self._given(declaration, environment)
                if items is None:
                    items = self._computed(declaration, plan, environment, slots.used)
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
    def _computed(declaration: VariableDeclaration, plan: Plan | None, environment: Environment, size: int) -> Items:
        if plan is None:
            raise XQueryError("XPDY0002", f"the external variable ${declaration.name} was given no value")
        return plan.run(_frame(environment, size))


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


def _frame(environment: Environment, size: int) -> Frame:
    frame: Frame = [None] * size
    frame[0] = environment
    if environment.context.item is not None:
        frame[1:4] = environment.context.item, 1, 1
    return frame


class Query:
    """A compiled query: run it as often as needed, each time with a context."""

    __slots__ = ("_each", "_size", "module", "static")

    def __init__(self, module: Module) -> None:
        with deep_stack():
            self.module, self.static = module, Static(module)
            slots = Slots(4)
            plan = compile_expr(module.body, Scope(self.static, slots, focus=1))
        self._each, self._size = plan.each(), slots.used

    def run(self, context: Context | None = None) -> Iterator[Any]:
        """The items of the answer, as they are found."""
        frame = _frame(Environment(context or Context()), self._size)
        with deep_stack():
            items = self._each(frame)
        while True:
            with deep_stack():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item


class Expression:
    """One expression compiled for given variables: called with their values, in order, it gives its items.

    Documents and global variables come from the context that `with_context` gave; without one there are no documents.
    """

    __slots__ = ("_environment", "_recursive", "_run", "_size")

    def __init__(self, expr: Expr, static: Static, variables: Sequence[QName] = ()) -> None:
        slots = Slots(4)
        places = {name: slots.take() for name in variables}
        with deep_stack():
            self._run = compile_expr(expr, Scope(static, slots, places, focus=1, repeated=True)).run
        self._size = slots.used
        self._environment = Environment(Context())
        self._recursive = bool(static.functions)

    def with_context(self, context: Context) -> Expression:
        """The same expression in another context."""
        self._environment = Environment(context)
        return self

    def __call__(self, *values: Items) -> Items:
        """The items for these values of the variables."""
        frame = _frame(self._environment, self._size)
        frame[4 : 4 + len(values)] = values
        if not self._recursive:
            return self._run(frame)
        with deep_stack():
            return self._run(frame)


def compile_module(module: Module) -> Query:
    """A query ready to run. Raises its static errors: unknown names, functions, types."""
    return Query(module)


def evaluate(module: Module, context: Context | None = None) -> Iterator[Any]:
    """The items of a query's answer."""
    return Query(module).run(context)
