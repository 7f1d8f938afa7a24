"""What the normalisation keeps in hand: numbers for variables, the operators so far, and what names mean."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dovetail.xml.algebra.expressions import Call, Expression, Name, Variable, is_call
from dovetail.xml.algebra.operators import Aggregate, Assign, Operator, Select, Subplan, Unnest
from dovetail.xml.syntax.names import QName


@dataclass(frozen=True, slots=True)
class Value:
    """A translated expression and the number it has taken; a reference to a variable takes none."""

    expression: Expression
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """What a name of the query stands for; `single`: always one item, `node`: only nodes."""

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
