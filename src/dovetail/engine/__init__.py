"""Foundations of all joins, without Spark.

* `operator`: the contract of joins: specifications, operators, capabilities. `host`: drives an operator locally.
* `memory`: budgets. `spill` and `spool`: rows on disk. `packing`: batches as bytes.
* `columns`: Arrow memory, and rows taken by number. `keys`: keys and bounds as int64.
* `point_join`: joins of left rows with right rows near a point. `ties`: the order of rows that are otherwise equal.
* `layout`: columns of a result. `nested_loop`: the reference join.
* `metrics`, `clock`, `device`, `profile`: counts, time, simulated storage, unit costs of the machine.
* `kernels/`: compiled loops over plain arrays. `cache`: the directory that keeps them compiled.
"""
