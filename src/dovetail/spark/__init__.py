"""Spark: the session and its settings, Java, the worker daemon, metrics from tasks to the driver."""
