"""Spark: session and settings, Java, the worker daemon, metrics from tasks to the driver; `hosts/` drive joins."""
