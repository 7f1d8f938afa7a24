"""Plans a query on Spark: its explanation, its DataFrame, and its metrics.

Parts of the plan become DataFrames: scans by tasks over files, joins and aggregates by Spark where it can compute them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.engine.memory import format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.errors import XQueryError
from dovetail.spark.frames import Batches
from dovetail.spark.hosts.batch import (
    copied_to_tasks,
    exchange_by_id,
    mapped_frame,
    numbered,
    one_partition,
    task_frame,
)
from dovetail.spark.task import MetricsSink
from dovetail.spark.task_errors import MARK
from dovetail.xml.algebra.expressions import Call, Expression, Variable
from dovetail.xml.algebra.operators import DistributeResult, GroupBy, Join, Key, Order, available, operators
from dovetail.xml.execute.parts import (
    Cut,
    Direct,
    Divided,
    JoinPart,
    JoinWork,
    Part,
    ScanPart,
    Whole,
    divided,
    double_aggregate,
    planned_join,
    spread_items,
)
from dovetail.xml.execute.rows import (
    COUNT,
    FILE_SHIFT,
    ITEM,
    ORDER,
    TOTAL,
    Fields,
    Form,
    Items,
    Sent,
    SentDoubles,
    SentFields,
    SentState,
    State,
    Wanted,
    schema_of,
)
from dovetail.xml.execute.scan_task import ScanTasks, packed_apart, scan_files
from dovetail.xml.execute.scan_work import ColumnScan, ScanWork, planned_scan
from dovetail.xml.execute.tasks import (
    CUT,
    MARKER,
    Job,
    Row,
    WholeTask,
    retype,
    run_joined,
    run_rest,
    run_whole,
)
from dovetail.xml.request import Route
from dovetail.xml.rules.order import Rewriting
from dovetail.xml.scan.files import Collection
from dovetail.xml.syntax.tree import deep_stack
from dovetail.xml.xdm.values import DOUBLE, SPACE


@dataclass(frozen=True, slots=True)
class XQueryPlan:
    """A query that is planned but not run: `frame` returns the lazy DataFrame, `explain` describes how it is computed.

    >>> dovetail.plan_xquery(spark, "1 to 3").frame().count()
    3
    """

    spark: SparkSession
    job: Job
    rewriting: Rewriting
    plan: DistributeResult
    row: Row
    partitions: int
    route: Route
    sinks: list[MetricsSink]

    def frame(self) -> DataFrame:
        """The answer, as a lazy DataFrame."""
        return self._built()[0]

    def metrics(self) -> Metrics:
        """The metrics of the last run: files, bytes, matching subtrees, skipped files."""
        together = Metrics()
        for sink in self.sinks:
            together.merge(sink.collect())
        return together

    @deep_stack()
    def explain(self) -> str:
        """The plan before and after the rules, which of them were applied, how each part is executed, Spark's plan."""
        frame, notes = self._built()
        steps = "\n".join(f"- {note}" for note in notes)
        return f"{self.rewriting.explain()}\nexecution\n\n{steps}\n\nSpark\n\n{_spark_plan(frame)}"

    @deep_stack()
    def _built(self) -> tuple[DataFrame, list[str]]:
        builder = Builder(self.spark, self.job, self.sinks, self.partitions, by_tuples=self.route == "tuples")
        division: Whole | Direct | Divided = Whole("as asked for")
        if self.route != "one_task":
            division = divided(self.plan, self.job.module, self.row.variables)
        match division:
            case Direct(cut):
                return self._direct(builder, cut), builder.notes
            case Divided():
                return self._rest(builder, division), builder.notes
        return self._whole(), [f"one task runs the whole plan, documents are read one by one: {division.reason}"]

    def _whole(self) -> DataFrame:
        task, output = WholeTask(self.job, self.plan, self.row), from_arrow_schema(self.row.schema)
        return task_frame(numbered(self.spark, 1), run_whole, task, self.sinks[0], output)

    def _direct(self, builder: Builder, cut: Cut) -> DataFrame:
        rows = builder.rows(cut.part, cut.wanted)
        if isinstance(cut.wanted, Items):
            return rows.frame
        rows = rows if len(rows.orders) == 1 else builder.sorted(rows)
        return _mapped(rows.frame, partial(retype, self.row, rows.forms), self.row.schema)

    def _rest(self, builder: Builder, division: Divided) -> DataFrame:
        frames, sent = [self._marker()], list[Sent]()
        for number, cut in enumerate(division.cuts):
            rows = builder.rows(cut.part, cut.wanted)
            sent.append(rows.sent)
            order = f"array({', '.join(rows.orders)}) as o"
            frames.append(rows.frame.selectExpr(f"{number} as {CUT}", order, *rows.sent.columns))
        builder.notes.append(
            f"one last task combines {len(sent)} part(s) and runs the rest of the plan{_done_last(division.rest)}, "
            f"over at most {format_bytes(self.job.memory)} of rows"
        )
        frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        # An aggregate of Spark has one partition already; a shuffle would add a stage.
        one = one_partition(frame, shuffled=not all(isinstance(one, SentDoubles) for one in sent))
        task = partial(run_rest, self.job.without_files(), division.rest, tuple(sent), self.row)
        return _mapped(one.sortWithinPartitions(CUT, "o"), task, self.row.schema)

    def _marker(self) -> DataFrame:
        """One row of no part: adaptive execution drops an exchange without rows, and with it the last task."""
        return numbered(self.spark, 1).selectExpr(f"{MARKER} as {CUT}", "array(id) as o")


