"""Overlap within 24 keys at three sizes, beside the libraries that people join intervals with outside Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.case import Bound, Case, Params, Prepare, Rival, Run
from bench.cases.interval_keyed import (
    DATA,
    keyed_bins,
    keyed_dovetail,
    keyed_duckdb,
    keyed_expected,
    keyed_own_plan,
)
from bench.context import BenchContext

if TYPE_CHECKING:
    import polars as pl

WIDTH = 10_000
_QUADRATIC = 2_000_000_000
"""Pairs of one key that a rival which tests all of them is given at most."""
_HELD = 150_000_000
"""Pairs of one key that a rival which holds all of them is given at most: polars takes 12 GB for so many."""


def _named(table: pa.Table) -> pa.Table:
    """With the key as text: libraries for genomes want the names of chromosomes."""
    at = table.schema.get_field_index("key")
    return table.set_column(at, "key", pc.cast(table["key"], pa.string()))


def _in_memory(convert: Callable[[pa.Table], Any], answer: Callable[[Any, Any], int]) -> Prepare:
    """A rival of this process, which has both inputs in the form it likes before the clock starts."""

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        left, right = (convert(_named(table)) for table in DATA.tables(bench, params))
        yield lambda: answer(left, right)

    return prepare


def _to_polars(table: pa.Table) -> pl.DataFrame:
    import polars

    return polars.DataFrame(polars.from_arrow(table))


def _polars(left: pl.DataFrame, right: pl.DataFrame) -> int:
    import polars

    key, start, end = (polars.col(name) for name in ("key", "start", "end"))
    other = {name: polars.col(f"{name}_right") for name in ("key", "start", "end")}
    renamed = right.rename({name: f"{name}_right" for name in ("id", "key", "start", "end")}).lazy()
    joined = left.lazy().join_where(renamed, key == other["key"], start < other["end"], other["start"] < end)
    return int(joined.collect().height)


def _polars_bio(left: pl.DataFrame, right: pl.DataFrame) -> int:
    import polars_bio

    columns = ["key", "start", "end"]
    pairs: Any = polars_bio.overlap(left, right, cols1=columns, cols2=columns, output_type="polars.DataFrame")
    return int(pairs.height)


def _to_genomes(table: pa.Table) -> pl.DataFrame:
    """With the note that ends are exclusive, which the library asks for."""
    import polars_bio

    found = _to_polars(table)
    polars_bio.set_option("datafusion.bio.coordinate_system_zero_based", "true")
    return found


def _to_pandas(table: pa.Table) -> Any:
    return table.to_pandas()


def _bioframe(left: Any, right: Any) -> int:
    import bioframe

    columns = ("key", "start", "end")
    return len(bioframe.overlap(left, right, how="inner", cols1=columns, cols2=columns))


def _pyjanitor(left: Any, right: Any) -> int:
    import janitor  # noqa: F401  (adds conditional_join to pandas)

    conditions = (("key", "key", "=="), ("start", "end", "<"), ("end", "start", ">"))
    return len(left.conditional_join(right, *conditions, how="inner"))


def _only_few(params: Params) -> str | None:
    pairs = params["rows"] * params["others"] // 24
    return None if pairs <= _QUADRATIC else f"tests every pair of a key, {pairs / 1e9:.0f} billion here"


def _holds_pairs(params: Params) -> str | None:
    pairs = params["rows"] * params["others"] // 24
    return None if pairs <= _HELD else f"holds every pair of a key in memory, {pairs / 1e9:.1f} billion here"


def _points(*rows: int) -> list[Params]:
    return [{"rows": n, "others": n * 11 // 5} for n in rows]


CASE = Case(
    name="interval-rivals",
    question="What does an overlap join within 24 keys cost beside other libraries, and how does each of them grow?",
    varies=("rows", "others"),
    points={"small": _points(5_000, 10_000, 20_000), "full": _points(50_000, 200_000, 800_000)},
    rivals=(
        Rival("dovetail", DATA.spark(keyed_dovetail)),
        Rival("duckdb", DATA.duckdb(keyed_duckdb), requires=("duckdb",)),
        Rival("duckdb, range join", DATA.duckdb(keyed_duckdb, "set prefer_range_joins = true"), requires=("duckdb",)),
        Rival("polars", _in_memory(_to_polars, _polars), requires=("polars",), sits_out=_holds_pairs),
        Rival("polars-bio", _in_memory(_to_genomes, _polars_bio), requires=("polars_bio",)),
        Rival("bioframe", _in_memory(_to_pandas, _bioframe), requires=("bioframe",)),
        Rival("pyjanitor", _in_memory(_to_pandas, _pyjanitor), requires=("janitor",), sits_out=_holds_pairs),
        Rival("spark's own plan", DATA.spark(keyed_own_plan), sits_out=_only_few),
        keyed_bins(WIDTH),
    ),
    expected=keyed_expected,
    baseline="dovetail",
    bounds=(Bound("faster than Spark with bins", "dovetail", 1.0, against=f"bins of {WIDTH:,}", scale="full"),),
    answer="pairs",
    measures=("engine", "joins/interval", "spark"),
    rounds=3,
    patience_s=30.0,
)
