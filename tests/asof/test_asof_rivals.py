"""As-of joins beside Polars on random rows, and facts that the tests of DuckDB and Polars state, in our words."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INF = float("inf")
Case = tuple[dict[str, Any], list[tuple[Any, Any]], list[tuple[Any, Any, Any]], list[Any]]
EVENTS = [(0, 1, 0), (0, 3, 1), (0, 6, 2), (0, 8, 3), (0, 999_999, 9), (0, None, -1)]
STEPS = [None, 0, 0, 1, 1, 1, 2, 2, 3, 3]
HOURS = [*((0, t, t - 13) for t in range(13, 17)), (0, None, -10), (0, INF, 9), (0, -INF, -1)]
PROBES = [*((0, t) for t in range(12, 22)), (0, None), (0, INF)]
TRADES = [("A", 1), ("B", 1), ("B", 3), ("C", 6)]
QUOTES = [("A", 0, 100), ("B", 2, 300), ("C", 4, 501), ("A", 6, 102)]
LATER, SOLD = (
    [("A", 0), ("B", 2), ("C", 4), ("A", 6), ("D", 7)],
    [("A", 2, 101), ("B", 1, 299), ("B", 3, 301), ("C", 6, 500), ("D", 7, 10)],
)
ONES = [(0, float(t)) for t in range(1, 6)]
NEAR = [(0, 0.0, 1), (0, 2.0, 2), (0, 2.4, 3), (0, 3.4, 4), (0, 10.0, 5)]
BACK: dict[str, Any] = {}
NEAREST = {"direction": "nearest"}

DUCKDB: dict[str, Case] = {
    "whole numbers": (BACK, [(0, t) for t in range(10)], EVENTS, STEPS),
    "keys": (
        BACK,
        [(k, t) for k in (1, 2) for t in range(10)],
        [(1, 1, 0), (1, 3, 1), (1, 6, 2), (1, 8, 3), (2, 0, 10), (2, 7, 20), (2, 11, 30)],
        [*STEPS, *[10] * 7, *[20] * 3],
    ),
    ">": ({"allow_exact": False}, PROBES, HOURS, [-1, -1, 0, 1, 2, 3, 3, 3, 3, 3, None, 3]),
    "<=": ({"direction": "forward"}, PROBES, HOURS, [0, 0, 1, 2, 3, 9, 9, 9, 9, 9, None, 9]),
    "<": (
        {"direction": "forward", "allow_exact": False},
        PROBES,
        HOURS,
        [0, 1, 2, 3, 9, 9, 9, 9, 9, 9, None, None],
    ),
    "nulls": (BACK, [(None, 5), ("A", None), ("A", 5)], [(None, 3, 10), ("A", 3, 30)], [None, None, 30]),
}
POLARS: dict[str, Case] = {
    "one right row": (NEAREST, [(0, 0.9), (0, 2.1), (0, 2.8)], [(0, 2.0, 100)], [100, 100, 100]),
    "by stock": (BACK, TRADES, [("A", 0, 100), ("B", 2, 300), ("C", 3, 501), ("A", 6, 102)], [100, None, 300, 501]),
    "floats": (BACK, [(0, 1.0), (0, 2.0), (0, 3.0)], [(0, 0.59, 1), (0, 1.49, 2), (0, 2.89, 3)], [1, 2, 3]),
    "two seconds": ({"tolerance": 2}, TRADES, QUOTES, [100, None, 300, 501]),
    "one second": ({"tolerance": 1}, TRADES, QUOTES, [100, None, 300, None]),
    "two seconds on": ({"tolerance": 2, "direction": "forward"}, LATER, SOLD, [101, 301, 500, None, 10]),
    "one second on": ({"tolerance": 1, "direction": "forward"}, LATER, SOLD, [None, 301, None, None, 10]),
    "none on": ({"tolerance": 0, "direction": "forward"}, LATER, SOLD, [None, None, None, None, 10]),
    "nearest": (
        NEAREST,
        [(0, -1), (0, 1), (0, 2), (0, 4), (0, 6)],
        [(0, -1, 1), (0, 2, 2), (0, 4, 3), (0, 5, 4)],
        [1, 2, 2, 3, 4],
    ),
    "the last for many": (
        NEAREST,
        [(0, 9), (0, 9), (0, 10), (0, 10)],
        [(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 10, 4)],
        [4, 4, 4, 4],
    ),
    "all too late": (NEAREST | {"tolerance": 1}, ONES, [(0, t, t) for t in range(7, 12)], [None] * 5),
    "the first of them": (NEAREST | {"tolerance": 1}, ONES, [(0, t, t - 5) for t in range(6, 11)], [*[None] * 4, 1]),
    "the last of them": (NEAREST | {"tolerance": 1}, ONES, [(0, t, t + 5) for t in range(-4, 1)], [5, *[None] * 4]),
    # Of two that are equally near, 0 and 2 for the row at 1, Polars takes the later one, and pandas and we the earlier.
    "the closer one": (NEAREST | {"tolerance": 1}, ONES, NEAR, [1, 2, 4, 4, None]),
    "no tolerance": (NEAREST | {"tolerance": 0}, ONES, NEAR, [None, 2, None, None, None]),
    "nearest by key": (
        NEAREST,
        [(676, 364360), (35, 364370), (676, 364380), (676, 365400), (676, 367440)],
        [(676, 364000, 1), (676, 365000, 2), (35, 365000, 50), (676, 366000, 3), (676, 367000, None)],
        [1, 50, 1, 2, None],
    ),
}


@pytest.mark.parametrize("algorithm", ["index", "window"])
def test_facts_of_duckdb_and_polars(spark: SparkSession, algorithm: Any) -> None:
    """Cases with the same options are one query, in which the name of the case is one more key."""
    cases = DUCKDB | POLARS
    every = [case[0] for case in cases.values()]
    for options in [one for n, one in enumerate(every) if one not in every[:n]]:
        some = {name: case for name, case in cases.items() if case[0] == options}
        left = [(name, str(k) if k is not None else None, t if t is None else float(t), n)
                for name, case in some.items() for n, (k, t) in enumerate(case[1])]  # fmt: skip
        right = [(name, str(k) if k is not None else None, t if t is None else float(t), v)
                 for name, case in some.items() for k, t, v in case[2]]  # fmt: skip
        found = dovetail.asof_join(
            spark.createDataFrame(left, "name string, k string, t double, n int"),
            spark.createDataFrame(right, "name string, k string, t double, v int"),
            on="t", by=["name", "k"], how="left", algorithm=algorithm, **options,
        )  # fmt: skip
        values = {(row.name, row.n): row.v for row in found.collect()}
        assert {name: [values[name, n] for n in range(len(case[1]))] for name, case in some.items()} == {
            name: case[3] for name, case in some.items()
        }


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_polars_agrees(spark: SparkSession, direction: Any) -> None:
    """Times are spread so widely that no right rows are equally near; half of the left times are right ones."""
    rng = Random(11)  # noqa: S311  (repeatable, no secrets)
    right = [(rng.choice("ab"), rng.randrange(10**6), n) for n in range(90)]
    met = [(rng.choice("abc"), rng.choice(right)[1]) for _ in range(60)]
    left = [(k, t, n) for n, (k, t) in enumerate([*met, *((k, rng.randrange(10**6)) for k, _ in met)])]
    mine, theirs = (
        pl.DataFrame(rows, schema=["k", "t", name], orient="row").sort("t")
        for rows, name in ((left, "l"), (right, "r"))
    )
    ours = [spark.createDataFrame(rows, f"k string, t int, {name} int") for rows, name in ((left, "l"), (right, "r"))]
    for tolerance in (None, 0, 5_000, 30_000):
        for exact in (True, False):
            joined = mine.join_asof(
                theirs, on="t", by="k", strategy=direction, tolerance=tolerance, allow_exact_matches=exact,
                check_sortedness=False,
            )  # fmt: skip
            found = dovetail.asof_join(
                *ours, on="t", by="k", how="left", direction=direction, tolerance=tolerance, allow_exact=exact
            )
            wanted = dict(joined.select("l", "r").iter_rows())
            assert {row.l: row.r for row in found.collect()} == wanted, (tolerance, exact)
