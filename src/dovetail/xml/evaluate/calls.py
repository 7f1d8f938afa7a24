"""Calls of functions, and the static context of a query: its functions and global variables.

A function of the library is declared with its name and the types of its parameters, as the standard writes them:

    @function("substring", "string?", "double", "double", optional=1)
    def substring(text, start, length=None): ...

    function("head", "item*")(lambda items: items[:1])

A parameter `string` or `string?` is given as one Python value or None, `string*` as a list. The result is one value,
None or a list. `focus=True` lets the first argument be left out: it is the context item then. Errors in names and types
are found when a query is compiled, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from dovetail.errors import XQueryError
from dovetail.xml.algebra.matching import TRUTH_FUNCTIONS
from dovetail.xml.evaluate.compiler import (
    MAX_CALLS,
    Compiled,
    Context,
    Frame,
    Items,
    Run,
    Scope,
    Slots,
    at_place,
    cast_to,
    checked,
    compile_expr,
    compiles,
    converter,
    errors_at,
    located,
    of_test,
    parameter,
)
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import CODEPOINT, FN, XS, Module, QName, deep_stack
from dovetail.xml.xdm.atomic import PYTHON_TYPES
from dovetail.xml.xdm.values import atom, atomise


@dataclass(frozen=True, slots=True)
class Signature:
    """A function, how its arguments are prepared, and how many there may be."""

    name: str
    call: Callable[..., Any]
    parameters: tuple[str, ...]
    least: int
    focus: bool = False
    needs_context: bool = False
    variadic: bool = False
    together: bool = False
    collated: bool = False

    def accepts(self, count: int) -> bool:
        """Whether it can be called with this number of arguments."""
        if self.together and count not in (self.least, len(self.parameters)):
            return False
        low = 0 if self.focus and self.least == 1 else self.least
        return low <= count and (self.variadic or count <= len(self.parameters))

    def arguments(self, count: int) -> list[Callable[[Items], Any]]:
        """The preparation of each argument."""
        kinds = [*self.parameters, *self.parameters[-1:] * max(0, count - len(self.parameters))]
        return [parameter(kind, f"argument {at} of {self.name}()") for at, kind in enumerate(kinds[:count], 1)]


FUNCTIONS: dict[str, Signature] = {}
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]


def function(
    name: str,
    *parameters: str,
    optional: int = 0,
    together: bool = False,
    focus: bool = False,
    env: bool = False,
    variadic: bool = False,
    collation: str = "",
) -> Declared:
    """Registers a function of the namespace fn; the last `optional` parameters may be left out, all `together`.

    `collation` is the type of a last argument that names a collation and is not passed on.
    """

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        least, kinds = len(parameters) - optional, (*parameters, collation) if collation else parameters
        FUNCTIONS[name] = Signature(name, call, kinds, least, focus, env, variadic, together, bool(collation))
        return call

    return register


def present(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which gives nothing if its first argument is nothing."""
    return lambda value, *others: None if value is None else call(value, *others)


def sequence(result: Any) -> list[Any]:
    """The result of a function, as a sequence."""
    if type(result) is list:
        return result
    return [] if result is None else [result]


