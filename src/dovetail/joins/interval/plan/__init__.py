"""Interval joins on Spark: routes, tasks and what was measured."""
