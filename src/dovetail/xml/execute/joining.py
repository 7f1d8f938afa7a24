"""A join of two parts: what each side sends, what its keys do not decide, and what Spark can compute of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dovetail.engine.metrics import Metrics
from dovetail.xml.algebra.expressions import AGGREGATES, SEQUENCE, Call, Expression, Variable, substituted, variables
from dovetail.xml.algebra.operators import Assign, Operator, Select
from dovetail.xml.algebra.walk import above, all_uses, available, stacked
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.last_task import Local
from dovetail.xml.execute.parts import Given, JoinPart
from dovetail.xml.execute.runner import RemoteTuples
from dovetail.xml.execute.scan_work import Wanted, unnested
from dovetail.xml.execute.wire import ROWS, STATE, Form, batched, decoded, encoded, key_cell
from dovetail.xml.rules.matching import conjunction, conjuncts
from dovetail.xml.xdm.markup import serialise

_ORDER = Variable(1 << 62)
"""Stands for the order numbers of a row among the variables of its tuple; no plan counts this far."""


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
    used = set(all_uses(plan)) | set(wanted.variables) | {v for key in wanted.keys for v in variables(key.expression)}
    used |= set() if wanted.items is None else {wanted.items}
    argument = _argument(wanted)
    used |= set() if argument is None else set(variables(argument))
    typed = frozenset() if argument is None else _typed_only(argument, plan)
    return JoinWork(part, wanted, plan, tuple(sorted(used & inside)), typed | (wanted.typed & inside), residual)


def _argument(wanted: Wanted) -> Expression | None:
    return None if wanted.aggregate is None else wanted.aggregate.expression.arguments[0]  # type: ignore[attr-defined]  # a call, by `aggregate_in_two_steps`


def _typed_only(argument: Expression, plan: Operator) -> frozenset[Variable]:
    """The variables of which an aggregate, and nothing else, takes the typed value."""
    direct = {argument} if isinstance(argument, Variable) else set()
    return frozenset(direct - set(all_uses(plan)))


def spread_items(work: JoinWork, forms: dict[Variable, Form]) -> tuple[Variable, ...] | None:
    """The columns whose strings, one after the other, are the items; None if there is more to compute."""
    if work.wanted.items is None or work.residual:
        return None
    found = unnested(work.plan, work.wanted.items)
    written = None if found is None else _written_out(found[1], found[0])
    if written is None:
        return None
    parts = written.arguments if isinstance(written, Call) and written.name == SEQUENCE else (written,)
    plain = all(isinstance(one, Variable) and forms.get(one) in ("nodes", "texts") for one in parts)
    return parts if plain else None  # type: ignore[return-value]  # variables all


def double_aggregate(work: JoinWork, forms: dict[Variable, Form]) -> Expression | None:
    """The argument of an aggregate over doubles made of untyped texts, which Spark computes; None for others."""
    aggregate, argument = work.wanted.aggregate, _argument(work.wanted)
    if aggregate is None or argument is None or work.residual:
        return None
    written = _written_out(work.plan, argument)
    if written is None or aggregate.expression.name not in set(AGGREGATES) - {"count"}:  # type: ignore[attr-defined]  # a call
        return None
    return written if _is_double(written, forms) else None


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


class JoinedRows:
    """Runs the chain above a join on the rows that Spark joined."""

    def __init__(self, job: Job, work: JoinWork, forms: dict[Variable, Form], orders: tuple[str, ...]) -> None:
        self.work, self.forms, self.orders = work, forms, orders
        self.runner = job.runner(Metrics())

    def _tuples(self, batches: Iterator[pa.RecordBatch], *wanted: Expression) -> Iterator[list[Any]]:
        """The values of some expressions for each tuple of the chain."""
        given = RemoteTuples((_ORDER, *self.forms), self._given(batches))
        return self.runner.prepared(self.work.plan, wanted, given=[given])()

    def _given(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Any]]:
        for batch in batches:
            cells = [batch[f"v{one.number}"].to_pylist() for one in self.forms]
            orders = zip(*(batch[name].to_pylist() for name in self.orders), strict=True)
            for order, *row in zip(orders, *cells, strict=True):
                values = [decoded(form, cell) for form, cell in zip(self.forms.values(), row, strict=True)]
                yield [list(order), *values]

    def items(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The items of the result, serialised."""
        result = self.work.wanted.items
        assert result is not None  # noqa: S101  (asked by the caller)
        return batched(((serialise(item),) for (items,) in self._tuples(batches, result) for item in items), schema)

    def rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows for another join or the last task: order numbers, one more among tuples of a row, keys, variables."""
        return batched(self._rows(batches), schema)

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        wanted, last, sub = self.work.wanted, None, 0
        n, keys = len(wanted.keys), tuple(key.expression for key in wanted.keys)
        for order, *values in self._tuples(batches, _ORDER, *keys, *wanted.variables):
            last, sub = order, sub + 1 if order == last else 0
            found = [key_cell(key, items) for key, items in zip(wanted.keys, values[:n], strict=True)]
            yield (*order, sub, *found, *(encoded("items", items) for items in values[n:]))

    def state(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The local step of an aggregate."""
        aggregate = self.work.wanted.aggregate
        assert aggregate is not None  # noqa: S101  (asked by the caller)
        local = Local(self.runner, aggregate)
        waiting: list[object] = []
        for (items,) in self._tuples(batches, aggregate.expression.arguments[0]):  # type: ignore[attr-defined]  # a call, by `aggregate_in_two_steps`
            waiting += items
            if len(waiting) >= ROWS:
                local.add(waiting)
                waiting = []
        local.add(waiting)
        if local.seen:
            yield pa.RecordBatch.from_pydict({"o": [0], STATE: [encoded("items", local.state())]}, schema=schema)
