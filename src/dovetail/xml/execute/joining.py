"""A join of two parts: what each side sends, what its keys do not decide, and what Spark can compute of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.xml.algebra.expressions import SEQUENCE, Call, Expression, Variable, substituted, variables
from dovetail.xml.algebra.operators import Assign, Operator, Select
from dovetail.xml.algebra.walk import above, all_uses, available, stacked
from dovetail.xml.evaluate.plans import Given
from dovetail.xml.execute.parts import JoinPart
from dovetail.xml.execute.rows import Fields, Items, State, Wanted
from dovetail.xml.execute.scan_work import unnested
from dovetail.xml.execute.wire import Form
from dovetail.xml.rules.matching import conjunction, conjuncts


@dataclass(frozen=True, slots=True)
class JoinWork:
    """The chain above a join as a plan over the joined tuples, and the variables that it needs of them."""

    part: JoinPart
    wanted: Wanted
    plan: Operator
    needed: tuple[Variable, ...]
    typed: frozenset[Variable]
    residual: tuple[Expression, ...]


def planned_join(part: JoinPart, wanted: Wanted) -> JoinWork:
    """What is done with the pairs that the keys find."""
    decided = [one for one in conjuncts(part.join.condition) if any(pair.decides(one) for pair in part.keys)]
    residual = tuple(one for one in conjuncts(part.join.condition) if one not in decided)
    bottom = Select(conjunction(residual), Given()) if residual else Given()
    plan = stacked(above(part.plan, part.join), bottom)
    inside = available(part.join)
    used = set(all_uses(plan)) | {one for expression in wanted.expressions for one in variables(expression)}
    typed = frozenset[Variable]()
    if isinstance(wanted, State):
        typed = _typed_only(wanted.call.arguments[0], plan)
    elif isinstance(wanted, Fields):
        typed = wanted.typed & inside
    return JoinWork(part, wanted, plan, tuple(sorted(used & inside)), typed, residual)


def _typed_only(argument: Expression, plan: Operator) -> frozenset[Variable]:
    """The variables of which an aggregate, and nothing else, takes the typed value."""
    direct = {argument} if isinstance(argument, Variable) else set()
    return frozenset(direct - set(all_uses(plan)))


def spread_items(work: JoinWork, forms: dict[Variable, Form]) -> tuple[Variable, ...] | None:
    """The columns whose strings, one after the other, are the items; None if there is more to compute."""
    if not isinstance(work.wanted, Items) or work.residual:
        return None
    found = unnested(work.plan, work.wanted.variable)
    written = None if found is None else _written_out(found[1], found[0])
    if written is None:
        return None
    parts = written.arguments if isinstance(written, Call) and written.name == SEQUENCE else (written,)
    plain = all(isinstance(one, Variable) and forms.get(one) in ("nodes", "texts") for one in parts)
    return parts if plain else None  # type: ignore[return-value]  # variables all


def double_aggregate(work: JoinWork, forms: dict[Variable, Form]) -> Expression | None:
    """The argument of an aggregate over doubles made of untyped texts, which Spark computes; None for others."""
    if not isinstance(work.wanted, State) or work.residual or work.wanted.call.name == "count":
        return None
    argument = _written_out(work.plan, work.wanted.call.arguments[0])
    return argument if argument is not None and _is_double(argument, forms) else None


def _is_double(expression: Expression, forms: dict[Variable, Form]) -> bool:
    match expression:
        case Variable():
            return forms.get(expression) == "texts"
        case Call("add" | "subtract" | "multiply", (left, right)):
            return _is_double(left, forms) and _is_double(right, forms)
    return False


def _written_out(plan: Operator, expression: Expression) -> Expression | None:
    values: dict[Variable, Expression] = {}
    for operator in reversed(above(plan, Given())):
        if isinstance(operator, Given):
            continue
        if not isinstance(operator, Assign):
            return None
        values[operator.variable] = substituted(operator.expression, values)
    return substituted(expression, values)
