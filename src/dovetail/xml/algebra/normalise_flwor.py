"""FLWOR expressions as nested plans: `for` is UNNEST, `let` a variable, `where` SELECT, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dovetail.xml.algebra.expressions import Expression, Variable, call
from dovetail.xml.algebra.operators import Gathered, GroupBy, NestedTupleSource, Order, Place, SortKey
from dovetail.xml.algebra.scope import Bound, Chain, Scope, Value
from dovetail.xml.syntax import tree
from dovetail.xml.syntax.names import FN, QName

if TYPE_CHECKING:
    from dovetail.xml.algebra.normalise import Normaliser

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


def quantified(node: tree.Quantified) -> tree.Expr:
    """`some` as exists(), `every` as not(exists()) of a FLWOR expression that looks for a witness."""
    condition = node.condition if node.kind == "some" else _not(node.condition)
    found = tree.Flwor((*node.bindings, tree.WhereClause(condition)), tree.Literal(1))
    exists = tree.FunctionCall(QName(FN, "exists"), (found,))
    return exists if node.kind == "some" else _not(exists)


def _not(node: tree.Expr) -> tree.Expr:
    return tree.FunctionCall(QName(FN, "not"), (node,))


def flwor(to: Normaliser, node: tree.Flwor, scope: Scope, chain: Chain) -> Value:
    """SUBPLAN that gathers what `return` gives for each tuple of the clauses."""
    nested = Clauses(to, scope, Chain(NestedTupleSource()))
    for clause in node.clauses:
        nested.add(clause)
    item = to.value(node.result, nested.scope, nested.chain, stream=True).expression
    to.numbers.take()
    return Value(chain.gather(to.numbers.take(), item, nested.chain))


class Clauses:
    """The clauses so far: their operators, and what their variables mean now."""

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
                self.chain.top = Order(sort, self.chain.top, (clause.line, clause.column))
            case tree.GroupClause(keys):
                self._group(keys, (clause.line, clause.column))

    def _bind(self, name: QName, bound: Bound) -> None:
        self.scope = self.scope.binding(name, bound)
        self.own = [*(one for one in self.own if one != name), name]

    def _for(self, clause: tree.ForClause) -> None:
        source = clause.source
        if clause.type is not None:
            source = tree.Flwor((clause,), tree.VariableRef(clause.variable))
            items = self.chain.assign(self.to.numbers.take(), self.to.piece(source, self.scope))
        else:
            items = self.to.variable(source, self.scope, self.chain, stream=True)
        number = self.to.numbers.take()
        position = self.to.numbers.take() if clause.position is not None else None
        variable = self.chain.unnest(number, call("iterate", items), position)
        self._bind(clause.variable, Bound(variable, single=True, node=_gives_nodes(clause.source)))
        if clause.position is not None:
            self._bind(clause.position, Bound(Variable(position or 0), single=True))

    def _let(self, clause: tree.LetClause) -> None:
        if clause.type is not None:
            typed = tree.Flwor((clause,), tree.VariableRef(clause.variable))
            self._bind(
                clause.variable, Bound(self.chain.assign(self.to.numbers.take(), self.to.piece(typed, self.scope)))
            )
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
            if len(keys) > 1:  # a later key may ask for this one
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


def _gives_nodes(source: tree.Expr) -> bool:
    """Whether the source is a path that ends in a step: its items are nodes."""
    return isinstance(source, tree.Path) and isinstance(source.steps[-1], tree.AxisStep)
