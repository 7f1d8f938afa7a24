"""Semi-stream joins: a stream enriched from master data on storage, inside a memory budget."""
