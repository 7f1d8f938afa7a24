"""Which rules run when: groups of rules, each applied until none of its rules finds anything.

Clean-up (P9) belongs to every group, because each rule may leave copies behind. The rules of one group are tried in the
order given, from the first again after each rewriting. A rule for paths rewrites all places that it fits at once: the
number of rewritings does not grow with the child steps of a path.
Reference: Carman 2020, 7.4; docs/algorithms/xquery.md, 5 and 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dovetail.errors import PlanError
from dovetail.xml.algebra.operators import Operator
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.algebra.walk import operators
from dovetail.xml.rules.a1_incremental_aggregate import aggregate_incrementally
from dovetail.xml.rules.a2_two_steps import aggregate_in_two_steps
from dovetail.xml.rules.d1_introduce_scan import introduce_scan
from dovetail.xml.rules.d2_push_steps import push_steps
from dovetail.xml.rules.d3_partition_scan import partition_scan
from dovetail.xml.rules.j1_introduce_join import introduce_join
from dovetail.xml.rules.j2_push_to_branch import push_to_branch
from dovetail.xml.rules.j3_merge_condition import merge_condition
from dovetail.xml.rules.j4_recognise_keys import recognise_keys
from dovetail.xml.rules.n1_map_steps import map_steps
from dovetail.xml.rules.n2_sink_into_subplan import sink_into_subplan
from dovetail.xml.rules.n3_sort_by_document import sort_by_document
from dovetail.xml.rules.n4_read_again import read_again
from dovetail.xml.rules.n5_hoist_subplan import hoist_subplan
from dovetail.xml.rules.p1_remove_sort import remove_sort
from dovetail.xml.rules.p2_remove_conversion import remove_conversion
from dovetail.xml.rules.p3_drop_subplan import drop_subplan
from dovetail.xml.rules.p4_drop_aggregate import drop_aggregate
from dovetail.xml.rules.p5_unnest_step import unnest_step
from dovetail.xml.rules.p6_merge_unnests import merge_unnests
from dovetail.xml.rules.p7_single_item import inline_single_item
from dovetail.xml.rules.p8_redundant_iterate import copy_single_item
from dovetail.xml.rules.p9_clean_up import clean_up

Rule = Callable[[Operator], Operator | None]

RULES: dict[str, Rule] = {
    "P1": remove_sort,
    "P2": remove_conversion,
    "P3": drop_subplan,
    "P4": drop_aggregate,
    "P5": unnest_step,
    "P6": merge_unnests,
    "P7": inline_single_item,
    "P8": copy_single_item,
    "P9": clean_up,
    "N1": map_steps,
    "N2": sink_into_subplan,
    "N3": sort_by_document,
    "N4": read_again,
    "N5": hoist_subplan,
    "D1": introduce_scan,
    "D2": push_steps,
    "D3": partition_scan,
    "A1": aggregate_incrementally,
    "A2": aggregate_in_two_steps,
    "J1": introduce_join,
    "J2": push_to_branch,
    "J3": merge_condition,
    "J4": recognise_keys,
}

PATHS = ("P9", "P2", "P1", "P7", "P3", "P4", "P5", "P6", "P8")
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("paths", PATHS),
    ("nested plans", (*PATHS, "N1", "N2", "N3", "N4")),
    ("scans", (*PATHS, "D1", "D2", "D3", "N5")),
    ("aggregates", ("P9", "A1", "A2")),
    ("joins", ("P9", "J1", "J2", "J3", "J4")),
)
"""Names of rules by group, in the order in which the groups run."""

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
        rules = ", ".join(f"{rule} x {applied[rule]}" for rule in RULES if applied[rule])
        parts = (
            f"plan before the rules\n\n{print_plan(self.before)}",
            f"rules: {rules or 'none'}\n",
            f"plan after the rules\n\n{print_plan(self.plan, annotations=True)}",
        )
        return "\n".join(parts)

    def after(self, group: str) -> Operator:
        """The plan as it was when this group had finished."""
        names = [name for name, _ in GROUPS]
        done = set(names[: names.index(group) + 1])
        return next((step.plan for step in reversed(self.trace) if step.group in done), self.before)


def rewrite(plan: Operator) -> Rewriting:
    """The plan after all rules, with its history. The answer of the query is the same after every step."""
    steps: list[Step] = []
    limit = STEPS_PER_OPERATOR * sum(1 for _ in operators(plan))
    now = plan
    for group, names in GROUPS:
        while (found := _next(now, names)) is not None:
            name, now = found
            steps.append(Step(name, group, now))
            if len(steps) > limit:
                last = ", ".join(step.rule for step in steps[-6:])
                raise PlanError(f"the rules do not come to an end after {limit} rewritings (the last ones: {last}).")
    return Rewriting(plan, now, tuple(steps))


def _next(plan: Operator, names: tuple[str, ...]) -> tuple[str, Operator] | None:
    for name in names:
        new = RULES[name](plan)
        if new is not None:
            return name, new
    return None
