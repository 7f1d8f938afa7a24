"""Online joins: stream against stream, results as early as possible, inside a memory budget.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments. `graph`: when rows match; two inputs are a tree with
  one edge. `intervals`: when rows match by a relation of intervals.
* `plan/`: from DataFrames to buckets and back, and the task of a bucket. `bucket_rule`: the bucket of a row.
  `hot_keys`: keys with too many rows for one bucket.
* `events`: rows, pauses and ends as a bucket stores them. `lateness`: event times and watermarks. `bucket_state`: the
  state of a bucket, and when rows leave it. `bucket_join`: its join, as a value and running in the resident process.
  `unmatched`: outer, semi and anti joins, formed from the pairs of that join.
* `operators/`: the running join of any number of inputs, and the algorithms, each made of an index of rows in memory
  and of work on disk. `kernels/`: the compiled loops.
* What operators are built from: `keys`, `sizes` (the split of the budget), `row_pages` (rows in memory), `blocks` (rows
  on disk), `answers` (combinations as batches, and the phases in which they come).
"""

TASKS_AHEAD = ("dovetail.joins.online.api",)
"""Modules that tasks import; the worker daemon loads them early (see `spark.daemon`)."""
