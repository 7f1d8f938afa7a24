"""Sinks: `write` for all of them, `files` (with `hadoop`) and `postgres`, which take every micro-batch once."""