@compiles(tree.FunctionCall)
def _call(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    name, count = expr.name, len(expr.arguments)
    declared = scope.static.functions.get((name, count))
    if declared is not None:
        return _declared(expr, scope, declared)
    if name.uri == FN:
        if name.local in _SPECIAL and count in _SPECIAL[name.local][0]:
            return _SPECIAL[name.local][1](expr, scope)
        signature = FUNCTIONS.get(name.local)
        if signature is not None and signature.accepts(count):
            return _library(expr, scope, signature)
    target = constructor(name)
    if target is not None and count <= 1 and (count == 1 or (scope.focus is not None and name.uri == XS)):
        return _constructor(expr, scope, target)
    raise located(_unknown(name, count, scope), expr)


def constructor(name: QName) -> str | None:
    """The type that a call constructs: `xs:decimal(...)`, and `decimal(...)` where no function has that name."""
    if name == QName(XS, "numeric"):
        return name.local
    known = name.local in PYTHON_TYPES and name.local not in ("untyped", "QName")  # xs:QName(...) is parsed as a cast
    return name.local if known and name.uri in (XS, FN) else None


def _unknown(name: QName, count: int, scope: Scope) -> XQueryError:
    others = sorted(arity for other, arity in scope.static.functions if other == name)
    signature = FUNCTIONS.get(name.local) if name.uri == FN else None
    hint = ""
    if signature is not None:
        hint = f"; it takes {' to '.join(map(str, sorted({signature.least, len(signature.parameters)})))}"
    elif others:
        hint = f"; it takes {' or '.join(map(str, others))}"
    return XQueryError("XPST0017", f"there is no function {name}() with {count} arguments{hint}")


# --- the library


def _library(expr: tree.FunctionCall, scope: Scope, signature: Signature) -> Compiled:
    arguments = list(expr.arguments)
    if signature.focus and len(arguments) < signature.least:
        arguments.append(tree.ContextItem(line=expr.line, column=expr.column))
    plans = [compile_expr(argument, scope) for argument in arguments]
    runs = [
        _values(plan) if plan.stream is not None and kind == "anyAtomicType*" else plan.run
        for plan, kind in zip(plans, [*signature.parameters, *plans], strict=False)
    ]
    prepare = signature.arguments(len(runs))
    run = _invocation(expr, runs, prepare, signature)
    return Compiled(run, (lambda frame: run(frame)[0] is True) if signature.name in TRUTH_FUNCTIONS else None)


def _values(plan: Compiled) -> Run:
    """The typed values of a stream: they are kept, the documents they come from are not."""
    each = plan.each()
    return lambda frame: [value for item in each(frame) for value in atomise([item])]


def _invocation(expr: tree.FunctionCall, runs: list[Run], prepare: list[Any], signature: Signature) -> Run:
    call, pairs = signature.call, list(zip(runs, prepare, strict=True))
    if signature.collated and len(pairs) == len(signature.parameters):
        call = _collated(call)
    if signature.needs_context:
        return at_place(expr, lambda frame: sequence(call(frame[0], *[convert(run(frame)) for run, convert in pairs])))
    if len(pairs) == 1:
        only, convert_only = pairs[0]

        def with_one(frame: Frame) -> Items:
            try:
                return sequence(call(convert_only(only(frame))))
            except XQueryError as error:
                raise located(error, expr) from None

        return with_one

    def invoke(frame: Frame) -> Items:
        try:
            return sequence(call(*[convert(run(frame)) for run, convert in pairs]))
        except XQueryError as error:
            raise located(error, expr) from None

    return invoke


def _collated(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a last argument that names a collation: only the comparison by code points exists."""

    def checked(*given: Any) -> Any:
        *arguments, uri = given
        if uri is not None and uri != CODEPOINT:
            raise XQueryError("FOCH0002", f"the collation {uri!r} is not supported")
        return call(*arguments)

    return checked


def _constructor(expr: tree.FunctionCall, scope: Scope, target: str) -> Compiled:
    argument = expr.arguments[0] if expr.arguments else tree.ContextItem(line=expr.line, column=expr.column)
    run, convert = compile_expr(argument, scope).run, cast_to(target)

    def construct(frame: Frame) -> Items:
        value = atom(run(frame), f"the argument of {expr.name}()")
        return [] if value is None else [convert(value)]

    return Compiled(at_place(expr, construct))


# --- functions that depend on their place in the query


def _focus_part(offset: int) -> Any:
    def compile_part(expr: tree.FunctionCall, scope: Scope) -> Compiled:
        if scope.focus is None:
            raise located(XQueryError("XPDY0002", "there is no context item inside a declared function"), expr)
        place = scope.focus + offset

        def run(frame: Frame) -> Items:
            if frame[place] is None:
                raise located(XQueryError("XPDY0002", "the query was given no context item"), expr)
            return [frame[place]]

        return Compiled(run)

    return compile_part


def _negation(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    truth, negate = compile_expr(expr.arguments[0], scope).truth(), expr.name.local == "not"
    return of_test(at_place(expr, lambda frame: truth(frame) != negate))


def _collection(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    run = compile_expr(expr.arguments[0], scope).run if expr.arguments else None

    def documents(frame: Frame) -> Items:
        uri = None if run is None else atom(run(frame), "the argument of collection()")
        if uri is not None and not isinstance(uri, str):
            raise XQueryError("XPTY0004", "the argument of collection() is a string")
        return list(frame[0].collection(uri))

    return Compiled(at_place(expr, documents), ordered=True)


def _parse_xml(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    """`parse-xml`: the document has the base URI of the query."""
    run, base = _library(expr, scope, FUNCTIONS["parse-xml"]).run, scope.static.base_uri

    def documents(frame: Frame) -> Items:
        found = run(frame)
        for document in found if base else ():
            document.holder.set("base", base)
        return found

    return Compiled(documents)


def _default_count(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    """`count`: counts items as they are produced if they need not be kept."""
    plan = compile_expr(expr.arguments[0], scope)
    if plan.stream is None:
        return Compiled(lambda frame: [len(plan.run(frame))])
    stream = plan.stream
    return Compiled(lambda frame: [sum(1 for _ in stream(frame))])


def _existence(expr: tree.FunctionCall, scope: Scope) -> Compiled:
    """`exists` and `empty`: a stream is read up to its first item."""
    plan, wanted = compile_expr(expr.arguments[0], scope), expr.name.local == "exists"
    if plan.stream is None:
        return of_test(lambda frame: bool(plan.run(frame)) == wanted)
    stream = plan.stream
    return of_test(lambda frame: any(True for _ in stream(frame)) == wanted)


_SPECIAL: dict[str, tuple[tuple[int, ...], Callable[[tree.FunctionCall, Scope], Compiled]]] = {
    "position": ((0,), _focus_part(1)),
    "last": ((0,), _focus_part(2)),
    "not": ((1,), _negation),
    "boolean": ((1,), _negation),
    "collection": ((0, 1), _collection),
    "unordered": ((1,), lambda expr, scope: compile_expr(expr.arguments[0], scope)),
    "parse-xml": ((1,), _parse_xml),
    "count": ((1,), _default_count),
    "exists": ((1,), _existence),
    "empty": ((1,), _existence),
}


# --- declared functions


def _declared(expr: tree.FunctionCall, scope: Scope, function: Function) -> Compiled:
    runs = [compile_expr(argument, scope).run for argument in expr.arguments]

    def run(frame: Frame) -> Items:
        context = frame[0]
        inner: Frame = [None] * function.size
        inner[0] = context
        try:
            for at, argument in enumerate(runs):
                items, convert = argument(frame), function.conversions[at]
                inner[at + 1] = convert(items) if convert is not None else items
        except XQueryError as error:
            raise located(error, expr) from None
        if context.depth >= MAX_CALLS:
            raise located(XQueryError("XPDY0130", f"functions call each other deeper than {MAX_CALLS} times"), expr)
        context.depth += function.weight
        try:
            result = function.run(inner)
            return function.result(result) if function.result is not None else result
        except XQueryError as error:
            raise located(error, expr) from None
        finally:
            context.depth -= function.weight

    return Compiled(run)


LOOPS_PER_CALL = 8
"""A call of a function with more loops counts as several calls: each loop takes a part of the C stack."""


class Function:
    """A declared function; its body is compiled after all functions are known."""

    __slots__ = ("conversions", "result", "run", "size", "weight")

    def __init__(self, declaration: tree.FunctionDeclaration) -> None:
        name = declaration.name
        self.conversions = [
            None if part.type is None else converter(part.type, f"argument {at} of {name}()")
            for at, part in enumerate(declaration.parameters, 1)
        ]
        self.result = None if declaration.type is None else converter(declaration.type, f"the result of {name}()")
        self.run: Run = lambda frame: []
        self.size, self.weight = 0, 1

    def compile(self, declaration: tree.FunctionDeclaration, static: Static) -> None:
        """Fills in the body."""
        slots = Slots()
        places: dict[Hashable, int] = {part.name: slots.take() for part in declaration.parameters}
        self.run = compile_expr(declaration.body, Scope(static, slots, places)).run
        self.size, self.weight = slots.used, 1 + slots.loops // LOOPS_PER_CALL


class Static:
    """The static context of a query: its functions and global variables."""

    def __init__(self, module: Module) -> None:
        self.base_uri = module.base_uri
        self.functions: dict[tuple[QName, int], Function] = {}
        self.variables = {declaration.name: declaration for declaration in module.variables}
        self._values: dict[QName, Callable[[Context], Items]] = {}
        for declaration in module.functions:
            with errors_at(declaration):
                self.functions[declaration.name, len(declaration.parameters)] = Function(declaration)
        for declaration in module.functions:
            self.functions[declaration.name, len(declaration.parameters)].compile(declaration, self)
        for variable in module.variables:
            self._values[variable.name] = self._global(variable)

    def global_value(self, reference: tree.VariableRef) -> Callable[[Context], Items]:
        """The function that finds the value of a global variable. Raises XPST0008 if there is none."""
        name = reference.name
        if name not in self.variables:
            raise located(XQueryError("XPST0008", f"${name} is not declared"), reference)

        def value(context: Context) -> Items:
            found = context.globals.get(name)
            if found is None:
                found = context.globals[name] = self._values[name](context)
            return found

        return value

    def _global(self, declaration: tree.VariableDeclaration) -> Callable[[Context], Items]:
        slots = Slots(4)
        scope = Scope(self, slots, focus=1)
        compiled = None if declaration.value is None else compile_expr(declaration.value, scope)
        check = checked(declaration.type, f"${declaration.name}", declaration)
        pending: set[int] = set()

        def initial(context: Context) -> Items:
            if declaration.external and str(declaration.name) in context.variables:
                return list(context.variables[str(declaration.name)])
            if compiled is None:
                raise XQueryError("XPDY0002", f"the external variable ${declaration.name} was given no value")
            return compiled.run(context.frame(slots.used))

        def value(context: Context) -> Items:
            if id(context) in pending:
                raise located(XQueryError("XQDY0054", f"${declaration.name} needs its own value"), declaration)
            pending.add(id(context))
            try:
                items = initial(context)
                return check(items) if check is not None else items
            except XQueryError as error:
                raise located(error, declaration) from None
            finally:
                pending.discard(id(context))

        return value


def check_module(module: Module) -> None:
    """Raises the static errors of a query: unknown names, functions, types."""
    with deep_stack():
        compile_expr(module.body, Scope(Static(module), Slots(4), focus=1))
