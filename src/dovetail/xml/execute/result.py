"""The rows of a result: one serialised item a row, or one typed column for each atom that `return` gives.

For typed columns the plan is changed: the sequence that `return` gives is not taken apart, so that each tuple is a row.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from dovetail.errors import PlanError, XQueryError
from dovetail.xml.algebra.expressions import SEQUENCE, Call, Constant, Expression, Variable
from dovetail.xml.algebra.operators import (
    Assign,
    DistributeResult,
    Operator,
    Unnest,
    next_number,
)
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.execute.rows import ITEMS
from dovetail.xml.execute.wire import Form, decoded
from dovetail.xml.xdm.markup import serialise, text_of

ARROW_TYPES: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "decimal": pa.decimal128(38, 18),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "dateTime": pa.timestamp("us", tz="UTC"),
}
"""Atomic types with a column type of their own; all others are given as text."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One column: its name, the type of its atoms, and the variable that holds them."""

    name: str
    kind: str
    variable: Variable


@dataclass(frozen=True, slots=True)
class Row:
    """How an item, or the items of a tuple, become cells. Without `columns`: one item, serialised."""

    columns: tuple[Typed, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        if not self.columns:
            return ITEMS
        return pa.schema([(column.name, ARROW_TYPES.get(column.kind, pa.string())) for column in self.columns])

    def cells(self, item: Any) -> tuple[Any, ...]:
        """The cells of an item; with columns the item is the list of the values of a tuple."""
        if not self.columns:
            return (serialise(item),)
        return tuple(cell(column, items) for column, items in zip(self.columns, item, strict=True))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """What is wanted of each tuple; nothing if items are."""
        return tuple(column.variable for column in self.columns)

    def typed(self, batch: pa.RecordBatch, forms: Mapping[Variable, Form]) -> pa.RecordBatch:
        """Cells that tasks sent, in the columns of the result."""
        found = []
        for column, field in zip(self.columns, self.schema, strict=True):
            form, sent = forms[column.variable], batch[f"v{column.variable.number}"].to_pylist()
            found.append(pa.array([cell(column, decoded(form, one)) for one in sent], field.type))
        return pa.RecordBatch.from_arrays(found, schema=self.schema)


def cell(column: Typed, items: list[Any]) -> Any:
    """One atom as a cell, null if there is none."""
    if not items:
        return None
    if len(items) > 1:
        raise XQueryError(
            "XPTY0004", f"column {column.name!r} would have {len(items)} atoms in one row; one is allowed"
        )
    change = _CELLS.get(column.kind)
    try:
        return text_of(items[0]) if change is None else change(items[0])
    except (ValueError, OverflowError) as error:
        raise XQueryError("FOCA0001", f"{text_of(items[0])} does not fit into column {column.name!r}") from error


_ROUNDING = Context(prec=20_000)  # Python's own has 28 digits, and a cell has 38


def _integer(value: Any) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return int(value)


def _decimal(value: Any) -> Decimal:
    with_places = Decimal(value).quantize(Decimal(1).scaleb(-18), context=_ROUNDING)
    if with_places.adjusted() >= 20:
        raise OverflowError
    return with_places


def _date(value: Any) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


def _date_time(value: Any) -> datetime.datetime:
    whole = int(value.second)
    micros = int((value.second - whole) * 1_000_000)
    zone = datetime.timezone(datetime.timedelta(minutes=value.zone or 0))
    return datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, whole, micros, zone)


_CELLS: dict[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "decimal": _decimal,
    "double": float,
    "float": float,
    "boolean": bool,
    "date": _date,
    "dateTime": _date_time,
}


def in_columns(plan: DistributeResult) -> tuple[DistributeResult, Row]:
    """The plan with one tuple a row, and the columns of its rows. PlanError if it gives no atoms."""
    facts = Facts(plan)
    found = _returned(plan, facts)
    if found is None:
        raise PlanError(
            "output='columns' needs a query that ends in a return of atoms, such as (data($r/date), 1); write "
            "data(...) for the text of a node.",
            argument="output",
        )
    atoms, below = found
    first = next_number(plan)
    names = _names(atoms, facts)
    columns = []
    for number, (expression, name) in enumerate(zip(atoms, names, strict=True)):
        kind = facts.of(expression)
        if not kind.atomic or kind.type in ("atomic", "numeric"):
            raise PlanError(
                f"output='columns': the type of column {name!r} does not follow from the query ({kind.type}); write "
                "data(...) for the text of a node, or a constructor such as xs:decimal(...).",
                argument="output",
            )
        variable = Variable(first + number)
        below = Assign(variable, expression, below)
        columns.append(Typed(name, kind.type, variable))
    return DistributeResult(columns[-1].variable, below), Row(tuple(columns))


def _returned(plan: DistributeResult, facts: Facts) -> tuple[tuple[Expression, ...], Operator] | None:
    match plan.input:
        case Unnest(variable, Call("iterate", (value,)), below, None) if variable == plan.variable:
            written = _written_out(value, facts)
            atoms = written.arguments if isinstance(written, Call) and written.name == SEQUENCE else (value,)
            return tuple(atoms), below
    return None


def _written_out(value: Expression, facts: Facts) -> Expression:
    defined = facts.definitions.get(value) if isinstance(value, Variable) else None
    return _written_out(defined.expression, facts) if isinstance(defined, Assign) else value


def _names(atoms: tuple[Expression, ...], facts: Facts) -> list[str]:
    """The last name of a path, where each column has one of its own; c1, c2 ... otherwise."""
    found = [_last_name(_written_out(atom, facts), facts) for atom in atoms]
    return [
        name if name is not None and found.count(name) == 1 else f"c{number}" for number, name in enumerate(found, 1)
    ]


def _last_name(expression: Expression, facts: Facts) -> str | None:
    match expression:
        case Call("child" | "attribute", (_, Constant(str() as name))):
            return None if "*" in name else name.rpartition("}")[2]
        case Call(name, (inner,)) if name == "data" or name.startswith("xs:"):
            return _last_name(_written_out(inner, facts), facts)
    return None
