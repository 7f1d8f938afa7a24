"""Columns of texts, and conditions on them for whole batches where texts are plain numbers, dates or strings.

Each answer comes with a mask that says for which rows it is known. All other rows (several items, a number with an
exponent, a date with a time zone, an error) are left to the evaluator, which defines what the condition means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.kernels.arrays import I32, NO_BYTES, U8, AnyArray, Bool
from dovetail.errors import DovetailError
from dovetail.xml.algebra.expressions import Call, Expression, Variable, variables
from dovetail.xml.evaluate.plans import Runner
from dovetail.xml.kernels.plain import DAY, HOUR, MINUTE, MONTH, SECONDS, YEAR, plain_integers, plain_moments
from dovetail.xml.scan import count_name
from dovetail.xml.xdm.atomic import to_double
from dovetail.xml.xdm.markup import text_of
from dovetail.xml.xdm.temporal import Date, DateTime


@dataclass(frozen=True, slots=True)
class Texts:
    """At most one text a row: whether there is one, and whether it is the only one (else the text is undefined)."""

    array: pa.StringArray
    present: Bool
    known: Bool

    def buffers(self) -> tuple[I32, U8]:
        """Where each text starts and ends, and the bytes of all; a row without text has an empty one."""
        rows, (_, offsets, data) = len(self.array), self.array.buffers()
        first = self.array.offset
        places = np.frombuffer(offsets, np.int32)[first : first + rows + 1] if rows else np.zeros(1, np.int32)
        return places, NO_BYTES if data is None else np.frombuffer(data, np.uint8)


def texts_of(batch: pa.RecordBatch, name: str, many: bool) -> Texts:
    """The texts of a column for which a row has one or none."""
    if not many:
        counts = batch[count_name(name)].to_numpy()
        return Texts(batch[name], counts > 0, counts <= 1)
    lists = batch[name]
    offsets = lists.offsets.to_numpy()
    counts = np.diff(offsets)
    if np.all(counts == 1):
        return Texts(lists.flatten(), counts > 0, counts <= 1)
    places = pa.array(offsets[:-1], mask=counts == 0)
    return Texts(lists.values.take(places), counts > 0, counts <= 1)


def lists_of(batch: pa.RecordBatch, name: str, many: bool) -> pa.ListArray | None:
    """All texts of a column, a list for each row; None if some row has more texts than the column holds."""
    if many:
        return batch[name]
    counts = batch[count_name(name)].to_numpy()
    if np.any(counts > 1):
        return None
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), batch[name].drop_null())


def side_by_side(columns: list[pa.ListArray]) -> pa.Array:
    """All texts of all columns: row by row, in a row column by column."""
    if len(columns) == 1:
        return columns[0].flatten()
    offsets = np.stack([one.offsets.to_numpy().astype(np.int64) for one in columns], axis=1)
    counts = np.diff(offsets, axis=0).reshape(-1)
    base = np.cumsum([0, *(len(one.values) for one in columns[:-1])])
    sources = (offsets[:-1] + base).reshape(-1)
    targets = np.cumsum(counts) - counts
    places = np.repeat(sources - targets, counts) + np.arange(counts.sum())
    return pa.concat_arrays([one.values for one in columns]).take(pa.array(places))


Truth = tuple[Bool, Bool]
"""For which rows the answer is known, and the answer."""
Test = Callable[[pa.RecordBatch], Truth]
Kind = Literal["text", "integer", "double", "date", "dateTime"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The value of an expression for each row: Arrow strings or numbers, whether there is a value, whether it is known.

    Integers, and seconds of dates, are exact. A constant has one value for all rows.
    """

    kind: Kind
    values: Any
    present: Bool | bool = True
    known: Bool | bool = True


Value = Callable[[pa.RecordBatch], Operand]

_PARTS = {"year": YEAR, "month": MONTH, "day": DAY, "hours": HOUR, "minutes": MINUTE}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
_COMPARE: dict[str, tuple[Any, Any]] = {
    "eq": (pc.equal, np.equal),
    "ne": (pc.not_equal, np.not_equal),
    "lt": (pc.less, np.less),
    "le": (pc.less_equal, np.less_equal),
    "gt": (pc.greater, np.greater),
    "ge": (pc.greater_equal, np.greater_equal),
}


