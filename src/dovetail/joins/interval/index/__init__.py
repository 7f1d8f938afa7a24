"""Index over the intervals of one side: built once, probed by every task."""
