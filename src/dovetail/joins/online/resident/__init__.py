"""Joins of buckets that stay in a process between micro-batches: `client` asks, `process` answers from its `pool`."""
