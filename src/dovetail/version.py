"""The version of Dovetail, in one place."""

__version__ = "0.1.0"
