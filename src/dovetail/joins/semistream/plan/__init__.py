"""Semi-stream joins on Spark.

* `columns`: keys of one type and the columns of the result. `plan`: the planned enrichment with `explain` and metrics.
* `task`: the specification of a task. `worker`: the task of a micro-batch. `rows`: the size of a batch task.
* `carry`, `carry_decision`, `carry_log`, `arrivals`: mode "carry", in which rows wait between micro-batches.
* `condition`: the ON condition. `build`: page files written by Spark.
"""
