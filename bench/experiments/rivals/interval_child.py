"""One join of many overlapping intervals to Parquet, in a process that may have only so much memory.

Run as a module with JOIN MIB DIRECTORY ROWS it prints how many pairs it wrote. The limit is the operating system's for
libraries of this process, and the heap of Java for Spark; whoever can be told a limit is told it instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.cases.interval_overlap import overlap_counts
from bench.experiments.rivals.limited import Answer, limit, main, session
from dovetail.workloads import Exponential, RandomIntervals

KEYS, DOMAIN, LENGTH = 24, 1_000_000, 28_800
_TARGET = "pairs.parquet"


def sides(rows: int) -> tuple[pa.Table, pa.Table]:
    """Both inputs: every row overlaps some six in a hundred of the others of its key."""
    left, right = _made(rows)
    return _named(left), _named(right)


def pairs_due(rows: int) -> int:
    """How many pairs both inputs have."""
    return int(overlap_counts(*_made(rows), keyed=True).sum())


def _made(rows: int) -> tuple[pa.Table, pa.Table]:
    made = (RandomIntervals(rows, DOMAIN, Exponential(LENGTH), KEYS, seed=seed) for seed in (1, 2))
    left, right = (table.table().select(["id", "key", "start", "end"]) for table in made)
    return left, right


def _named(table: pa.Table) -> pa.Table:
    return table.set_column(table.schema.get_field_index("key"), "key", pc.cast(table["key"], pa.string()))


def _dovetail(rows: int, mib: int, place: Path) -> int:
    from dovetail.joins.interval.api import interval_join

    spark = session(mib)
    left, right = _frames(spark, rows, place)
    interval_join(left, right, on="key", memory="32MB").write.parquet(str(place / _TARGET))
    return int(spark.read.parquet(str(place / _TARGET)).count())


def _spark(rows: int, mib: int, place: Path) -> int:
    from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)

    spark = session(mib)
    left, right = _frames(spark, rows, place)
    overlap = F.expr("l.key = r.key and l.start < r.end and r.start < l.end")
    joined = left.alias("l").join(right.alias("r"), overlap)
    named = [F.col(f"{side}.{name}").alias(f"{side}_{name}") for side in "lr" for name in left.columns]
    joined.select(*named).write.parquet(str(place / _TARGET))
    return int(spark.read.parquet(str(place / _TARGET)).count())


def _frames(spark: Any, rows: int, place: Path) -> tuple[Any, Any]:
    for name, table in zip("lr", sides(rows), strict=True):
        pq.write_table(table, place / f"{name}.parquet")
    return spark.read.parquet(str(place / "l.parquet")), spark.read.parquet(str(place / "r.parquet"))


def _duckdb(rows: int, mib: int, place: Path) -> int:
    import duckdb

    left, right = sides(rows)
    with duckdb.connect(config={"memory_limit": f"{mib}MB", "temp_directory": str(place), "threads": 2}) as connection:
        connection.register("l", left)
        connection.register("r", right)
        join = 'select * from l join r on l.key = r.key and l.start < r."end" and r.start < l."end"'
        connection.execute("set preserve_insertion_order = false")
        connection.execute(f"copy ({join}) to '{place / _TARGET}' (format parquet)")
    return int(pq.read_metadata(place / _TARGET).num_rows)


def _polars(rows: int, mib: int, place: Path) -> int:
    import polars

    left, right = (polars.DataFrame(polars.from_arrow(table)) for table in sides(rows))
    limit(mib)
    theirs = right.rename({name: f"{name}_right" for name in right.columns})
    key, start, end = (polars.col(name) for name in ("key", "start", "end"))
    conditions = key == polars.col("key_right"), start < polars.col("end_right"), polars.col("start_right") < end
    left.lazy().join_where(theirs.lazy(), *conditions).sink_parquet(place / _TARGET)
    return int(pq.read_metadata(place / _TARGET).num_rows)


def _polars_bio(rows: int, mib: int, place: Path) -> int:
    import polars
    import polars_bio

    left, right = (polars.DataFrame(polars.from_arrow(table)) for table in sides(rows))
    polars_bio.set_option("datafusion.bio.coordinate_system_zero_based", "true")
    limit(mib)
    columns = ["key", "start", "end"]
    pairs: Any = polars_bio.overlap(left, right, cols1=columns, cols2=columns, output_type="polars.LazyFrame")
    pairs.sink_parquet(place / _TARGET)
    return int(pq.read_metadata(place / _TARGET).num_rows)


def _bioframe(rows: int, mib: int, place: Path) -> int:
    import bioframe

    left, right = (table.to_pandas() for table in sides(rows))
    limit(mib)
    columns = ("key", "start", "end")
    bioframe.overlap(left, right, how="inner", cols1=columns, cols2=columns).to_parquet(place / _TARGET)
    return int(pq.read_metadata(place / _TARGET).num_rows)


def _pyjanitor(rows: int, mib: int, place: Path) -> int:
    import janitor  # noqa: F401  (adds conditional_join to pandas)

    left, right = (table.to_pandas() for table in sides(rows))
    limit(mib)
    conditions = (("key", "key", "=="), ("start", "end", "<"), ("end", "start", ">"))
    pairs = left.conditional_join(right, *conditions, how="inner")
    pairs.columns = [f"{number}_{name[-1]}" for number, name in enumerate(pairs.columns)]
    pairs.to_parquet(place / _TARGET)
    return int(pq.read_metadata(place / _TARGET).num_rows)


_JOINS: dict[str, Callable[[int, int, Path], int]] = {
    "dovetail": _dovetail,
    "spark's own plan": _spark,
    "duckdb": _duckdb,
    "polars": _polars,
    "polars-bio": _polars_bio,
    "bioframe": _bioframe,
    "pyjanitor": _pyjanitor,
}


def _answer(join: Callable[[int, int, Path], int]) -> Answer:
    return lambda mib, place, words: join(int(words[0]), mib, place)


JOINS = {name: _answer(join) for name, join in _JOINS.items()}

if __name__ == "__main__":
    main(JOINS)
