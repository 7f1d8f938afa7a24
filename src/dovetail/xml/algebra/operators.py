"""Logical operators: small frozen values, each with the operator it reads from as `input`.

A plan is its topmost operator. Plans are read from the bottom up; tuples keep their order through every operator but
ORDER and GROUP-BY, and JOIN gives, for each tuple of its outer branch, the matching tuples of its inner one.
Reference: Carman 2020, 7.3; docs/algorithms/xquery.md, 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from dovetail.errors import PlanError
from dovetail.xml.algebra.expressions import Call, Expression, Variable, is_call

Place = tuple[int, int]
"""Line and column in the query."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Any operator of a plan."""


@dataclass(frozen=True, slots=True)
class EmptyTupleSource(Operator):
    """One tuple without fields; starts every plan."""


@dataclass(frozen=True, slots=True)
class NestedTupleSource(Operator):
    """The tuple for which the SUBPLAN around it runs."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a collection lies in parts: documents of `directory` are spread over partitions, none of them twice."""

    directory: str


@dataclass(frozen=True, slots=True)
class DataScan(Operator):
    """For each input tuple one tuple per item of a collection: a document, or a subtree that `path` leads to.

    `path` holds child steps from the document node, names as `functions.test_name` writes them.
    """

    source: Call
    variable: Variable
    path: tuple[str, ...]
    input: Operator
    partitioning: Partitioning | None = None

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
    """One output tuple with the value of an aggregate expression over all input tuples; other fields are gone."""

    variable: Variable
    expression: Expression
    input: Operator
    steps: TwoStep | None = None


@dataclass(frozen=True, slots=True)
class Subplan(Operator):
    """Adds, to each input tuple, the field that `nested` (an AGGREGATE over NESTED-TUPLE-SOURCE) gives for it."""

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


@dataclass(frozen=True, slots=True)
class Equality:
    """One equality of a join: `inner` and `outer` are computed on their branches and compared as `kind`.

    `existential` is the general comparison: true if any item of one side equals any of the other. Otherwise it is the
    value comparison: an empty side matches nothing, and a side of more than one item is the error XPTY0004.
    As "string" both sides are texts; as "number" numbers, or texts to be cast to double; as "value" dates and the like
    of one type, for which `xdm.compare.key_of` gives equal keys.
    """

    inner: Expression
    outer: Expression
    kind: Literal["string", "number", "value"]
    existential: bool


@dataclass(frozen=True, slots=True)
class Join(Operator):
    """For each tuple of `outer`, in order, the tuples of `inner` that fulfil the condition, in order; fields of both.

    `keys` are equalities that follow from the condition, for a hash join; the whole condition still decides.
    """

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
    place: Place = field(default=(0, 0), compare=False, repr=False)

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
    """One tuple per group of equal keys, groups in the order of their first tuple; other fields are gone."""

    keys: tuple[tuple[Variable, Expression], ...]
    gathered: tuple[Gathered, ...]
    input: Operator
    place: Place = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DistributeResult(Operator):
    """The end of a plan: the items of `variable`, tuple by tuple."""

    variable: Variable
    input: Operator


def inputs(operator: Operator) -> tuple[Operator, ...]:
    """Every operator directly below or inside, nested plans first."""
    match operator:
        case Subplan(nested, below):
            return (nested, below)
        case Join(_, inner, outer):
            return (inner, outer)
        case EmptyTupleSource() | NestedTupleSource():
            return ()
    return (operator.input,)  # type: ignore[attr-defined]  # every other operator has one input


def with_inputs(operator: Operator, new: tuple[Operator, ...]) -> Operator:
    """The same operator over other ones."""
    match operator:
        case Subplan():
            return Subplan(new[0], new[1])
        case Join():
            return replace(operator, inner=new[0], outer=new[1])
        case EmptyTupleSource() | NestedTupleSource():
            return operator
    return replace(operator, input=new[0])  # type: ignore[call-arg]  # as above
