"""A collection that is taken apart document by document becomes a DATASCAN."""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call
from dovetail.xml.algebra.operators import Assign, DataScan, Operator, Unnest
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.walk import exchanged, operators
from dovetail.xml.rules.matching import asks_which_node, is_constant_collection, iterated, reads_once, source_name


def introduce_scan(plan: Operator) -> Operator | None:
    """UNNEST($v1: iterate($v0)) with ASSIGN($v0: collection(name)) below becomes DATASCAN(collection(name), $v1).

    The ASSIGN goes if nothing else uses $v0. Condition: the name of the collection is a constant, the UNNEST counts no
    positions, and the collection is read at this place only, unless nothing tells nodes from their copies: two scans
    give two copies of each node. Right because the scan gives the documents of the collection one by one, in the order
    of the collection.
    """
    facts = Facts(plan)
    apart = not asks_which_node(plan)
    once = reads_once(plan)
    for operator in operators(plan):
        value = iterated(operator)
        defined = facts.definitions.get(value) if value is not None else None
        if not isinstance(operator, Unnest) or not isinstance(defined, Assign):
            continue
        alone = once and facts.uses[defined.variable] == 1
        if is_constant_collection(defined.expression) and (apart or alone):
            return _scanned(plan, operator, defined, facts)
    return None


def _scanned(plan: Operator, unnest: Unnest, assign: Assign, facts: Facts) -> Operator:
    alone = facts.uses[assign.variable] == 1
    below = exchanged(unnest.input, assign, assign.input) if alone else unnest.input
    read = assign.expression
    assert isinstance(read, Call)  # noqa: S101  (a call of `collection`)
    source = Call("collection", tuple(map(source_name, read.arguments)), read.place)
    new = exchanged(plan, unnest, DataScan(source, unnest.variable, (), below))
    return exchanged(new, assign, assign.input) if alone else new
