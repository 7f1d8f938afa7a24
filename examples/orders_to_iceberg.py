"""Orders, a stream from a table, with the price at their date, into an Iceberg table: each micro-batch is there once.

Draws the revenue of each day into orders_to_iceberg.svg (needs matplotlib and pyiceberg[sql-sqlite,pyarrow]).
"""

from contextlib import closing
from pathlib import Path

from matplotlib.figure import Figure
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import dovetail


def catalog(place: str) -> closing[SqlCatalog]:
    """The catalog in a SQLite file, closed when it has been used."""
    return closing(SqlCatalog("shop", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}/warehouse"))


def write_once(rows: DataFrame, number: int, place: str) -> None:
    """Append a micro-batch, with its number in the same commit, unless the table has it."""
    # The id is that of the checkpoint, so that it stays the same across restarts.
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    answers = rows.toArrow()  # before the check: a repeated micro-batch must run, too, where it updates a join's state
    mark = {f"micro-batch.{query}": str(number)}
    with catalog(place) as shop:
        shop.create_namespace_if_not_exists("shop")
        table = shop.create_table_if_not_exists("shop.priced", answers.schema)
        newest = int(table.properties.get(f"micro-batch.{query}", -1))  # kept when snapshots expire
        if number < newest:
            raise RuntimeError(
                f"shop.priced has micro-batch {newest}, the checkpoint is at {number}: an older copy of it?"
            )
        if number > newest:
            with table.transaction() as commit:
                commit.append(answers, snapshot_properties=mark)
                commit.set_properties(mark)


def run(spark: SparkSession, place: str, memory: str = "8MB") -> StreamingQuery:
    """Price what has arrived in the table `orders` since the last run."""
    orders = spark.readStream.option("maxFilesPerTrigger", 1).table("orders")
    store = dovetail.MasterStore.open(f"{place}/prices.pages")
    priced = dovetail.enrich(orders, store, on="product", at="ordered_at", how="left", memory=memory)
    writer = priced.writeStream.foreachBatch(lambda rows, number: write_once(rows, number, place))
    query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def arrive(spark: SparkSession, place: str, first: int, last: int, mode: str = "append") -> None:
    """Add orders to the table: four files. With the first ones come the prices of products, which change each month."""
    days = "date'2026-01-01' + cast(pmod(hash(id), 90) as int)"
    orders = spark.range(first, last, 1, 4).selectExpr("id as order_id", "id % 20 as product", f"{days} as ordered_at")
    orders.write.mode(mode).option("path", f"{place}/orders").saveAsTable("orders")
    if mode == "overwrite":
        month = "date'2026-01-01' + 30 * cast(id div 20 as int)"
        prices = spark.range(60).selectExpr(
            "id % 20 as product", "10 + id as price", f"{month} as valid_from", f"{month} + 30 as valid_to"
        )
        dovetail.MasterStore.build(prices, f"{place}/prices.pages", key="product")


def read(place: str) -> list[dict[str, object]]:
    """The rows of the Iceberg table."""
    with catalog(place) as shop:
        return shop.load_table("shop.priced").scan().to_arrow().to_pylist()


def main() -> None:
    """Price, draw."""
    spark, place = dovetail.session(app="iceberg"), str(Path.cwd())
    arrive(spark, place, 0, 6000, mode="overwrite")
    run(spark, place)
    rows = read(place)
    assert sorted(row["order_id"] for row in rows) == list(range(6000))

    days = sorted({row["ordered_at"] for row in rows})
    figure = Figure(figsize=(8, 2.5), layout="tight")
    axes = figure.subplots()
    axes.bar(days, [sum(row["price"] for row in rows if row["ordered_at"] == day) for day in days])
    axes.set_ylabel("revenue")
    figure.savefig("orders_to_iceberg.svg")


if __name__ == "__main__":
    main()
