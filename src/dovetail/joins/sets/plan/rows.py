"""Prepares one input: its bounds as numbers beside its columns, and which rows have an interval."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (likewise)

from dovetail.errors import PlanError
from dovetail.joins.interval.plan.sides import bound_columns, find_bounds
from dovetail.joins.interval.request import Invalid
from dovetail.joins.sets.plan.scale import Scale
from dovetail.joins.sets.request import Request
from dovetail.request import Closed, Key
from dovetail.spark.frames import RESERVED, quoted, unquoted
from dovetail.spark.inputs import check_input, check_texts, common_keys, common_type, is_text, type_with_codes
from dovetail.spark.task_errors import MARK, spark_says, translate_task_errors

_KEPT_SCALE = 6  # digits after the point that Spark keeps whatever the precision


@dataclass(frozen=True, slots=True)
class Rows:
    """An input with two columns of ours: its bounds as numbers. Keys and bounds are SQL names.

    A row is usable if it has an interval and a key: no bound is null, it is not inverted or empty, and no key is null.
    """

    name: str
    frame: DataFrame
    columns: tuple[str, ...]
    named: tuple[str, ...]  # the columns of the bounds, or the struct column
    keys: tuple[str, ...]
    scale: Scale
    closed: Closed
    invalid: Invalid
    mark: str  # part of the names of our columns, unique to the plan
    source: DataFrame  # the input itself

    @property
    def start(self) -> str:
        """The column of starts."""
        return f"{RESERVED}s{self.mark}"

    @property
    def end(self) -> str:
        """The column of ends."""
        return f"{RESERVED}e{self.mark}"

    @property
    def _inverted(self) -> str:
        broken = f"{self.start} > {self.end}"
        if self.scale.floating:
            both = f"{self.start} is not null and {self.end} is not null"
            broken = f"({broken} or ({both} and (isnan({self.start}) or isnan({self.end}))))"
        return f"if({broken}, true, false)"

    @property
    def _matches(self) -> str:
        holds = f"{self.start} {'<=' if self.closed == 'both' else '<'} {self.end}"
        if self.scale.floating:
            holds += f" and not isnan({self.start}) and not isnan({self.end})"
        return " and ".join([holds, *(f"{key} is not null" for key in self.keys)])

    def usable(self) -> DataFrame:
        """The usable rows; inverted ones are an error of the tasks that meet them, unless `invalid` allows them."""
        return self.frame.where(self._checked(self._matches))

    def unusable(self) -> DataFrame:
        """The other rows, without inverted ones if `invalid` is drop."""
        rest = f"not if({self._matches}, true, false)"
        return self.frame.where(self._checked(rest if self.invalid != "drop" else f"{rest} and not {self._inverted}"))

    def _checked(self, condition: str) -> str:
        if self.invalid != "error":
            return condition
        text = f"{MARK}DataError: {self.name} input has an interval that ends before it starts or holds NaN, from "
        remedy = ". Repair it, or pass invalid=\\'drop\\' (leave such rows out) or invalid=\\'null\\' (as null bounds)."
        start, end = (f"coalesce(cast({self.scale.bound(n)} as string), 'null')" for n in (self.start, self.end))
        raised = f"raise_error(concat('{text}', {start}, ' to ', {end}, '{remedy}'))"
        # Never null: Spark puts filters that follow behind this one with AND, and computes these after a null, too.
        return f"if({self._inverted}, {raised}, if({condition}, true, false))"

    def output(self, start: str, end: str) -> list[str]:
        """SQL: these numbers as bounds, under the names that the input has for them."""
        bounds = [self.scale.bound(number) for number in (start, end)]
        if len(self.named) == 2:
            return [f"{bound} as {quoted(name)}" for bound, name in zip(bounds, self.named, strict=True)]
        struct = self.frame.schema[self.named[0]].dataType
        if not isinstance(struct, T.StructType):
            raise PlanError(
                f"interval={(self.named[0], self.named[0])!r}: the answer has a start and an end; name two columns, or "
                f'add one: .withColumn("end", F.col({self.named[0]!r})).',
                argument="interval",
            )
        fields = ", ".join(f"{bound} as {quoted(name)}" for name, bound in zip(struct.names, bounds, strict=True))
        return [f"struct({fields}) as {quoted(self.named[0])}"]

    def with_bounds(self, start: str, end: str) -> list[str]:
        """SQL: all columns of the input, with these numbers as bounds."""
        new = self.output(start, end)
        by_name = dict(zip(self.named, new, strict=True))
        return [by_name.get(column, quoted(column)) for column in self.columns]


def prepare_rows(frame: DataFrame, request: Request, what: str) -> Rows:
    """The input of a function, checked against the request; no job starts."""
    translate_task_errors()
    check_input("rows", frame, what)
    kind, start, end = set_bounds("rows", frame, request.interval, "interval")
    keys = [key.left for key in common_keys(frame, frame, [Key(k, k, True) for k in request.keys], "on")]
    return make_rows("rows", frame, (kind, start, end), keys, request.closed, request.invalid)


def set_bounds(name: str, frame: DataFrame, interval: tuple[str, ...], argument: str) -> tuple[T.DataType, str, str]:
    """The type of an input's bounds, which may be texts, and their SQL names."""
    (start, one), (end, other) = bound_columns(name, frame, interval, argument)
    if not (is_text(one) or is_text(other)):
        return find_bounds(name, frame, interval, argument)[0], start, end
    check_texts(f"{name} interval bounds", [one, other], argument)
    return one, start, end


