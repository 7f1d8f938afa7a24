"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back.
* `task`: what tasks are told, how they take rows, and the buckets of batch DataFrames, for the batch host.
* `state`: a bucket of streams, for the stateful host.
"""
