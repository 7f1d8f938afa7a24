"""The ON condition of an enrichment: Spark checks every pair of equal key, then rows without a pair are found.

The join yields the pairs of one stream row one after the other, so that a row is complete when the next one begins: one
row of a batch is kept, whatever the number of its pairs. Nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.attempt import Attempt
from dovetail.joins.semistream.plan.columns import KEY, Columns, plan_columns, without_watermarks
from dovetail.joins.semistream.plan.task import EnrichTask
from dovetail.joins.semistream.request import DeadLetter, Drop, Request
from dovetail.spark.frames import Batches, arrow_type, column_of, has_subqueries
from dovetail.spark.hosts.batch import mapped_frame

_MATCHED, _FIRST, _HOLDS, _PART = (f"{KEY}{name}" for name in ("matched", "first", "holds", "part"))


@dataclass(frozen=True, slots=True)
class Conditioned:
    """A request with a condition, the pairs that the join gives, and the columns of the result.

    `pairs` has all columns of an inner join's result, under its names; `picked` has for each column of the result its
    position among them.
    """

    request: Request
    pairs: T.StructType
    output: T.StructType
    picked: tuple[int, ...]
    n_stream: int

    @classmethod
    def of(cls, frame: DataFrame, store: MasterStore, request: Request) -> Conditioned:
        """The request over these columns; `PlanError` if the condition does not fit them."""
        pairs = plan_columns(frame, store, pair_request(request)).output
        wanted = plan_columns(frame, store, replace(request, on_miss=Drop())).output
        wanted = without_watermarks(wanted) if request.mode == "carry" else wanted
        names = pairs.names if request.gives_master else frame.columns
        found = cls(request, pairs, wanted, tuple(names.index(name) for name in wanted.names), len(frame.columns))
        found._check(frame)
        return found

    def _check(self, frame: DataFrame) -> None:
        """Let Spark resolve the condition, so that a wrong one fails before any job."""
        given = self.request.condition
        if not isinstance(given, (str, Column)):
            raise PlanError(
                f"condition={given!r} is neither a Column nor SQL text over the columns of the result.",
                argument="condition",
            )
        empty = frame.sparkSession.createDataFrame([], self.pairs)
        try:
            kind = empty.select(self._condition.alias("c")).schema["c"].dataType
            if not isinstance(kind, T.BooleanType):
                raise PlanError(
                    f"condition={given!r} is of type {kind.simpleString()}; it must be true or false.",
                    argument="condition",
                )
            tested = empty.where(self._condition)
            tested.schema  # noqa: B018  (resolves it over Spark Connect too)
        except (AnalysisException, ParseException) as error:
            told = next((line for line in str(error).splitlines() if line), "")
            raise PlanError(
                f"condition={given!r} does not fit the columns of a pair, {self.pairs.names}; write it over these "
                f"names, without aggregates and window functions. Spark says: {told}",
                argument="condition",
            ) from error
        if self.settles and has_subqueries(tested):
            raise UnsupportedError(
                f"condition={given!r} with how={self.request.how!r}: Spark answers a subquery with a join, which may "
                f"part the pairs of a row; join with that table first, or use how='inner' with on_miss='drop'.",
                argument="condition",
            )

    @property
    def _condition(self) -> Column:
        given = self.request.condition
        return F.expr(given) if isinstance(given, str) else given

    @property
    def settles(self) -> bool:
        """Whether rows without a pair are needed, or one pair of each row."""
        return self.request.how != "inner" or isinstance(self.request.on_miss, DeadLetter)

    def columns(self, found: Columns) -> Columns:
        """The columns of the join, with marks of matches and first pairs if rows must be told apart."""
        if not self.settles:
            return found
        flags = [T.StructField(name, T.BooleanType(), False) for name in (_MATCHED, _FIRST)]
        last = found.n_stream + len(found.master)
        return replace(found, output=T.StructType([*found.output, *flags]), picked=(*found.picked, last, last + 1))

    def check_store(self, store: MasterStore, pages: Pages) -> None:
        """`UnsupportedError` if the pairs of a row may not be consecutive."""
        if self.settles and not pages.indexed:
            raise UnsupportedError(
                f"condition={self.request.condition!r} with how={self.request.how!r}: {store.source} has no index, so "
                f"that the master rows of a key may be anywhere, and a row without a match is not known until "
                f"all are read; build a page file with this key, or use how='inner' with on_miss='drop'.",
                argument="condition",
            )

    def frame(self, pairs: DataFrame, task: EnrichTask) -> DataFrame:
        """The result, of the pairs of equal key."""
        if not self.settles:
            return pairs.where(self._condition).select(*(column_of(name) for name in self.output.names))
        holds = F.when(F.col(_MATCHED), F.coalesce(self._condition, F.lit(False))).otherwise(False)
        pairs = pairs.withColumn(_HOLDS, holds).withColumn(_PART, F.spark_partition_id())
        schema = pa.schema([pa.field(f.name, arrow_type(f.dataType)) for f in self.output])
        told = replace(task, request=replace(self.request, condition=None))  # a Column stays with the driver
        return mapped_frame(pairs, partial(settled, Settling(told, self.picked, schema, self.n_stream)), self.output)


def pair_request(request: Request) -> Request:
    """The request of the join itself: all pairs of equal key, and rows without a pair if these are needed."""
    misses = request.how in ("left", "left_anti") or isinstance(request.on_miss, DeadLetter)
    return replace(request, how="left" if misses else "inner", on_miss=Drop(), columns=None, condition=None)


@dataclass(frozen=True, slots=True)
class Settling:
    """The input of a task that finds the rows without a pair: as `Conditioned`, in Arrow's types."""

    task: EnrichTask
    picked: tuple[int, ...]
    output: pa.Schema
    n_stream: int

    def rows(self, pairs: pa.RecordBatch, missed: bool = False) -> pa.RecordBatch:
        """Pairs as rows of the result; rows that `missed` have no master columns."""
        arrays = [
            pa.nulls(pairs.num_rows, field.type)
            if missed and at >= self.n_stream
            else pairs.column(at).cast(field.type)
            for at, field in zip(self.picked, self.output, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.output)

    def dead_letters(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """The stream's columns of rows that missed, under their own names."""
        arrays = [pairs.column(at).cast(field.type) for at, field in enumerate(self.task.dead_letter_columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.task.dead_letter_columns)


class Groups:
    """Pairs in groups, one per stream row; the last group of a batch stays open, as the next batch may continue it."""

    def __init__(self) -> None:
        self._open: pa.RecordBatch | None = None
        self._met = False

    def take(self, batch: pa.RecordBatch) -> tuple[I64, I64, list[pa.RecordBatch]]:
        """The pairs that hold, the first of these in each group, and one row of each group that ended without any."""
        holds, first = (_bools(batch, name) for name in (_HOLDS, _FIRST))
        group, starts = np.cumsum(first), np.flatnonzero(first)
        met = np.zeros(len(starts) + 1, np.bool_)
        some = np.flatnonzero(holds)
        met[group[some]] = True
        firsts = some[np.unique(group[some], return_index=True)[1]]
        if self._met:
            firsts = firsts[group[firsts] > 0]
        met[0] |= self._met
        ended = []
        if len(starts):
            if self._open is not None and not met[0]:
                ended.append(self._open)
            lost = starts[:-1][~met[1:-1]]
            ended.append(batch.take(pa.array(lost)))
            self._open = batch.take(pa.array(starts[-1:]))
        self._met = bool(met[-1])
        return some, firsts, ended

    def end(self) -> list[pa.RecordBatch]:
        """The row of the last group, if no pair of it held."""
        return [] if self._open is None or self._met else [self._open]


def _bools(batch: pa.RecordBatch, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(batch.column(batch.schema.get_field_index(name)), np.bool_)


def settled(spec: Settling, batches: Batches) -> Batches:
    """The result of a task: the pairs that hold, and rows without such a pair as `how` requires."""
    given = (batch for batch in batches if batch.num_rows)
    head = next(given, None)
    if head is None:
        return
    groups, how = Groups(), spec.task.request.how
    part = head.column(head.schema.get_field_index(_PART))[0]
    dead = Attempt(spec.task).dead_letters(f"{part}-condition")
    n_rows = 0
    with dead or nullcontext():
        for batch in chain([head], given):
            n_rows += batch.num_rows
            some, firsts, ended = groups.take(batch)
            if how != "left_anti":
                kept = firsts if how == "left_semi" else some
                yield from _some(spec.rows(batch.take(pa.array(kept))))
            for rows in ended:
                yield from _missed(spec, dead, rows)
        for rows in groups.end():
            yield from _missed(spec, dead, rows)
        if dead is not None:
            dead.commit(n_rows)
            report = Metrics()
            report.add("dead_letters", dead.rows)
            spec.task.sink.task(report)


def _missed(spec: Settling, dead: DeadLetters | None, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if dead is not None:
        dead.add(spec.dead_letters(rows))
    if spec.task.request.how in ("left", "left_anti"):
        yield from _some(spec.rows(rows, missed=True))


def _some(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if rows.num_rows:
        yield rows
