"""Hosts that drive joins on Spark; they know no family.

* `exchange`: packs rows by bucket, in batch queries and in streams.
* `batch`: runs a join of buckets over DataFrames that end.
* `stateful`: runs a join of buckets over micro-batches, with timers and with state in the checkpoint.
* `resident`: keeps values in an executor between tasks, in a worker or in a process beside the workers.
"""
