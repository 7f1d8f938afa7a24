"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back. `task`: what tasks are told, and how they take rows.
* `state`: a bucket of streams, for the stateful host. `batch`: the buckets of batch DataFrames, for the batch host.
"""
