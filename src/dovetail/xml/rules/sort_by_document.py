"""Nodes gathered from many documents are sorted document by document."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression, Variable
from dovetail.xml.algebra.functions import DISTINCT, DOWNWARD, SORT, SORT_DISTINCT
from dovetail.xml.algebra.operators import (
    Aggregate,
    Assign,
    DataScan,
    NestedTupleSource,
    Operator,
    Select,
    Subplan,
    Unnest,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import above, leaf, next_number, stacked
from dovetail.xml.rules.matching import is_constant_collection, rewrite_first

_DOWN = (*DOWNWARD, "treat", "iterate", "create_sequence", SORT_DISTINCT, SORT, DISTINCT)


def sort_by_document(plan: Operator) -> Operator | None:
    """ASSIGN($v2: sort($v1)) over a SUBPLAN that gathers $v1 from a collection: each document is sorted.

    The part of the nested plan above the scan of documents gets a nested plan of its own, whose answer is sorted.
    Condition: nothing else uses $v1, and only downward steps lead from a document to what is gathered. Right because
    documents come in document order, each once, and every node that is gathered lies in its own document.
    """
    return rewrite_first(plan, _local)


def _local(operator: Operator, facts: Facts) -> Operator | None:
    match operator:
        case Assign(_, Call(name, (Variable() as gathered,)), Subplan(Aggregate() as inner) as subplan):
            if name not in (SORT_DISTINCT, SORT, DISTINCT) or inner.variable != gathered or facts.uses[gathered] != 1:
                return None
            source = _documents(inner.input, facts)
            if source is not None and _is_gathered_below(inner.expression, source, facts):
                return _split(operator, subplan, inner, source, Variable(next_number(facts.plan)))
    return None


def _documents(nested: Operator, facts: Facts) -> Unnest | DataScan | None:
    """The operator that gives whole documents of a collection, if it is the lowest that multiplies tuples."""
    if not isinstance(leaf(nested), NestedTupleSource):
        return None
    body = above(nested, leaf(nested))
    if not all(isinstance(operator, (Unnest, DataScan, Assign, Select, Subplan)) for operator in body):
        return None
    sources = [operator for operator in body if isinstance(operator, (Unnest, DataScan))]
    lowest = sources[-1] if sources else None
    return lowest if lowest is not None and _gives_documents(lowest, facts) else None


def _gives_documents(operator: Unnest | DataScan, facts: Facts) -> bool:
    if isinstance(operator, DataScan):
        return not operator.path
    match operator:
        case Unnest(_, Call("iterate", (Variable() as value,)), _, None):
            defined = facts.definitions.get(value)
            return isinstance(defined, Assign) and is_constant_collection(defined.expression)
    return False


def _is_gathered_below(aggregate: Expression, source: Unnest | DataScan, facts: Facts) -> bool:
    match aggregate:
        case Call("create_sequence", (item,)):
            return _leads_to(item, source.variable, facts)
    return False


def _leads_to(item: Expression, document: Variable, facts: Facts) -> bool:
    """Whether downward steps lead from the document to the item, over any number of variables."""
    while isinstance(item, Call) and item.name in _DOWN:
        item = item.arguments[0]
    if item == document or not isinstance(item, Variable):
        return item == document
    match facts.definitions.get(item):
        case Assign(_, expression) | Unnest(_, expression) | Aggregate(_, expression):
            return _leads_to(expression, document, facts)
    return False


def _split(assign: Assign, subplan: Subplan, inner: Aggregate, source: Unnest | DataScan, fresh: Variable) -> Operator:
    upper = above(inner.input, source)
    one = Subplan(Aggregate(inner.variable, inner.expression, stacked(upper, NestedTupleSource())), source)
    sorted_one = Assign(fresh, assign.expression, one)
    return Subplan(Aggregate(assign.variable, Call("create_sequence", (fresh,)), sorted_one), subplan.input)
