"""Nearest joins on Spark.

* `search`: rows of both sides in cells, the right rows that other cells need, and the search in tasks.
* `ties`: the rows as near as the last one, or the first of them.
"""
