"""The experiments on interval joins, of seed 002."""
