"""Logical operators: small frozen values, each with the operator it reads from as `input`; and traversals of plans.

A plan is its topmost operator. Plans are read from the bottom up; tuples keep their order through every operator
except ORDER and GROUP-BY, and JOIN returns, for each tuple of its outer branch, the matching tuples of its inner one.
Reference: Carman 2020, 7.3; docs/algorithms/xquery.md, 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import (
    NOWHERE,
    Call,
    Expression,
    Place,
    Variable,
    is_call,
    parts,
    substituted,
    variables,
)

Change = Callable[[Expression], Expression]


@dataclass(frozen=True, slots=True)
class Operator:
    """Any operator of a plan; `below` names its fields that are operators, nested plans first."""

    below: ClassVar[tuple[str, ...]] = ("input",)


@dataclass(frozen=True, slots=True)
class EmptyTupleSource(Operator):
    """One tuple without fields; starts every plan."""

    below = ()


@dataclass(frozen=True, slots=True)
class NestedTupleSource(Operator):
    """The tuple for which the SUBPLAN around it runs."""

    below = ()


@dataclass(frozen=True, slots=True)
class DataScan(Operator):
    """For each input tuple one tuple per item of a collection: a document, or a subtree that `path` leads to.

    `path` holds child steps from the document node, names as `expressions.test_name` writes them. A scan is
    `partitioned` if documents of a directory are spread over partitions, none of them twice.
    """

    source: Call
    variable: Variable
    path: tuple[str, ...]
    input: Operator
    partitioned: bool = False

    def __post_init__(self) -> None:
        if not is_call(self.source, "collection"):
            raise PlanError(f"DATASCAN reads a collection, not {self.source}.")


@dataclass(frozen=True, slots=True)
class Assign(Operator):
    """Adds a field with the value of a scalar expression."""

    variable: Variable
    expression: Expression
    input: Operator


@dataclass(frozen=True, slots=True)
class Unnest(Operator):
    """One output tuple per item of an unnesting expression; `position` counts them from 1 for each input tuple."""

    variable: Variable
    expression: Expression
    input: Operator
    position: Variable | None = None


@dataclass(frozen=True, slots=True)
class TwoStep:
    """An aggregate in two steps: each partition computes `local`, one partition combines their values by `combine`."""

    local: tuple[str, ...]
    combine: str


@dataclass(frozen=True, slots=True)
class Aggregate(Operator):
    """One output tuple with the value of an aggregate expression over all input tuples; other fields are dropped."""

    variable: Variable
    expression: Expression
    input: Operator
    steps: TwoStep | None = None


@dataclass(frozen=True, slots=True)
class Subplan(Operator):
    """Adds, to each input tuple, the field that `nested` (an AGGREGATE over NESTED-TUPLE-SOURCE) gives for it."""

    below = ("nested", "input")
    nested: Operator
    input: Operator

    def __post_init__(self) -> None:
        if not isinstance(self.nested, Aggregate):
            raise PlanError("the nested plan of a SUBPLAN must end in AGGREGATE, so that it gives one tuple.")


@dataclass(frozen=True, slots=True)
class Select(Operator):
    """The tuples for which the condition is true."""

    condition: Expression
    input: Operator


KeyKind = Literal["string", "exact", "double", "moment", "number"]


@dataclass(frozen=True, slots=True)
class Key:
    """The key of one side of an equality; with `many` each of its items, else the only one."""

    expression: Expression
    kind: KeyKind = "string"
    many: bool = False


@dataclass(frozen=True, slots=True)
class Equality:
    """One equality of a join: `inner` and `outer` are computed on their branches and compared as `kind`.

    `existential` is the general comparison: true if any item of one side equals any of the other. Otherwise it is the
    value comparison: an empty side matches nothing, and a side of more than one item is the error XPTY0004.
    As "string" both sides are texts; as "exact" integers and decimals, or booleans; as "double" numbers, or texts to be
    cast, at least one of them no exact number; as "moment" dates and times of one type: equal keys (`xdm.operators`)
    are equal values. As "number" one side may be an xs:float, which makes other numbers equal to it: equal keys are
    only necessary.
    """

    inner: Expression
    outer: Expression
    kind: KeyKind
    existential: bool

    @property
    def keys(self) -> tuple[Key, Key]:
        """The keys of the inner and the outer side."""
        return Key(self.inner, self.kind, self.existential), Key(self.outer, self.kind, self.existential)

    def decides(self, condition: Expression) -> bool:
        """Whether the condition is this equality, which equal keys decide."""
        match condition:
            case Call("boolean", (inner,)):
                return self.decides(inner)
            case Call("general-eq" | "value-eq" as name, sides):
                same = sides in ((self.inner, self.outer), (self.outer, self.inner))
                return same and self.existential == (name == "general-eq") and self.kind != "number"
        return False


@dataclass(frozen=True, slots=True)
class Join(Operator):
    """For each tuple of `outer`, in order, the tuples of `inner` that fulfil the condition, in order; fields of both.

    `keys` are equalities that follow from the condition, for a hash join; the whole condition still decides.
    """

    below = ("inner", "outer")
    condition: Expression
    inner: Operator
    outer: Operator
    keys: tuple[Equality, ...] = ()


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of ORDER: at most one atomic value a tuple."""

    expression: Expression
    descending: bool = False
    empty_greatest: bool = False


