"""Hosts that drive joins on Spark; they know no family.

* `exchange`: packs rows by bucket, in batch queries and in streams.
* `batch`: exchanges the rows of two inputs and runs joins over the batches of a task, or over buckets that end.
* `sample`: samples of rows. `cells`: the tasks of joins of rows near a point.
* `stateful`: runs a join of buckets over micro-batches, with timers and with state in the checkpoint.
* `sent`: answers rows from an index that is sent to every task.
* `pool`: keeps values in a process between tasks. `resident`: keeps them in a process beside the workers.
"""
