"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back.
* `available_now`: ends queries of joins that work in pauses, where Spark would not.
* `buckets`: what a task does with a bucket, of batch DataFrames for the batch host, of streams for the stateful host.
"""