@dataclass(frozen=True, slots=True)
class Order(Operator):
    """The input tuples sorted by the keys; equal ones keep their order."""

    keys: tuple[SortKey, ...]
    input: Operator
    place: Place = field(default=NOWHERE, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.keys:
            raise PlanError("ORDER needs at least one key.")


@dataclass(frozen=True, slots=True)
class Gathered:
    """A field of a group: an aggregate expression over the tuples of the group."""

    variable: Variable
    expression: Expression
    steps: TwoStep | None = None


@dataclass(frozen=True, slots=True)
class GroupBy(Operator):
    """One tuple per group of equal keys, groups in the order of their first tuple; other fields are dropped."""

    keys: tuple[tuple[Variable, Expression], ...]
    gathered: tuple[Gathered, ...]
    input: Operator
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DistributeResult(Operator):
    """The end of a plan: the items of `variable`, tuple by tuple."""

    variable: Variable
    input: Operator


def inputs(operator: Operator) -> tuple[Operator, ...]:
    """Every operator directly below or inside, nested plans first."""
    return tuple([getattr(operator, name) for name in operator.below])


def with_inputs(operator: Operator, new: tuple[Operator, ...]) -> Operator:
    """The same operator over other ones."""
    return replace(operator, **dict(zip(operator.below, new, strict=True))) if new else operator


# --- traversals of a plan


def operators(plan: Operator) -> Iterator[Operator]:
    """Every operator from the top down, nested plans before the operators below them."""
    waiting = [plan]
    while waiting:
        yield (operator := waiting.pop())
        waiting.extend(reversed(inputs(operator)))


def chain(plan: Operator) -> Iterator[Operator]:
    """The operators from the top down along `input`, without nested plans and without the branches of a JOIN."""
    while True:
        yield plan
        if isinstance(plan, (EmptyTupleSource, NestedTupleSource, Join)):
            return
        plan = inputs(plan)[-1]


def expressions(operator: Operator) -> tuple[Expression, ...]:
    """The expressions that stand in this operator itself."""
    match operator:
        case Assign() | Unnest() | Aggregate():
            return (operator.expression,)
        case Select():
            return (operator.condition,)
        case Join():
            return (operator.condition,)
        case Order():
            return tuple(key.expression for key in operator.keys)
        case GroupBy():
            return (*(value for _, value in operator.keys), *(field.expression for field in operator.gathered))
        case DistributeResult():
            return (operator.variable,)
        case DataScan():
            return (operator.source,)
    return ()


def all_parts(plan: Operator) -> Iterator[Expression]:
    """Every expression in the plan and everything inside it."""
    return (part for operator in operators(plan) for expression in expressions(operator) for part in parts(expression))


def with_expressions(operator: Operator, change: Change) -> Operator:
    """The same operator with each of its expressions changed."""
    match operator:
        case Assign() | Unnest() | Aggregate():
            return replace(operator, expression=change(operator.expression))
        case Select():
            return replace(operator, condition=change(operator.condition))
        case Join():
            keys = tuple(Equality(change(k.inner), change(k.outer), k.kind, k.existential) for k in operator.keys)
            return replace(operator, condition=change(operator.condition), keys=keys)
        case Order():
            return replace(operator, keys=tuple(_sort_key(key, change) for key in operator.keys))
        case GroupBy():
            fields = tuple(Gathered(f.variable, change(f.expression), f.steps) for f in operator.gathered)
            return replace(operator, keys=tuple((v, change(e)) for v, e in operator.keys), gathered=fields)
        case DistributeResult():
            new = change(operator.variable)
            return replace(operator, variable=new) if isinstance(new, Variable) else operator
    return operator


def _sort_key(key: SortKey, change: Change) -> SortKey:
    return SortKey(change(key.expression), key.descending, key.empty_greatest)


def defined(operator: Operator) -> tuple[Variable, ...]:
    """The variables that this operator adds to its tuples."""
    match operator:
        case DataScan() | Assign() | Aggregate():
            return (operator.variable,)
        case Unnest():
            return (operator.variable,) if operator.position is None else (operator.variable, operator.position)
        case Subplan():
            return defined(operator.nested)
        case GroupBy():
            return (*(variable for variable, _ in operator.keys), *(field.variable for field in operator.gathered))
    return ()


def used(operator: Operator) -> Counter[Variable]:
    """How often the operator itself, with its nested plan if it is a SUBPLAN, uses each variable of its input."""
    uses = Counter(variable for expression in expressions(operator) for variable in variables(expression))
    if isinstance(operator, Subplan):
        uses += all_uses(operator.nested)
    return uses


def all_uses(plan: Operator) -> Counter[Variable]:
    """How often each variable is used in the whole plan."""
    return Counter(part for part in all_parts(plan) if isinstance(part, Variable))


def free(plan: Operator) -> set[Variable]:
    """The variables that a (nested) plan uses and does not define."""
    inside = {variable for operator in operators(plan) for variable in defined(operator)}
    return set(all_uses(plan)) - inside


def available(plan: Operator) -> set[Variable]:
    """The fields of the tuples that this plan gives, those of a NESTED-TUPLE-SOURCE aside."""
    found: set[Variable] = set()
    for operator in chain(plan):
        found.update(defined(operator))
        if isinstance(operator, (Aggregate, GroupBy)):
            return found
        if isinstance(operator, Join):
            return found | available(operator.inner) | available(operator.outer)
    return found


def exchanged(plan: Operator, old: Operator, new: Operator) -> Operator:
    """The plan with one operator (this very object) and all below it exchanged."""
    if plan is old:
        return new
    below = inputs(plan)
    changed = tuple(exchanged(one, old, new) for one in below)
    return plan if all(a is b for a, b in zip(below, changed, strict=True)) else with_inputs(plan, changed)


def rewritten(plan: Operator, change: Change) -> Operator:
    """The plan with every expression in it changed."""
    below = tuple(rewritten(one, change) for one in inputs(plan))
    return with_inputs(with_expressions(plan, change), below)


def renamed(plan: Operator, values: Mapping[Variable, Expression]) -> Operator:
    """The plan with uses of variables replaced by expressions."""
    return rewritten(plan, lambda expression: substituted(expression, values))


def next_number(plan: Operator) -> int:
    """A variable number that the plan does not use yet."""
    seen = {v.number for operator in operators(plan) for v in defined(operator)}
    return max(seen | {v.number for v in all_uses(plan)}, default=0) + 1


def leaf(plan: Operator) -> Operator:
    """The start of a chain: a tuple source, or a JOIN."""
    *_, last = chain(plan)
    return last


def above(plan: Operator, stop: Operator) -> list[Operator]:
    """The operators of the chain from the top down to, not including, `stop`."""
    found = []
    for operator in chain(plan):
        if operator is stop:
            break
        found.append(operator)
    return found


def stacked(upper: list[Operator], bottom: Operator) -> Operator:
    """Operators, given from the top down, put on a new bottom."""
    for operator in reversed(upper):
        bottom = with_inputs(operator, (*inputs(operator)[:-1], bottom))
    return bottom


def above_in_chain(plan: Operator, operator: Operator) -> list[Operator]:
    """The operators above an operator in its own chain, from the top down; a nested plan is a chain of its own."""
    for top in (
        plan,
        *(one for outer in operators(plan) if isinstance(outer, (Subplan, Join)) for one in inputs(outer)),
    ):
        body = list(chain(top))
        for place, one in enumerate(body):
            if one is operator:
                return body[:place]
    return []


def redefined(plan: Operator, numbers: Mapping[Variable, Variable]) -> Operator:
    """The plan with variables of its own renamed, where they are defined and where they are used."""
    below = tuple(redefined(one, numbers) for one in inputs(plan))
    return with_inputs(_with_defined(with_expressions(plan, lambda e: substituted(e, numbers)), numbers), below)


def _with_defined(operator: Operator, numbers: Mapping[Variable, Variable]) -> Operator:
    match operator:
        case DataScan() | Assign() | Aggregate():
            return replace(operator, variable=numbers.get(operator.variable, operator.variable))
        case Unnest(variable, _, _, position):
            at = None if position is None else numbers.get(position, position)
            return replace(operator, variable=numbers.get(variable, variable), position=at)
        case GroupBy():
            keys = tuple((numbers.get(variable, variable), value) for variable, value in operator.keys)
            fields = tuple(replace(one, variable=numbers.get(one.variable, one.variable)) for one in operator.gathered)
            return replace(operator, keys=keys, gathered=fields)
    return operator
