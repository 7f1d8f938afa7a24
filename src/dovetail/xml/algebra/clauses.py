"""Translates FLWOR expressions and paths to nested plans, for `normalise`.

`for` is UNNEST, `let` a variable, `where` SELECT, and so on. A step from a sequence has three stages: iterate over it,
gather the results, sort them. Parts of other expressions that read data and are always needed become variables: `<r>{
for $x in collection(...) ... }</r>` has no form in the algebra, but the FLWOR expression inside has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dovetail.xml.algebra.expressions import (
    SORT_DISTINCT,
    Call,
    Expression,
    Name,
    Place,
    Variable,
    call,
    is_call,
    test_name,
)
from dovetail.xml.algebra.matching import folded, free_variables, is_filter, uses_position
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    Gathered,
    GroupBy,
    NestedTupleSource,
    Operator,
    Order,
    Select,
    SortKey,
    Subplan,
    Unnest,
)
from dovetail.xml.algebra.properties import single, stepped
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.tree import QName

if TYPE_CHECKING:
    from dovetail.xml.algebra.normalise import Normaliser


@dataclass(frozen=True, slots=True)
class Value:
    """A translated expression and the number it has taken; a reference to a variable takes none."""

    expression: Expression
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """The meaning of a name of the query; `single`: always one item, `node`: only nodes."""

    value: Expression
    single: bool = False
    node: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use, and the context item if it has one."""

    names: dict[QName, Bound] = field(default_factory=dict)
    focus: Expression | None = None

    def binding(self, name: QName, bound: Bound) -> Scope:
        """The scope with one more name."""
        return replace(self, names=self.names | {name: bound})

    def focused(self, item: Expression) -> Scope:
        """The scope with another context item."""
        return replace(self, focus=item)


class Numbers:
    """Numbers for variables, from 1."""

    def __init__(self) -> None:
        self.last = 0

    def take(self) -> int:
        """The next number."""
        self.last += 1
        return self.last


class Chain:
    """A plan that grows at its top."""

    def __init__(self, bottom: Operator) -> None:
        self.top = bottom

    def assign(self, number: int | None, expression: Expression) -> Variable:
        """ASSIGN on top."""
        variable = Variable(number or 0)
        self.top = Assign(variable, expression, self.top)
        return variable

    def unnest(self, number: int, expression: Expression, position: int | None = None) -> Variable:
        """UNNEST on top."""
        at = None if position is None else Variable(position)
        self.top = Unnest(Variable(number), expression, self.top, at)
        return Variable(number)

    def select(self, condition: Expression) -> None:
        """SELECT on top."""
        self.top = Select(condition, self.top)

    def gather(self, number: int, item: Expression, nested: Chain) -> Variable:
        """SUBPLAN on top, whose nested plan gathers `item` into a sequence."""
        self.top = Subplan(Aggregate(Variable(number), Call("create_sequence", (item,)), nested.top), self.top)
        return Variable(number)


def treated(item: Expression) -> Expression:
    """The item with the check that a step may start from it."""
    return item if is_call(item, "treat") else Call("treat", (item, Name("element_node")))


Reads = Callable[[tree.Expr], bool]


def pulled(node: tree.Expr, reads: Reads) -> tuple[tree.Expr, dict[QName, tree.Expr]]:
    """The expression with variables in place of parts that read data, and the parts by variable."""
    taken = _Taken(node, reads)
    return taken.without(node), taken.parts


class _Taken:
    def __init__(self, node: tree.Expr, reads: Reads) -> None:
        self.reads, self.parts = reads, dict[QName, tree.Expr]()
        self.used = {name.local for name in free_variables(node)}

    def part(self, node: tree.Expr) -> tree.Expr:
        """A variable for the part if it reads data, else the part itself."""
        if not self.reads(node):
            return node
        if isinstance(node, tree.DirectElement) or (isinstance(node, tree.Computed) and node.kind in _AROUND):
            return self.without(node)
        number = len(self.parts) + 1
        while f"part{number}" in self.used:
            number += 1
        name = QName("", f"part{number}")
        self.used.add(name.local)
        self.parts[name] = node
        return tree.VariableRef(name)

    def mixed(self, items: tuple[str | tree.Expr, ...]) -> tuple[str | tree.Expr, ...]:
        return tuple(item if isinstance(item, str) else self.part(item) for item in items)

    def without(self, node: tree.Expr) -> tree.Expr:
        match node:
            case tree.DirectElement():
                attributes = tuple(replace(one, parts=self.mixed(one.parts)) for one in node.attributes)
                return replace(node, attributes=attributes, content=self.mixed(node.content))
            case tree.Computed(kind, content) if kind in _AROUND:
                return replace(node, content=self.part(content))
            case tree.Filter(base):
                return replace(node, base=self.part(base))
            case tree.SimpleMap(left):
                return replace(node, left=self.part(left))
            case (
                tree.CastAs()
                | tree.CastableAs()
                | tree.InstanceOf()
                | tree.TreatAs()
                | tree.Typeswitch()
                | tree.Switch()
            ):
                return replace(node, operand=self.part(node.operand))
            case tree.If(condition):
                return replace(node, condition=self.part(condition))
            case tree.FunctionCall(_, arguments):
                return replace(node, arguments=tuple(self.part(one) for one in arguments))
            case tree.Sequence(items):
                return replace(node, items=tuple(self.part(one) for one in items))
        return node


