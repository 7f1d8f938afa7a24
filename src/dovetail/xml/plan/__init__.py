"""XQuery on Spark: files, tasks and rows."""