def check_measured(kind: T.DataType, what: str, argument: str) -> None:
    """`PlanError` for texts, which have no lengths."""
    if is_text(kind):
        raise PlanError(
            f"{what}: bounds of type {kind.simpleString()} have an order but no lengths; cast them first.",
            argument=argument,
        )


def check_differences(kind: T.DataType, what: str, argument: str) -> None:
    """`PlanError` for decimals whose differences lose digits in Spark: it makes decimal(38, 9) of decimal(38, 10)."""
    if isinstance(kind, T.DecimalType) and kind.precision == 38 and kind.scale > _KEPT_SCALE:
        raise PlanError(
            f"{what}: differences of bounds of type {kind.simpleString()} are not exact in Spark; cast the bounds to "
            f"decimal(37, {min(kind.scale, 37)}) or fewer digits.",
            argument=argument,
        )


def make_rows(
    name: str,
    frame: DataFrame,
    bounds: tuple[T.DataType, str, str],
    keys: Iterable[str],
    closed: Closed,
    invalid: Invalid,
) -> Rows:
    """An input with its bounds, given by type and SQL names, as numbers."""
    kind, *sides = bounds
    type_with_codes(frame, "interval bounds", kind, "interval")
    scale, mark = Scale(kind), uuid4().hex[:8]
    named = tuple(dict.fromkeys(_top_column(side) for side in sides))
    made = [f"{scale.number(side)} as {RESERVED}{which}{mark}" for which, side in zip("se", sides, strict=True)]
    columns = tuple(frame.columns)
    ready = frame.selectExpr(*map(quoted, columns), *made)
    return Rows(name, ready, columns, named, tuple(map(quoted, keys)), scale, closed, invalid, mark, frame)


def _top_column(path: str) -> str:
    """The column that a quoted name, or a quoted name and a field of it, begins with."""
    name = re.match(r"`((?:[^`]|``)*)`", path)
    return path if name is None else name[1].replace("``", "`")


def check_free(rows: Rows, names: Iterable[str]) -> None:
    """`PlanError` if the input has a column that the result adds."""
    taken = {column.lower() for column in rows.columns}
    twice = [name for name in names if name.lower() in taken]
    if twice:
        raise PlanError(f"{rows.name} input already has columns {twice}; rename them first.", argument=rows.name)


