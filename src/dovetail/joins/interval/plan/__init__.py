"""Interval joins on Spark.

* `plan`: the public functions' work: joins with `explain` and metrics, counts, top-k.
* `sides`: both inputs with the columns of the result, bounds and keys of one type. `statistics`: counts and samples.
* `choose`: the decision between the routes, with every limit and price.
* `native`, `ranges`, `index`: the routes. `join_types`: outer, semi and anti joins of rows that are in several cells.
* `write`: Parquet files from tasks.
"""
