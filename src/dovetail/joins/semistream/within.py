"""Conditions on a stream row and a master row of its key: the row is valid at a time, or its range has a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I64, Bool
from dovetail.engine.rows.columns import valid_rows
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.engine.rows.keys import ordered_numbers
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.keys import is_number, is_text
from dovetail.request import CLOSED, Closed, Key, one_of, parse_keys

Overlap = Literal["error", "all"]
RangeKey = tuple[str, tuple[str, str]]
"""A stream column whose value lies in a range of the master data, and the columns of its bounds."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SHOWN = 3  # master rows that an error lists


@dataclass(frozen=True, slots=True)
class Within:
    """A stream column whose value lies between two master columns, `start` and `end`.

    A null value lies nowhere; a null bound is none: the range goes on for ever. A range whose end is below its start is
    empty. Numbers, dates and times compare by value, NaN above all others; text and binary values by their bytes.

    >>> print(Within("ordered_at", "valid_from", "valid_to"))
    valid_from <= ordered_at < valid_to
    """

    value: str
    start: str
    end: str
    closed: Closed = "left"

    def __str__(self) -> str:
        first, last = ("<=" if self.closed in (side, "both") else "<" for side in ("left", "right"))
        return f"{self.start} {first} {self.value} {last} {self.end}"

    @property
    def bounds(self) -> tuple[str, str]:
        """The master columns."""
        return self.start, self.end

    def holds(self, value: pa.Array, start: pa.Array, end: pa.Array) -> Bool:
        """Row by row whether the value lies in the range."""
        after = not_above(start, value, self.closed in ("left", "both"))
        until = not_above(value, end, self.closed in ("right", "both"))
        found: Bool = valid_rows(value) & (after | ~valid_rows(start)) & (until | ~valid_rows(end))
        return found


