"""Rows between tasks: the required values of the tuples of a part, how rows are written, how the last task reads them.

`Items`, `Fields` and `State` are the kinds of required values. Scan tasks and the chain above a join write rows of
tuples by `written`; the last task reads them by `SentFields`, `SentState` and `SentDoubles`. Keys of joins travel as
strings, equal exactly where XQuery calls the values equal; values of variables as strings or pickled items. A node sent
between tasks is a copy without its surroundings, so only nodes whose surroundings and identity are never used may be
sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import Call, Expression, Variable
from dovetail.xml.algebra.operators import Aggregate, Key, TwoStep
from dovetail.xml.evaluate.plans import RemoteTuples, Runner
from dovetail.xml.execute.columns import Texts
from dovetail.xml.kernels.plain import plain_integers
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.markup import new_comment, new_instruction, new_text, parser, serialise
from dovetail.xml.xdm.nodes import (
    DOCUMENT,
    Attribute,
    Comment,
    Document,
    Element,
    Instruction,
    Text,
    new_tree,
    string_value,
)
from dovetail.xml.xdm.operators import KEYS
from dovetail.xml.xdm.values import atomise

FILE_SHIFT = 40
"""Bits of an order number for the place in its file; above them stands the number of the file."""
ROWS = 2048
"""Rows of a batch."""


def batched(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of these rows, in order; none if there are no rows."""
    source = iter(rows)
    while some := list(islice(source, ROWS)):
        columns = [pa.array(cells, field.type) for cells, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


Values = list[Any]


def key_cell(key: Key, items: Values) -> Any:
    """The key as a cell of its column: texts of all items, each once; or the text of the only one, None without it."""
    change = KEYS[key.kind]
    if key.many:
        return list(dict.fromkeys(text for item in items if (text := change(item)) is not None))
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"an operand of a comparison is a sequence of {len(items)} items; one is allowed")
    return change(items[0]) if items else None


Form = Literal["texts", "nodes", "items"]
"""How a value is sent: untyped texts, elements as markup, or anything."""

Forms = Mapping[Variable, Form]
ARROW: dict[Form, pa.DataType] = {"texts": pa.list_(pa.string()), "nodes": pa.list_(pa.string()), "items": pa.binary()}

KEY_TYPES: dict[bool, pa.DataType] = {False: pa.string(), True: pa.list_(pa.string())}
"""Columns of keys: of one item at most, or of any number of them."""


def element_of(markup: str) -> Any:
    """An element without document, made of its markup."""
    holder = new_tree()
    holder.append(etree.fromstring(markup.encode(), parser()))
    return holder[0]


def encoded(form: Form, items: Values) -> Any:
    """A value as a cell of its column."""
    if form == "texts":
        return [str(item) for item in atomise(items)]
    if form == "nodes":
        return [serialise(item) for item in items]
    out = BytesIO()
    pickler = pickle.Pickler(out, protocol=5)
    pickler.dispatch_table = _MADE_AGAIN
    pickler.dump(items)
    return out.getvalue()


def decoded(form: Form, cell: Any) -> Values:
    """The value that `encoded` wrote."""
    if form == "texts":
        return [UntypedAtomic(text) for text in cell]
    if form == "nodes":
        return [element_of(markup) for markup in cell]
    return pickle.loads(cell)  # type: ignore[no-any-return]  # noqa: S301  (written by a task of the same query)


def _attribute(key: str, value: str) -> Attribute:
    holder = new_tree()
    holder.set(key, value)
    return Attribute(holder, key)


def _document(markup: str, uri: str) -> Document:
    holder = new_tree(DOCUMENT, uri or None)
    inside = etree.fromstring(f"<d>{markup}</d>".encode(), parser())
    holder.text = inside.text
    holder.extend(list(inside))
    return Document(holder)


_MADE_AGAIN: dict[type, Callable[[Any], tuple[Callable[..., Any], tuple[str, ...]]]] = {
    Attribute: lambda node: (_attribute, (node.key, node.value)),
    Text: lambda node: (new_text, (node.value,)),
    Comment: lambda node: (new_comment, (string_value(node),)),
    Instruction: lambda node: (new_instruction, (node.target, string_value(node))),
    Document: lambda node: (_document, (serialise(node), node.holder.get("uri") or "")),
    Element: lambda node: (element_of, (serialise(node),)),
}
"""Nodes as they are sent between tasks: the function that makes each of them again, and its arguments."""


