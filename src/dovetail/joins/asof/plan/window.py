"""The window way: an as-of join as union and window functions, all by Spark, for types that only Spark has.

It is what users of Spark write by hand: slower than the index, and right for every type that Spark can sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from dovetail.joins.asof.plan.sides import Side
from dovetail.joins.asof.request import Request
from dovetail.spark.frames import RESERVED, quoted
from dovetail.spark.hosts.batch import one_partition
from dovetail.spark.inputs import FLOATS

_LEFT, _RIGHT, _TIME, _SIDE = (f"{RESERVED}{what}" for what in ("left", "right", "time", "side"))
_BEFORE, _AFTER = f"{RESERVED}before", f"{RESERVED}after"


@dataclass(frozen=True, slots=True)
class WindowWay:
    """An as-of join by Spark's own operators."""

    request: Request
    tolerance: int | float | None
    one_task: bool = False  # without an exchange

    def answer(self, left: Side, right: Side, left_out: tuple[str, ...], right_out: tuple[str, ...]) -> DataFrame:
        """The joined rows, with these columns of both sides."""
        request = self.request
        rows = self._union(left, right)
        ways = {"backward": [_BEFORE], "forward": [_AFTER], "nearest": [_BEFORE, _AFTER]}[request.direction]
        found = rows.selectExpr(_LEFT, _TIME, *(self._last(left, right, way) for way in ways))
        chosen = ways[0] if len(ways) == 1 else self._nearer(left)
        if self.tolerance is not None:
            gap = _distance(left.kind, _TIME, f"{chosen}.time")
            chosen = f"if({gap} <= {self._limit(left.kind)}, {chosen}, null)"
        if request.how == "left" or chosen not in ways:
            found, chosen = found.selectExpr(_LEFT, f"{chosen} as {_RIGHT}"), _RIGHT
        if request.how == "inner":
            matched = found.where(f"{_LEFT} is not null and {chosen} is not null")
        else:
            alone = left.frame.where(f"not ({left.usable})").selectExpr(f"struct(*) as {_LEFT}")
            matched = found.where(f"{_LEFT} is not null").unionByName(alone, allowMissingColumns=True)
        columns = [f"{_LEFT}.{quoted(name)} as {quoted(name)}" for name in left_out]
        columns += [f"{chosen}.row.{quoted(name)} as {quoted(name)}" for name in right_out]
        return matched.selectExpr(*columns)

    def _union(self, left: Side, right: Side) -> DataFrame:
        parts = []
        for side, mine, struct in (
            (left, _LEFT, "struct(*)"),
            (right, _RIGHT, f"struct({right.on} as time, struct(*) as row)"),
        ):
            keys = [f"{key} as {RESERVED}w{number}" for number, key in enumerate(side.keys)]
            order = [f"{name} as {RESERVED}o{number}" for number, name in enumerate(side.order)]
            named = [f"{side.on} as {_TIME}", *keys, *order, f"'{side.name}' as {_SIDE}", f"{struct} as {mine}"]
            parts.append(side.frame.where(side.usable).selectExpr(*named))
        rows = parts[0].unionByName(parts[1], allowMissingColumns=True)
        return one_partition(rows, shuffled=False) if self.one_task else rows

    def _last(self, left: Side, right: Side, way: str) -> str:
        """SQL: the last right row in the order of the window: by time, at one time right rows first if they count."""
        request = self.request
        time = f"{_TIME} asc" if way == _BEFORE else f"{_TIME} desc"
        first = "right" if request.allow_exact else "left"
        ties = [f"{RESERVED}o{n} {'desc' if request.tie == 'first' else 'asc'}" for n in range(len(right.order))]
        order = ", ".join([time, f"if({_SIDE} = '{first}', 0, 1)", *ties])
        keys = ", ".join(f"{RESERVED}w{number}" for number in range(len(left.keys))) or "1"
        rows = "rows between unbounded preceding and current row"
        return f"last({_RIGHT}, true) over (partition by {keys} order by {order} {rows}) as {way}"

    def _nearer(self, left: Side) -> str:
        before, after = (_distance(left.kind, _TIME, f"{way}.time") for way in (_BEFORE, _AFTER))
        return f"if({_AFTER} is null or {before} <= {after}, {_BEFORE}, {_AFTER})"

    def _limit(self, kind: T.DataType) -> str:
        """SQL: the tolerance in the units of `_distance`."""
        if isinstance(kind, FLOATS):
            return f"{float(self.tolerance or 0)!r}D"
        digits = kind.scale if isinstance(kind, T.DecimalType) else 6 if _in_seconds(kind) else 0
        return f"{Decimal(int(self.tolerance or 0)).scaleb(-digits):f}BD"

    def explain(self) -> list[str]:
        """Whether rows are exchanged; the rest is planned by Spark."""
        return ["both inputs are read by one task, without an exchange"] if self.one_task else []


def _in_seconds(kind: T.DataType) -> bool:
    return isinstance(kind, (T.TimestampNTZType, T.DayTimeIntervalType))


def _distance(kind: T.DataType, one: str, other: str) -> str:
    """SQL: how far two times are apart, exactly but for floats; two equal infinities are at one place."""
    if isinstance(kind, T.DateType):
        return f"abs(datediff({one}, {other}))"
    if isinstance(kind, T.TimestampType):
        return f"abs(cast(unix_micros({one}) as decimal(20, 0)) - unix_micros({other}))"
    if isinstance(kind, T.TimestampNTZType):
        return f"abs(cast({one} - {other} as decimal(30, 6)))"
    if isinstance(kind, T.DayTimeIntervalType):
        one, other = (f"cast(cast({time} as interval day to second) as decimal(30, 6))" for time in (one, other))
        return f"abs({one} - {other})"
    if isinstance(kind, T.IntegralType):
        return f"abs(cast({one} as decimal(20, 0)) - {other})"
    if isinstance(kind, T.DecimalType):
        return f"abs({one} - {other})"
    return f"if({one} = {other}, 0D, abs(cast({one} as double) - cast({other} as double)))"
