"""Orders and their payments, two streams from tables, into a Delta table: each micro-batch is there once.

Draws the pairs of each micro-batch into orders_to_delta.svg (needs matplotlib and deltalake).
"""

from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import dovetail


def write_once(rows: DataFrame, number: int, table: str) -> None:
    """Append a micro-batch, with its number in the same commit, unless the table has it."""
    # The id is that of the checkpoint, so that it stays the same across restarts.
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    answers = rows.toArrow()  # before the check: a repeated micro-batch runs, too, since it updates state of joins
    newest = DeltaTable(table).transaction_version(query) if DeltaTable.is_deltatable(table) else None
    if newest is not None and number < newest:
        raise RuntimeError(f"{table} has micro-batch {newest}, the checkpoint is at {number}: an older copy of it?")
    if number != newest:
        commit = CommitProperties(app_transactions=[Transaction(query, number)])
        write_deltalake(table, answers, mode="append", commit_properties=commit)


def run(spark: SparkSession, place: str, memory: str = "8MB") -> StreamingQuery:
    """Join what has arrived in the tables `orders` and `payments` since the last run."""
    orders, payments = (spark.readStream.option("maxFilesPerTrigger", 1).table(name) for name in ("orders", "payments"))
    pairs = dovetail.online_join(orders, payments, on="order_id", owed="batch", retain="2 hours", memory=memory)
    writer = pairs.writeStream.foreachBatch(lambda rows, number: write_once(rows, number, f"{place}/paid"))
    query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def arrive(spark: SparkSession, place: str, first: int, last: int, mode: str = "append") -> None:
    """Add orders, and payments of two thirds of them, to the tables: four files each."""
    orders = spark.range(first, last, 1, 4).selectExpr("id as order_id", "20 + id % 50 as amount")
    payments = (
        spark.range(last - 1, first - 1, -1, 4).where("id % 3 > 0").selectExpr("id as order_id", "id % 7 as paid_by")
    )
    for name, rows in (("orders", orders), ("payments", payments)):
        rows.write.mode(mode).option("path", f"{place}/{name}").saveAsTable(name)


def read(place: str) -> list[dict[str, object]]:
    """The rows of the Delta table."""
    return DeltaTable(f"{place}/paid").to_pyarrow_table().to_pylist()


def main() -> None:
    """Join, draw."""
    spark, place = dovetail.session(app="delta"), str(Path.cwd())
    arrive(spark, place, 0, 6000, mode="overwrite")
    run(spark, place)
    assert sorted(row["order_id"] for row in read(place)) == [order for order in range(6000) if order % 3]

    history = sorted(DeltaTable(f"{place}/paid").history(), key=lambda commit: commit["version"])
    figure = Figure(figsize=(8, 2.5), layout="tight")
    axes = figure.subplots()
    axes.bar([f"version {c['version']}" for c in history], [c["operationMetrics"]["num_added_rows"] for c in history])
    axes.set_ylabel("paid orders")
    figure.savefig("orders_to_delta.svg")


if __name__ == "__main__":
    main()
