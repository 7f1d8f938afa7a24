"""Semi-stream joins on Spark.

* `plan`: the planned enrichment with `explain` and metrics. `columns`: keys of one type, and the columns of the result.
* `condition`: the ON condition. `buckets`: the exchange after which each task reads its own slice of the
  master data.
* `task`: the input of a task, and the session that answers its rows. `attempt`: the version that it reads.
  `carry`: mode "carry", in which rows wait between micro-batches, for the stateful host.
* `tables`: stores of Spark tables. `build`, `build_ranges`: page files written by Spark. `changes`: page files kept
  up to date by changes.
"""