def not_above(low: pa.Array, high: pa.Array, or_equal: bool) -> Bool:
    """Row by row whether `low` is below `high`, or equal to it; anything where one is null."""
    if is_number(low.type):
        one, other = _in_one_unit(low, high)
        return one <= other if or_equal else one < other
    wide = pa.large_string() if is_text(low.type) else pa.large_binary()
    compared = (pc.less_equal if or_equal else pc.less)(low.cast(wide), high.cast(wide))
    return np.asarray(compared.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _in_one_unit(one: pa.Array, other: pa.Array) -> tuple[I64, I64]:
    if not pa.types.is_timestamp(one.type) or one.type.unit == other.type.unit:
        return ordered_numbers(one), ordered_numbers(other)
    fine = max(_PER_SECOND[array.type.unit] for array in (one, other))
    return _finer(one, fine), _finer(other, fine)


def in_unit_of(values: pa.Array, kind: pa.DataType) -> I64:
    """Numbers of the values that compare with those of a column of type `kind`; times rounded down to its unit."""
    numbers = ordered_numbers(values)
    if not pa.types.is_timestamp(kind) or kind.unit == values.type.unit:
        return numbers
    if _PER_SECOND[kind.unit] > _PER_SECOND[values.type.unit]:
        return _finer(values, _PER_SECOND[kind.unit])
    return numbers // (_PER_SECOND[values.type.unit] // _PER_SECOND[kind.unit])


def _finer(times: pa.Array, per_second: int) -> I64:
    """Times as counts of a finer unit; those beyond its range are its first and last."""
    factor, most = per_second // _PER_SECOND[times.type.unit], np.iinfo(np.int64).max
    counts = ordered_numbers(times)
    scaled = np.clip(counts, -(most // factor), most // factor) * factor
    return np.where(np.abs(counts) > most // factor, np.sign(counts) * most, scaled)


@dataclass(frozen=True, slots=True)
class PairCheck:
    """A condition on pairs of a stream row and a master row beside equal keys.

    `equal` are columns, the stream's and the master's, that must be equal too. With overlap="error" a stream row that
    has several master rows is a `DataError`.
    """

    within: tuple[Within, ...]
    equal: tuple[tuple[str, str], ...] = ()
    overlap: Overlap = "error"

    def __str__(self) -> str:
        return " and ".join([*(f"{mine} = {theirs}" for mine, theirs in self.equal), *map(str, self.within)])

    @property
    def stream(self) -> list[str]:
        """The stream columns that are compared."""
        return list(dict.fromkeys([*(mine for mine, _ in self.equal), *(one.value for one in self.within)]))

    @property
    def master(self) -> list[str]:
        """The master columns that are compared."""
        bounds = [name for one in self.within for name in one.bounds]
        return list(dict.fromkeys([*(theirs for _, theirs in self.equal), *bounds]))

    def holds(self, stream: pa.RecordBatch, master: pa.RecordBatch) -> Bool:
        """Row by row whether the pair fulfils it."""
        found = np.ones(stream.num_rows, np.bool_)
        for one in self.within:
            found &= one.holds(stream.column(one.value), *(master.column(name) for name in one.bounds))
        for mine, theirs in self.equal:
            found &= _equal(stream.column(mine), master.column(theirs))
        return found

    def refuse(self, key: dict[str, Any], stream: pa.RecordBatch, master: pa.RecordBatch) -> DataError:
        """The error for a stream row, the only one given, with several master rows."""
        values = {theirs: stream.column(mine)[0].as_py() for mine, theirs in self.equal} | key
        told = "; ".join(
            f"{stream.column(one.value)[0].as_py()!r} lies in ({one.start}, {one.end}) = "
            + " and ".join(
                f"({', '.join(repr(master.column(name)[at].as_py()) for name in one.bounds)})"
                for at in range(min(_SHOWN, master.num_rows))
            )
            for one in self.within
        )
        where = f" with {', '.join(f'{name} = {value!r}' for name, value in values.items())}" if values else ""
        return DataError(
            f"several master rows{where} match one stream row: {told}. Correct the master data so that "
            f"these do not overlap, or use overlap='all' to get all of them."
        )


def _equal(mine: pa.Array, theirs: pa.Array) -> Bool:
    codes, valid = KeyCodes([theirs.type]), valid_rows(mine) & valid_rows(theirs)
    return codes.same([mine.cast(theirs.type)], [theirs]) & valid


def parse_on(on: Any) -> tuple[tuple[Key, ...], tuple[str, str, str] | None]:
    """The keys that `on` lists, and the stream column and master columns of the one that is a range, if one is.

    >>> parse_on(("ip", ("first_ip", "last_ip")))
    ((), ('ip', 'first_ip', 'last_ip'))
    >>> parse_on(["country", ("ip", ("first_ip", "last_ip"))])
    ((Key(left='country', right='country', shared=True),), ('ip', 'first_ip', 'last_ip'))
    """
    if isinstance(on, tuple) and _is_range(on):
        return (), (on[0], *on[1])
    items = list(on) if isinstance(on, (list, tuple)) else [on]
    ranges = [item for item in items if _is_range(item)]
    if len(ranges) > 1:
        raise PlanError(f"on={on!r} has {len(ranges)} ranges; there can be one. Use at= or condition=.", argument="on")
    keys = parse_keys([item for item in items if not _is_range(item)] if ranges else on, required=not ranges)
    return keys, (ranges[0][0], *ranges[0][1]) if ranges else None


def _is_range(item: Any) -> bool:
    return (
        isinstance(item, (tuple, list))
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], (tuple, list))
        and len(item[1]) == 2
        and all(isinstance(name, str) for name in item[1])
    )


def parse_withins(
    at: Any, valid: Any, closed: Any, overlap: Any, ranged: tuple[str, str, str] | None
) -> tuple[Within | None, Within | None]:
    """The range that is a key, and the validity; a `PlanError` for options that do not fit together."""
    one_of("overlap", overlap, get_args(Overlap))
    if closed is not None:
        one_of("closed", closed, CLOSED)
    listed = isinstance(valid, (list, tuple)) and len(valid) == 2 and all(isinstance(name, str) for name in valid)
    if at is None and ranged is None and (valid is not None or closed is not None or overlap != "error"):
        raise PlanError(
            "valid=, closed= and overlap= are for look-ups at a time or by a range; give at= with the stream's "
            "column of times, or a range in on=.",
            argument="at",
        )
    if not (at is None or isinstance(at, str)) or not (valid is None or listed):
        raise PlanError(
            f"at={at!r}, valid={valid!r}: give the name of the stream's column of times, and the master's two columns, "
            f"first and end of validity.",
            argument="valid" if at is None or isinstance(at, str) else "at",
        )
    if at is not None and ranged is not None and closed is not None:
        raise PlanError(
            f"closed={closed!r} with both a range in on= and at=: ranges have both bounds, validity the first alone; "
            f"leave it out.",
            argument="closed",
        )
    key = None if ranged is None else Within(*ranged, closed or "both")
    first, end = valid or ("valid_from", "valid_to")
    return key, None if at is None else Within(at, first, end, closed or "left")
