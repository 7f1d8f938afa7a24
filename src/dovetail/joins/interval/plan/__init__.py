"""Interval joins on Spark.

* `sides`: both inputs with the columns of the result and bounds and keys of one type. `statistics`: samples.
* `route`: the choice between the routes. `plan`: the planned join with `explain` and metrics.
* `native`, `cells`, `compose`: an ordinary Spark plan by bins or keys. `partitioned`, `points`: operators over ranges.
* `answers`, `count`, `top`: the index route. `write`: Parquet files. `functions`: on columns. `measured`: metrics.
"""
