"""The steps of the demonstration, each a small function on what the steps before it left; a new step is one more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from dovetail.bench.workbench import quiet_session
from dovetail.engine.host import run_local
from dovetail.engine.memory import MemoryBudget, format_bytes, parse_bytes
from dovetail.engine.nested_loop import NestedLoopJoin, Predicate
from dovetail.errors import ConfigError, DataError
from dovetail.spark.metrics import MetricsSink
from dovetail.workloads import register

TASKS = 4
"""Parts that the orders are cut into: enough for the progress bar to move."""


@dataclass(slots=True)
class Demo:
    """The request, what the steps leave for each other, and the lines of the summary."""

    output: Path
    rows: int
    memory: str
    seed: int
    tables: dict[str, DataFrame] = field(default_factory=dict)
    summary: list[tuple[str, str]] = field(default_factory=list)
    verified: int = 0
    running: SparkSession | None = None
    owns_session: bool = False

    def __post_init__(self) -> None:
        parse_bytes(self.memory)  # a wrong size is told before Spark starts

    @property
    def spark(self) -> SparkSession:
        """The session that the first step started."""
        if self.running is None:
            raise ConfigError("the demonstration has no Spark session; its first step starts one.")
        return self.running

    def path(self, name: str) -> Path:
        """Where a table of the demonstration is kept, as Parquet."""
        return self.output.resolve() / name

    def keep(self, name: str, table: DataFrame) -> DataFrame:
        """Write a table, and give it back as it is read from there."""
        table.write.mode("overwrite").parquet(str(self.path(name)))
        self.tables[name] = self.spark.read.parquet(str(self.path(name)))
        return self.tables[name]

    def close(self) -> None:
        """Stop Spark, if it was started here."""
        if self.running is not None and self.owns_session:
            self.running.stop()
        self.running = None


def start_spark(demo: Demo) -> None:
    """A session, once it is known that the result can be written."""
    try:
        demo.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {demo.output}: {error.strerror}. Choose another with --output.") from error
    demo.running, demo.owns_session = quiet_session("dovetail demo")


def generate(demo: Demo) -> None:
    """A month of orders, and the promotions of that month."""
    register(demo.spark)
    options = {"seed": demo.seed, "products": 200}
    for name, own in (("orders", {"rows": demo.rows, "partitions": TASKS}), ("promotions", {"rows": 500})):
        made = demo.spark.read.format(f"dovetail.{name}").options(**options, **own).load()
        demo.summary.append((name, f"{demo.keep(name, made).count():,}"))


PROMOTED = NestedLoopJoin(
    on=("product_id",),
    predicate=Predicate(
        lambda order, promotion: pc.and_(
            pc.greater_equal(order["at"], promotion["starts_at"]), pc.less(order["at"], promotion["ends_at"])
        ),
        left=("at",),
        right=("starts_at", "ends_at"),
        text="starts_at <= at < ends_at",
    ),
)


def join(demo: Demo) -> None:
    """Orders with the promotions that ran for their product when they were placed, by trying every pair."""
    orders, promotions = demo.tables["orders"], demo.tables["promotions"].toArrow()
    schemas = {"left": orders.limit(0).toArrow().schema, "right": promotions.schema}
    with PROMOTED.open(MemoryBudget(demo.memory), schemas) as operator:
        answer = from_arrow_schema(operator.schema)
    sink = MetricsSink(demo.spark)
    work = partial(_joined, schemas, promotions, demo.memory, sink)
    result = demo.keep("orders_in_promotion", orders.repartition(TASKS).mapInArrow(work, answer))
    metrics = sink.collect()
    demo.summary += [
        ("join", PROMOTED.explain()),
        ("pairs tried", f"{metrics.value('comparisons'):,}"),
        ("rows found", f"{metrics.value('rows_out'):,}"),
        ("orders in a promotion", f"{result.select('order_id').distinct().count():,}"),
        ("memory a task may use", format_bytes(parse_bytes(demo.memory))),
        ("memory a task used at most", format_bytes(metrics.value("memory_peak"))),
        ("spilled", format_bytes(metrics.value("spilled"))),
    ]


def _joined(
    schemas: dict[str, pa.Schema], promotions: pa.Table, memory: str, sink: MetricsSink, orders: Iterable[Any]
) -> Iterator[Any]:
    """One task: its orders against all promotions. The last batch waits until the metrics are reported."""
    inputs = {"left": orders, "right": promotions.to_batches()}
    last = None
    with run_local(PROMOTED, inputs, memory, schemas=schemas) as run:
        for batch in run:
            if last is not None:
                yield last
            last = batch
    sink.task(run.metrics)
    if last is not None:
        yield last


def verify(demo: Demo) -> None:
    """The rows in the file are those of Spark's own join, no more and no fewer."""
    orders, promotions = demo.tables["orders"], demo.tables["promotions"]
    result = demo.tables["orders_in_promotion"]
    within = (orders["at"] >= promotions["starts_at"]) & (orders["at"] < promotions["ends_at"])
    matches = orders.join(promotions, (orders["product_id"] == promotions["product_id"]) & within)
    expected = matches.drop(promotions["product_id"]).select(result.columns)
    for name, extra in (("only ours", result.exceptAll(expected)), ("only Spark's", expected.exceptAll(result))):
        sample = extra.limit(3).collect()
        if sample:
            raise DataError(f"the join and Spark's own disagree; rows that are {name}: {sample}.")
    demo.verified = result.count()


STEPS: tuple[tuple[str, Callable[[Demo], None]], ...] = (
    ("Start Spark", start_spark),
    ("Generate orders and promotions", generate),
    ("Join them pair by pair", join),
    ("Verify against Spark's own join", verify),
)
