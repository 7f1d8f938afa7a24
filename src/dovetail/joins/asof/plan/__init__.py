"""As-of joins on Spark.

* `sides`: both inputs with the columns of the result, times and keys of one type.
* `index`: split points in the order of (key hash, time), right rows carried across them, and the join in tasks.
* `window`: union and window functions, for types that only Spark has.
"""
