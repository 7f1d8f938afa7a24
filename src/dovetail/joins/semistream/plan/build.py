"""Writes a page file with Spark: Spark sorts the rows, each task writes a part, and the driver commits once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.storage import files
from dovetail.engine.storage.files import Place, access_of
from dovetail.engine.storage.remote import S3_SCHEMES, Access
from dovetail.errors import ConfigError, DataError, PlanError
from dovetail.joins.semistream.keys import KeyForm, hashes_of, key_form, normal_of
from dovetail.joins.semistream.master.lake.iceberg import catalog_of
from dovetail.joins.semistream.master.page_file.generation import (
    Generation,
    IndexFile,
    PartFile,
    building,
    commit,
)
from dovetail.joins.semistream.master.page_file.tables import part_table
from dovetail.joins.semistream.master.page_file.writer import (
    IndexPart,
    Part,
    PartWriter,
    Stretch,
    join_stretches,
    merge_stretch,
    page_size,
    part_name,
    plan_stretches,
    read_page,
    store_index_part,
    store_part,
    with_clashes,
)
from dovetail.joins.semistream.master.pages import FOUND_BY_PAGE, PageOrder, check_order
from dovetail.request import items_of, parse_flag
from dovetail.spark.frames import arrow_type, check_names, column_of, same_column
from dovetail.spark.hosts.batch import exchange_by_hash, exchange_by_range, mapped_frame, numbered, one_partition
from dovetail.spark.inputs import refuse_collated
from dovetail.spark.places import place_of, require_shared_directory
from dovetail.spark.task import TaskAttempt

REPORT = T.StructType().add("partition", T.IntegerType()).add("report", T.StringType())

_STRETCH = 4_000_000  # index entries that one task merges: 48 MB


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The parameters with which tasks write their parts."""

    work: Place
    schema: pa.Schema
    key: tuple[str, ...]
    order: PageOrder
    page_bytes: int
    unique: bool
    keyed: bool = True

    @property
    def form(self) -> KeyForm:
        """How keys become normal keys."""
        return key_form(self.schema, self.key)


def build_pages(
    df: DataFrame,
    path: str | Path,
    key: str | Sequence[str],
    order: PageOrder = "key",
    page: int | str | None = None,
    frequency: str | None = None,
    unique: bool = False,
    keep_nulls: bool = False,
    stored: pa.Schema | None = None,
) -> Generation:
    """Writes the rows of `df` as a new generation of a page file, and returns it.

    Spark sorts the rows, each task writes one part, and the driver commits: no rows pass through it. The path must be
    the same storage for driver and executors. Rows are stored by key, by column `frequency` in descending order (the
    highest of a key's rows), by a hash of the key, or, by order "none", in any; rows of one key are always together.
    Rows with a null in the key are left out and counted, or kept apart with `keep_nulls`. `unique=True` refuses keys
    that occur twice. `page` is the size that pages have unless one key's rows need more. `stored` are the columns that
    pages have, by default all.
    """
    place, given = place_of(df.sparkSession, path), arrow_schema(df)
    schema = given if stored is None else stored
    key, frequency = same_columns(df, key), None if frequency is None else same_column(df, frequency)
    check_order(order, frequency, given)
    unique, keep_nulls = parse_flag("unique", unique), parse_flag("keep_nulls", keep_nulls)
    form = key_form(schema, key)
    for name in form.names:
        refuse_collated(df.schema[name], "key")
    page_bytes = page_size(page, place)
    require_shared_directory(df.sparkSession, place.parent, "the page file")
    keyed, missing, null_keys = _with_keys(df, form)
    with building(place) as work:
        plan = BuildPlan(work, schema, form.names, order, page_bytes, unique)
        laid_out = _hashed(keyed, form) if order == "hash" else _laid_out(keyed, form.names, order, frequency, unique)
        laid_out, missing = (some.select(*map(column_of, schema.names)) for some in (laid_out, missing))
        parts, index_parts = _parts(collected(mapped_frame(laid_out, partial(_write_part, plan), REPORT)), plan)
        if order in FOUND_BY_PAGE:
            _check_order(plan, parts)
        index = None if order in FOUND_BY_PAGE else _index(df, plan, parts, index_parts)
        found = Generation(
            uuid.uuid4().hex[:8], schema, form.names, order, unique, page_bytes, null_keys, parts, index,
            null_part=_null_part(missing, plan) if keep_nulls and null_keys else None,
        )  # fmt: skip
        return commit(place, work, found)


def page_place(path: str | Path) -> Place:
    """The place that the running session takes a path for."""
    return place_of(SparkSession.getActiveSession(), path)


def address_of(path: str | Path) -> tuple[str, Access | None]:
    """A path as sources take it: absolute if it is local; at S3 with the access that the running session has."""
    text = str(path)
    if "://" in text and ("?" in text or not text.startswith(("s3:", "s3a:", "s3n:", "file:", "hdfs:"))):
        return text, None  # as Arrow takes it, which knows other schemes, and settings behind a question mark
    place = page_place(path)
    return str(place), access_of(place)


