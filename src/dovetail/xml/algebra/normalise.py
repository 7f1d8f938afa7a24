"""Translates the tree of a query to its first plan: everything is explicit, nothing is optimised yet.

Numbers: every expression takes one when its operands have theirs, whether or not it is assigned to a variable; a
reference to a variable takes none. A conversion that the place of an operand asks for (data, promote, boolean) shares
the operand's number. A step from a sequence takes five: size, item and position of its focus, the gathered sequence,
the sorted one. A path of steps from one item that can be neither out of order nor have duplicates takes one. `for`
takes one (and one for `at`), `return` one for its item, a FLWOR expression one for its sequence, the result of the
query one.

Sequences, documents, aggregates and paths from nodes are assigned; other expressions stand where they are used. What
has no form in the algebra (constructors, conditionals, declared functions ...) is left to the evaluator: `Evaluate`.
Reference: Carman 2020, 7.4.1; docs/algorithms/xquery.md, 5.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.xml.algebra.clauses import (
    Bound,
    Chain,
    Numbers,
    Scope,
    Value,
    flwor,
    is_algebraic,
    mapped,
    path,
    pulled,
    typed_values,
)
from dovetail.xml.algebra.expressions import (
    AGGREGATES,
    INTERNAL,
    SEQUENCE,
    Call,
    Constant,
    Evaluate,
    Expression,
    Name,
    Place,
    Variable,
    call,
)
from dovetail.xml.algebra.matching import (
    asks_context,
    compares_nodes,
    free_variables,
    inlined,
    looks_up,
    needs_context,
    reads_data,
    shared_nodes,
)
from dovetail.xml.algebra.operators import DistributeResult, EmptyTupleSource, Operator, Unnest
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import FN, XS, QName
from dovetail.xml.xdm.atomic import PYTHON_TYPES

# `decimal(...)` without prefix constructs a value, as in the source, where no function has that name.
_DISTINCT_VALUES = QName(FN, "distinct-values")
_CONSTRUCTORS = set(PYTHON_TYPES) - {"string", "boolean", "untyped"}


def normalise(module: tree.Module, context: str | None = None) -> Operator:
    """The first plan of a query; `context` is the address of the document that is its context item."""
    return Normaliser(module, context).plan()


class Normaliser:
    """Translates expressions into values of the tuples of a chain, which it lengthens where it must."""

    def __init__(self, module: tree.Module, context: str | None = None) -> None:
        self.module, self.context = module, context
        self.numbers = Numbers()
        self.globals = Scope()

    def plan(self) -> Operator:
        """The whole query."""
        chain = Chain(EmptyTupleSource())
        focus = None if self.context is None else self._context_item(self.context, chain)
        self._bind_globals(chain, focus)
        items = self.variable(self.module.body, replace(self.globals, focus=focus), chain, stream=True)
        result = Variable(self.numbers.take())
        return DistributeResult(result, Unnest(result, call("iterate", items), chain.top))

    def _context_item(self, address: str, chain: Chain) -> Expression:
        return self._source(tree.FunctionCall(QName(FN, "doc"), (tree.Literal(address),)), Scope(), chain).expression

    def _bind_globals(self, chain: Chain, focus: Expression | None) -> None:
        shared = shared_nodes(self.module)
        for declared in self.module.variables:
            if declared.external or declared.value is None or declared.name in shared:
                continue
            let = tree.LetClause(declared.name, declared.value, declared.type)
            value = typed_values(let) if declared.type is not None else declared.value
            bound = Bound(self.variable(value, replace(self.globals, focus=focus), chain, stream=True))
            self.globals = self.globals.binding(declared.name, bound)

    def variable(self, node: tree.Expr, scope: Scope, chain: Chain, stream: bool = False) -> Variable:
        """The expression as a variable: assigned, unless it is one already."""
        value = self.value(node, scope, chain, stream)
        if isinstance(value.expression, Variable):
            return value.expression
        return chain.assign(value.number or self.numbers.take(), value.expression)

    def operand(self, node: tree.Expr, scope: Scope, chain: Chain) -> Expression:
        """The atomised value of the expression."""
        if isinstance(node, tree.Path):
            return path(self, node, scope, chain, stream=False, atomised=True).expression
        return call("data", self.value(node, scope, chain).expression)

    def condition(self, node: tree.Expr, scope: Scope, chain: Chain) -> Expression:
        """The effective boolean value of the expression; `and` and `or` of many operands are one call."""
        if not isinstance(node, tree.Operation) or node.name not in ("and", "or"):
            return call("boolean", self.value(node, scope, chain).expression)
        both = [self.condition(one, scope, chain) for one in node.arguments]
        self.numbers.take()
        flat: list[Expression] = []
        for one in both:
            flat += one.arguments if isinstance(one, Call) and one.name == node.name else [one]
        return Call(node.name, tuple(flat))

    def value(self, node: tree.Expr, scope: Scope, chain: Chain, stream: bool = False) -> Value:
        """The expression for each tuple of the chain. `stream`: its items will be taken one by one."""
        match node:
            case tree.Literal(value):
                return Value(Constant(value), self.numbers.take())
            case tree.VariableRef(name) if name in scope.names:
                return Value(scope.names[name].value)
            case tree.ContextItem() if scope.focus is not None:
                return Value(scope.focus)
            case tree.Path():
                return path(self, node, scope, chain, stream)
            case tree.Flwor() if is_algebraic(node) and (stream or self.reads(node)):
                return flwor(self, node, scope, chain)
            case tree.FunctionCall():
                return self._function(node, scope, chain)
            case tree.SimpleMap() if stream or self.reads(node):
                return mapped(self, node, scope, chain)
        return self._operator(node, scope, chain)

    def reads(self, node: tree.Expr) -> bool:
        """Whether the expression reads documents or collections."""
        return reads_data(node, self.module)

    def _operator(self, node: tree.Expr, scope: Scope, chain: Chain) -> Value:
        match node:
            case tree.Operation("and" | "or"):
                return Value(self.condition(node, scope, chain), self.numbers.last)
            case tree.Operation(name, operands):
                return self._call(name, [self._operand(name, one, scope, chain) for one in operands], node)
            case tree.Sequence(items):
                return self._call(SEQUENCE, [self.value(item, scope, chain).expression for item in items], node)
        return self.evaluated(node, scope, chain)

    def _operand(self, name: str, node: tree.Expr, scope: Scope, chain: Chain) -> Expression:
        """An operand as its operator takes it: nodes, a variable that holds nodes, or typed values."""
        if name in tree.SETS:
            return self.variable(node, scope, chain)
        nodes = name in tree.NODE.values()
        return self.value(node, scope, chain).expression if nodes else self.operand(node, scope, chain)

    def _call(self, name: str, arguments: list[Expression] | list[Variable], node: tree.Expr) -> Value:
        return Value(Call(name, tuple(arguments), Place(node.line, node.column)), self.numbers.take())

    def _function(self, node: tree.FunctionCall, scope: Scope, chain: Chain) -> Value:
        name, arguments = node.name.local, node.arguments
        if node.name == _DISTINCT_VALUES and arguments and isinstance(arguments[0], tree.Flwor):
            arguments = (_atomised(arguments[0]), *arguments[1:])  # what is gathered then holds no documents
        declared = inlined(node, self.module) if self.reads(node) else None
        if declared is not None:
            return self._inlined(declared, arguments, scope, chain)
        if node.name.uri not in (FN, XS) or asks_context(node) or name in ("position", "last") or name in INTERNAL:
            return self.evaluated(node, scope, chain)
        if node.name.uri == XS or (name in _CONSTRUCTORS and len(arguments) == 1):
            return self._call(f"xs:{name}", [self.value(one, scope, chain).expression for one in arguments], node)
        if name in ("true", "false") and not arguments:
            return Value(Constant(name == "true"), self.numbers.take())
        if name in ("doc", "collection") and len(arguments) < 2:
            return self._source(node, scope, chain)
        if name in AGGREGATES and len(arguments) == 1:
            items = self.variable(arguments[0], scope, chain, stream=True)
            value = self._call(name, [items], node)
            return Value(chain.assign(value.number, value.expression))
        return self._call(name, [self.value(one, scope, chain).expression for one in arguments], node)

    def _inlined(
        self, declared: tree.FunctionDeclaration, arguments: tuple[tree.Expr, ...], scope: Scope, chain: Chain
    ) -> Value:
        """The body of a declared function, which sees its parameters and the global variables."""
        inner = self.globals
        for parameter, argument in zip(declared.parameters, arguments, strict=True):
            inner = inner.binding(parameter.name, Bound(self.variable(argument, scope, chain, stream=True)))
        return self.value(declared.body, inner, chain, stream=True)

    def _source(self, node: tree.FunctionCall, scope: Scope, chain: Chain) -> Value:
        given = [call("promote", self.operand(one, scope, chain), Name("string")) for one in node.arguments]
        value = self._call(node.name.local, list[Expression](given), node)
        return Value(chain.assign(value.number, value.expression))

    def evaluated(self, node: tree.Expr, scope: Scope, chain: Chain) -> Value:
        """The expression for the evaluator; parts of it that read data and are always needed stay in the plan."""
        rest, parts = pulled(node, self.reads)
        for name, part in parts.items():
            scope = scope.binding(name, Bound(self.variable(part, scope, chain, stream=True)))
        return Value(self.piece(rest, scope), self.numbers.take())

    def piece(self, node: tree.Expr, scope: Scope) -> Evaluate:
        """The expression for the evaluator as it is, with the variables of this scope bound."""
        names = sorted(free_variables(node) & set(scope.names), key=binding_name)
        bindings = [(binding_name(name), scope.names[name].value) for name in names]
        if scope.focus is not None and needs_context(node):
            bindings.append((".", scope.focus))
        return Evaluate(node, tuple(bindings), looks_up(node, self.module), compares_nodes(node, self.module))


def _atomised(node: tree.Flwor) -> tree.Flwor:
    return replace(node, result=tree.FunctionCall(QName(FN, "data"), (node.result,)))


def binding_name(name: QName) -> str:
    """The name of a variable as a key of `Evaluate.bindings`."""
    return f"Q{{{name.uri}}}{name.local}" if name.uri else name.local
