"""The experiments on joins of a stream with master data: seeds 000, 003 and 004."""
