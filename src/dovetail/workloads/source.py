"""Every workload as a Spark data source, for batches and for streams: `spark.read.format("dovetail.orders")`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dovetail.errors import PlanError
from dovetail.workloads.arrivals import Arrivals, parse_arrivals
from dovetail.workloads.blocks import BLOCK_ROWS, I64, Workload
from dovetail.workloads.interval_sets import intervals, lambda_intervals
from dovetail.workloads.options import split_options
from dovetail.workloads.relation_sets import relation
from dovetail.workloads.retail import orders, products, promotions, shipments
from dovetail.workloads.streams import master, zipf_stream


class Pace(Protocol):
    """The pace of a stream: how many rows have arrived."""

    def arrived(self, first: int, seconds: float) -> int:
        """Rows that have arrived `seconds` after row `first`; a restarted stream continues from its row."""
        ...


@dataclass(frozen=True, slots=True)
class AtOnce:
    """All rows are available from the start."""

    rows: int

    def arrived(self, first: int, seconds: float) -> int:
        """All of them."""
        return self.rows


@dataclass(frozen=True, slots=True)
class Steady:
    """A fixed number of rows a second."""

    rows: int
    rows_per_second: float

    def arrived(self, first: int, seconds: float) -> int:
        """Rows in proportion to the time."""
        return min(self.rows, first + int(seconds * self.rows_per_second))


@dataclass(frozen=True, slots=True)
class Drawn:
    """Rows at the times of an arrival process, which the seed fixes."""

    rows: int
    arrivals: Arrivals
    seed: int
    _passed: dict[int, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    def arrived(self, first: int, seconds: float) -> int:
        """Every row whose time is not after that of row `first` plus the time since.

        Blocks that have arrived whole since `first` are not drawn again, so the cost of a call does not depend on how
        long the stream has run.
        """
        if first >= self.rows:
            return self.rows
        began, block = self._start(first, int(seconds * 1e6))
        until = began + int(seconds * 1e6)
        while True:
            start, times = block * BLOCK_ROWS, self._times(block)
            row = start + int(np.searchsorted(times, until, side="right"))
            if row < start + len(times) or row >= self.rows:
                self._passed[first] = (began, block)
                return max(first, row)
            block += 1

    def _start(self, first: int, elapsed_us: int) -> tuple[int, int]:
        """The time of row `first`, and a block before which everything has arrived."""
        if first in self._passed:
            began, block = self._passed[first]
            if int(self._times(block)[0]) <= began + elapsed_us:
                return began, block
        block = first // BLOCK_ROWS
        return int(self._times(block)[first % BLOCK_ROWS]), block

    def _times(self, block: int) -> I64:
        count = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
        return self.arrivals.times_us(self.seed, "pace", block, count, self.rows)


READING: dict[str, type] = {"partitions": int, "rows_per_batch": int, "rows_per_second": float, "pace": str}
"""Options of every source: tasks per read, and for streams the largest micro-batch and the rate in real time: rows per
second, or the pace of an arrival process, for instance "bursty(100000, 8)" or "poisson(500, 10, 0.3)"."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is read; none of it changes the rows. Without a rate or a size, a stream gives all rows at once."""

    partitions: int = 0
    rows_per_batch: int = 0
    rows_per_second: float = 0.0
    pace: str = ""

    def __post_init__(self) -> None:
        for name in ("partitions", "rows_per_batch", "rows_per_second"):
            if getattr(self, name) < 0:
                raise PlanError(
                    f"option {name} must not be negative; it is {getattr(self, name)}. Leave it out or use 0.",
                    argument=name,
                )
        if self.pace and self.rows_per_second:
            raise PlanError(
                "rows_per_second and pace both say when rows arrive. Leave one of them out.", argument="pace"
            )
        if self.pace:
            parse_arrivals(self.pace)  # an unknown process is an error at once

    def pace_of(self, workload: Workload) -> Pace:
        """When the rows of the workload arrive in a stream."""
        if self.pace:
            return Drawn(workload.rows, parse_arrivals(self.pace), getattr(workload, "seed", 0))
        return Steady(workload.rows, self.rows_per_second) if self.rows_per_second else AtOnce(workload.rows)

    def ranges(self, start: int, stop: int) -> list[Rows]:
        """Contiguous parts of the rows, one a task: as many as asked, else one a core, but no more than blocks."""
        n = self.partitions or min(os.cpu_count() or 1, -(-(stop - start) // BLOCK_ROWS))
        edges = [start + (stop - start) * i // max(1, n) for i in range(max(1, n) + 1)]
        return [Rows(low, high) for low, high in pairwise(edges) if high > low]


class Rows(InputPartition):
    """One task's rows, start to stop."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


class WorkloadSource(DataSource):
    """A workload as batch and stream source; options are the parameters of the function that makes it, and `READING`.

    The rows are those of the workload in its order, cut into contiguous partitions. A stream's offset is a row number,
    so a replay of any range gives the same rows; the stream ends with the workload.
    """

    word: ClassVar[str]
    maker: ClassVar[Callable[..., Workload]]

    def __init__(self, options: Mapping[str, str]) -> None:
        self.workload, how = split_options(options, type(self).maker, READING)
        self.reading = Reading(**how)  # type: ignore[arg-type]  # parsed to the types that READING names

    @classmethod
    def name(cls) -> str:
        """The format name."""
        return f"dovetail.{cls.word}"

    def schema(self) -> StructType:
        """The workload's columns as Spark types."""
        return from_arrow_schema(self.workload.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Rows 0 to the end."""
        return BatchReader(self.workload, self.reading)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Rows as the trigger asks for them."""
        return StreamReader(self.workload, self.reading)


class BatchReader(DataSourceReader):
    """Reads the whole workload."""

    def __init__(self, workload: Workload, reading: Reading) -> None:
        self.workload, self.reading = workload, reading

    def partitions(self) -> list[Rows]:
        """One for each task; a workload without rows has one empty partition."""
        return self.reading.ranges(0, self.workload.rows) or [Rows(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        return _read(self.workload, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the workload in micro-batches; the offset is the number of rows read so far."""

    def __init__(self, workload: Workload, reading: Reading) -> None:
        self.workload, self.reading = workload, reading
        self.pace = reading.pace_of(workload)
        self.began: tuple[float, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """Row 0."""
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """As far as the limit and the rate allow, at most to the end."""
        row = start["row"]
        last = self._arrived(row)
        if isinstance(limit, ReadMaxRows):
            last = min(last, row + limit.max_rows)
        return {"row": max(row, last)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """The largest micro-batch, if the options set one."""
        size = self.reading.rows_per_batch
        return ReadMaxRows(size) if size else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802  (Spark's name)
        """All rows that have arrived, read or not: what is beyond the last micro-batch is the backlog."""
        return {"row": self._arrived(0) if self.began else self.pace.arrived(0, 0.0)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """A run to the end ignores the rate."""
        self.pace = AtOnce(self.workload.rows)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Rows]:
        """The rows between two offsets, one part for each task."""
        return self.reading.ranges(start["row"], end["row"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in order."""
        return _read(self.workload, partition)

    def _arrived(self, row: int) -> int:
        """Rows that have arrived by now; the clock starts with the first call, at the row that the stream is at."""
        now = time.monotonic()
        if self.began is None:
            self.began = now, row
        since, first = self.began
        return self.pace.arrived(first, now - since)


def _read(workload: Workload, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, Rows):
        raise PlanError(f"a partition must be Rows(start, stop), not {partition!r}.", argument="partition")
    return workload.batches(partition.start, partition.stop)


class ZipfSource(WorkloadSource):
    """`dovetail.zipf`: see `zipf_stream`."""

    word, maker = "zipf", staticmethod(zipf_stream)


class MasterSource(WorkloadSource):
    """`dovetail.master`: see `master`."""

    word, maker = "master", staticmethod(master)


class IntervalsSource(WorkloadSource):
    """`dovetail.intervals`: see `intervals`."""

    word, maker = "intervals", staticmethod(intervals)


class LambdaIntervalsSource(WorkloadSource):
    """`dovetail.lambda_intervals`: see `lambda_intervals`."""

    word, maker = "lambda_intervals", staticmethod(lambda_intervals)


class RelationSource(WorkloadSource):
    """`dovetail.relation`: see `relation`."""

    word, maker = "relation", staticmethod(relation)


class OrdersSource(WorkloadSource):
    """`dovetail.orders`: see `orders`."""

    word, maker = "orders", staticmethod(orders)


class ProductsSource(WorkloadSource):
    """`dovetail.products`: see `products`."""

    word, maker = "products", staticmethod(products)


class ShipmentsSource(WorkloadSource):
    """`dovetail.shipments`: see `shipments`."""

    word, maker = "shipments", staticmethod(shipments)


class PromotionsSource(WorkloadSource):
    """`dovetail.promotions`: see `promotions`."""

    word, maker = "promotions", staticmethod(promotions)


SOURCES: tuple[type[WorkloadSource], ...] = (
    ZipfSource,
    MasterSource,
    IntervalsSource,
    LambdaIntervalsSource,
    RelationSource,
    OrdersSource,
    ProductsSource,
    ShipmentsSource,
    PromotionsSource,
)


def register(spark: SparkSession) -> list[str]:
    """Makes every workload a format of this session, and gives their names; doing it again changes nothing."""
    for source in SOURCES:
        spark.dataSource.register(source)
    return [source.name() for source in SOURCES]
