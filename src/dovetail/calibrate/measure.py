"""Measures the unit costs of this machine, those of rows through Spark included, and makes a profile of them."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.calibrate import page_costs
from dovetail.calibrate.kernel_costs import KERNEL_COSTS, wide_batch
from dovetail.calibrate.unit_cost import THOROUGH, Effort, cpu_model, repeated, timed, versions
from dovetail.engine.profile import Cost, PageCost, Profile
from dovetail.engine.storage.spill import spill_directory
from dovetail.spark.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Step = tuple[str, Callable[[], Any]]
Watch = Callable[[str, int, int], None]
"""Called before each step with its name, its number and the number of steps."""

PAGE_KINDS = ("page_read_random", "page_read_sequential", "page_write")
SPARK_COSTS = ("python_to_jvm_row", "shuffle_row")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The profile, and notes about typical figures that could not be measured."""

    profile: Profile
    notes: tuple[str, ...]


def calibrate(
    effort: Effort = THOROUGH,
    directory: Path | None = None,
    with_spark: bool = True,
    watch: Watch | None = None,
) -> Calibration:
    """Unit costs of this machine: medians with their quartiles.

    Pages are measured in `directory`, by default where joins spill. Rows through Spark are measured in the session that
    runs, or in one that is started and stopped again. Costs that cannot be measured keep typical values, with a note.
    """
    place = directory or spill_directory()
    with contextlib.ExitStack() as stack:
        steps, notes = _page_steps(place, effort, stack)
        steps += [(name, partial(measure, effort)) for name, measure in KERNEL_COSTS.items()]
        if with_spark:
            steps += _spark_steps(effort, stack)
        else:
            notes.append(
                "Spark was left out: costs of a row to the JVM and through a shuffle are typical figures, in "
                "proportion to the measured speed of kernels."
            )
        measured = dict(_measured(steps, watch))
    if not with_spark:
        measured |= _in_proportion(measured)
    packages = {name: number for name, number in versions().items() if number is not None}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Calibration(Profile(**_fields(measured), measured_at=now, cpu=cpu_model(), versions=packages), tuple(notes))


def _measured(steps: list[Step], watch: Watch | None) -> Iterator[tuple[str, Any]]:
    for number, (name, measure) in enumerate(steps):
        if watch is not None:
            watch(name, number, len(steps))
        yield name, measure()


def _page_steps(place: Path, effort: Effort, stack: contextlib.ExitStack) -> tuple[list[Step], list[str]]:
    steps: list[Step] = [
        (f"page_write {size}", partial(page_costs.writes, place, size, effort)) for size in effort.page_sizes
    ]
    if not page_costs.cache_can_be_dropped(place):
        note = f"Files in {place} cannot be dropped from the page cache: costs of page reads are typical figures."
        return steps, [note]
    path = stack.enter_context(page_costs.page_file(place, effort.file_bytes))
    for size in effort.page_sizes:
        steps.append((f"page_read_random {size}", partial(page_costs.random_reads, path, size, effort)))
        steps.append((f"page_read_sequential {size}", partial(page_costs.sequential_reads, path, size, effort)))
    return steps, []


def _spark_steps(effort: Effort, stack: contextlib.ExitStack) -> list[Step]:
    running: list[SparkSession] = []  # one for both costs, started when the first of them is measured

    def session() -> SparkSession:
        if not running:
            started, ours = quiet_session("dovetail calibrate")
            running.append(started)
            if ours:
                stack.callback(started.stop)
        return running[0]

    return [
        ("python_to_jvm_row", lambda: python_to_jvm_row(session(), effort)),
        ("shuffle_row", lambda: shuffle_row(session(), effort)),
    ]


def _in_proportion(measured: dict[str, Any]) -> dict[str, Cost]:
    """Typical costs of rows through Spark, changed as kernels here differ from typical ones: both are compared."""
    typical = Profile()
    speed = statistics.median(measured[name].seconds / getattr(typical, name).seconds for name in KERNEL_COSTS)
    costs = {name: getattr(typical, name) for name in SPARK_COSTS}
    return {name: Cost(c.seconds * speed, c.low * speed, c.high * speed, 0) for name, c in costs.items()}


def _fields(measured: dict[str, Any]) -> dict[str, Any]:
    """Profile fields by name, where the pages of one kind make one field; a kind without any stays typical."""
    fields = {name: value for name, value in measured.items() if " " not in name}
    for kind in PAGE_KINDS:
        pages: list[PageCost] = [value for name, value in measured.items() if name.split()[0] == kind]
        if pages:
            fields[kind] = tuple(pages)
    return fields


BATCH_ROWS = 10_000
SCHEMA = "n0 long, n1 long, n2 long, n3 long, n4 long, n5 long, t0 string, t1 string"


def python_to_jvm_row(spark: SparkSession, effort: Effort) -> Cost:
    """One row from a Python worker to a JVM that throws it away."""
    tasks = _tasks(spark)
    batches = max(1, effort.spark_rows // BATCH_ROWS // tasks)
    full = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_rows, batches), SCHEMA)
    empty = spark.range(0, tasks, 1, tasks).mapInArrow(partial(_rows, 0), SCHEMA)
    return _difference(full, empty, tasks, batches * tasks * BATCH_ROWS, effort.spark_repeats)


def shuffle_row(spark: SparkSession, effort: Effort) -> Cost:
    """One row of the JVM written to and read from a shuffle by hash, on local disk."""
    tasks = _tasks(spark)
    plain = _wide_frame(spark, effort.spark_rows, tasks)
    return _difference(plain.repartition(tasks, "n1"), plain, tasks, effort.spark_rows, effort.spark_repeats)


def _difference(more: DataFrame, less: DataFrame, tasks: int, rows: int, repeats: int) -> Cost:
    return repeated(lambda: (timed(partial(_drain, more)) - timed(partial(_drain, less))) * tasks / rows, repeats)


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _tasks(spark: SparkSession) -> int:
    return spark.sparkContext.defaultParallelism


def _wide_frame(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    numbers = [f"id * {i + 1} AS n{i}" for i in range(6)]
    texts = [f"concat('word ', id % {1000 + i}) AS t{i}" for i in range(2)]
    return spark.range(0, rows, 1, tasks).selectExpr(*numbers, *texts)


def _rows(batches: int, given: Iterable[Any]) -> Iterator[Any]:
    batch = wide_batch(BATCH_ROWS)
    for _ in given:
        for _ in range(batches):
            yield batch
