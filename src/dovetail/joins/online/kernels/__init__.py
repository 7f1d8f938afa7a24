"""Kernels of online joins: tables in memory, flushing and matching."""

FIRST = ("match", "sorted")
"""Modules whose kernels the default algorithms run: they are compiled first."""
