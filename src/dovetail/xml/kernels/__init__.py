"""Kernels of the XML scan."""

FIRST = ("plain", "scan")
"""Modules whose kernels the default algorithms run: they are compiled first."""
