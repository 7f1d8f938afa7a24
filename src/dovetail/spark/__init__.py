"""Runs joins on Spark.

* `session`: opens and configures sessions, with `settings`. `launch`: starts the JVM, with `java` and `class_archive`.
* `daemon` and `warm`: Python workers that start with compiled kernels.
* `hosts/`: drive joins. `arrow`: functions over Arrow batches. `columns`, `collation`: columns as SQL.
* `task`, `task_errors`, `metrics`: the running task, its errors and its metrics on the driver.
* `status`: Spark's own figures of a query. `connect`: differences of Spark Connect.
"""
