"""Semi-stream joins on Spark.

* `plan`: the planned enrichment with `explain` and metrics. `columns`: keys of one type, and the columns of the result.
* `condition`: the ON condition. `task`: what a task is told, and the version that it must read.
* `worker`: the running join in a worker, and a task of mode "per_batch". `carry`: mode "carry", in which rows wait
  between micro-batches, for the stateful host.
* `build`: page files written by Spark.
"""