class Arrays:
    """Makes tests of expressions; `columns` names the column of each variable, and says if it holds lists."""

    def __init__(self, runner: Runner, columns: dict[Variable, tuple[str, bool]]) -> None:
        self._runner, self._columns = runner, columns

    def test(self, expression: Expression) -> Test | None:
        """The effective boolean value of the expression; None if the evaluator must compute it."""
        match expression:
            case Call("boolean", (inner,)):
                return self.test(inner)
            case Call("not", (inner,)):
                return _negated(self.test(inner))
            case Call("and" | "or" as name, arguments):
                return _joined(name == "and", [self.test(one) for one in arguments])
            case Call(name, (left, right)) if name.startswith(("value-", "general-")) and any(variables(expression)):
                return self._comparison(name, self._operand(left), self._operand(right))
        return None

    def _comparison(self, name: str, left: Value | None, right: Value | None) -> Test | None:
        if left is None or right is None:
            return None
        general, op = name.startswith("general"), name.partition("-")[2]

        def test(batch: pa.RecordBatch) -> Truth:
            pair = _comparable(left(batch), right(batch), general)
            if pair is None:
                return np.zeros(batch.num_rows, np.bool_), np.zeros(batch.num_rows, np.bool_)
            return _compared(op, *pair, batch.num_rows)

        return test

    def _operand(self, expression: Expression) -> Value | None:
        if not any(variables(expression)):
            return self._constant(expression)
        match expression:
            case Variable():
                name, many = self._columns[expression]
                return lambda batch: _text(texts_of(batch, name, many))
            case Call("xs:integer" | "xs:decimal", (Variable() as inner,)):
                return _on_texts(self._operand(inner), _integer)
            case Call("xs:double", (Variable() as inner,)):
                return _on_texts(self._operand(inner), _double)
            case Call("xs:dateTime" | "xs:date" as name, (Variable() as inner,)):
                kind: Any = name[3:]
                return _on_texts(self._operand(inner), lambda text: _moment(text, kind, SECONDS))
            case Call(name, (Call("xs:dateTime" | "xs:date" as cast, (Variable() as inner,)),)):
                return self._part(name, cast[3:], inner)
            case Call("add" | "subtract" | "multiply" as name, (left, right)):
                return _computed(name, self._operand(left), self._operand(right))
        return None

    def _part(self, name: str, kind: str, inner: Variable) -> Value | None:
        part, _, source = name.partition("-from-")
        if source != kind or part not in _PARTS or (kind == "date" and part in ("hours", "minutes")):
            return None
        return _on_texts(self._operand(inner), lambda text: _moment(text, kind, _PARTS[part]))

    def _constant(self, expression: Expression) -> Value | None:
        """The value of an expression without variables; None if it has an error, which the evaluator raises."""
        try:
            items = self._runner.function(expression)(())
        except DovetailError:
            return None
        found = _atom(items[0]) if len(items) == 1 else None
        return None if found is None else lambda batch: found


def _atom(value: Any) -> Operand | None:
    kind = type(value)
    if kind is str:
        return Operand("text", value)
    if kind in (int, Decimal):
        return Operand("integer", value)
    if kind is float:
        return Operand("double", value)
    if kind in (Date, DateTime):
        text = pa.array([text_of(value)])
        moment = _moment(Operand("text", Texts(text, np.ones(1, np.bool_), np.ones(1, np.bool_))), value.name, SECONDS)
        return Operand(moment.kind, int(moment.values[0])) if np.all(moment.known) else None
    return None


def _text(found: Texts) -> Operand:
    return Operand("text", found, found.present, found.known)


def _on_texts(inner: Value | None, change: Callable[[Operand], Operand]) -> Value | None:
    return None if inner is None else lambda batch: change(inner(batch))


def _integer(text: Operand) -> Operand:
    values, known = plain_integers(*text.values.buffers())
    return Operand("integer", values, text.present, text.known & (known | np.logical_not(text.present)))


def _double(text: Operand) -> Operand:
    found = _integer(text)
    return Operand("double", found.values.astype(np.float64), found.present, found.known)


