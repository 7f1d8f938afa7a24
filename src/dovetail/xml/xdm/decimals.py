"""Exact decimal arithmetic. Python's own operators round to 28 digits: they are never used on xs:decimal."""

from __future__ import annotations

import decimal
from decimal import Decimal

# Sums and products of decimals are exact: a result that would not fit is an error, never rounded.
EXACT = decimal.Context(prec=20_000, Emin=-decimal.MAX_EMAX, Emax=decimal.MAX_EMAX, traps=[decimal.Inexact])
MAX_DIGITS = 4000  # Python itself refuses to read or write longer integers


def plain(value: Decimal) -> str:
    """A decimal without exponent and without zeros at its end."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
