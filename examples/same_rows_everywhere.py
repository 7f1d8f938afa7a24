"""A workload is the same rows as Arrow, as a Spark table and as a stream."""

import tempfile

import dovetail
from dovetail.workloads import orders, register

ROWS = 2_000


def main() -> None:
    """Read the same orders three ways and compare."""
    spark = dovetail.session(app="same rows everywhere")
    register(spark)
    options = {"rows": ROWS, "seed": 7}

    table = spark.read.format("dovetail.orders").options(**options).load()
    local = orders(**options).table()
    assert table.agg({"amount_cents": "sum"}).first()[0] == sum(local["amount_cents"].to_pylist())

    stream = spark.readStream.format("dovetail.orders").options(**options, rows_per_batch=500).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        query = stream.writeStream.format("memory").queryName("arrived").option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
    assert spark.table("arrived").exceptAll(table).count() == 0
    print(f"{spark.table('arrived').count()} rows, equal three times")


if __name__ == "__main__":
    main()
