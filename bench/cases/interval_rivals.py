"""Overlap within 24 keys at three sizes, beside the libraries that people join intervals with outside Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.case import Params, Prepare, Run, prepared
from bench.cases.interval import KEYED
from bench.context import BenchContext


def named(table: pa.Table) -> pa.Table:
    """With the key as text: libraries for genomes want the names of chromosomes."""
    at = table.schema.get_field_index("key")
    return table.set_column(at, "key", pc.cast(table["key"], pa.string()))


@dataclass(frozen=True, slots=True)
class Library:
    """A library of one process: the form it likes its inputs in, its join, the number of its pairs, and their file."""

    module: str
    convert: Callable[[pa.Table], Any]
    join: Callable[[Any, Any], Any]
    count: Callable[[Any], int]
    write: Callable[[Any, Path], object]


def _to_polars(table: pa.Table) -> Any:
    import polars

    return polars.DataFrame(polars.from_arrow(table))


def _polars(left: Any, right: Any) -> Any:
    import polars

    key, start, end = (polars.col(name) for name in ("key", "start", "end"))
    other = {name: polars.col(f"{name}_right") for name in ("key", "start", "end")}
    renamed = right.rename({name: f"{name}_right" for name in right.columns}).lazy()
    return left.lazy().join_where(renamed, key == other["key"], start < other["end"], other["start"] < end)


def _to_genomes(table: pa.Table) -> Any:
    """With the note that ends are exclusive, which the library asks for."""
    import polars_bio

    found = _to_polars(table)
    polars_bio.set_option("datafusion.bio.coordinate_system_zero_based", "true")
    return found


def _polars_bio(left: Any, right: Any) -> Any:
    import polars_bio

    columns = ["key", "start", "end"]
    return polars_bio.overlap(left, right, cols1=columns, cols2=columns, output_type="polars.LazyFrame")


def _bioframe(left: Any, right: Any) -> Any:
    import bioframe

    columns = ("key", "start", "end")
    return bioframe.overlap(left, right, how="inner", cols1=columns, cols2=columns)


def _pyjanitor(left: Any, right: Any) -> Any:
    import janitor  # noqa: F401  (adds conditional_join to pandas)

    conditions = (("key", "key", "=="), ("start", "end", "<"), ("end", "start", ">"))
    return left.conditional_join(right, *conditions, how="inner")


def _collected(pairs: Any) -> int:
    return int(pairs.collect().height)


def _sunk(pairs: Any, target: Path) -> None:
    pairs.sink_parquet(target)


def _to_pandas(table: pa.Table) -> Any:
    return table.to_pandas()


def _written(pairs: Any, target: Path) -> None:
    pairs.columns = [
        f"{number}_{name if isinstance(name, str) else name[-1]}" for number, name in enumerate(pairs.columns)
    ]
    pairs.to_parquet(target)


LIBRARIES = {
    "polars": Library("polars", _to_polars, _polars, _collected, _sunk),
    "polars-bio": Library("polars_bio", _to_genomes, _polars_bio, _collected, _sunk),
    "bioframe": Library("bioframe", _to_pandas, _bioframe, len, _written),
    "pyjanitor": Library("janitor", _to_pandas, _pyjanitor, len, _written),
}


def in_memory(name: str) -> Prepare:
    """A rival of this process, which has both inputs in the form it likes before the clock starts."""
    library = LIBRARIES[name]

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        left, right = (library.convert(named(table)) for table in KEYED.tables(bench, params))
        return lambda: library.count(library.join(left, right))

    return prepare
