"""Writes sinks: `write` for all types; `files` (over `hadoop`) and `postgres` write every micro-batch exactly once."""