ITEM, ORDER, STATE, COUNT, TOTAL = "item", "o", "state", "n", "s"
ITEMS = pa.schema([pa.field(ITEM, pa.string(), nullable=False)])
_EXACT_BELOW = 2**53


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a variable, serialised: the result of the query."""

    variable: Variable

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that are computed for each tuple."""
        return (self.variable,)


@dataclass(frozen=True, slots=True)
class Fields:
    """Keys of a join and variables, for other tasks. For the variables in `typed` the typed value suffices."""

    variables: tuple[Variable, ...]
    keys: tuple[Key, ...] = ()
    typed: frozenset[Variable] = frozenset()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that are computed for each tuple."""
        return (*(key.expression for key in self.keys), *self.variables)


@dataclass(frozen=True, slots=True)
class State:
    """The local step of an aggregate over all tuples of a task."""

    aggregate: Aggregate

    @property
    def call(self) -> Call:
        """The function and its argument."""
        assert isinstance(self.aggregate.expression, Call)  # noqa: S101  (`aggregate_in_two_steps` asks for a call)
        return self.aggregate.expression

    @property
    def steps(self) -> TwoStep:
        """The functions of both steps."""
        assert self.aggregate.steps is not None  # noqa: S101  (only such aggregates are cut)
        return self.aggregate.steps

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that are computed for each tuple."""
        return self.call.arguments


Wanted = Items | Fields | State
Ordered = Iterable[tuple[tuple[int, ...], list[Values]]]
"""Order numbers of tuples, and for each tuple the values of the wanted expressions."""


def schema_of(wanted: Wanted, forms: Iterable[Form] = (), orders: tuple[str, ...] = (ORDER,)) -> pa.Schema:
    """The columns of rows: items, or order numbers with keys and variables in their forms, or with a state."""
    if isinstance(wanted, Items):
        return ITEMS
    if isinstance(wanted, State):
        return pa.schema([(ORDER, pa.int64()), (STATE, pa.binary())])
    fields = [(name, pa.int64()) for name in orders]
    fields += [(f"k{n}", KEY_TYPES[key.many]) for n, key in enumerate(wanted.keys)]
    fields += [(f"v{v.number}", ARROW[form]) for v, form in zip(wanted.variables, forms, strict=True)]
    return pa.schema(fields)