def _mapped(frame: DataFrame, task: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """The batches that a task makes of the rows of a frame."""
    return mapped_frame(frame, task, from_arrow_schema(schema))


_LAST = {Order: "order by", GroupBy: "group by", Join: "a join"}


def _done_last(rest: DistributeResult) -> str:
    """The operators that one task must run, if they need all tuples together."""
    kinds = {type(operator) for operator in operators(rest)}
    found = [name for kind, name in _LAST.items() if kind in kinds]
    return f": {', '.join(found)}" if found else ""


def _spark_plan(frame: DataFrame) -> str:
    from dovetail.spark.frames import is_connect

    if is_connect(frame):
        return "(not shown over Spark Connect; call explain() of the DataFrame)"
    return str(frame._jdf.queryExecution().simpleString())


BROADCAST_BYTES = 16 << 20
"""The largest size of a side's files for a broadcast join."""
HASHED_BYTES = 96 << 20
"""Bytes of files for each partition of a shuffle up to which it is joined in memory; beyond, both sides are sorted."""
_RAISED = f"{MARK}{XQueryError.__name__}:"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a part, how the last task reads them, and the columns that sort them in the order of the query.

    `size` is that of the files they come from; `first_file` the column that numbers the files of a collection.
    """

    frame: DataFrame
    sent: Sent
    orders: tuple[str, ...] = (ORDER,)
    size: int = 0
    first_file: tuple[str, Collection] | None = None

    @property
    def forms(self) -> dict[Variable, Form]:
        """The variables of the rows, and how they are written."""
        return dict(self.sent.forms) if isinstance(self.sent, SentFields) else {}


@dataclass(slots=True)
class Builder:
    """Makes DataFrames of parts, and records how each of them is executed."""

    spark: SparkSession
    job: Job
    sinks: list[MetricsSink]
    partitions: int
    by_tuples: bool = False
    notes: list[str] = field(default_factory=list)
    _count: int = 0
    _scans: int = 0

    def rows(self, part: Part, wanted: Wanted) -> Rows:
        """The required rows of a part."""
        return self._scan(part, wanted) if isinstance(part, ScanPart) else self._join(part, wanted)

    # --- scans

    def _scan(self, part: ScanPart, wanted: Wanted) -> Rows:
        work = planned_scan(part, wanted, self.by_tuples)
        collection = self.job.collections[part.collection or ""]
        packed = collection.packed(self.partitions)
        self._note_scan(work, len(packed))
        tasks = ScanTasks(self.job.without_files(), work, packed_apart(packed))
        output = from_arrow_schema(schema_of(wanted, work.forms))
        frame = task_frame(numbered(self.spark, len(packed)), scan_files, tasks, self._sink(), output)
        order = self._named(ORDER)
        if not isinstance(wanted, Items):
            frame = frame.withColumnRenamed(ORDER, order)
        sent: Sent = SentState(wanted) if isinstance(wanted, State) else SentFields(())
        if isinstance(wanted, Fields):
            sent = SentFields(tuple(zip(wanted.variables, work.forms, strict=True)))
        return Rows(frame, sent, (order,), collection.size, (order, collection))

    def _note_scan(self, work: ScanWork, tasks: int) -> None:
        scan = work.part.scan
        path = "".join(f"/{name}" for name in scan.path) or "whole documents"
        on_columns = isinstance(work, ColumnScan)
        way = "on columns" if on_columns else "elements are built and the chain runs tuple by tuple"
        reading = "documents are parsed one by one" if work.request is None else "streaming scan"
        tested = f"; {len(work.filters)} condition(s) tested on texts in the scan task" if work.filters else ""
        if work.request is not None and work.request.keep:
            tested += f", {len(work.request.keep)} of them while files are scanned"
        head = f"scan of {work.part.collection!r}, {path}: {reading} in {tasks} task(s)"
        self.notes.append(f"{head}, {way} ({work.why}){tested}")

    def _sink(self) -> MetricsSink:
        """A sink for each scan: reports of different scans may have equal partition numbers."""
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
        inner_keys, outer_keys = zip(*(one.keys for one in part.keys), strict=True)
        outer = self.rows(part.outer, self._side(work, part.outer, outer_keys))
        inner = self.rows(part.inner, self._side(work, part.inner, inner_keys))
        renamed = {f"k{n}": f"j{n}" for n in range(len(part.keys))}
        many = [n for n, pair in enumerate(part.keys) if pair.existential]
        right, how = self._hinted(outer, inner, each_key(inner.frame.withColumnsRenamed(renamed), "j", many))
        left = each_key(outer.frame, "k", many)
        left = copied_to_tasks(left) if how == "broadcast of the outer side" else left
        frame = left.join(right, F.expr(" and ".join(_met(n, n in many) for n in range(len(part.keys)))))
        frame = frame.drop(*renamed, *renamed.values(), *(f"{side}e{n}" for side in "kj" for n in many))
        self.notes.append(f"join on {len(part.keys)} key(s): Spark, {how}; {len(work.residual)} further condition(s)")
        sent, orders = SentFields(tuple((outer.forms | inner.forms).items())), (*outer.orders, *inner.orders)
        return self._above(work, Rows(frame, sent, orders, outer.size + inner.size, outer.first_file))

    def _side(self, work: JoinWork, part: Part, keys: tuple[Key, ...]) -> Fields:
        mine = tuple(one for one in work.needed if one in available(part.plan))
        return Fields(mine, keys, work.typed & set(mine))

    def _hinted(self, outer: Rows, inner: Rows, right: DataFrame) -> tuple[DataFrame, str]:
        """The inner side with the method of the join: Spark cannot know how large the answers of our tasks are."""
        if inner.size <= BROADCAST_BYTES and inner.size <= outer.size:
            return copied_to_tasks(right), "broadcast of the inner side"
        if outer.size <= BROADCAST_BYTES:
            return right, "broadcast of the outer side"
        parts = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 200)
        if inner.size <= HASHED_BYTES * parts:
            return right.hint("shuffle_hash"), "shuffled hash join"
        return right.hint("merge"), "sort-merge join"

    def _above(self, work: JoinWork, joined: Rows) -> Rows:
        """The chain above a join: as Spark expressions, or by tuples in tasks."""
        if isinstance(work.wanted, State):
            return self._aggregated(work, work.wanted, joined)
        if isinstance(work.wanted, Items):
            return self._items(work, self.sorted(joined))
        self.notes.append("above the join: tuple by tuple in tasks")
        orders = (*joined.orders, self._named("s"))
        forms: dict[Variable, Form] = dict.fromkeys(work.wanted.variables, "items")
        rows = self._in_tasks(work, joined, tuple(forms.values()), orders)
        return replace(rows, sent=SentFields(tuple(forms.items())), orders=orders, first_file=joined.first_file)

    def _in_tasks(
        self, work: JoinWork, joined: Rows, forms: tuple[Form, ...] = (), orders: tuple[str, ...] = ()
    ) -> Rows:
        schema = schema_of(work.wanted, forms, orders)
        task = partial(run_joined, self.job.without_files(), work, joined.forms, joined.orders, schema)
        return Rows(_mapped(joined.frame, task, schema), SentFields(()), size=joined.size)

    def _items(self, work: JoinWork, joined: Rows) -> Rows:
        spread = spread_items(work, joined.forms)
        if spread is None or self.by_tuples:
            self.notes.append("above the join: tuple by tuple in tasks, rows in the order of the query")
            return self._in_tasks(work, joined)
        self.notes.append("above the join: Spark expressions, rows in the order of the query")
        items = F.concat(*(F.col(f"v{one.number}") for one in spread))
        return replace(joined, frame=joined.frame.select(F.explode(items).alias(ITEM)))

    def sorted(self, rows: Rows) -> Rows:
        """The rows in the order of the query: parts of the outermost collection in turn, each of them sorted."""
        assert rows.first_file is not None  # noqa: S101  (every part starts from a scan)
        order, collection = rows.first_file
        packed = collection.packed(self.partitions)
        last = [run[-1].number for run in packed[:-1]]
        # In one text: each Column operation is a call to the JVM, and there may be many partitions.
        number = " + ".join(["0", *(f"int(shiftright({order}, {FILE_SHIFT}) > {edge})" for edge in last)])
        frame = exchange_by_id(rows.frame, len(packed), F.expr(number), rows.orders)
        return replace(rows, frame=frame)

    # --- aggregates over joins

    def _aggregated(self, work: JoinWork, wanted: State, joined: Rows) -> Rows:
        argument = None if self.by_tuples else double_aggregate(work, joined.forms)
        if argument is None:
            self.notes.append("aggregate over the join: local step tuple by tuple in tasks")
            return replace(self._in_tasks(work, joined), sent=SentState(wanted))
        name = wanted.call.name
        self.notes.append(f"aggregate over the join: {name} of doubles as Spark expressions, in two steps")
        value = self._doubles(joined.frame, argument)
        found = value.agg(F.count("x").alias(COUNT), _AGGREGATES[name](F.col("x")).alias(TOTAL))
        return Rows(found.withColumn(ORDER, F.lit(0)), SentDoubles(wanted))

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
    """The condition on the n-th keys of two rows. Rows that share several keys are paired at the smallest one."""
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
    plain = F.trim(text, F.lit(SPACE))
    message = F.concat(F.lit(f"{_RAISED} [FORG0001] '"), text, F.lit("' is not a valid xs:double"))
    return (
        F.when(text.isNull(), F.lit(None).cast("double"))
        .when(plain.rlike(f"^{DOUBLE}$"), plain.try_cast("double"))
        .when(plain.isin("INF", "+INF"), F.lit(float("inf")))
        .when(plain == "-INF", F.lit(float("-inf")))
        .when(plain == "NaN", F.lit(float("nan")))
        .otherwise(F.raise_error(message).cast("double"))
    )


def _smallest(value: Column) -> Column:
    """NaN if there is one: in Spark NaN is the largest number, in XQuery it is the result."""
    return F.when(F.max(F.isnan(value)), F.lit(float("nan"))).otherwise(F.min(value))


_AGGREGATES = {"sum": F.sum, "avg": F.sum, "max": F.max, "min": _smallest}
