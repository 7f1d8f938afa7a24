"""Writes Parquet files in the tasks that compute the answer, all or nothing.

Each task writes files of its own into a hidden directory beside the target; when every task has succeeded, the files of
the successful attempts move into place and `_SUCCESS` is written. On failure the hidden directory is removed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.metrics import Metrics
from dovetail.engine.storage.files import system_at
from dovetail.engine.storage.remote import Access
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.interval.cell_join import CellJoin, join_cell
from dovetail.spark.hosts.batch import mapped_frame, task_frame
from dovetail.spark.task import MetricsSink, TaskAttempt

MANIFEST = T.StructType().add("file", T.StringType()).add("rows", T.LongType())
ROW_GROUP, GROUP_BYTES = 1 << 17, 8 << 20  # a row group is complete with either
ENCODED_ROWS = 1 << 14  # rows of a column that are encoded at once; Arrow's 1,024 take a twentieth longer


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go: the place, the hidden directory of this run, the compression, and the columns of the answer."""

    uri: str
    run: str
    compression: str
    columns: tuple[str, ...]
    schema: pa.Schema
    access: Access | None = field(default=None, repr=False)

    def filesystem(self) -> tuple[fs.FileSystem, str]:
        """The file system of the target and the path in it."""
        try:
            found, path = system_at(self.uri, self.access)
        except (pa.ArrowInvalid, OSError) as problem:
            raise PlanError(
                f"cannot write to {self.uri!r}: {problem}; give a local path, s3a:, or a URI that Arrow knows",
                argument="path",
            ) from problem
        return found, path.rstrip("/")

    def required(self, columns: set[str]) -> Target:
        """The same target, where these columns are known to hold no nulls: their rows need no definition levels."""
        named = zip(self.columns, self.schema, strict=True)
        fields = [one.with_nullable(name not in columns) for name, one in named]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    def hidden(self) -> str:
        """The directory of unfinished files."""
        return f"{self.filesystem()[1]}/_temporary-{self.run}"


def new_target(
    path: str,
    columns: tuple[str, ...],
    schema: pa.Schema,
    compression: str,
    mode: str,
    access: Access | None = None,
) -> Target:
    """A target that is free to write to; an existing answer is an error unless mode is overwrite."""
    if mode not in ("error", "overwrite"):
        raise PlanError(f"mode={mode!r} must be 'error' or 'overwrite'", argument="mode")
    uri = path if "://" in path else str(Path(path).absolute())
    target = Target(uri, uuid.uuid4().hex, compression, columns, schema, access)
    system, place = target.filesystem()
    inside = system.get_file_info(fs.FileSelector(place, allow_not_found=True))
    if inside and mode == "error":
        raise PlanError(
            f"{path!r} exists and is not empty; choose another place or pass mode='overwrite'", argument="path"
        )
    return target


def write_frame(frame: DataFrame, target: Target) -> list[tuple[str, int]]:
    """Write a DataFrame's rows in the tasks that compute them; returns the files and their row counts."""
    return _finish(mapped_frame(frame, partial(_write, target, GROUP_BYTES), MANIFEST), target)


def write_cells(placed: DataFrame, task: CellJoin, sink: MetricsSink, target: Target) -> list[tuple[str, int]]:
    """The inner join of placed rows, joined and written in the same task: no row of the answer returns to Spark."""
    bounds = (task.left.start, task.left.end, task.right.start, task.right.end)
    target = target.required({*bounds, *task.left.keys, *task.right.keys})
    group_bytes = min(GROUP_BYTES, task.memory // 8)  # part of the task's memory
    task = replace(task, memory=task.memory - group_bytes)
    return _finish(task_frame(placed, partial(_join_and_write, target, group_bytes), task, sink, MANIFEST), target)


def _join_and_write(
    target: Target, group_bytes: int, task: CellJoin, batches: Iterator[pa.RecordBatch], metrics: Metrics
) -> Iterator[pa.RecordBatch]:
    return _write(target, group_bytes, join_cell(task, batches, metrics))


def _write(target: Target, group_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes all batches to one file and yields its name and row count; an empty task writes nothing."""
    system, _ = target.filesystem()
    task = TaskAttempt.here()
    name = f"part-{task.partition:05d}-{task.attempt}.parquet"
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        for group in _row_groups(target, group_bytes, batches):
            if writer is None:
                path = f"{target.hidden()}/{name}"
                writer = pq.ParquetWriter(
                    path,
                    target.schema,
                    filesystem=system,
                    compression=target.compression,
                    use_dictionary=False,
                    write_batch_size=ENCODED_ROWS,
                )
            writer.write_table(group, row_group_size=ROW_GROUP)
            rows += group.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        yield pa.RecordBatch.from_pydict({"file": [name], "rows": [rows]})


def _row_groups(target: Target, group_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows in the columns of the target; small batches are put together, because each table is a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch.select(list(target.columns)).cast(target.schema))
        rows, size = rows + batch.num_rows, size + waiting[-1].nbytes
        if rows >= ROW_GROUP or size >= group_bytes:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _finish(manifest: DataFrame, target: Target) -> list[tuple[str, int]]:
    system, place = target.filesystem()
    try:
        system.create_dir(target.hidden(), recursive=True)
        files = [(row["file"], row["rows"]) for row in manifest.collect()]
        _publish(system, place, target, files)
    except OSError as problem:
        raise ConfigError(f"cannot write to {target.uri!r}: {problem}") from problem
    finally:
        with contextlib.suppress(OSError):
            system.delete_dir(target.hidden())
    return files


def _publish(system: fs.FileSystem, place: str, target: Target, files: list[tuple[str, int]]) -> None:
    hidden = f"_temporary-{target.run}"
    old = [i for i in system.get_file_info(fs.FileSelector(place)) if i.base_name != hidden]
    if not files:
        pq.write_table(target.schema.empty_table(), f"{target.hidden()}/part-00000.parquet", filesystem=system)
        files.append(("part-00000.parquet", 0))
    for name, _ in files:
        system.move(f"{target.hidden()}/{name}", f"{place}/{target.run[:8]}-{name}")
    for info in old:
        system.delete_dir(info.path) if info.type == fs.FileType.Directory else system.delete_file(info.path)
    system.open_output_stream(f"{place}/_SUCCESS").close()


def written(files: list[tuple[str, int]], metrics: Metrics) -> Metrics:
    """The run's metrics with the counts of written rows."""
    counts = Metrics()
    counts.add("files", len(files), unit="files")
    counts.add("rows written", sum(rows for _, rows in files))
    return metrics.include(counts)