def check_names(rows: Rows, added: Iterable[str]) -> None:
    """`PlanError` if a result of keys, bounds and added columns would have a name twice."""
    names = [*map(unquoted, rows.keys), *rows.named, *added]
    lower = [name.lower() for name in names]
    twice = [name for name in names if lower.count(name.lower()) > 1]
    if twice:
        raise PlanError(f"the result would have columns {twice} of one name; rename them in the input.", argument="on")


def check_type(rows: Rows, kind: T.DataType, argument: str) -> None:
    """`PlanError` for values of a type that does not fit the bounds."""
    own = rows.scale.kind
    whole = isinstance(own, T.IntegralType) and not isinstance(kind, T.IntegralType)
    if whole or common_type(rows.frame, argument, own, kind, argument) != own:
        raise PlanError(
            f"{argument} of type {kind.simpleString()} does not fit bounds of type {own.simpleString()}; cast one of "
            "them.",
            argument=argument,
        )


def check_value(rows: Rows, value: Any, argument: str) -> None:
    """`PlanError` for a value that is none of the type of the bounds; no job starts."""
    own = rows.scale.kind
    try:
        one = rows.frame.sparkSession.sql("VALUES (0)").select(rows.scale.literal(value).alias("v"))
    except Exception as error:  # Spark has no such value: an error of Python, of py4j or of PySpark
        raise PlanError(
            f"{argument}={value!r} is no value that Spark has; give one of type {own.simpleString()}.",
            argument=argument,
        ) from error
    kind = one.schema["v"].dataType
    common = common_type(rows.frame, argument, own, kind, argument)
    if isinstance(own, T.IntegralType) and not isinstance(kind, T.IntegralType):
        check_type(rows, kind, argument)
    fits = f"v <=> try_cast(v as {own.simpleString()})"
    if rows.scale.floating:  # rounded, but neither NaN nor made infinite
        fits = f"not isnan(v) and (abs(v) = double('inf') or abs(try_cast(v as {own.simpleString()})) < double('inf'))"
    if value is not None and not one.select(F.expr(fits)).collect()[0][0]:
        wider = f"cast the bounds to {common.simpleString()}" if common != own else "cast the bounds to a finer type"
        raise PlanError(
            f"{argument}={value!r} is no value of the type of the bounds, {own.simpleString()}; give one that is, or "
            f"{wider}.",
            argument=argument,
        )


def aggregate_columns(rows: Rows, given: Any, taken: Iterable[str]) -> list[Column]:
    """The user's aggregates as named Columns; a `PlanError` for one that does not fit the input."""
    if given is None:
        return []
    columns = (
        [(F.expr(e) if isinstance(e, str) else e).alias(name) for name, e in given.items()]
        if isinstance(given, Mapping)
        else list(given)
    )
    own = rows.frame.select(*map(quoted, rows.columns))
    nested = [F.isnull(column) for column in columns]  # a row for each group: what gives more of them is not nested
    try:
        found, shown = own.groupBy().agg(*columns).schema, own.groupBy().agg(*nested).columns
    except AnalysisException as problem:
        raise PlanError(
            f"aggregates={given!r} do not fit the columns {list(rows.columns)}; write aggregates such as 'sum(x)' over "
            f"these. Spark says: {spark_says(problem)}.",
            argument="aggregates",
        ) from problem
    if _takes_all(own, nested, shown):
        raise PlanError(
            f"aggregates={given!r} take all columns by '*', which has columns of the sweep, too; name the columns.",
            argument="aggregates",
        )
    names = found.names
    used = [name.lower() for name in (*taken, *names)]
    twice = sorted({name for name in used if used.count(name) > 1})
    if twice:
        raise PlanError(f"aggregates: the result would have columns {twice} twice; rename them.", argument="aggregates")
    return columns


def _takes_all(frame: DataFrame, nested: Iterable[Column], shown: list[str]) -> bool:
    """Whether an aggregate has a '*': Spark expands it in the name of its result, which a column more changes."""
    try:
        return frame.withColumn(f"{RESERVED}more", F.lit(None)).groupBy().agg(*nested).columns != shown
    except AnalysisException:  # of the column more
        return True
