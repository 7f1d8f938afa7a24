"""The semi-stream joins, each inside a memory budget."""