def warehouse_access(catalog: object) -> Access | None:
    """The session's access to the bucket of a catalog; None if it names none."""
    warehouse = dict(catalog_of(catalog)[1]).get("warehouse", "")
    scheme, _, rest = warehouse.partition("://")
    return address_of(f"s3a://{rest}")[1] if scheme in S3_SCHEMES else None


def arrow_schema(df: DataFrame) -> pa.Schema:
    """The columns of pages of these rows; a `PlanError` if there are none."""
    check_names("the master data", df, "df")
    if df.isStreaming:
        raise PlanError(
            "a page file is built from a batch DataFrame; this one is streaming. Use foreachBatch.", argument="df"
        )
    return pa.schema([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in df.schema])


def same_columns(df: DataFrame, names: str | Sequence[str], argument: str = "key") -> tuple[str, ...]:
    """The columns of these names, in any case where it does not count."""
    listed = [names] if isinstance(names, str) else items_of(names)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise PlanError(f"{argument}={names!r} must be a column name, or a list of them.", argument=argument)
    return tuple(same_column(df, name) for name in listed)


def _with_keys(df: DataFrame, form: KeyForm) -> tuple[DataFrame, DataFrame, int]:
    """Rows with a key, those without, and how many have none."""
    if not any(df.schema[name].nullable for name in form.names):
        return df, df, 0
    missing = F.lit(False)
    for name in form.names:
        missing = missing | column_of(name).isNull()
    without = df.filter(missing)
    return df.filter(~missing), without, without.count()


def _null_part(missing: DataFrame, plan: BuildPlan) -> PartFile:
    """The part of the rows that have a null in the key, written by one task."""
    reports = mapped_frame(
        one_partition(missing, shuffled=False), partial(_write_part, replace(plan, keyed=False)), REPORT
    )
    return _parts(collected(reports), plan)[0][0]


def _hashed(df: DataFrame, form: KeyForm) -> DataFrame:
    """The rows partitioned and sorted by a hash of their key."""
    name = f"hash_{uuid.uuid4().hex[:8]}"
    columns, keys = [*df.schema.fields, T.StructField(name, T.LongType())], list(map(column_of, form.names))
    hashed = mapped_frame(df, partial(_with_hashes, form), columns)
    laid_out = exchange_by_range(hashed, [name], keys)
    return laid_out.select(*map(column_of, df.columns))


