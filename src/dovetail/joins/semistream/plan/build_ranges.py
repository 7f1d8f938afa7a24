"""Writes a page file of ranges with Spark: ranges are spread over parts by value, and each task writes its parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.gather import expand_runs
from dovetail.engine.memory import parse_bytes
from dovetail.errors import ConfigError, DataError
from dovetail.joins.semistream.cells import RangeForm, check_ranged, split_points, spread
from dovetail.joins.semistream.master.page_file.generation import Generation, PartFile, building, commit, local_path
from dovetail.joins.semistream.master.page_file.range_file import RangePlan, check_options
from dovetail.joins.semistream.plan.build import REPORT, arrow_schema, collected, column_of
from dovetail.spark.frames import map_in_arrow
from dovetail.spark.inputs import refuse_collated

_PART_ROWS = 250_000  # ranges that one task lays out in memory
_SAMPLED = 200  # ranges for each part, from which the values are chosen at which parts begin
_HOME = "dovetail_part"


def build_ranges(
    df: DataFrame,
    path: str | Path,
    key: str | Sequence[str],
    bounds: Sequence[str],
    order: str,
    page: int | str,
    unique: bool,
    keep_nulls: bool,
) -> Generation:
    """Writes the ranges of `df` as a new generation of a page file, and returns it.

    A range that reaches into several parts is in each of them. The path must be the same storage for driver and
    executors.
    """
    check_options(order, keep_nulls)
    place, schema = local_path(path), arrow_schema(df)
    ranged = check_ranged(schema, (key,) if isinstance(key, str) else tuple(key), bounds)
    form = RangeForm(schema, ranged)
    for name in (*ranged.key, *ranged.bounds):
        refuse_collated(df.schema[name], "key" if name in ranged.key else "bounds")
    keyed = df.dropna(subset=[*ranged.key]) if ranged.key else df
    rows, all_rows = keyed.count(), df.count() if ranged.key else None
    splits = _splits(keyed, form, rows)
    with building(place) as work:
        plan = RangePlan(str(work), schema, ranged, parse_bytes(page, "page"), unique, splits)
        homes = T.StructType([T.StructField(_HOME, T.IntegerType()), *df.schema.fields])
        spread_out = map_in_arrow(keyed, partial(_spread, plan), homes)
        placed = spread_out.repartitionById(splits.num_rows + 1, F.col(_HOME))
        parts = _parts(collected(map_in_arrow(placed, partial(_write_parts, plan), REPORT)), plan)
        return commit(place, work, plan.generation(parts, 0 if all_rows is None else all_rows - rows))


def _splits(keyed: DataFrame, form: RangeForm, rows: int) -> pa.RecordBatch:
    """The keys and first values at which parts begin, from a sample."""
    parts = max(1, -(-rows // _PART_ROWS))
    wanted = keyed.select(*(column_of(name) for name in form.ranged.probed))
    sample = wanted.limit(1) if parts == 1 else wanted.sample(fraction=min(1.0, _SAMPLED * parts / rows), seed=0)
    found = sample.toArrow()
    fields = [pa.field(name, _kind(form, name)) for name in form.ranged.probed]
    if not found.num_rows:
        return pa.RecordBatch.from_pylist([], pa.schema(fields))
    return split_points(found.cast(pa.schema(fields)), form, parts)


def _kind(form: RangeForm, name: str) -> pa.DataType:
    return dict(zip(form.ranged.probed, (*form.types, form.kind), strict=True))[name]


def _spread(plan: RangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows with the number of their part in front, once for each part."""
    form = plan.form
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch]).cast(plan.schema).combine_chunks().to_batches()[0]
        first, last = spread(rows, form, plan.splits)
        counts = last - first + 1
        again = np.repeat(np.arange(batch.num_rows), counts)
        homes = pa.array(expand_runs(first, counts).astype(np.int32))
        taken = batch.take(pa.array(again))
        yield pa.RecordBatch.from_arrays([homes, *taken.columns], names=[_HOME, *batch.schema.names])


def _write_parts(plan: RangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The parts of one partition; a fault of the rows or the disk is reported, not retried."""
    given = [batch for batch in batches if batch.num_rows]
    if not given:
        return
    table = pa.Table.from_batches(given)
    homes = table.column(0).to_numpy()
    for number in np.unique(homes).tolist():
        report: dict[str, Any]
        try:
            part = table.filter(pa.array(homes == number)).drop_columns([table.column_names[0]])
            report = {"part": asdict(plan.write(part.rename_columns(plan.schema.names), number))}
        except DataError as error:
            report = {"data_error": str(error)}
        except OSError as error:
            report = {"disk_error": f"{error.strerror or error} ({error.filename or plan.work})"}
        yield pa.RecordBatch.from_pydict({"partition": pa.array([number], pa.int32()), "report": [json.dumps(report)]})


def _parts(reports: list[dict[str, Any]], plan: RangePlan) -> list[PartFile]:
    """The parts in order, all of them visible here."""
    if not reports:
        return [plan.write(plan.schema.empty_table(), 0)]
    parts = [PartFile(**report["part"]) for report in reports]
    for part in parts:
        place = Path(plan.work) / part.rows_file
        if not place.is_file() or place.stat().st_size != part.nbytes:
            raise ConfigError(
                f"{place}, written by an executor, is not seen by the driver; give a path on storage they share."
            )
    return parts
