"""Foundations of all joins, without Spark.

* `operator`: the contract of joins: specifications, operators, capabilities. `host`: drives an operator locally.
  `turns`: bounds the results of a call.
* `memory`: budgets. `metrics`, `frequent`, `clock`, `profile`: counts, frequent items, time, unit costs of the machine.
* `rows/`: Arrow columns, rows by name, codes and hashes of keys, names of results, batches as bytes.
* `storage/`: spilled rows, files that all hosts share, devices, secrets of addresses.
* `exchange/`: rows between tasks.
* `point_join`: joins of left rows with right rows near a point. `nested_loop`: the reference join.
* `kernels/`: compiled loops over plain arrays. `cache`: the directory that keeps them compiled. `processor`: for which
  they are compiled.
"""
