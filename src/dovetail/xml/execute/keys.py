"""Keys of a join as strings that are equal exactly where XQuery calls the values equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from dovetail.errors import XQueryError
from dovetail.xml.algebra.expressions import Call, Expression
from dovetail.xml.algebra.operators import Equality
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.algebra.property_types import TEXTS
from dovetail.xml.xdm.cast import cast
from dovetail.xml.xdm.numbers import to_double
from dovetail.xml.xdm.serialise import text_of

Items = list[Any]
Form = Literal["text", "exact", "double", "moment"]
"""How values are compared: as strings, as integers and decimals, as doubles, as points in time."""
_EXACT = ("integer", "decimal")
_MOMENTS = ("date", "dateTime", "time")


@dataclass(frozen=True, slots=True)
class Key:
    """What one side of a join is found by; with `many` by each of its items, else by the only one."""

    expression: Expression
    form: Form = "text"
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


def _form(kinds: set[str]) -> Form | None:
    if kinds <= set(TEXTS):
        return "text"
    if kinds <= set(_EXACT):
        return "exact"
    if kinds <= {*_EXACT, "double", "untypedAtomic"}:
        return "double"
    return "moment" if len(kinds) == 1 and kinds <= set(_MOMENTS) else None


def key_text(items: Items, form: Form = "text") -> str | None:
    """The key of a value comparison: None if there is no item, an error if there are several."""
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"an operand of a comparison is a sequence of {len(items)} items; one is allowed")
    return _TEXTS[form](items[0]) if items else None


def key_texts(items: Items, form: Form = "text") -> list[str]:
    """The keys of a general comparison, each of them once."""
    found = (_TEXTS[form](item) for item in items)
    return list(dict.fromkeys(one for one in found if one is not None))


def key_cell(key: Key, items: Items) -> Any:
    """The key as a cell of its column."""
    return key_texts(items, key.form) if key.many else key_text(items, key.form)


def _double(value: Any) -> str | None:
    """NaN equals nothing, not even itself; both zeros are equal."""
    number = to_double(cast(value, "double"))
    return None if number != number else repr(number + 0.0)


def _moment(value: Any) -> str:
    return text_of(value.instant())


_TEXTS: dict[Form, Callable[[Any], str | None]] = {"text": str, "exact": text_of, "double": _double, "moment": _moment}
