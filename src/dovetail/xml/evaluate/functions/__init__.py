"""The library of functions of XQuery, declared by `calls.function`; importing this package declares them all."""

from dovetail.xml.evaluate.functions import dates, numbers, sequences, strings

__all__ = ["dates", "numbers", "sequences", "strings"]
