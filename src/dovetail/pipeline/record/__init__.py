"""The record of a run: `watch` keeps it, `follow` fills it from Spark's progress; `backlog`, `figures`, `failures`."""
