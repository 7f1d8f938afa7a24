"""The tables that a SQL text reads, so that a pipeline knows which steps come before it."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tables_of(query: str, steps: frozenset[str]) -> list[str]:
    """Names of tables in the order of the text, without those that WITH defines.

    A text that the parser does not understand may still be right for Spark: there every step is meant whose name
    occurs in it.
    """
    import logging

    import sqlglot
    from sqlglot import expressions as e

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tree = sqlglot.parse_one(query, read="spark")
    except sqlglot.errors.SqlglotError:
        return list(dict.fromkeys(word for word in _WORD.findall(query) if word in steps))
    defined = {cte.alias_or_name.lower() for cte in tree.find_all(e.CTE)}
    found = [table for table in tree.find_all(e.Table) if isinstance(table.this, e.Identifier) and not table.db]
    names = [table.name for table in found if table.name.lower() not in defined]
    by_fold = {step.lower(): step for step in steps}
    return list(dict.fromkeys(by_fold.get(name.lower(), name) for name in names))


def keeps_state(query: str) -> bool:
    """Whether a query over a stream may keep state from one micro-batch to the next: it groups, joins or compares."""
    import sqlglot
    from sqlglot import expressions as e

    try:
        tree = sqlglot.parse_one(query, read="spark")
    except sqlglot.errors.SqlglotError:
        return True
    kinds = (e.Group, e.Distinct, e.Join, e.Window, e.Having, e.AggFunc, e.Intersect, e.Except)
    return any(True for _ in tree.find_all(*kinds))