def _moment(text: Operand, kind: Any, part: int) -> Operand:
    values, known = plain_moments(*text.values.buffers(), timed=kind == "dateTime")
    shown: Kind = kind if part == SECONDS else "integer"
    return Operand(shown, values[part], text.present, text.known & (known | np.logical_not(text.present)))


def _computed(name: str, left: Value | None, right: Value | None) -> Value | None:
    """Arithmetic of doubles; other types are left to the evaluator."""
    if left is None or right is None:
        return None

    def value(batch: pa.RecordBatch) -> Operand:
        a, b = left(batch), right(batch)
        if "double" not in (_untyped(a).kind, _untyped(b).kind) or {"date", "dateTime"} & {a.kind, b.kind}:
            return Operand("double", np.zeros(batch.num_rows), True, np.zeros(batch.num_rows, np.bool_))
        x, y = _as_double(_untyped(a)), _as_double(_untyped(b))
        return Operand("double", _OPERATIONS[name](x.values, y.values), x.present & y.present, x.known & y.known)

    return value


def _untyped(operand: Operand) -> Operand:
    """An untyped text as a double, as arithmetic and comparisons with numbers take it; a constant text is no such."""
    return _double(operand) if operand.kind == "text" and isinstance(operand.values, Texts) else operand


def _as_double(operand: Operand) -> Operand:
    if operand.kind != "integer":
        return operand
    values = operand.values
    as_double = values.astype(np.float64) if isinstance(values, np.ndarray) else to_double(values)
    return Operand("double", as_double, operand.present, operand.known)


def _comparable(left: Operand, right: Operand, general: bool) -> tuple[Operand, Operand] | None:
    """Both in one type, as a comparison takes them; None if it must be left to the evaluator."""
    if left.kind == right.kind:
        return left, right
    if {left.kind, right.kind} == {"integer", "double"}:
        return _as_double(left), _as_double(right)
    if general and "text" in (left.kind, right.kind) and {"integer", "double"} & {left.kind, right.kind}:
        new = _as_double(_untyped(left)), _as_double(_untyped(right))
        return new if new[0].kind == new[1].kind == "double" else None
    return None


def _compared(op: str, left: Operand, right: Operand, rows: int) -> Truth:
    if left.kind == "text":
        a, b = (one.values.array if isinstance(one.values, Texts) else one.values for one in (left, right))
        found = np.asarray(pc.fill_null(_COMPARE[op][0](a, b), False))
    else:
        found = _numbers_compared(op, left.values, right.values)
    present, known = np.asarray(left.present & right.present), np.asarray(left.known & right.known)
    return np.broadcast_to(known, rows).copy(), np.broadcast_to(found & present, rows).copy()


def _numbers_compared(op: str, left: Any, right: Any) -> AnyArray:
    """Numbers compared; an exact constant with digits after its point is compared by the whole numbers around it."""
    compare = _COMPARE[op][1]
    if isinstance(left, (int, Decimal)) and isinstance(right, np.ndarray):
        return _numbers_compared(_TURNED[op], right, left)
    if not isinstance(right, (int, Decimal)):
        return np.asarray(compare(left, right))
    whole = int(right.to_integral_value("ROUND_FLOOR")) if isinstance(right, Decimal) else right
    if whole != right:
        if op in ("eq", "ne"):
            return np.full(len(left), op == "ne")
        op = "le" if op in ("lt", "le") else "gt"
    return np.asarray(_COMPARE[op][1](left, min(max(whole, -(2**62)), 2**62)))


_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _negated(inner: Test | None) -> Test | None:
    if inner is None:
        return None

    def test(batch: pa.RecordBatch) -> Truth:
        known, true = inner(batch)
        return known, ~true

    return test


def _joined(every: bool, inner: list[Test | None]) -> Test | None:
    """Known where all parts are: the evaluator decides which errors are raised."""
    if None in inner:
        return None
    combine = np.logical_and if every else np.logical_or

    def test(batch: pa.RecordBatch) -> Truth:
        found = [one(batch) for one in inner if one is not None]
        return np.logical_and.reduce([known for known, _ in found]), combine.reduce([true for _, true in found])

    return test
