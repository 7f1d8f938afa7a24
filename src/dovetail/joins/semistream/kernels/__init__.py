"""Kernels of semi-stream joins: waiting rows, cache, segments and pages."""
