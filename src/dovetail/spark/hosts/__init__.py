"""The hosts that drive joins on Spark; they know no family.

* `batch`: a function over Arrow batches, or a join of buckets that are finite.
* `stateful`: a join of buckets over micro-batches, with timers and state in the checkpoint.
* `resident`: what lives on in an executor between tasks, in a worker or in a process beside the workers.
* `exchange`: rows on their way to buckets, in batch and in streams.
"""
