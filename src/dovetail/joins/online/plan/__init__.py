"""Online joins on Spark.

* `plan`: the planned join, from DataFrames to buckets and back.
* `available_now`: ends queries of joins that work in pauses, where Spark would not.
* `task`: the task of a join. `batch_task`: its buckets for batch DataFrames, on the batch host. `buckets`: for streams,
  on the stateful host.
"""
