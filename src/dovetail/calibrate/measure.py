"""Measure this machine's unit costs and make a profile of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.calibrate import page_costs
from dovetail.calibrate.kernel_costs import KERNEL_COSTS
from dovetail.calibrate.machine import cpu_model, versions
from dovetail.calibrate.unit_cost import QUICK, THOROUGH, Effort
from dovetail.engine.profile import PageCost, Profile
from dovetail.engine.spill import spill_directory
from dovetail.spark.session import quiet_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = tuple[str, Callable[[], Any]]
Watch = Callable[[str, int, int], None]
"""Told before each step: what is measured, its number, and how many there are."""

PAGE_KINDS = ("page_read_random", "page_read_sequential", "page_write")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The profile, and what could not be measured and stayed a typical figure."""

    profile: Profile
    notes: tuple[str, ...]


def calibrate(
    quick: bool = False,
    directory: Path | None = None,
    with_spark: bool = True,
    watch: Watch | None = None,
) -> Calibration:
    """Unit costs of this machine: medians with their quartiles.

    Pages are measured in `directory`, by default where joins spill. Rows through Spark are measured in the session that
    runs, or in one that is started and stopped again. What cannot be measured stays typical and has a note.
    """
    effort = QUICK if quick else THOROUGH
    place = directory or spill_directory()
    with contextlib.ExitStack() as stack:
        steps, notes = _page_steps(place, effort, stack)
        steps += [(name, partial(measure, effort)) for name, measure in KERNEL_COSTS.items()]
        if with_spark:
            steps += _spark_steps(effort, stack)
        else:
            notes.append("Spark was left out: costs of a row to the JVM and through a shuffle are typical figures.")
        measured = dict(_measured(steps, watch))
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
    from dovetail.calibrate import spark_costs

    running: list[SparkSession] = []  # one for both costs, started when the first of them is measured

    def session() -> SparkSession:
        if not running:
            started, ours = quiet_session("dovetail calibrate")
            running.append(started)
            if ours:
                stack.callback(started.stop)
        return running[0]

    return [
        ("python_to_jvm_row", lambda: spark_costs.python_to_jvm_row(session(), effort)),
        ("shuffle_row", lambda: spark_costs.shuffle_row(session(), effort)),
    ]


def _fields(measured: dict[str, Any]) -> dict[str, Any]:
    """Profile fields by name, where the pages of one kind make one field; a kind without any stays typical."""
    fields = {name: value for name, value in measured.items() if " " not in name}
    for kind in PAGE_KINDS:
        pages: list[PageCost] = [value for name, value in measured.items() if name.split()[0] == kind]
        if pages:
            fields[kind] = tuple(pages)
    return fields
