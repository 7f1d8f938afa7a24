"""Random interval inputs and the comparison of a DataFrame answer with the oracle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import oracle

Row = dict[str, Any]
LEFT_COLUMNS, RIGHT_COLUMNS = ("id", "k", "j", "start", "end"), ("id", "k", "j", "start", "end")
SCHEMA = "id long, k long, j string, start {0}, end {0}"


def random_rows(
    seed: int, n: int, span: int = 40, longest: int = 9, keys: int = 3, inverted: bool = False
) -> list[Row]:
    """Rows with null and empty intervals, null keys and duplicates; inverted ones only if asked for."""
    rng = random.Random(seed)  # noqa: S311  (test data)
    rows: list[Row] = []
    for i in range(n):
        start = rng.randrange(-span // 2, span)
        end = start + rng.choice([0, 1, 1, 2, rng.randrange(longest), longest * rng.choice([1, 1, 4])])
        if inverted and rng.random() < 0.1:
            start, end = end, start - 1
        row: Row = {"id": i % (n - n // 8), "k": rng.randrange(keys), "j": rng.choice("ab"), "start": start, "end": end}
        for column in ("k", "j", "start", "end"):
            if rng.random() < 0.06:
                row[column] = None
        rows.append(row)
    return rows


def expected(left: Sequence[Row], right: Sequence[Row], how: str, **arguments: Any) -> Any:
    """The oracle's answer as a bag of tuples: left columns, then right ones unless the join is semi or anti."""
    pairs = oracle.interval_join(left, right, how, **arguments)
    columns = () if how in ("left_semi", "left_anti") else RIGHT_COLUMNS
    return oracle.bag(oracle.flat(pairs, LEFT_COLUMNS, columns))


def answered(frame: Any) -> Any:
    """A DataFrame's rows as a bag of tuples."""
    return oracle.bag(tuple(row) for row in frame.collect())
