"""Kernels of semi-stream joins: waiting rows, cache, segments and pages."""

FIRST = ("byte_keys", "key_cache", "segment_match", "waiting_pool")
"""Modules whose kernels the default algorithms run: they are compiled first."""
