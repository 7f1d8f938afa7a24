"""Parts of a plan as DataFrames: scans by tasks over files, joins and aggregates by Spark where it can compute them.

What runs inside tasks are module-level functions closed over values: batches in, batches out.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.engine.metrics import Metrics
from dovetail.errors import XQueryError
from dovetail.spark.arrow import map_in_arrow
from dovetail.spark.metrics import MetricsSink
from dovetail.spark.task_errors import MARK
from dovetail.xml.algebra.expressions import Call, Expression, Variable
from dovetail.xml.algebra.operators import DistributeResult
from dovetail.xml.algebra.walk import available
from dovetail.xml.execute.job import Collection, File, Job
from dovetail.xml.execute.joining import JoinedRows, JoinWork, double_aggregate, planned_join, spread_items
from dovetail.xml.execute.last_task import COUNT, TOTAL, Received, rest_items, whole_items
from dovetail.xml.execute.parts import JoinPart, Part, ScanPart
from dovetail.xml.execute.result import Row
from dovetail.xml.execute.scan_task import scanned, schema_of
from dovetail.xml.execute.scan_work import ScanWork, Wanted, planned_scan
from dovetail.xml.execute.wire import ARROW, FILE_SHIFT, ITEM, KEY_TYPES, ORDER, STATE, Form, Key, batched
from dovetail.xml.syntax.stack import deep_stack

Batches = Iterator[pa.RecordBatch]


def packed_apart(packed: Iterable[tuple[File, ...]]) -> tuple[bytes, ...]:
    """The files of each partition by themselves and small: a task gets all of it, and unpacks its own part only."""
    return tuple(zlib.compress(pickle.dumps([(file.number, file.uri, file.size) for file in run])) for run in packed)


def scan_files(job: Job, work: ScanWork, packed: tuple[bytes, ...], sink: MetricsSink, batches: Batches) -> Batches:
    """The rows of the files of the partitions whose numbers come in; `packed` is what `packed_apart` gives."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            metrics = Metrics()
            files = [File(*one) for one in pickle.loads(zlib.decompress(packed[number]))]  # noqa: S301  (by the driver)
            with deep_stack():
                yield from _all_but_last(scanned(job, work, files, metrics), schema_of(work), sink, metrics)


def _all_but_last(rows: Batches, schema: pa.Schema, sink: MetricsSink, metrics: Metrics) -> Batches:
    """Every batch; what was measured is reported before the last one, as `MetricsSink.task` asks."""
    held = pa.RecordBatch.from_pylist([], schema=schema)
    for batch in rows:
        yield held
        held = batch
    sink.task(metrics)
    yield held


def run_whole(job: Job, plan: DistributeResult, row: Row, sink: MetricsSink, batches: Batches) -> Batches:
    """The whole query in this task."""
    for _ in batches:
        metrics = Metrics()
        found = batched(map(row.cells, whole_items(job, plan, metrics, row.variables)), row.schema)
        yield from _all_but_last(found, row.schema, sink, metrics)


def run_rest(job: Job, rest: DistributeResult, received: tuple[Received, ...], row: Row, batches: Batches) -> Batches:
    """What is left of the query when its parts have been computed."""
    return batched(map(row.cells, rest_items(job, rest, received, batches, row.variables)), row.schema)


def run_joined(
    job: Job,
    work: JoinWork,
    forms: dict[Variable, Form],
    orders: tuple[str, ...],
    schema: pa.Schema,
    batches: Batches,
) -> Batches:
    """The chain above a join, on the rows that Spark joined."""
    rows = JoinedRows(job, work, forms, orders)
    give: Callable[[Batches, pa.Schema], Batches] = rows.rows
    if work.wanted.items is not None:
        give = rows.items
    elif work.wanted.aggregate is not None:
        give = rows.state
    with deep_stack():
        yield from give(batches, schema)