_AROUND = ("element", "document", "attribute", "text")
"""Constructors by keyword whose content may be pulled out of them."""


_CLAUSES = (tree.ForClause, tree.LetClause, tree.WhereClause, tree.OrderClause, tree.GroupClause)


def is_algebraic(node: tree.Flwor) -> bool:
    """Whether every clause has an operator: not `count`, `allowing empty`, or group keys with a type."""
    own = set[QName]()
    for clause in node.clauses:
        if not isinstance(clause, _CLAUSES) or _is_special(clause, own):
            return False
        if isinstance(clause, (tree.ForClause, tree.LetClause)):
            own.add(clause.variable)
    return True


def _is_special(clause: tree.Clause, own: set[QName]) -> bool:
    match clause:
        case tree.ForClause():
            return clause.allowing_empty or (clause.type is not None and clause.position is not None)
        case tree.GroupClause():
            return any(key.type is not None or (key.value is None and key.variable not in own) for key in clause.keys)
    return False


def flwor(to: Normaliser, node: tree.Flwor, scope: Scope, chain: Chain) -> Value:
    """SUBPLAN that gathers the values of `return` for each tuple of the clauses."""
    nested = Clauses(to, scope, Chain(NestedTupleSource()))
    for clause in node.clauses:
        nested.add(clause)
    item = to.value(node.result, nested.scope, nested.chain, stream=True).expression
    to.numbers.take()
    return Value(chain.gather(to.numbers.take(), item, nested.chain))


class Clauses:
    """The clauses so far: their operators, and the current meaning of their variables."""

    def __init__(self, to: Normaliser, scope: Scope, chain: Chain) -> None:
        self.to, self.scope, self.chain = to, scope, chain
        self.own: list[QName] = []

    def add(self, clause: tree.Clause) -> None:
        """One more clause."""
        match clause:
            case tree.ForClause():
                self._for(clause)
            case tree.LetClause():
                self._let(clause)
            case tree.WhereClause(condition):
                self.chain.select(self.to.condition(condition, self.scope, self.chain))
            case tree.OrderClause(keys):
                sort = tuple(self._sort_key(key) for key in keys)
                self.chain.top = Order(sort, self.chain.top, Place(clause.line, clause.column))
            case tree.GroupClause(keys):
                self._group(keys, Place(clause.line, clause.column))

    def _bind(self, name: QName, bound: Bound) -> None:
        self.scope = self.scope.binding(name, bound)
        self.own = [*(one for one in self.own if one != name), name]

    def _for(self, clause: tree.ForClause) -> None:
        if clause.type is not None:
            items = self.chain.assign(self.to.numbers.take(), self.to.piece(typed_values(clause), self.scope))
        else:
            items = self.to.variable(clause.source, self.scope, self.chain, stream=True)
        number = self.to.numbers.take()
        position = self.to.numbers.take() if clause.position is not None else None
        variable = self.chain.unnest(number, call("iterate", items), position)
        self._bind(clause.variable, Bound(variable, single=True, node=_gives_nodes(clause.source)))
        if clause.position is not None:
            self._bind(clause.position, Bound(Variable(position or 0), single=True))

    def _let(self, clause: tree.LetClause) -> None:
        if clause.type is not None:
            checked = self.to.piece(typed_values(clause), self.scope)
            self._bind(clause.variable, Bound(self.chain.assign(self.to.numbers.take(), checked)))
            return
        same = self.scope.names.get(clause.value.name) if isinstance(clause.value, tree.VariableRef) else None
        if same is not None:
            self._bind(clause.variable, same)
            return
        value = self.to.variable(clause.value, self.scope, self.chain, stream=self.to.reads(clause.value))
        self._bind(clause.variable, Bound(value))

    def _sort_key(self, key: tree.OrderKey) -> SortKey:
        return SortKey(self.to.operand(key.expr, self.scope, self.chain), key.descending, key.empty_greatest)

    def _group(self, keys: tuple[tree.GroupKey, ...], place: Place) -> None:
        """Keys become atomic values; every other variable of this expression becomes the sequence of its group."""
        found = dict[QName, tuple[Variable, Expression]]()
        for key in keys:
            value = key.value if key.value is not None else tree.VariableRef(key.variable)
            operand = self.to.operand(value, self.scope, self.chain)
            if len(keys) > 1:  # a later key may use this one
                operand = self.chain.assign(self.to.numbers.take(), operand)
                self.scope = self.scope.binding(key.variable, Bound(operand))
            found[key.variable] = (Variable(self.to.numbers.take()), operand)
        gathered = list[Gathered]()
        for name in [one for one in self.own if one not in found]:
            field = Variable(self.to.numbers.take())
            gathered.append(Gathered(field, call("create_sequence", self.scope.names[name].value)))
            self._bind(name, Bound(field, node=self.scope.names[name].node))
        self.chain.top = GroupBy(tuple(found.values()), tuple(gathered), self.chain.top, place)
        for name, (variable, _) in found.items():
            self._bind(name, Bound(variable))


