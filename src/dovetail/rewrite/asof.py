"""Plans two parts of FROM as one as-of join: `a ASOF [LEFT] JOIN b ON a.k = b.k AND a.t >= b.t`, as in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from dovetail.errors import UnsupportedError
from dovetail.joins.asof.api import asof_join
from dovetail.joins.asof.operator import Direction
from dovetail.rewrite.conditions import Comparison, Condition
from dovetail.rewrite.interval import Pair, hidden_input, with_terms
from dovetail.rewrite.query import RecognisedAsof

_DIRECTIONS: dict[str, tuple[Direction, bool]] = {
    ">=": ("backward", True),
    ">": ("backward", False),
    "<=": ("forward", True),
    "<": ("forward", False),
}


def asof_joined(pair: Pair, must: Sequence[Condition], merges: bool) -> DataFrame:
    """The rows of the join; `UnsupportedError` for conditions that no as-of join has, which Spark cannot run either."""
    trouble = _trouble(pair, merges)
    if trouble is not None:
        raise UnsupportedError(f"{pair.left.shown} ASOF JOIN {pair.right.shown}: {trouble}")
    comparisons = [_across(pair, condition) for condition in must]
    times = [each for each in comparisons if each.operator in _DIRECTIONS]
    if len(times) != 1:
        raise UnsupportedError(
            f"{pair.left.shown} ASOF JOIN {pair.right.shown}: ON has {len(times)} inequalities between the inputs; "
            "write equalities and one of >=, >, <= and <."
        )
    keys = [each for each in comparisons if each.operator == "="]
    left, names = with_terms(pair.query, pair.left.frame(), [each.left for each in (*times, *keys)])
    right, others = with_terms(pair.query, pair.right.frame(), [each.right for each in (*times, *keys)])
    direction, exact = _DIRECTIONS[times[0].operator]
    found = RecognisedAsof(*pair.shown, _shown(times[0]), tuple(_shown(key) for key in keys))
    pair.query.recognised(found, pair.hints)
    pair.query.asof_joins += 1
    return asof_join(
        left,
        right,
        on=(names[0], others[0]),
        by=list(zip(names[1:], others[1:], strict=True)) or None,
        direction=direction,
        allow_exact=exact,
        how="left" if pair.how == "left" else "inner",
        **pair.options("asof_join"),
    )


def _trouble(pair: Pair, merges: bool) -> str | None:
    if merges or pair.left.merged or pair.right.merged:
        return "USING and NATURAL merge columns; say the equalities and the comparison of times in ON."
    if pair.how not in ("inner", "left"):
        return f"a {pair.how} as-of join is not known; write ASOF JOIN or ASOF LEFT JOIN."
    return hidden_input(pair)


def _across(pair: Pair, condition: Condition) -> Comparison:
    turned = condition.comparisons[0].across(*pair.numbers) if len(condition.comparisons) == 1 else None
    if turned is None or turned.operator not in (*_DIRECTIONS, "="):
        raise UnsupportedError(
            f"{pair.left.shown} ASOF JOIN {pair.right.shown}: {condition.shown!r} is neither an equality nor an "
            "inequality between the two inputs; filter an input in a subquery, or the answer in WHERE."
        )
    return turned


def _shown(comparison: Comparison) -> str:
    return f"{comparison.left.shown} {comparison.operator} {comparison.right.shown}"
