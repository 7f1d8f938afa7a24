"""Types as the plans know them: names, which of them are nodes or numbers, and what functions give.

`element_node` in `treat` is the source's name for "a node that a step may start from": a document node passes it too.
"""

from __future__ import annotations

from dovetail.xml.algebra.expressions import Call, Expression

NODES = (
    "node", "document_node", "element_node", "attribute_node", "text_node", "comment_node", "instruction_node",
)  # fmt: skip
UNTYPED = ("document_node", "element_node", "attribute_node", "text_node")
"""Nodes whose typed value is one untypedAtomic."""

NUMBERS = ("integer", "decimal", "double", "float", "numeric")
TEXTS = ("string", "untypedAtomic", "anyURI")
ATOMIC = (
    *NUMBERS, *TEXTS, "atomic", "boolean", "date", "dateTime", "time", "duration", "dayTimeDuration",
    "yearMonthDuration", "QName",
)  # fmt: skip


def is_node(kind: str) -> bool:
    """Whether the type is one of nodes."""
    return kind in NODES


def is_atomic(kind: str) -> bool:
    """Whether the type is one of atomic values."""
    return kind in ATOMIC


def is_numeric(kind: str) -> bool:
    """Whether the type is one of numbers."""
    return kind in NUMBERS


def is_subtype(kind: str, of: str) -> bool:
    """Whether every value of `kind` passes a check for `of`."""
    if of == "element_node":
        return is_node(kind)
    return kind == of or of == "item" or (of == "node" and is_node(kind)) or (of == "atomic" and is_atomic(kind))


def step_type(axis: str, test: Expression) -> str:
    """What a step finds."""
    if isinstance(test, Call):
        return _KINDS.get(test.name, "node")
    return "attribute_node" if axis == "attribute" else "element_node"


_KINDS = {
    "element": "element_node",
    "attribute": "attribute_node",
    "text": "text_node",
    "comment": "comment_node",
    "processing-instruction": "instruction_node",
    "document-node": "document_node",
}

_COMPARISONS = {f"value-{op}": ("boolean", True) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMPARISONS |= {f"general-{op}": ("boolean", False) for op in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMPARISONS |= dict.fromkeys(("node-is", "node-before", "node-after"), ("boolean", True))
_ALWAYS = {
    "boolean": "boolean", "and": "boolean", "or": "boolean", "not": "boolean", "exists": "boolean", "empty": "boolean",
    "contains": "boolean", "starts-with": "boolean", "ends-with": "boolean", "matches": "boolean",
    "deep-equal": "boolean",
    "string": "string", "upper-case": "string", "lower-case": "string", "concat": "string", "substring": "string",
    "normalize-space": "string", "string-length": "integer", "string-join": "string", "name": "string",
    "local-name": "string", "substring-before": "string", "substring-after": "string", "translate": "string",
    "replace": "string", "number": "double", "string-concat": "string", "current-date": "date",
    "current-dateTime": "dateTime", "current-time": "time",
}  # fmt: skip
_OF_ARGUMENT = {
    "xs:decimal": "decimal", "xs:integer": "integer", "xs:double": "double", "xs:float": "float", "xs:string": "string",
    "xs:boolean": "boolean", "xs:date": "date", "xs:dateTime": "dateTime", "xs:time": "time", "xs:anyURI": "anyURI",
    "xs:untypedAtomic": "untypedAtomic",
    "year-from-dateTime": "integer", "month-from-dateTime": "integer", "day-from-dateTime": "integer",
    "hours-from-dateTime": "integer", "minutes-from-dateTime": "integer", "seconds-from-dateTime": "decimal",
    "year-from-date": "integer", "month-from-date": "integer", "day-from-date": "integer",
    "add": "atomic", "subtract": "atomic", "multiply": "atomic", "divide": "atomic", "integer-divide": "integer",
    "mod": "numeric", "minus": "numeric", "plus": "numeric", "abs": "numeric", "floor": "numeric", "ceiling": "numeric",
    "round": "numeric",
}  # fmt: skip

ATOMIC_RESULTS: dict[str, tuple[str, bool]] = (
    _COMPARISONS
    | {name: (kind, False) for name, kind in _ALWAYS.items()}
    | {name: (kind, True) for name, kind in _OF_ARGUMENT.items()}
)
"""Type of the answer, and whether an empty argument makes the answer empty (otherwise there is always one item)."""
