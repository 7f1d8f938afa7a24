"""Semi-stream joins: a stream enriched from master data on storage, inside a memory budget.

In the order in which a call passes them:

* `api`: the public functions. `request` checks their arguments.
* `plan/`: the enrichment on Spark, in both modes. `decision`: the algorithm, its sizes and its predicted rate.
* `cost/`: the cost models. `sizes`: segments of master data, and the split of a budget between the parts of a join.
* `versions`: the version of the master data that a micro-batch reads. `master/`: the stores and their pages.
* `operators/`: the ten joins. `keys`: keys in normal form and as codes. `cells`: ranges as keys. `within`: what pairs
  of equal key must fulfil. `kernels/`: the compiled loops.
* `dead_letters`: rows without a match. `state`: what mode "carry" keeps between micro-batches.
"""

TASKS_AHEAD = ("dovetail.joins.semistream.plan.task",)
"""Modules that tasks import; the worker daemon loads them early (see `spark.daemon`)."""
