"""Writes a page file of ranges with Spark: ranges are spread over parts by value, and each task writes its parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.gather import expand_runs
from dovetail.errors import DataError
from dovetail.joins.semistream.cells import RangeForm, check_ranged, kept_splits, parts_reached, split_points
from dovetail.joins.semistream.master.page_file.generation import Generation, PartFile, building, commit
from dovetail.joins.semistream.master.page_file.range_file import RangePlan, check_options, overlap_at_bounds
from dovetail.joins.semistream.master.page_file.writer import page_size
from dovetail.joins.semistream.plan.build import REPORT, arrow_schema, check_seen, collected, same_columns
from dovetail.request import parse_flag
from dovetail.spark.frames import column_of
from dovetail.spark.hosts.batch import exchange_by_id, mapped_frame
from dovetail.spark.inputs import refuse_collated
from dovetail.spark.places import place_of, require_shared_directory

_PART_ROWS = 250_000  # ranges that one task lays out in memory
_SAMPLED = 200  # ranges for each part, from which the values are chosen at which parts begin
_HOME = "dovetail_part"


def build_ranges(
    df: DataFrame,
    path: str | Path,
    key: str | Sequence[str],
    bounds: Sequence[str],
    order: str,
    page: int | str | None,
    unique: bool,
    keep_nulls: bool,
    closed: str | None,
) -> Generation:
    """Writes the ranges of `df` as a new generation of a page file, and returns it.

    A range that reaches into several parts is in each of them. The path must be the same storage for driver and
    executors.
    """
    check_options(order, parse_flag("keep_nulls", keep_nulls))
    parse_flag("unique", unique)
    place, schema = place_of(df.sparkSession, path), arrow_schema(df)
    bounds = bounds if isinstance(bounds, str) else same_columns(df, bounds, "bounds")
    ranged = check_ranged(schema, same_columns(df, key), bounds)
    form = RangeForm(schema, ranged)
    for name in (*ranged.key, *ranged.bounds):
        refuse_collated(df.schema[name], "key" if name in ranged.key else "bounds")
    require_shared_directory(df.sparkSession, place.parent, "the page file")
    keyed = df.dropna(subset=[*ranged.key]) if ranged.key else df
    rows, all_rows = keyed.count(), df.count() if ranged.key else None
    touching = overlap_at_bounds(closed, form.kind)
    splits = _splits(keyed, form, rows)
    with building(place) as work:
        plan = RangePlan(work, schema, ranged, page_size(page, place), unique, splits, touching)
        plan = replace(plan, splits=_kept(keyed, plan)) if splits.num_rows else plan
        splits = plan.splits
        homes = [T.StructField(_HOME, T.IntegerType()), *df.schema.fields]
        spread_out = mapped_frame(keyed, partial(_spread, plan), homes)
        placed = exchange_by_id(spread_out, splits.num_rows + 1, F.col(_HOME))
        parts = _parts(collected(mapped_frame(placed, partial(_write_parts, plan), REPORT)), plan)
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


def _kept(keyed: DataFrame, plan: RangePlan) -> pa.RecordBatch:
    """The splits that do not make too many copies of ranges, by a count of where these begin and end."""
    columns = T.StructType().add("first", T.IntegerType()).add("last", T.IntegerType()).add("n", T.LongType())
    found = mapped_frame(keyed, partial(_reaches, plan), columns).toArrow()
    first, last, counts = (np.asarray(found.column(name), np.int64) for name in ("first", "last", "n"))
    return plan.splits.take(pa.array(kept_splits(first, last, counts, plan.splits.num_rows + 1)))


def _reaches(plan: RangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many ranges have each first and last part."""
    form, parts = plan.form, plan.splits.num_rows + 1
    seen = np.zeros(parts * parts, np.int64)
    for batch in batches:
        if batch.num_rows:
            rows = pa.Table.from_batches([batch]).cast(plan.schema).combine_chunks().to_batches()[0]
            first, last = parts_reached(rows, form, plan.splits)
            seen += np.bincount(first * parts + last, minlength=parts * parts)
    at = np.flatnonzero(seen)
    columns = [pa.array((at // parts).astype(np.int32)), pa.array((at % parts).astype(np.int32)), pa.array(seen[at])]
    yield pa.RecordBatch.from_arrays(columns, names=["first", "last", "n"])


def _kind(form: RangeForm, name: str) -> pa.DataType:
    return dict(zip(form.ranged.probed, (*form.types, form.kind), strict=True))[name]


def _spread(plan: RangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows with the number of their part in front, once for each part."""
    form = plan.form
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch]).cast(plan.schema).combine_chunks().to_batches()[0]
        first, last = parts_reached(rows, form, plan.splits)
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
        check_seen(plan.work / part.rows_file, part.nbytes)
    return parts