def retype(row: Row, forms: dict[Variable, Form], batches: Batches) -> Batches:
    """Values of variables that tasks sent as typed columns."""
    for batch in batches:
        yield row.typed(batch, forms)


BROADCAST_BYTES = 16 << 20
"""The files of a side are at most this large: every task of a join gets all of it."""
HASHED_BYTES = 96 << 20
"""Bytes of files for each partition of a shuffle up to which it is joined in memory; beyond, both sides are sorted."""
_STATES = pa.schema([(ORDER, pa.int64()), (STATE, pa.binary())])
_DOUBLE = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_SPACE = " \t\n\r"
_RAISED = f"{MARK}{XQueryError.__name__}:"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a part: columns that sort them in the order of the query, and the forms of the variables.

    With `doubles` it is one row, which Spark aggregated: the count of numbers, and their sum or the like.
    """

    frame: DataFrame
    orders: tuple[str, ...]
    forms: dict[Variable, Form]
    size: int
    first_file: tuple[str, Collection] | None = None
    doubles: bool = False


@dataclass(slots=True)
class Builder:
    """Makes DataFrames of parts, and notes how each of them is executed."""

    spark: SparkSession
    job: Job
    sinks: list[MetricsSink]
    partitions: int
    by_tuples: bool = False
    notes: list[str] = field(default_factory=list)
    _count: int = 0
    _scans: int = 0

    def rows(self, part: Part, wanted: Wanted) -> Rows:
        """What is wanted of a part."""
        return self._scan(part, wanted) if isinstance(part, ScanPart) else self._join(part, wanted)

    # --- scans

    def _scan(self, part: ScanPart, wanted: Wanted) -> Rows:
        work = planned_scan(part, wanted, self.by_tuples)
        collection = self.job.collections[part.collection or ""]
        packed = collection.packed(self.partitions)
        self._note_scan(work, len(packed))
        schema = from_arrow_schema(schema_of(work))
        task = partial(scan_files, self.job.without_files(), work, packed_apart(packed), self._sink())
        frame = map_in_arrow(self.spark.range(0, len(packed), 1, len(packed)), task, schema)
        order = self._named(ORDER)
        if wanted.items is None:
            frame = frame.withColumnRenamed(ORDER, order)
        forms = dict(zip(wanted.variables, work.forms, strict=True))
        return Rows(frame, (order,), forms, collection.size, (order, collection))

    def _note_scan(self, work: ScanWork, tasks: int) -> None:
        scan = work.part.scan
        path = "".join(f"/{name}" for name in scan.path) or "whole documents"
        way = "elements are built and the chain runs tuple by tuple" if work.tuples else "on columns"
        reading = "documents are parsed one by one" if work.request is None else "streaming scan"
        tested = f"; {len(work.filters)} condition(s) tested on texts in the scan task" if work.filters else ""
        if work.request is not None and work.request.keep:
            tested += f", {len(work.request.keep)} of them while files are scanned"
        head = f"scan of {work.part.collection!r}, {path}: {reading} in {tasks} task(s)"
        self.notes.append(f"{head}, {way} ({work.why}){tested}")

    def _sink(self) -> MetricsSink:
        """A sink for each scan: reports of one partition number are told apart by nothing else."""
        self._scans += 1
        if len(self.sinks) < self._scans:
            self.sinks.append(MetricsSink(self.spark))
        return self.sinks[self._scans - 1]

    def _named(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    # --- joins

    def _join(self, part: JoinPart, wanted: Wanted) -> Rows:
        work = planned_join(part, wanted)
        outer = self.rows(part.outer, self._side(work, part.outer, tuple(key.outer for key in part.keys)))
        inner = self.rows(part.inner, self._side(work, part.inner, tuple(key.inner for key in part.keys)))
        renamed = {f"k{n}": f"j{n}" for n in range(len(part.keys))}
        many = [n for n, pair in enumerate(part.keys) if pair.inner.many]
        right, how = self._hinted(outer, inner, each_key(inner.frame.withColumnsRenamed(renamed), "j", many))
        left = each_key(outer.frame, "k", many)
        left = F.broadcast(left) if how == "broadcast of the outer side" else left
        frame = left.join(right, F.expr(" and ".join(_met(n, n in many) for n in range(len(part.keys)))))
        frame = frame.drop(*renamed, *renamed.values(), *(f"{side}e{n}" for side in "kj" for n in many))
        self.notes.append(f"join on {len(part.keys)} key(s): Spark, {how}; {len(work.residual)} further condition(s)")
        joined = Rows(
            frame, (*outer.orders, *inner.orders), outer.forms | inner.forms, outer.size + inner.size, outer.first_file
        )
        return self._above(work, joined)

    def _side(self, work: JoinWork, part: Part, keys: tuple[Key, ...]) -> Wanted:
        mine = tuple(one for one in work.needed if one in available(part.plan))
        return Wanted(keys=keys, variables=mine, typed=work.typed & set(mine))

    def _hinted(self, outer: Rows, inner: Rows, right: DataFrame) -> tuple[DataFrame, str]:
        """The inner side with the method of the join: Spark cannot know how large the answers of our tasks are."""
        if inner.size <= BROADCAST_BYTES and inner.size <= outer.size:
            return F.broadcast(right), "broadcast of the inner side"
        if outer.size <= BROADCAST_BYTES:
            return right, "broadcast of the outer side"
        parts = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200)
        if inner.size <= HASHED_BYTES * parts:
            return right.hint("shuffle_hash"), "shuffled hash join"
        return right.hint("merge"), "sort-merge join"

    def _above(self, work: JoinWork, joined: Rows) -> Rows:
        """The chain above a join: as Spark expressions, or by tuples in tasks."""
        if work.wanted.aggregate is not None:
            return self._aggregated(work, joined)
        if work.wanted.items is not None:
            return self._items(work, self.sorted(joined))
        orders = (*joined.orders, self._named("s"))
        fields = [
            *((name, pa.int64()) for name in orders),
            *((f"k{n}", KEY_TYPES[key.many]) for n, key in enumerate(work.wanted.keys)),
        ]
        fields += [(f"v{one.number}", ARROW["items"]) for one in work.wanted.variables]
        self.notes.append("above the join: tuple by tuple in tasks")
        frame = self._in_tasks(work, joined, pa.schema(fields))
        return Rows(frame, orders, dict.fromkeys(work.wanted.variables, "items"), joined.size, joined.first_file)

    def _in_tasks(self, work: JoinWork, joined: Rows, schema: pa.Schema) -> DataFrame:
        task = partial(run_joined, self.job.without_files(), work, joined.forms, joined.orders, schema)
        return map_in_arrow(joined.frame, task, from_arrow_schema(schema))

    def _items(self, work: JoinWork, joined: Rows) -> Rows:
        spread = spread_items(work, joined.forms)
        if spread is None or self.by_tuples:
            self.notes.append("above the join: tuple by tuple in tasks, rows in the order of the query")
            schema = pa.schema([pa.field(ITEM, pa.string(), nullable=False)])
            return Rows(self._in_tasks(work, joined, schema), (), {}, joined.size)
        self.notes.append("above the join: Spark expressions, rows in the order of the query")
        items = F.concat(*(F.col(f"v{one.number}") for one in spread))
        return Rows(joined.frame.select(F.explode(items).alias(ITEM)), (), {}, joined.size)

    def sorted(self, rows: Rows) -> Rows:
        """The rows in the order of the query: parts of the outermost collection in turn, each of them sorted."""
        assert rows.first_file is not None  # noqa: S101  (every part starts from a scan)
        order, collection = rows.first_file
        packed = collection.packed(self.partitions)
        last = [run[-1].number for run in packed[:-1]]
        # In one text: each Column operation is a call to the JVM, and there may be many partitions.
        number = " + ".join(["0", *(f"int(shiftright({order}, {FILE_SHIFT}) > {edge})" for edge in last)])
        frame = rows.frame.repartitionById(len(packed), F.expr(number)).sortWithinPartitions(*rows.orders)
        return Rows(frame, rows.orders, rows.forms, rows.size, rows.first_file)

    # --- aggregates over joins

    def _aggregated(self, work: JoinWork, joined: Rows) -> Rows:
        argument = None if self.by_tuples else double_aggregate(work, joined.forms)
        if argument is None:
            self.notes.append("aggregate over the join: local step tuple by tuple in tasks")
            return Rows(self._in_tasks(work, joined, _STATES), (ORDER,), {}, joined.size)
        name = work.wanted.aggregate.expression.name  # type: ignore[union-attr]  # asked by the caller; a call, by `aggregate_in_two_steps`
        self.notes.append(f"aggregate over the join: {name} of doubles as Spark expressions, in two steps")
        value = self._doubles(joined.frame, argument)
        found = value.agg(F.count("x").alias(COUNT), _AGGREGATES[name](F.col("x")).alias(TOTAL))
        return Rows(found.withColumn(ORDER, F.lit(0)), (ORDER,), {}, 0, doubles=True)

    def _doubles(self, frame: DataFrame, argument: Expression) -> DataFrame:
        """One double a row; a lone variable may stand for several values or none."""
        if isinstance(argument, Variable):
            return frame.select(F.explode(f"v{argument.number}").alias("t")).select(double_of(F.col("t")).alias("x"))
        return frame.select(_arithmetic(argument).alias("x"))


def each_key(frame: DataFrame, side: str, many: list[int]) -> DataFrame:
    """A row for each item of the keys with these numbers, in columns ke0 or je0 and so on; none without items."""
    for n in many:
        frame = frame.withColumn(f"{side}e{n}", F.explode(f"{side}{n}"))
    return frame


def _met(n: int, many: bool) -> str:
    """When the n-th keys of two rows meet. Rows that have several keys in common meet at the smallest of them only."""
    if not many:
        return f"k{n} = j{n}"
    few = f"size(k{n}) = 1 or size(j{n}) = 1"
    return f"ke{n} = je{n} and ({few} or ke{n} = array_min(array_intersect(k{n}, j{n})))"


def _arithmetic(expression: Expression) -> Column:
    if isinstance(expression, Variable):
        values = F.col(f"v{expression.number}")
        message = f"{_RAISED} [XPTY0004] an operand is a sequence of several items; one is allowed"
        return F.when(F.size(values) > 1, F.raise_error(F.lit(message)).cast("double")).otherwise(
            double_of(F.get(values, F.lit(0)))
        )
    assert isinstance(expression, Call)  # noqa: S101  (`double_aggregate` lets nothing else pass)
    left, right = (_arithmetic(one) for one in expression.arguments)
    match expression.name:
        case "add":
            return left + right
        case "subtract":
            return left - right
    return left * right


def double_of(text: Column) -> Column:
    """An untyped text as xs:double, null for null; any other text is the error FORG0001."""
    plain = F.trim(text, F.lit(_SPACE))
    message = F.concat(F.lit(f"{_RAISED} [FORG0001] '"), text, F.lit("' is not a valid xs:double"))
    return (
        F.when(text.isNull(), F.lit(None).cast("double"))
        .when(plain.rlike(_DOUBLE), plain.try_cast("double"))
        .when(plain.isin("INF", "+INF"), F.lit(float("inf")))
        .when(plain == "-INF", F.lit(float("-inf")))
        .when(plain == "NaN", F.lit(float("nan")))
        .otherwise(F.raise_error(message).cast("double"))
    )


def _smallest(value: Column) -> Column:
    """NaN if there is one: Spark takes it for the largest number, XQuery for the answer."""
    return F.when(F.max(F.isnan(value)), F.lit(float("nan"))).otherwise(F.min(value))


_AGGREGATES = {"sum": F.sum, "avg": F.sum, "max": F.max, "min": _smallest}
