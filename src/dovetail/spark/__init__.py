"""Runs joins on Spark.

* `session`: opens and configures sessions, with `settings`. `launch`: starts the JVM, with `java` and `class_archive`.
* `daemon`, `ahead` and `warm`: Python workers that start with imported modules and compiled kernels.
* `hosts/`: drive joins. `frames`: DataFrames and functions over their batches. `inputs`: the inputs of a join.
* `task`, `task_errors`: the running task, its metrics on the driver, and its errors. `status`: Spark's own figures of a
  query.
"""
