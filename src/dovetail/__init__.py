"""Joins that Apache Spark does not have, each inside a memory budget that you set."""

from dovetail.version import __version__

__all__ = ["__version__"]
