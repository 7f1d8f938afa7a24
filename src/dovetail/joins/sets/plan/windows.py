"""Intervals over windows of equal width: a row for each window that an interval meets, with their overlap.

Windows are [origin + n width, origin + (n + 1) width). A row needs no other row, so that nothing is exchanged. Numbers
beyond 64 bits, and windows beyond the type of the bounds, are a `DataError` that names the row.
Reference: docs/algorithms/sets.md, 6.
"""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.joins.interval.index.answers import COUNT
from dovetail.joins.sets.plan.rows import Rows, check_free, check_measured, check_value
from dovetail.joins.sets.plan.scale import LARGEST
from dovetail.joins.sets.request import Request
from dovetail.spark.frames import RESERVED, quoted, unquoted
from dovetail.spark.task_errors import MARK

WINDOW_START, WINDOW_END, OVERLAP = "window_start", "window_end", "overlap"
MOST_WINDOWS = 1 << 30
"""Windows that one row may meet."""
_MOST_SCALE = 27  # numbers of windows have ten digits or more
_CHUNK = 1 << 15  # windows of a row that Spark holds as one array
_FROM, _TO, _NUMBER, _ORIGIN = (f"{RESERVED}{what}" for what in ("from", "to", "number", "origin"))
_FIRST, _LAST = f"{RESERVED}first", f"{RESERVED}last"


def windowed(rows: Rows, request: Request) -> DataFrame:
    """Usable rows with each of their windows, and the length of what they share."""
    check_free(rows, (WINDOW_START, WINDOW_END, OVERLAP))
    found = _in_windows(rows, request)
    shared = f"{rows.scale.length(_shared(rows))} as {OVERLAP}"
    return found.selectExpr(*map(quoted, rows.columns), *_bounds(rows), shared)


def pivoted(rows: Rows, request: Request) -> DataFrame:
    """Of each key and window the number of rows that meet it, and the total of what they share with it."""
    taken = {unquoted(key).lower() for key in rows.keys} & {WINDOW_START, WINDOW_END, COUNT, OVERLAP}
    if taken:
        raise PlanError(f"on has columns {sorted(taken)}, as the result; rename them first.", argument="on")
    each = (
        _in_windows(rows, request)
        .groupBy(*rows.keys, _FROM, _TO)
        .agg(F.count("*").alias(COUNT), F.expr(_total(rows, _shared(rows))).alias(OVERLAP))
    )
    return each.selectExpr(*rows.keys, *_bounds(rows), COUNT, f"{rows.scale.length(OVERLAP)} as {OVERLAP}")


def _total(rows: Rows, shared: str) -> str:
    """SQL: the sum; of times a double if it is beyond 64 bits, of whole numbers and decimals an error."""
    if rows.scale.floating:
        return f"sum({shared})"
    if rows.scale.timely:  # seconds are doubles
        return f"coalesce(cast(try_sum({shared}) as double), sum(cast({shared} as double)))"
    text = f"{MARK}DataError: the overlaps of a window add up to more than "
    most = "38 digits" if isinstance(rows.scale.kind, T.DecimalType) else "2^63 - 1"
    remedy = ". Give a smaller width, more keys, or cast the bounds to a wider type, such as decimal(20, 0)."
    return f"coalesce(try_sum({shared}), raise_error('{text}{most}{remedy}'))"


def _shared(rows: Rows) -> str:
    """SQL: how much of a row lies in its window."""
    return _less(rows, f"least({rows.end}, {_TO})", f"greatest({rows.start}, {_FROM})")


def _less(rows: Rows, number: str, other: str) -> str:
    """SQL: an exact difference; null if it is beyond the type, or a decimal has more than 37 digits."""
    return f"try_subtract({_narrow(rows, number)}, {_narrow(rows, other)})"


def _narrow(rows: Rows, number: str) -> str:
    """SQL: a decimal of 37 digits, as Spark drops digits after the point from sums of wider ones; null beyond."""
    kind = rows.scale.kind
    if not isinstance(kind, T.DecimalType):
        return number
    return f"try_cast({number} as decimal(37, {min(kind.scale, 37)}))"


