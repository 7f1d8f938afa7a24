"""The two inputs of an interval join, prepared: columns named as in the result, bounds and keys of one type."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from uuid import uuid4

from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.engine.keys import KeyEncoder
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.relation import Closed
from dovetail.joins.interval.request import Request
from dovetail.request.columns import output_names
from dovetail.spark.arrow import arrow_type
from dovetail.spark.collation import check_collations, collation_key, collation_of
from dovetail.spark.columns import RESERVED, find_column, position, quoted, unquoted

BOUND_TYPES = (
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.DayTimeIntervalType,
    T.TimeType,
)


@dataclass(frozen=True, slots=True)
class Side:
    """One input: payload columns under their output names, and the SQL names of bounds, keys and flags."""

    name: str
    frame: DataFrame
    payload: tuple[str, ...]
    start: str
    end: str
    keys: tuple[str, ...]
    bound_type: T.DataType
    closed: Closed
    kept: bool  # rows without a match appear in the result
    given: tuple[str, ...]  # the input's own column names, in the order of the first columns of `frame`
    source: DataFrame  # the input itself
    named: tuple[str, ...]  # the input's columns that bound and key a row
    exchanged: bool = False  # it is the other input of the request, whose sides have changed places
    mark: str = ""  # part of the names of our own columns; unique to the plan

    @property
    def shown(self) -> str:
        """Which input of the request this is, for people: left or right."""
        return self.name if not self.exchanged else "left" if self.name == "right" else "right"

    def own(self, what: str) -> str:
        """The name of a column that we add to this side, unique to the plan."""
        return f"{RESERVED}{self.name[0]}{self.mark}_{what}"

    @property
    def inverted(self) -> str:
        """SQL: the bounds are in the wrong order, or one is not a number."""
        return f"if({self._broken}, true, false)"  # false where a bound is null

    @property
    def _broken(self) -> str:
        """SQL: the interval is inverted; null where a bound is null."""
        broken = f"{self.start} > {self.end}"
        if isinstance(self.bound_type, (T.FloatType, T.DoubleType)):  # a NaN beside a null is a null interval
            both = f"{self.start} is not null and {self.end} is not null"
            broken = f"({broken} or ({both} and (isnan({self.start}) or isnan({self.end}))))"
        return broken

    @property
    def usable(self) -> str:
        """SQL: the row can match something: bounds and keys are not null, in order, and the interval is not empty."""
        return f"if({self.matches}, true, false)"  # false where a bound is null

    @property
    def matches(self) -> str:
        """SQL: the row is usable; null where a bound is null, which is as good as false in a filter or a join.

        Spark turns `if(x, true, false)` in a join into an equality of x with true, and then hashes it with the keys.
        """
        # In order and not empty at once; plain, because Spark plans it several times in every join.
        holds = f"{self.start} {'<=' if self.closed == 'both' else '<'} {self.end}"
        if isinstance(self.bound_type, (T.FloatType, T.DoubleType)):
            holds += f" and not isnan({self.end}) and not isnan({self.start})"
        keys = "".join(f" and {key} is not null" for key in self.keys)
        return f"({holds}{keys})"

    @property
    def packs_keys(self) -> bool:
        """Whether keys that are equal have equal hashes, so that they and a cell number fit into one number."""
        plain = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BooleanType, T.BinaryType)
        kinds = [self.frame.schema[unquoted(key)].dataType for key in self.keys]
        return bool(kinds) and all(isinstance(kind, plain) or kind == T.StringType() for kind in kinds)

    def position(self, bound: str) -> str:
        """SQL: a bound as a double that grows with it, for bins; equal bounds have equal positions."""
        return position(self.bound_type, bound)

    def measure(self, bound: str) -> str:
        """SQL: a bound as a number whose differences are lengths: exact, but for floats, which are doubles."""
        if isinstance(self.bound_type, T.DateType):
            return f"unix_date({bound})"
        if isinstance(self.bound_type, T.TimestampType):
            return f"unix_micros({bound})"
        if isinstance(self.bound_type, T.TimestampNTZType):
            return f"cast({bound} - timestamp_ntz'1970-01-01 00:00:00' as decimal(30, 6))"
        if isinstance(self.bound_type, T.DayTimeIntervalType):
            return f"cast(cast({bound} as interval day to second) as decimal(30, 6))"
        if isinstance(self.bound_type, T.IntegralType):
            return f"cast({bound} as decimal(20, 0))"  # differences of longs need not be longs
        return bound if isinstance(self.bound_type, T.DecimalType) else f"cast({bound} as double)"

    def checked(self, invalid: str) -> Side:
        """This side with `invalid` applied, and rows that can neither match nor appear left out."""
        conditions = []
        if invalid == "drop":
            conditions.append(f"not {self.inverted}")
        if not self.kept:
            conditions.append(self.matches)
        whole = " and ".join(conditions) or "true"
        if invalid == "error":  # planning found none, or it would have stopped; this is for rows that came since
            whole = f"if({self._broken}, raise_error({_literal(self._late_error())}), {whole})"
        return self if whole == "true" else replace(self, frame=self.frame.where(whole))

    def _late_error(self) -> str:
        return f"{self.shown} input changed since it was planned: it has an interval that ends before it starts"


def prepare(left: DataFrame, right: DataFrame, request: Request) -> tuple[Side, Side]:
    """Both sides under output names; every column that the request names is checked here."""
    for name, frame in (("left", left), ("right", right)):
        _check_names(name, frame)
    left_bounds = _bounds("left", left, request.left_interval)
    right_bounds = _bounds("right", right, request.right_interval)
    bound_type = _common_type(left, None, "interval bounds", left_bounds[0], right_bounds[0])
    if isinstance(bound_type, T.TimeType):
        if str(left.sparkSession.conf.get("spark.sql.timeType.enabled", "false")).lower() != "true":
            raise PlanError(
                "interval bounds have type time, which Spark takes in part only unless spark.sql.timeType.enabled is "
                "true; set it, or cast the bounds to decimal(11, 6), seconds since midnight",
                argument="left_interval",
            )
        bound_type = T.DecimalType(11, 6)  # seconds since midnight
    left_keys = [find_column("left", left, key.left, "on") for key in request.keys]
    right_keys = [find_column("right", right, key.right, "on") for key in request.keys]
    for lk, rk in zip(left_keys, right_keys, strict=True):
        for name, key, frame in (("left", lk, left), ("right", rk, right)):
            _check_comparable(name, key, frame.schema[key].dataType)
        check_collations(left.schema[lk], right.schema[rk])
    key_types = [
        _common_type(left, "on", f"key {key.left!r}", left.schema[lk].dataType, right.schema[rk].dataType)
        for key, lk, rk in zip(request.keys, left_keys, right_keys, strict=True)
    ]
    left_out, right_out = _output_names(left.columns, right.columns, right_keys, request)
    closed, mark = request.relation, uuid4().hex[:8]
    sides = (
        _side("left", left, left_out, left_bounds, bound_type, left_keys, key_types, closed.left_closed, request),
        _side("right", right, right_out, right_bounds, bound_type, right_keys, key_types, closed.right_closed, request),
    )
    return replace(sides[0], mark=mark), replace(sides[1], mark=mark)


def _side(
    name: str,
    frame: DataFrame,
    out: dict[str, str],
    bounds: tuple[T.DataType, str, str],
    bound_type: T.DataType,
    keys: list[str],
    key_types: list[T.DataType],
    closed: Closed,
    request: Request,
) -> Side:
    letter = name[0]
    # SQL text instead of Column objects, each of which costs PySpark a millisecond or two.
    selected = [f"{quoted(column)} as {quoted(out[column])}" for column in frame.columns]
    names, collated = [], []
    wanted = [(bounds[1], bounds[0], bound_type), (bounds[2], bounds[0], bound_type)]
    wanted += [(quoted(key), frame.schema[key].dataType, kind) for key, kind in zip(keys, key_types, strict=True)]
    for number, (expression, given, kind) in enumerate(wanted):
        column = next((c for c in frame.columns if quoted(c) == expression), None)
        alias = f"{RESERVED}{letter}{number}"
        if column is not None and collation_of(kind) is not None:  # equal text may differ in its bytes, these do not
            collated.append(collation_key(frame.sparkSession, quoted(out[column])).alias(alias))
            names.append(quoted(alias))
            continue
        if column is not None and given == kind:
            names.append(quoted(out[column]))
            continue
        selected.append(f"cast({expression} as {kind.simpleString()}) as {alias}")
        names.append(quoted(alias))
    kept = request.keeps_left if name == "left" else request.keeps_right
    payload = tuple(out[column] for column in frame.columns if not out[column].startswith(RESERVED))
    ready, own = frame.selectExpr(*selected), tuple(frame.columns)
    if collated:
        ready = ready.select("*", *collated)
    named = (bounds[1], bounds[2], *keys)
    return Side(name, ready, payload, names[0], names[1], tuple(names[2:]), bound_type, closed, kept, own, frame, named)


def _output_names(
    left: list[str], right: list[str], right_keys: list[str], request: Request
) -> tuple[dict[str, str], dict[str, str]]:
    shared = {rk for key, rk in zip(request.keys, right_keys, strict=True) if key.shared}
    suffixes = ("", request.suffixes[1]) if request.left_only else request.suffixes
    left_out, right_out = output_names(left, right, shared, suffixes)
    hidden = {c: f"{RESERVED}shared_{c}" for c in right if c in shared}
    return left_out, right_out | hidden


def _check_names(name: str, frame: DataFrame) -> None:
    twice = sorted(column for column, count in Counter(frame.columns).items() if count > 1)
    if twice:
        raise PlanError(f"{name} input has columns {twice} more than once; rename them first", argument=name)
    ours = [column for column in frame.columns if column.startswith(RESERVED)]
    if ours:
        raise PlanError(
            f"{name} input has columns {ours}; names that begin with {RESERVED!r} are reserved", argument=name
        )


def _bounds(name: str, frame: DataFrame, interval: tuple[str, ...]) -> tuple[T.DataType, str, str]:
    if len(interval) == 2:
        start, end = (find_column(name, frame, column, f"{name}_interval") for column in interval)
        kinds = (frame.schema[bound].dataType for bound in (start, end))
        kind = _common_type(frame, f"{name}_interval", f"{name} interval", *kinds)
        return kind, quoted(start), quoted(end)
    column = find_column(name, frame, interval[0], f"{name}_interval")
    struct = frame.schema[column].dataType
    if not isinstance(struct, T.StructType) or len(struct.fields) != 2:
        raise PlanError(
            f"{name}_interval={column!r} has type {struct.simpleString()}; name two columns or a struct of two fields",
            argument=f"{name}_interval",
        )
    first, last = struct.fields
    kind = _common_type(frame, f"{name}_interval", f"{name} interval", first.dataType, last.dataType)
    return kind, f"{quoted(column)}.{quoted(first.name)}", f"{quoted(column)}.{quoted(last.name)}"


def _common_type(frame: DataFrame, argument: str | None, what: str, left: T.DataType, right: T.DataType) -> T.DataType:
    keys = argument == "on"
    if not keys:
        for kind in (left, right):
            if not isinstance(kind, BOUND_TYPES):
                allowed = "a number, decimal, date, timestamp, time or day-time interval"
                raise PlanError(
                    f"{what}: a bound has type {kind.simpleString()}; it must be {allowed}; cast it first",
                    argument=argument,
                )
    if left == right:
        return left
    try:
        probe = F.coalesce(F.lit(None).cast(left), F.lit(None).cast(right))
        common = frame.sparkSession.range(0).select(probe.alias("x")).schema["x"].dataType
    except PySparkException:
        common = T.StringType()
    stringly = isinstance(common, T.StringType) and not (
        isinstance(left, T.StringType) and isinstance(right, T.StringType)
    )
    if stringly or (not keys and not isinstance(common, BOUND_TYPES)):
        raise PlanError(
            f"{what}: {left.simpleString()} and {right.simpleString()} do not compare; cast one of them first",
            argument=argument,
        )
    return common


def spark_only(left: Side, right: Side) -> str | None:
    """Why Spark alone can join these rows, if it is so: a type that Arrow does not carry, or keys without codes."""
    for side in (left, right):
        for field in side.frame.schema:
            kind = field.dataType.simpleString()
            try:
                carried = arrow_type(field.dataType)
            except PySparkTypeError:
                return f"columns of type {kind} do not reach tasks in Python"
            if quoted(field.name) not in side.keys:
                continue
            try:
                KeyEncoder([carried])
            except PlanError:
                return f"keys of type {kind} have no codes"
    return None


def _check_comparable(name: str, key: str, kind: T.DataType) -> None:
    if isinstance(kind, T.StructType):
        for field in kind.fields:
            _check_comparable(name, f"{key}.{field.name}", field.dataType)
    elif isinstance(kind, T.ArrayType):
        _check_comparable(name, key, kind.elementType)
    elif isinstance(kind, (T.MapType, T.VariantType, T.CalendarIntervalType)):
        raise PlanError(
            f"{name} key {key!r} holds a {kind.simpleString()}, and Spark compares none of these; join on a part of "
            "it, or cast it to text",
            argument="on",
        )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def raise_inverted(side: Side, count: int) -> None:
    """A `DataError` that names the side, how many intervals are inverted, and up to five of the rows."""
    rows = side.frame.where(side.inverted).limit(5).collect()
    sample = "; ".join(str(dict(zip(side.given, row, strict=False))) for row in rows)  # ours come after the given ones
    raise DataError(
        f"{side.shown} input has {count} interval(s) that end before they start or hold NaN, for example: {sample}. "
        "Repair them, or pass invalid='drop' (leave them out) or invalid='null' (keep them in outer joins, unmatched)."
    )
