"""Kernels of the XML scan."""

FIRST = ("attributes", "codes", "markup", "names", "plain", "scan", "values")
"""Modules whose kernels the default algorithms run: they are compiled first."""
