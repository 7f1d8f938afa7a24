"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back.
* `available_now`: ends queries of joins that work in pauses, where Spark would not.
* `buckets`: the task of a bucket, for batch DataFrames on the batch host, for streams on the stateful host.
"""
