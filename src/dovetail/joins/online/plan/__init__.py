"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back. `pack`: rows of a bucket as Arrow in binary columns.
* `state`: the stateful processor of a stream. `batch`: the join of batch DataFrames.
"""
