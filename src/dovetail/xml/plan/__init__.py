"""XQuery on Spark: `plan` (what `explain` prints and `frame` gives) and `rows` (the DataFrames of its parts)."""