def written(
    wanted: Wanted, forms: Sequence[Form], runner: Runner, tuples: Ordered, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The rows of some tuples, in order; for an aggregate its state, if there was an item."""
    match wanted:
        case Items():
            return batched(((serialise(item),) for _, (items,) in tuples for item in items), schema)
        case State():
            return _state(wanted, runner, tuples)
    return batched(_fields(wanted, forms, tuples), schema)


def _fields(wanted: Fields, forms: Sequence[Form], tuples: Ordered) -> Iterator[tuple[Any, ...]]:
    n = len(wanted.keys)
    for order, values in tuples:
        keys = [key_cell(key, items) for key, items in zip(wanted.keys, values[:n], strict=True)]
        yield (*order, *keys, *(encoded(form, items) for form, items in zip(forms, values[n:], strict=True)))


def _state(wanted: State, runner: Runner, tuples: Ordered) -> Iterator[pa.RecordBatch]:
    local, waiting, last = Local(runner, wanted), list[Any](), 0
    for order, (items,) in tuples:
        last = order[0]
        waiting += items
        if len(waiting) >= ROWS:
            local.add(waiting)
            waiting = []
    local.add(waiting)
    yield from local.rows(last)


# --- aggregates in two steps


class Local:
    """The aggregate of the items seen so far, one value for each function of the local step."""

    def __init__(self, runner: Runner, wanted: State) -> None:
        self._functions = [(name, _function(runner, name, wanted)) for name in wanted.steps.local]
        self._names = set(wanted.steps.local)
        self._state: list[Values] = [[] for _ in self._functions]
        self._doubles: dict[str, float] = {}
        self._number = _function(runner, "sum", wanted)
        self._counts = all(name == "count" for name, _ in self._functions)
        self._seen = 0

    def rows(self, order: int) -> Iterator[pa.RecordBatch]:
        """The state in one row, if there was an item; what the combining step needs."""
        if self._seen:
            state = {ORDER: [order], STATE: [encoded("items", self._state)]}
            yield pa.RecordBatch.from_pydict(state, schema=pa.schema([(ORDER, pa.int64()), (STATE, pa.binary())]))

    def add(self, items: Values) -> None:
        """Add further items, in order."""
        if not items:
            return
        self._seen += len(items)
        if not self._counts:
            items = atomise(items)
        for place, (name, function) in enumerate(self._functions):
            if name == "count":
                self._state[place] = [self._seen]
            elif name == "sum":
                self._state[place] = function([*self._state[place], *map(self._summand, items)])
            else:
                self._state[place] = function([*self._state[place], *_different(items)])

    def add_texts(self, texts: Texts) -> bool:
        """Add one untyped text a row, or none, if all of them are whole numbers; returns whether it did.

        Sums of such numbers are exact in any order, as long as they stay below 2^53.
        """
        if self._counts:
            return False
        values, known = plain_integers(*texts.buffers())
        if not np.all(known | ~texts.present):
            return False
        values = values[texts.present]
        if len(values) == 0:
            return True
        if "sum" in self._names and np.abs(values).sum() >= _EXACT_BELOW:
            return False
        given = {"sum": float(values.sum()), "max": float(values.max()), "min": float(values.min())}
        self._seen += len(values)
        for place, (name, function) in enumerate(self._functions):
            self._state[place] = [self._seen] if name == "count" else function([*self._state[place], given[name]])
        return True

    def _summand(self, item: Any) -> Any:
        if type(item) is not UntypedAtomic:
            return item
        if item not in self._doubles:
            if len(self._doubles) > 1 << 17:
                self._doubles.clear()
            (self._doubles[item],) = self._number([item])
        return self._doubles[item]


def _different(items: Values) -> Values:
    """Untyped texts once each: the largest and the smallest of equal ones are that text."""
    return list(dict.fromkeys(items)) if {type(item) for item in items} == {UntypedAtomic} else items


def _combined(runner: Runner, wanted: State, states: list[list[Values]]) -> Values:
    """The aggregate over all partitions; those without items send nothing."""
    steps = wanted.steps
    if not states:
        return _function(runner, wanted.call.name, wanted)([])
    local = [[item for state in states for item in state[place]] for place in range(len(steps.local))]
    if steps.combine != "divide":
        return _function(runner, steps.combine, wanted)(local[0])
    return runner.named("divide", 2)([_function(runner, "sum", wanted)(one) for one in local])


def _function(runner: Runner, name: str, wanted: State) -> Callable[[Values], Values]:
    function = runner.named(name, 1, wanted.call.place)
    return lambda given: function([given])


# --- rows that the last task reads

Cells = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class SentFields:
    """Rows hold variables in their forms."""

    forms: tuple[tuple[Variable, Form], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the last task reads."""
        return tuple(f"v{variable.number}" for variable, _ in self.forms)

    def read(self, cells: Cells, row: int) -> list[Values]:
        """The values of one tuple."""
        return [decoded(form, cells[f"v{variable.number}"][row]) for variable, form in self.forms]

    def given(self, runner: Runner, found: list[Any]) -> RemoteTuples:
        """All tuples, for the rest of the plan."""
        return RemoteTuples(tuple(variable for variable, _ in self.forms), found)


@dataclass(frozen=True, slots=True)
class SentState:
    """Rows hold states of an aggregate that tasks computed."""

    wanted: State

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the last task reads."""
        return (STATE,)

    def read(self, cells: Cells, row: int) -> list[Values]:
        """The state that a row holds."""
        return decoded("items", cells[STATE][row])

    def given(self, runner: Runner, found: list[Any]) -> RemoteTuples:
        """One tuple with the value of the aggregate, for the rest of the plan."""
        states = [state for state in found if state]
        return RemoteTuples((self.wanted.aggregate.variable,), [[_combined(runner, self.wanted, states)]])


@dataclass(frozen=True, slots=True)
class SentDoubles(SentState):
    """One row holds the count of doubles, and their sum, largest or smallest, as Spark aggregated them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the last task reads."""
        return (COUNT, TOTAL)

    def read(self, cells: Cells, row: int) -> list[Values]:
        """The state that the row holds; empty if there were no doubles."""
        total, count = [cells[TOTAL][row]], [cells[COUNT][row]]
        return [total, count][: len(self.wanted.steps.local)] if count[0] else []


Sent = SentFields | SentState
