"""Kernels of the XML scan."""
