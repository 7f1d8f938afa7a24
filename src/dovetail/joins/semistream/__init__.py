"""Semi-stream joins: a stream enriched from master data on storage, inside a memory budget.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments; `on_miss` and `freshness` are parts of a request.
* `plan/`: the enrichment on Spark, in both modes. `decision`: the algorithm, its sizes and its predicted rate.
* `versions`: the version of the master data that a micro-batch reads. `master/`: the stores and their pages.
* `operators/`: the ten joins. Their parts: `keys`, `waiting`, `lookup`, `segments`, `cache`, `rows`, `output`, `sizes`.
* `carried`: state between micro-batches. `dead_letters`: rows without a match. `waiting_time`: how long rows waited.
* `cost/`: the cost models. `io_costs` and `measured` compare them with a run. `kernels/`: the compiled loops.
"""
