"""Kernels of online joins: tables in memory, flushing and matching."""
