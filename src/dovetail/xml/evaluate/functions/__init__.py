"""The library of functions of XQuery, declared by `calls.function`; importing this package declares them all."""

from dovetail.xml.evaluate.functions import dates, nodes, numbers, sequences, strings

__all__ = ["dates", "nodes", "numbers", "sequences", "strings"]