def typed_values(clause: tree.ForClause | tree.LetClause) -> tree.Expr:
    """`let $x as T := v return $x`, and `for` likewise: the values, their types checked by the evaluator."""
    return tree.Flwor((clause,), tree.VariableRef(clause.variable))


def _gives_nodes(source: tree.Expr) -> bool:
    """Whether the source is a path that ends in a step: its items are nodes."""
    return isinstance(source, tree.Path) and isinstance(source.steps[-1], tree.AxisStep)


_BEFORE = QName("", "before")


def path(to: Normaliser, node: tree.Path, scope: Scope, chain: Chain, stream: bool, atomised: bool = False) -> Value:
    """The nodes of a path in document order; atomised if asked for."""
    steps = folded(node.steps)
    start = _one_item(node.start, scope)
    if start is not None and _is_simple(steps):
        return _simple(to, start, steps, chain, atomised)
    if start is not None and not stream and not to.reads(node):
        value = to.evaluated(node, scope, chain)
    else:
        current = to.variable(node.start, scope, chain, stream=True)
        for step in steps:
            current = _step(to, current, step, scope, chain)
        value = Value(current)
    return Value(call("data", value.expression), value.number) if atomised else value


def mapped(to: Normaliser, node: tree.SimpleMap, scope: Scope, chain: Chain) -> Value:
    """`left ! right`: the values of the right side for each item of the left one, not sorted."""
    if uses_position(node.right):
        return to.evaluated(node, scope, chain)
    items = to.variable(node.left, scope, chain, stream=True)
    nested = Chain(NestedTupleSource())
    item = nested.unnest(to.numbers.take(), call("iterate", items))
    found = to.value(node.right, scope.focused(item), nested, stream=True).expression
    return Value(chain.gather(to.numbers.take(), found, nested))


def _one_item(start: tree.Expr, scope: Scope) -> Bound | None:
    """The start of a path, if it is certainly one item."""
    match start:
        case tree.VariableRef(name):
            bound = scope.names.get(name)
            return bound if bound is not None and bound.single else None
        case tree.ContextItem() if scope.focus is not None:
            return Bound(scope.focus, single=True, node=is_call(scope.focus, "treat"))
    return None


def _is_simple(steps: tuple[tree.Expr, ...]) -> bool:
    """Whether steps from one node find nodes in document order, each once, without anything being sorted."""
    known = single("element_node")
    for step in steps:
        if not isinstance(step, tree.AxisStep) or step.predicates:
            return False
        known = stepped(step.axis, test_name(step.test), known)
    return known.ordered and known.unique


def _simple(to: Normaliser, start: Bound, steps: tuple[tree.Expr, ...], chain: Chain, atomised: bool) -> Value:
    expression = start.value
    for number, step in enumerate(steps):
        assert isinstance(step, tree.AxisStep)  # noqa: S101  (`_is_simple` has looked)
        checked = treated(expression) if number == 0 else expression
        expression = call(step.axis, checked, test_name(step.test))
    if atomised:
        expression = call("data", expression)
    number = to.numbers.take()
    return Value(chain.assign(number, expression) if start.node else expression, number)


def _step(to: Normaliser, current: Variable, step: tree.Expr, scope: Scope, chain: Chain) -> Variable:
    """Each step has a focus of its own: size (not kept), item, position (not kept)."""
    if not isinstance(step, tree.AxisStep) and uses_position(step):
        rest = tree.Path(tree.VariableRef(_BEFORE), (step,))
        return chain.assign(to.numbers.take(), to.piece(rest, scope.binding(_BEFORE, Bound(current))))
    to.numbers.take()
    nested = Chain(NestedTupleSource())
    item = nested.unnest(to.numbers.take(), call("iterate", current))
    to.numbers.take()
    found = _found(to, item, step, scope, nested)
    gathered = chain.gather(to.numbers.take(), found, nested)
    return chain.assign(to.numbers.take(), call(SORT_DISTINCT, gathered))


def _found(to: Normaliser, item: Variable, step: tree.Expr, scope: Scope, nested: Chain) -> Expression:
    if not isinstance(step, tree.AxisStep):
        return to.value(step, scope.focused(treated(item)), nested, stream=True).expression
    if all(map(is_filter, step.predicates)):
        nodes = call(step.axis, treated(item), test_name(step.test))
        return _filtered(to, nodes, step.predicates, scope, nested) if step.predicates else nodes
    return to.piece(tree.Path(tree.ContextItem(), (step,)), scope.focused(treated(item)))


def _filtered(
    to: Normaliser, nodes: Call, predicates: tuple[tree.Expr, ...], scope: Scope, nested: Chain
) -> Expression:
    """Conditions in brackets as SELECT over the nodes of the step."""
    all_nodes = nested.assign(to.numbers.take(), nodes)
    node = nested.unnest(to.numbers.take(), call("iterate", all_nodes))
    for predicate in predicates:
        nested.select(to.condition(predicate, scope.focused(treated(node)), nested))
    return node
