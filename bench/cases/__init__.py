"""One small module a benchmark; each holds a `CASE`."""
