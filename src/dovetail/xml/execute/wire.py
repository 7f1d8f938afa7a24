"""Rows between tasks: keys of joins as strings, values of variables as strings or pickled items.

Keys are equal exactly where XQuery calls the values equal. A node that crosses between tasks is a copy without its
surroundings, so only nodes whose surroundings and identity are never asked for may cross.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import pyarrow as pa
from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import Call, Expression
from dovetail.xml.algebra.operators import Equality
from dovetail.xml.algebra.properties import TEXTS, Facts
from dovetail.xml.xdm.atomic import UntypedAtomic, to_double
from dovetail.xml.xdm.markup import new_comment, new_instruction, new_text, parser, serialise, text_of
from dovetail.xml.xdm.nodes import (
    DOCUMENT,
    Attribute,
    Comment,
    Document,
    Instruction,
    Text,
    is_node,
    new_tree,
    string_value,
)
from dovetail.xml.xdm.values import atomise, cast

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
KeyForm = Literal["text", "exact", "double", "moment"]
"""How values are compared: as strings, as integers and decimals, as doubles, as points in time."""
_EXACT = ("integer", "decimal")
_MOMENTS = ("date", "dateTime", "time")


@dataclass(frozen=True, slots=True)
class Key:
    """What one side of a join is found by; with `many` by each of its items, else by the only one."""

    expression: Expression
    form: KeyForm = "text"
    many: bool = False


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The keys of both sides of one equality. They decide it: where they meet, it is true, and nowhere else."""

    inner: Key
    outer: Key

    def decides(self, condition: Expression) -> bool:
        """Whether the condition is this equality."""
        name = "general-eq" if self.inner.many else "value-eq"
        sides = (self.inner.expression, self.outer.expression)
        match condition:
            case Call("boolean", (inner,)):
                return self.decides(inner)
            case Call(found, (a, b)):
                return found == name and sides in ((a, b), (b, a))
        return False


def key_pair(equality: Equality, facts: Facts) -> KeyPair | None:
    """Keys that decide the equality; None if there are no strings that say what it says.

    Right for texts, which are compared code point by code point; for integers and decimals, which are compared exactly;
    where one side is a double, because then both are compared as doubles; for dates and times of one type, which are
    equal if they are the same point in time. Not for xs:float, which would make other numbers equal to it.
    """
    kinds = {facts.of(equality.inner).type, facts.of(equality.outer).type}
    form = _form(kinds)
    if form is None:
        return None
    many = equality.existential
    return KeyPair(Key(equality.inner, form, many), Key(equality.outer, form, many))


def _form(kinds: set[str]) -> KeyForm | None:
    if kinds <= set(TEXTS):
        return "text"
    if kinds <= set(_EXACT):
        return "exact"
    if kinds <= {*_EXACT, "double", "untypedAtomic"}:
        return "double"
    return "moment" if len(kinds) == 1 and kinds <= set(_MOMENTS) else None


def key_text(items: Values, form: KeyForm = "text") -> str | None:
    """The key of a value comparison: None if there is no item, an error if there are several."""
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"an operand of a comparison is a sequence of {len(items)} items; one is allowed")
    return _TEXTS[form](items[0]) if items else None


def key_texts(items: Values, form: KeyForm = "text") -> list[str]:
    """The keys of a general comparison, each of them once."""
    found = (_TEXTS[form](item) for item in items)
    return list(dict.fromkeys(one for one in found if one is not None))


def key_cell(key: Key, items: Values) -> Any:
    """The key as a cell of its column."""
    return key_texts(items, key.form) if key.many else key_text(items, key.form)


def _double(value: Any) -> str | None:
    """NaN equals nothing, not even itself; both zeros are equal."""
    number = to_double(cast(value, "double"))
    return None if number != number else repr(number + 0.0)


def _moment(value: Any) -> str:
    return text_of(value.instant())


_TEXTS: dict[KeyForm, Callable[[Any], str | None]] = {
    "text": str,
    "exact": text_of,
    "double": _double,
    "moment": _moment,
}


Form = Literal["texts", "nodes", "items"]
"""How a value travels: untyped texts, elements as markup, or anything."""

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
    return pickle.dumps([_packed(item) if is_node(item) else item for item in items], protocol=5)


def decoded(form: Form, cell: Any) -> Values:
    """The value that `encoded` wrote."""
    if form == "texts":
        return [UntypedAtomic(text) for text in cell]
    if form == "nodes":
        return [element_of(markup) for markup in cell]
    found = pickle.loads(cell)  # noqa: S301  (written by a task of the same query)
    return [item.make(*item.arguments) if type(item) is _Packed else item for item in found]


@dataclass(frozen=True, slots=True)
class _Packed:
    """A node as it is sent between tasks: the function that makes it again, and its arguments."""

    make: Callable[..., Any]
    arguments: tuple[str, ...]


def _packed(node: Any) -> _Packed:
    kind = type(node)
    if kind is Attribute:
        return _Packed(_attribute, (node.key, node.value))
    if kind is Text:
        return _Packed(new_text, (node.value,))
    if kind is Comment:
        return _Packed(new_comment, (string_value(node),))
    if kind is Instruction:
        return _Packed(new_instruction, (node.target, string_value(node)))
    if kind is Document:
        return _Packed(_document, (serialise(node), node.holder.get("uri") or ""))
    return _Packed(element_of, (serialise(node),))


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
