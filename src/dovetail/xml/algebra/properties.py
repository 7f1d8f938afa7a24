"""Derives static properties of values: number of items, order, uniqueness and type.

`Facts` has them for every variable of a plan. They hold for every input, or are unknown: "many", not ordered, not
unique, type "item". Order and uniqueness are those of nodes; atomic values have neither. Documents of a collection are
in document order, as they come: that is how `collection` defines the order among them. `element_node` in `treat` is the
source's name for "a node that a step may start from": a document node passes it too.
Reference: docs/algorithms/xquery.md, 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from dovetail.xml.algebra.expressions import (
    AGGREGATES,
    DISTINCT,
    SEQUENCE,
    SORT,
    SORT_DISTINCT,
    STEPS,
    Call,
    Constant,
    Evaluate,
    Expression,
    Name,
    Variable,
    constant_type,
    is_call,
    test_name,
)
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    EmptyTupleSource,
    GroupBy,
    NestedTupleSource,
    Operator,
    Select,
    Subplan,
    Unnest,
    all_uses,
    chain,
    defined,
    operators,
)
from dovetail.xml.syntax import tree

NODES = (
    "node", "document_node", "element_node", "attribute_node", "text_node", "comment_node", "instruction_node",
)  # fmt: skip
UNTYPED = ("document_node", "element_node", "attribute_node", "text_node")
"""Nodes whose typed value is one untypedAtomic."""

NUMBERS = ("integer", "decimal", "double", "float", "numeric")
TEXTS = ("string", "untypedAtomic", "anyURI")
ATOMIC = (
    *NUMBERS, *TEXTS, "atomic", "boolean", "date", "dateTime", "time", "duration", "dayTimeDuration",
    "yearMonthDuration", "QName",
)  # fmt: skip


def is_subtype(kind: str, of: str) -> bool:
    """Whether every value of `kind` passes a check for `of`."""
    if of in ("element_node", "node"):
        return kind in NODES
    return kind == of or of == "item" or (of == "atomic" and kind in ATOMIC)


def step_type(axis: str, test: Expression) -> str:
    """The type of the nodes of a step."""
    if isinstance(test, Call):
        return _KINDS.get(test.name, "node")
    return "attribute_node" if axis == "attribute" else "element_node"


_KINDS = {
    "element": "element_node",
    "attribute": "attribute_node",
    "text": "text_node",
    "comment": "comment_node",
    "processing-instruction": "instruction_node",
    "document-node": "document_node",
}

_COMPARISONS = {f"value-{op}": ("boolean", True) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMPARISONS |= {f"general-{op}": ("boolean", False) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMPARISONS |= dict.fromkeys(("node-is", "node-before", "node-after"), ("boolean", True))
ALWAYS = {
    "boolean": "boolean", "and": "boolean", "or": "boolean", "not": "boolean", "exists": "boolean", "empty": "boolean",
    "contains": "boolean", "starts-with": "boolean", "ends-with": "boolean", "matches": "boolean",
    "deep-equal": "boolean",
    "string": "string", "upper-case": "string", "lower-case": "string", "concat": "string", "substring": "string",
    "normalize-space": "string", "string-length": "integer", "string-join": "string", "name": "string",
    "local-name": "string", "substring-before": "string", "substring-after": "string", "translate": "string",
    "replace": "string", "number": "double", "string-concat": "string", "current-date": "date",
    "current-dateTime": "dateTime", "current-time": "time",
}  # fmt: skip
"""Functions that always give one item, and its type."""
_OF_ARGUMENT = {
    "xs:decimal": "decimal", "xs:integer": "integer", "xs:double": "double", "xs:float": "float", "xs:string": "string",
    "xs:boolean": "boolean", "xs:date": "date", "xs:dateTime": "dateTime", "xs:time": "time", "xs:anyURI": "anyURI",
    "xs:untypedAtomic": "untypedAtomic",
    "year-from-dateTime": "integer", "month-from-dateTime": "integer", "day-from-dateTime": "integer",
    "hours-from-dateTime": "integer", "minutes-from-dateTime": "integer", "seconds-from-dateTime": "decimal",
    "year-from-date": "integer", "month-from-date": "integer", "day-from-date": "integer",
    "add": "atomic", "subtract": "atomic", "multiply": "atomic", "divide": "atomic", "integer-divide": "integer",
    "mod": "numeric", "minus": "numeric", "plus": "numeric", "abs": "numeric", "floor": "numeric", "ceiling": "numeric",
    "round": "numeric",
}  # fmt: skip

ATOMIC_RESULTS: dict[str, tuple[str, bool]] = (
    _COMPARISONS
    | {name: (kind, False) for name, kind in ALWAYS.items()}
    | {name: (kind, True) for name, kind in _OF_ARGUMENT.items()}
)
"""Type of the answer, and whether an empty argument makes the answer empty (otherwise there is always one item)."""


Cardinality = Literal["one", "optional", "many"]


@dataclass(frozen=True, slots=True)
class Properties:
    """Known properties of a value. `disjoint`: no node of it is inside another one, so that subtrees do not mix."""

    cardinality: Cardinality = "many"
    ordered: bool = False
    unique: bool = False
    disjoint: bool = False
    type: str = "item"

    @property
    def atomic(self) -> bool:
        """Whether every item is an atomic value."""
        return self.type in ATOMIC

    @property
    def node(self) -> bool:
        """Whether every item is a node."""
        return self.type in NODES

    def at_most_one(self) -> bool:
        """Whether there is at most one item."""
        return self.cardinality != "many"


UNKNOWN = Properties()


def single(kind: str) -> Properties:
    """Exactly one item of a type."""
    return Properties("one", True, True, True, kind)


class Facts:
    """Properties, definitions and uses of the variables of one plan."""

    def __init__(self, plan: Operator, known: Mapping[Variable, Properties] | None = None) -> None:
        self.plan = plan
        self._known = dict(known or {})

    @cached_property
    def uses(self) -> Counter[Variable]:
        """How often each variable is used."""
        return all_uses(self.plan)

    @cached_property
    def definitions(self) -> dict[Variable, Operator]:
        """The operator that defines each variable; for that of a SUBPLAN the AGGREGATE inside."""
        found: dict[Variable, Operator] = {}
        for operator in operators(self.plan):
            if not isinstance(operator, Subplan):
                found.update(dict.fromkeys(defined(operator), operator))
        return found

    def definition(self, value: Expression | None) -> Operator | None:
        """The operator that defines a variable; None for other expressions."""
        return self.definitions.get(value) if isinstance(value, Variable) else None

    def inlined(self, value: Expression) -> Expression:
        """The expression that was assigned to a variable; any other as it is."""
        operator = self.definition(value)
        return self.inlined(operator.expression) if isinstance(operator, Assign) else value

    def of(self, expression: Expression) -> Properties:
        """The properties of an expression in this plan."""
        match expression:
            case Variable():
                return self._variable(expression)
            case Constant(value):
                return single(constant_type(value))
            case Call("data", (inner,)) | Call("promote", (inner, _)) | Call("treat", (inner, _)):
                return self._converted(expression.name, inner, expression.arguments)
            case Call(name, (inner, test)) if name in STEPS:
                return stepped(name, test, self.of(inner))
            case Call():
                return self._call(expression)
            case Evaluate():
                return self._evaluated(expression)
        return UNKNOWN

    def _variable(self, variable: Variable) -> Properties:
        if variable not in self._known:
            self._known[variable] = UNKNOWN  # a plan has no cycles; this only ends the search in a wrong one
            self._known[variable] = self._defined(variable, self.definitions.get(variable))
        return self._known[variable]

    def _defined(self, variable: Variable, operator: Operator | None) -> Properties:
        match operator:
            case DataScan():
                return single("element_node" if operator.path else "document_node")
            case Unnest():
                return single("integer" if variable == operator.position else self.of(_items(operator.expression)).type)
            case Assign():
                return self.of(operator.expression)
            case Aggregate():
                return self._aggregated(operator.expression, operator.input)
            case GroupBy():
                return self._grouped(variable, operator)
        return UNKNOWN

    def _grouped(self, variable: Variable, group: GroupBy) -> Properties:
        for field in group.gathered:
            if field.variable == variable:
                found = self._aggregated(field.expression, group.input)
                return replace(found, cardinality="many") if is_call(field.expression, "create_sequence") else found
        key = self.of(dict(group.keys)[variable])
        kind = "string" if key.type == "untypedAtomic" else key.type
        return Properties("one" if key.cardinality == "one" else "optional", type=kind)

    def _converted(self, name: str, inner: Expression, arguments: tuple[Expression, ...]) -> Properties:
        given = self.of(inner)
        if name == "data":
            kind = given.type if given.atomic else "untypedAtomic" if given.type in UNTYPED else "atomic"
            return Properties(given.cardinality if given.atomic or given.node else "many", type=kind)
        target = arguments[1]
        return replace(given, type=target.text) if isinstance(target, Name) else given

    def _call(self, expression: Expression) -> Properties:
        assert isinstance(expression, Call)  # noqa: S101  (narrows the type for the checker)
        given = [self.of(argument) for argument in expression.arguments]
        return called(expression.name, given)

    def _evaluated(self, expression: Evaluate) -> Properties:
        """A step with predicates has the properties of the step; other pieces are unknown."""
        steps = downward_steps(expression)
        if steps is None:
            return UNKNOWN
        given = self.of(dict(expression.bindings)["."])
        for axis, test in steps:
            given = stepped(axis, test, given)
        return given

    def _aggregated(self, expression: Expression, below: Operator) -> Properties:
        if not is_call(expression, "create_sequence"):
            return self._call(expression)
        (item,) = expression.arguments  # type: ignore[attr-defined]  # `create_sequence` is a call
        return self.streamed(item, below)

    def streamed(self, item: Expression, below: Operator) -> Properties:
        """The properties of the values of `item` over all tuples of a plan, one after the other."""
        source = next((operator for operator in chain(below) if not isinstance(operator, _ONE_TO_ONE)), None)
        match source:
            case EmptyTupleSource() | NestedTupleSource():
                given = self.of(item)
                selected = any(isinstance(operator, Select) for operator in chain(below))
                return replace(given, cardinality="optional") if selected and given.cardinality == "one" else given
            case Unnest() | DataScan():
                return self._multiplied(item, source)
        return Properties(type=self.of(item).type)

    def _multiplied(self, item: Expression, source: Unnest | DataScan) -> Properties:
        whole, written = self._source(source), self._path_from(source.variable, item)
        if written is None:
            return Properties(type=self.of(item).type)
        inside = Facts(self.plan, {source.variable: whole})
        inside.definitions = self.definitions  # the same plan: found once
        return inside.of(written)

    def _path_from(self, source: Variable, item: Expression) -> Expression | None:
        """The item with assigned variables inlined, if only steps and filters lead to it from the source."""
        match self.inlined(item):
            case Variable() as variable:
                return variable if variable == source else None
            case Call(name, (inner, *rest)) if name in (*STEPS, "treat", "data", "promote"):
                base = self._path_from(source, inner)
                return None if base is None else Call(name, (base, *rest))
            case Evaluate(_, ((".", inner),)) as steps if downward_steps(steps) is not None:
                base = self._path_from(source, inner)
                return None if base is None else replace(steps, bindings=((".", base),))
        return None

    def _source(self, source: Unnest | DataScan) -> Properties:
        """The properties of all values of a source over all its tuples."""
        if isinstance(source, DataScan):
            kind = "element_node" if source.path else "document_node"
            alone = all(isinstance(operator, (*_ONE_TO_ONE, *_LEAVES)) for operator in chain(source.input))
            return Properties("many", alone, alone, alone, kind)
        return replace(self.streamed(_items(source.expression), source.input), cardinality="many")


def _items(unnesting: Expression) -> Expression:
    """The sequence whose items an unnesting expression gives."""
    match unnesting:
        case Call("iterate", (sequence,)):
            return sequence
    return unnesting


_ONE_TO_ONE = (Assign, Subplan, Select)
_LEAVES = (EmptyTupleSource, NestedTupleSource)


def downward_steps(expression: Evaluate) -> list[tuple[str, Expression]] | None:
    """The steps of a piece that is only a path of steps with predicates from the context item; None for others."""
    node = expression.tree
    steps = node.steps if isinstance(node, tree.Path) and isinstance(node.start, tree.ContextItem) else (node,)
    if "." not in dict(expression.bindings) or not all(isinstance(step, tree.AxisStep) for step in steps):
        return None
    return [(step.axis, test_name(step.test)) for step in steps if isinstance(step, tree.AxisStep)]


def stepped(axis: str, test: Expression, given: Properties) -> Properties:
    """The properties of a step from nodes with the given ones, answers one after the other."""
    apart = given.at_most_one() or (given.ordered and given.unique and given.disjoint)
    in_turn = given.at_most_one() or (given.ordered and given.unique)
    kind = step_type(axis, test)
    match axis:
        case "child":
            return Properties("many", apart, given.at_most_one() or given.unique, apart, kind)
        case "attribute":
            named = isinstance(test, Constant) and "*" not in str(test.value)
            count: Cardinality = "optional" if named and given.at_most_one() else "many"
            return Properties(count, in_turn, in_turn, True, kind)
        case "self":
            kept: Cardinality = "optional" if given.at_most_one() else "many"
            return Properties(kept, in_turn, in_turn, given.disjoint or given.at_most_one(), kind)
        case "descendant" | "descendant-or-self":
            return Properties("many", apart, apart, False, kind)
        case "parent":
            one = given.at_most_one()
            return Properties("optional" if one else "many", one, one, one, kind)
    return Properties(type=kind)


def called(name: str, given: list[Properties]) -> Properties:
    """The properties of a call that is neither a step nor a conversion."""
    if not given and name != "collection":
        return UNKNOWN  # a call with too few arguments is an error of its own
    none_empty = all(one.cardinality == "one" for one in given)
    at_most_one = all(one.at_most_one() for one in given)
    if name == "doc":
        return replace(single("document_node"), cardinality="one" if none_empty else "optional")
    if name == "collection":
        return Properties("many", True, True, True, "document_node")
    if name in (SORT_DISTINCT, SORT, DISTINCT):
        return _sorted(name, given[0])
    if name in AGGREGATES:
        kind = "numeric" if given[0].type in NUMBERS else "atomic"
        return single("integer") if name == "count" else Properties("one" if name == "sum" else "optional", type=kind)
    if name == "to":
        return Properties(type="integer")
    if name == SEQUENCE:
        kinds = {one.type for one in given}
        return Properties(type=kinds.pop() if len(kinds) == 1 else "item")
    if name in ATOMIC_RESULTS:
        kind, strict = ATOMIC_RESULTS[name]
        return (
            single(kind) if not strict or none_empty else Properties("optional" if at_most_one else "many", type=kind)
        )
    return UNKNOWN


def _sorted(name: str, given: Properties) -> Properties:
    if given.atomic:
        return given
    ordered = given.node and (name != DISTINCT or given.ordered)
    unique = given.node and (name != SORT or given.unique)
    return replace(given, ordered=ordered, unique=unique)