def _in_windows(rows: Rows, request: Request) -> DataFrame:
    """Usable rows with both bounds of each of their windows, as numbers; `_CHUNK` windows of a row at a time."""
    frame, origin, width = rows.usable(), "0", _width(rows, request)
    if request.origin is not None:
        check_value(rows, request.origin, "origin")
        frame = frame.withColumn(_ORIGIN, rows.scale.literal(request.origin))
        origin = rows.scale.number(_ORIGIN)
    first, last = _numbers(rows, origin, width)
    last_one = last if rows.scale.floating else f"if({rows.end} > {rows.start}, {last}, {first})"
    placed = frame.selectExpr("*", f"{first} as {_FIRST}", f"{last_one} as {_LAST}")
    many = f"coalesce(try_subtract({_LAST}, {_FIRST}) >= {MOST_WINDOWS}L, true)"
    beyond = f"meets a window beyond {rows.scale.kind.simpleString()}"
    unknown = "is too far from the origin to tell windows apart" if rows.scale.floating else beyond
    wrong = (f"{_FIRST} is null or {_LAST} is null", unknown), (many, f"meets more than {MOST_WINDOWS:,} windows")
    cases = " ".join(f"when {condition} then {_error(rows, what)}" for condition, what in wrong)
    placed = placed.where(f"case {cases} else true end")
    chunks = placed.selectExpr("*", f"explode(sequence({_FIRST}, {_LAST}, {_CHUNK}L)) as {_FROM}")
    each = f"explode(sequence({_FROM}, least({_LAST}, {_FROM} + {_CHUNK - 1}L))) as {_NUMBER}"
    numbered = chunks.selectExpr(*(quoted(c) for c in placed.columns if c not in (_FIRST, _LAST)), each)
    distance = _narrow(rows, f"try_multiply({_factor(rows, width)}, {width})")
    met = numbered.selectExpr("*", f"{_narrow(rows, f'try_add({_narrow(rows, origin)}, {distance})')} as {_FROM}")
    next_one = f"try_add({_FROM}, {width})"
    if rows.scale.floating:  # where the next window begins, whatever is rounded
        next_one = f"try_add({origin}, try_multiply({_NUMBER} + 1, {width}))"
    met = met.selectExpr("*", f"{_narrow(rows, next_one)} as {_TO}")
    if not isinstance(rows.scale.kind, T.TimeType):  # windows may begin or end outside of the day
        inside = " and ".join(f"{rows.scale.bound(bound)} is not null" for bound in (_FROM, _TO))
        met = met.where(f"if({inside}, true, {_error(rows, beyond)})")
    is_point = f"{rows.start} = {rows.end} and {_FROM} <= {rows.start} and {rows.start} < {_TO}"
    return met.where(f"{_FROM} < {rows.end} and {_TO} > {rows.start} or {is_point}")


def _factor(rows: Rows, width: str) -> str:
    """SQL: the number of a window, of as many digits as leave its product with the width exact; null beyond."""
    if not isinstance(rows.scale.kind, T.DecimalType):
        return _NUMBER
    digits = max(len(width.removesuffix("BD").replace(".", "").lstrip("0")), rows.scale.kind.scale)
    return f"try_cast({_NUMBER} as decimal({37 - digits}, 0))"


def _numbers(rows: Rows, origin: str, width: str) -> tuple[str, str]:
    """SQL: the numbers of the first and of the last window of a row; null if they have more than 64 bits."""
    if rows.scale.floating:
        first, last = (f"({bound} - {origin}) / {width}" for bound in (rows.start, rows.end))
        # A quotient is rounded: one window more on either side, and those that the row does not meet are left out.
        known = "if(abs({0}) < 9007199254740992D, {1}({0}), null)"
        return f"{known.format(first, 'floor')} - 1", known.format(last, "ceil")
    kind = rows.scale.kind
    unit = f"{Decimal(1).scaleb(-kind.scale):f}BD" if isinstance(kind, T.DecimalType) else "1L"
    first, last = (
        _floor(rows, _less(rows, bound, origin), width) for bound in (rows.start, _less(rows, rows.end, unit))
    )
    return first, last


def _floor(rows: Rows, number: str, width: str) -> str:
    """SQL: how many whole widths a number has, rounded down."""
    rest = _less(rows, number, f"pmod({number}, {width})")
    if isinstance(rows.scale.kind, T.DecimalType):
        return f"try_cast(round(try_divide({rest}, {width})) as bigint)"
    return f"({rest} div {width})"


def _error(rows: Rows, what: str) -> str:
    """SQL: the error of a row that cannot be spread over windows."""
    start, end = (f"coalesce(cast({rows.scale.bound(n)} as string), 'null')" for n in (rows.start, rows.end))
    remedy = ". Give a larger width or a nearer origin, shorten the interval, or cast its bounds to a wider type."
    columns = " and ".join(name.replace("\\", "\\\\").replace("'", "\\'") for name in rows.named)
    text = f"concat('{MARK}DataError: the interval of {columns} from ', {start}, ' to ', {end}, ' {what}{remedy}')"
    return f"raise_error({text})"


def _width(rows: Rows, request: Request) -> str:
    check_measured(rows.scale.kind, f"width={request.width!r}", "interval")
    units = rows.scale.units("width", request.width)
    if units != -rows.scale.units("width", -request.width):
        raise PlanError(
            f"width={request.width!r} is not a whole number of what bounds of type {rows.scale.kind.simpleString()} "
            "can tell apart; use a larger width that is one, or cast the bounds to a finer type.",
            argument="width",
        )
    if isinstance(rows.scale.kind, T.DecimalType) and rows.scale.kind.scale > _MOST_SCALE:
        raise PlanError(
            f"bounds of type {rows.scale.kind.simpleString()} have more than {_MOST_SCALE} digits after the point, too "
            "many for windows; cast them to fewer.",
            argument="interval",
        )
    if units > LARGEST:
        raise PlanError(f"width={request.width!r} is beyond 64 bits; use a smaller one.", argument="width")
    return rows.scale.distance("width", request.width)


def _bounds(rows: Rows) -> list[str]:
    return [f"{rows.scale.bound(_FROM)} as {WINDOW_START}", f"{rows.scale.bound(_TO)} as {WINDOW_END}"]
