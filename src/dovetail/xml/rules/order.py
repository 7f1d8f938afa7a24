"""Defines the order of the rules: groups of rules, each applied until none of its rules matches.

`clean_up` belongs to every group, because each rule may leave copies behind. The rules of one group are tried in the
order given, from the first again after each rewriting. A rule for paths rewrites all places that it matches at once:
the number of rewritings does not grow with the child steps of a path.
Reference: Carman 2020, 7.4; docs/algorithms/xquery.md, 5 and 6.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dovetail.errors import PlanError
from dovetail.xml.algebra.matching import Rule
from dovetail.xml.algebra.operators import Operator, operators
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.rules.paths import (
    clean_up,
    copy_single_item,
    inline_single_item,
    map_steps,
    merge_unnests,
    remove_conversion,
    remove_sort,
    unnest_step,
)
from dovetail.xml.rules.scans import (
    aggregate_in_two_steps,
    aggregate_incrementally,
    introduce_join,
    introduce_scan,
    merge_condition,
    partition_scan,
    push_steps,
    push_to_branch,
    recognise_keys,
)
from dovetail.xml.rules.subplans import (
    drop_aggregate,
    drop_subplan,
    hoist_subplan,
    read_again,
    sink_into_subplan,
    sort_by_document,
)

PATHS: tuple[Rule, ...] = (
    clean_up,
    remove_conversion,
    remove_sort,
    inline_single_item,
    drop_subplan,
    drop_aggregate,
    unnest_step,
    merge_unnests,
    copy_single_item,
)
GROUPS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("paths", PATHS),
    ("nested plans", (*PATHS, map_steps, sink_into_subplan, sort_by_document, read_again)),
    ("scans", (*PATHS, introduce_scan, push_steps, partition_scan, hoist_subplan)),
    ("aggregates", (clean_up, aggregate_incrementally, aggregate_in_two_steps)),
    ("joins", (clean_up, introduce_join, push_to_branch, merge_condition, recognise_keys)),
)
"""Rules by group, in the order in which the groups run."""

STEPS_PER_OPERATOR = 100
"""More rewritings than this for each operator of the first plan mean that two rules undo each other."""


@dataclass(frozen=True, slots=True)
class Step:
    """One rewriting: the rule, its group, and the plan after it."""

    rule: str
    group: str
    plan: Operator


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The first plan, the last one, and every step between them."""

    before: Operator
    plan: Operator
    trace: tuple[Step, ...]

    def explain(self) -> str:
        """The first plan, how often each rule was applied, and the last plan with its annotations."""
        applied = Counter(step.rule for step in self.trace)
        rules = ", ".join(f"{rule} x {times}" for rule, times in applied.items())
        parts = (
            f"plan before the rules\n\n{print_plan(self.before)}",
            f"rules: {rules or 'none'}\n",
            f"plan after the rules\n\n{print_plan(self.plan, annotations=True)}",
        )
        return "\n".join(parts)


def rewrite(plan: Operator) -> Rewriting:
    """The plan after all rules, with its history. The answer of the query is the same after every step."""
    steps: list[Step] = []
    limit = STEPS_PER_OPERATOR * sum(1 for _ in operators(plan))
    now = plan
    for group, rules in GROUPS:
        while (found := _next(now, rules)) is not None:
            name, now = found
            steps.append(Step(name, group, now))
            if len(steps) > limit:
                last = ", ".join(step.rule for step in steps[-6:])
                raise PlanError(f"the rules do not come to an end after {limit} rewritings (the last ones: {last}).")
    return Rewriting(plan, now, tuple(steps))


def _next(plan: Operator, rules: tuple[Rule, ...]) -> tuple[str, Operator] | None:
    for rule in rules:
        new = rule(plan)
        if new is not None:
            return rule.__name__, new
    return None