def _with_hashes(form: KeyForm, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        hashes = hashes_of(form.normal([batch.column(name) for name in form.names])[0])
        yield pa.RecordBatch.from_arrays([*batch.columns, hashes.column()], [*batch.schema.names, "hash"])


def _laid_out(df: DataFrame, key: Sequence[str], order: PageOrder, frequency: str | None, unique: bool) -> DataFrame:
    """The rows partitioned and sorted as they will be stored: rows of one key are in one partition, together."""
    keys = [column_of(name) for name in key]
    if order == "key":
        return exchange_by_range(df, keys)
    if frequency is None:
        return exchange_by_hash(df, keys).sortWithinPartitions(*keys)
    wanted = F.coalesce(column_of(frequency), F.lit(0))
    if not unique:
        wanted = F.max(wanted).over(Window.partitionBy(*keys))
    name = f"wanted_{uuid.uuid4().hex[:8]}"
    by = [F.col(name).desc(), *keys]
    ordered = exchange_by_range(df.withColumn(name, wanted), by)
    return ordered.select(*map(column_of, df.columns))


def reported(work: Place, write: Callable[[int], dict[str, Any] | None]) -> Iterator[pa.RecordBatch]:
    """The report of what a task writes, by its number; a fault of the rows or the disk is reported, not retried."""
    number = TaskAttempt.here().partition
    try:
        report = write(number)
    except DataError as error:
        report = {"data_error": str(error)}
    except OSError as error:
        report = {"disk_error": f"{error.strerror or error} ({error.filename or work})"}
    if report:
        yield pa.RecordBatch.from_pydict({"partition": pa.array([number], pa.int32()), "report": [json.dumps(report)]})


def _write_part(plan: BuildPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One part from the rows of one partition."""
    return reported(plan.work, lambda number: _written(plan, number, batches))


def _written(plan: BuildPlan, number: int, batches: Iterator[pa.RecordBatch]) -> dict[str, Any]:
    work = plan.work
    writer: PartWriter | None = None
    try:
        for batch in (batch for batch in batches if batch.num_rows):
            if writer is None:
                place = work / part_name(number)
                by_key, by_hash = plan.order == "key", plan.order == "hash"
                how = (plan.page_bytes, by_key, plan.unique, plan.keyed, by_hash)
                writer = PartWriter(place, plan.schema, plan.form, *how)
            writer.append(pa.Table.from_batches([batch]).cast(plan.schema).combine_chunks().to_batches()[0])
        return {} if writer is None else _report(plan, writer.finish())
    except BaseException:
        if writer is not None:
            writer.abort()
        raise


def _report(plan: BuildPlan, part: Part) -> dict[str, Any]:
    work = plan.work
    report: dict[str, Any] = {"part": asdict(store_part(work, part))}
    if plan.order in FOUND_BY_PAGE or not plan.keyed:
        return report
    return {**report, "index": store_index_part(work, part), "entries": len(part.codes)}


def collected(reports: DataFrame) -> list[dict[str, Any]]:
    """The reports of tasks in the order of their partitions; the error of one that failed is raised."""
    rows = sorted(reports.collect(), key=lambda row: row["partition"])
    found = [json.loads(row["report"]) for row in rows]
    for report in found:
        if "data_error" in report:
            raise DataError(report["data_error"])
        if "disk_error" in report:
            raise ConfigError(f"an executor cannot write its part: {report['disk_error']}; free space, or give a path.")
    return found


def _parts(reports: list[dict[str, Any]], plan: BuildPlan) -> tuple[tuple[PartFile, ...], list[IndexPart]]:
    """The parts in order, all of them visible here."""
    if not reports:
        by_hash = plan.order == "hash"
        place = plan.work / part_name(0)
        empty = PartWriter(place, plan.schema, plan.form, plan.page_bytes, True, plan.unique, hashed=by_hash)
        reports = [_report(plan, empty.finish())]
    parts, index_parts, pages = [], [], 0
    for report in reports:
        part = PartFile(**report["part"])
        check_seen(plan.work / part.rows_file, part.nbytes)
        if "index" in report:
            index_parts.append(IndexPart(report["index"], report["entries"], pages))
        parts.append(part)
        pages += part.pages
    return tuple(parts), index_parts


def check_seen(place: Place, nbytes: int) -> None:
    """`ConfigError` unless the driver sees what an executor has written."""
    if files.size(place) != nbytes:
        raise ConfigError(
            f"{place}, written by an executor, is not seen by the driver; give a path on storage they share."
        )


def _index(df: DataFrame, plan: BuildPlan, parts: Sequence[PartFile], index_parts: list[IndexPart]) -> IndexFile:
    """The index of all parts, merged on the driver if it is small, else in tasks."""
    stretches = plan_stretches(plan.work, index_parts, _STRETCH)
    if len(stretches) == 1:
        merged = [asdict(merge_stretch(plan.work, index_parts, stretches[0]))]
    else:
        numbers = numbered(df.sparkSession, len(stretches))
        tasks = mapped_frame(numbers, partial(_merge_task, plan.work, index_parts, stretches), REPORT)
        merged = collected(tasks)
    join_stretches(plan.work, [stretch.first for stretch in stretches])
    clashes = np.array([code for report in merged for code in report["clashes"]], np.int64)
    pages = sorted({page for report in merged for page in report["clash_pages"]})
    index = IndexFile(sum(part.entries for part in index_parts), tuple(tuple(r["stretch"]) for r in merged))
    return with_clashes(index, plan.form, clashes, _pages(plan, parts, pages))


def _merge_task(
    work: Place, parts: Sequence[IndexPart], stretches: Sequence[Stretch], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        try:
            report: dict[str, Any] = asdict(merge_stretch(work, parts, stretches[number]))
        except OSError as error:
            report = {"disk_error": f"{error.strerror or error} ({error.filename or work})"}
        yield pa.RecordBatch.from_pydict({"partition": pa.array([number], pa.int32()), "report": [json.dumps(report)]})


def _pages(plan: BuildPlan, parts: Sequence[PartFile], wanted: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Pages by their number in the whole file, which is not committed yet."""
    firsts = np.cumsum([0, *(part.pages for part in parts)])
    for number in wanted:
        at = int(np.searchsorted(firsts, number, side="right")) - 1
        sizes = part_table(plan.work / parts[at].table_file, parts[at].table_crc).column("size").to_numpy()
        yield number, read_page(plan.work / parts[at].rows_file, sizes, number - int(firsts[at]), plan.schema)


def _check_order(plan: BuildPlan, parts: Sequence[PartFile]) -> None:
    """Parts must follow each other by key, or keys would be looked up in the wrong part."""
    tables = [part_table(plan.work / part.table_file, part.table_crc) for part in parts if part.pages]
    ends = [table.column(name)[at].as_py() for table in tables for name, at in (("first", 0), ("last", -1))]
    if tables and (normal_of(pa.array(ends, tables[0].column("first").type)).steps()[1::2] <= 0).any():
        raise DataError(
            f"Spark's order of {list(plan.key)} is not the order of pages; use order='none'.", argument="order"
        )
