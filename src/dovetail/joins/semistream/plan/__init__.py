"""Semi-stream joins on Spark: plan, tasks and state of both modes."""
