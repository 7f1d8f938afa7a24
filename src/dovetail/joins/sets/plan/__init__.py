"""Functions of interval sets as plans of Spark's own operators."""
