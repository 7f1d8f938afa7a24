"""When two rows of an online join match: equal keys, a band around one key, or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import pyarrow as pa

from dovetail.engine.layout import Key, check_columns, key_pairs
from dovetail.errors import PlanError

Distance: TypeAlias = int | float | Decimal | timedelta
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Band:
    """Rows match if lo <= right - left <= hi, both bounds included; null and NaN match nothing.

    Bounds are numbers for numeric columns and `timedelta` for dates and times. Whole-number, decimal and time columns
    are compared exactly; doubles as the difference that a computer gives for them.
    """

    left: str
    right: str
    lo: Distance
    hi: Distance

    def __post_init__(self) -> None:
        for bound in (self.lo, self.hi):
            if isinstance(bound, bool) or not isinstance(bound, int | float | Decimal | timedelta):
                raise PlanError(
                    f"band bound {bound!r} is a {type(bound).__name__}; give a number or a timedelta.",
                    argument="within",
                )
            if isinstance(bound, float | Decimal) and not math.isfinite(bound):
                raise PlanError(f"band bound {bound!r} is not finite; give a number.", argument="within")
        if isinstance(self.lo, timedelta) != isinstance(self.hi, timedelta):
            raise PlanError(
                f"band from {self.lo!r} to {self.hi!r}: give two numbers or two timedeltas.", argument="within"
            )
        if self.lo > self.hi:  # type: ignore[operator]  # of one kind, as just checked
            raise PlanError(
                f"band from {self.lo} to {self.hi} is empty; the first bound must not be the larger one.",
                argument="within",
            )

    @classmethod
    def of(cls, given: Band | Sequence[Any]) -> Band:
        """A band from ("price", 0.05), which means +-0.05 on both sides' price, or ("l_price", "r_price", lo, hi).

        >>> Band.of(("price", 5))
        Band(left='price', right='price', lo=-5, hi=5)
        """
        if isinstance(given, Band):
            return given
        if len(given) == 2:
            name, width = given
            return cls(name, name, -width, width)
        if len(given) == 4:
            return cls(*given)
        raise PlanError(
            f"within={tuple(given)!r} is no band; give (column, width) or (left, right, lo, hi).", argument="within"
        )

    def __str__(self) -> str:
        return f"{self.lo} <= {self.right} - {self.left} <= {self.hi}"


@dataclass(frozen=True, slots=True)
class Predicate:
    """Equality of the columns `on`, and `within` a band; at least one of them.

    A null in any key matches nothing. NaN equals NaN, and 0.0 equals -0.0.
    """

    on: tuple[Key, ...] = ()
    within: Band | None = None

    def __post_init__(self) -> None:
        if not self.on and self.within is None:
            raise PlanError("a join needs keys: give on=..., within=..., or both.", argument="on")

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The equal columns, left and right."""
        return key_pairs(self.on)

    def check(self, left: pa.Schema, right: pa.Schema) -> None:
        """`PlanError` unless the band's columns are there, of one type, and bounds of that type were given."""
        if self.within is None:
            return
        check_columns(left, [self.within.left], "left", "within")
        check_columns(right, [self.within.right], "right", "within")
        mine, theirs = left.field(self.within.left).type, right.field(self.within.right).type
        if mine != theirs:
            raise PlanError(
                f"band on {self.within.left!r} ({mine}) of left and {self.within.right!r} ({theirs}) of right; "
                f"cast one of them so that both are of one type.",
                argument="within",
            )
        whole_bounds(self.within, mine)

    def __str__(self) -> str:
        equal = [a if a == b else f"{a} = {b}" for a, b in self.pairs]
        return " and ".join(equal + ([str(self.within)] if self.within is not None else []))


def whole_bounds(band: Band, kind: pa.DataType) -> tuple[int, int] | None:
    """The band in units of a column whose values are whole numbers of something; None for floating-point columns."""
    if pa.types.is_floating(kind):
        _require(not isinstance(band.lo, timedelta), band, kind, "numbers")
        return None
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        _require(isinstance(band.lo, timedelta), band, kind, "timedeltas")
        per_second = Fraction(1, 86400) if pa.types.is_date32(kind) else Fraction(_PER_SECOND[_unit(kind)])
        lo, hi = (_seconds(bound) * per_second for bound in (band.lo, band.hi))
    else:
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        known = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.precision <= _EXACT_DIGITS)
        if not known:
            raise PlanError(
                f"a column of type {kind} has no distance; bands need numbers, dates or times.", argument="within"
            )
        _require(not isinstance(band.lo, timedelta), band, kind, "numbers")
        lo, hi = (_number(bound) * Fraction(10) ** scale for bound in (band.lo, band.hi))
    if max(abs(lo), abs(hi)) >= 2**63:
        raise PlanError(
            f"band {band} is wider than the numbers of a column of type {kind}; give smaller bounds.", argument="within"
        )
    return math.ceil(lo), math.floor(hi)


def _unit(kind: pa.DataType) -> str:
    return "ms" if pa.types.is_date64(kind) else str(kind.unit)


def _seconds(bound: Distance) -> Fraction:
    assert isinstance(bound, timedelta)  # noqa: S101  (the caller has checked, for the type checker only)
    return Fraction(bound // timedelta(microseconds=1), 10**6)


def _number(bound: Distance) -> Fraction:
    return Fraction(str(bound)) if isinstance(bound, float) else Fraction(bound)  # type: ignore[arg-type]  # no timedelta


def _require(fits: bool, band: Band, kind: pa.DataType, wanted: str) -> None:
    if not fits:
        raise PlanError(f"band {band} on a column of type {kind}: its bounds must be {wanted}.", argument="within")
