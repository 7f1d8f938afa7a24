"""The tree of a query: small frozen nodes that know their place in the text; and room for deep trees.

Two nodes are equal if their content is; their place (`line`, `column`) does not count. Every name in the tree is
resolved: a `QName` holds the namespace, and the prefix only for printing. Abbreviations are expanded: `//` is a step on
the axis descendant-or-self, `@a` one on the axis attribute, `a => f(b)` the call `f(a, b)`; `some` is `exists(...)` of
a FLWOR expression that looks for a witness, `every` is `not(exists(...))`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal as OneOf
from typing import get_args

FN = "http://www.w3.org/2005/xpath-functions"
XS = "http://www.w3.org/2001/XMLSchema"
XML = "http://www.w3.org/XML/1998/namespace"
XMLNS = "http://www.w3.org/2000/xmlns/"
LOCAL = "http://www.w3.org/2005/xquery-local-functions"
ERR = "http://www.w3.org/2005/xqt-errors"
CODEPOINT = f"{FN}/collation/codepoint"

Axis = OneOf[
    "child", "attribute", "self", "descendant", "descendant-or-self", "parent", "ancestor", "ancestor-or-self",
    "following-sibling", "preceding-sibling", "following", "preceding",
]  # fmt: skip
AXES = get_args(Axis)
NodeKind = OneOf[
    "node", "element", "attribute", "text", "comment", "processing-instruction", "document-node", "namespace-node"
]


@dataclass(frozen=True, slots=True)
class QName:
    """A resolved name, and a value of type xs:QName; `uri` is "" for a name in no namespace."""

    uri: str
    local: str
    prefix: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.prefix}:{self.local}" if self.prefix else self.local


@dataclass(frozen=True, slots=True)
class NameTest:
    """A name or wildcard of a step: None stands for `*`."""

    uri: str | None
    local: str | None
    prefix: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class KindTest:
    """`node()`, `text()`, `element(name)` ...; `name` also holds the target of processing-instruction(target)."""

    kind: NodeKind
    name: NameTest | None = None
    inner: KindTest | None = None  # document-node(element(name))


ItemType = QName | KindTest | OneOf["item()"]
"""The name of an atomic type such as `xs:integer`, a test for nodes, or any item."""


@dataclass(frozen=True, slots=True)
class SequenceType:
    """An item type with `"" ? * +`; item None is `empty-sequence()`."""

    item: ItemType | None
    occurrence: OneOf["", "?", "*", "+"] = ""


_CALLS = 60_000  # calls between Python functions use no C stack, so this many are safe


@contextmanager
def deep_stack() -> Iterator[None]:
    """Raises the limit of nested calls inside the block: parsing and evaluation are nested Python calls."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _CALLS))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


# --- expressions


@dataclass(frozen=True, slots=True)
class Expr:
    """Any expression."""

    line: int = field(default=0, kw_only=True, compare=False)
    column: int = field(default=0, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant: `str`, `int` (xs:integer), `Decimal` (xs:decimal) or `float` (xs:double)."""

    value: str | int | Decimal | float


@dataclass(frozen=True, slots=True)
class VariableRef(Expr):
    """`$name`."""

    name: QName


@dataclass(frozen=True, slots=True)
class ContextItem(Expr):
    """`.`; also the start of a relative path such as `a/b`."""


@dataclass(frozen=True, slots=True)
class Root(Expr):
    """`/` alone, and the start of every path that begins with `/` or `//`."""


@dataclass(frozen=True, slots=True)
class Sequence(Expr):
    """`(a, b, c)` or `a, b`; `()` has no items. One parenthesised expression is itself, not a sequence."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall(Expr):
    """`name(arguments)`. A name without prefix is in the namespace FN."""

    name: QName
    arguments: tuple[Expr, ...]


# --- operators


VALUE = {op: f"value-{op}" for op in ("eq", "ne", "lt", "le", "gt", "ge")}
GENERAL = {op: f"general-{name}" for op, name in zip(("=", "!=", "<", "<=", ">", ">="), VALUE, strict=True)}
NODE = {"is": "node-is", "<<": "node-before", ">>": "node-after"}
ARITHMETIC = {
    "+": "add", "-": "subtract", "*": "multiply", "div": "divide", "idiv": "integer-divide", "mod": "mod",
}  # fmt: skip
SETS = ("union", "intersect", "except")
BINARY = {
    **{"and": "and", "or": "or", "to": "to", "||": "string-concat", "|": "union"},
    **VALUE, **GENERAL, **NODE, **ARITHMETIC, **{name: name for name in SETS},
}  # fmt: skip
"""Names of the operators between two operands, which plans call them by."""
SYMBOLS = {name: op for op, name in BINARY.items()} | {"minus": "-", "plus": "+"}


@dataclass(frozen=True, slots=True)
class Operation(Expr):
    """An operator and its operands: logical, comparison, arithmetic, set operation, `to`, `||`, or a sign."""

    name: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class SimpleMap(Expr):
    """`left ! right`."""

    left: Expr
    right: Expr


# --- paths


@dataclass(frozen=True, slots=True)
class AxisStep(Expr):
    """`axis::test[predicate]...`, a step of a `Path`."""

    axis: Axis
    test: NameTest | KindTest
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Path(Expr):
    """`start/step/step`: each step is an `AxisStep` or any other expression, evaluated for every node before it.

    A relative path starts with `ContextItem()`, an absolute one with `Root()`; `name` alone is a path of one step.
    """

    start: Expr
    steps: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Filter(Expr):
    """`base[predicate]...` where base is not an axis step."""

    base: Expr
    predicates: tuple[Expr, ...]


# --- FLWOR and other control


@dataclass(frozen=True, slots=True)
class Clause(Expr):
    """Any clause of a FLWOR expression before `return`."""


@dataclass(frozen=True, slots=True)
class ForClause(Clause):
    """`for $variable at $position in source`; `for $a in x, $b in y` is two of them."""

    variable: QName
    source: Expr
    position: QName | None = None
    type: SequenceType | None = None
    allowing_empty: bool = False


@dataclass(frozen=True, slots=True)
class LetClause(Clause):
    """`let $variable := value`."""

    variable: QName
    value: Expr
    type: SequenceType | None = None


@dataclass(frozen=True, slots=True)
class WhereClause(Clause):
    """`where condition`."""

    condition: Expr


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One key of `order by`; `empty_greatest` is already resolved from the prolog."""

    expr: Expr
    descending: bool = False
    empty_greatest: bool = False


@dataclass(frozen=True, slots=True)
class OrderClause(Clause):
    """`order by keys`; always stable."""

    keys: tuple[OrderKey, ...]


@dataclass(frozen=True, slots=True)
class GroupKey:
    """`$variable := value`, or `$variable` alone (value None): a variable already bound."""

    variable: QName
    value: Expr | None = None
    type: SequenceType | None = None


@dataclass(frozen=True, slots=True)
class GroupClause(Clause):
    """`group by keys`."""

    keys: tuple[GroupKey, ...]


@dataclass(frozen=True, slots=True)
class CountClause(Clause):
    """`count $variable`."""

    variable: QName


@dataclass(frozen=True, slots=True)
class Flwor(Expr):
    """Clauses in the order of the text, then `return result`."""

    clauses: tuple[Clause, ...]
    result: Expr


@dataclass(frozen=True, slots=True)
class If(Expr):
    """`if (condition) then ... else ...`."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class SwitchCase:
    """`case a case b return result`."""

    values: tuple[Expr, ...]
    result: Expr


@dataclass(frozen=True, slots=True)
class Switch(Expr):
    """`switch (operand) case ... default return default`."""

    operand: Expr
    cases: tuple[SwitchCase, ...]
    default: Expr


@dataclass(frozen=True, slots=True)
class TypeCase:
    """`case $variable as A | B return result`; without types it is the default."""

    variable: QName | None
    types: tuple[SequenceType, ...]
    result: Expr


@dataclass(frozen=True, slots=True)
class Typeswitch(Expr):
    """`typeswitch (operand) case ... default ...`; the last case is the default."""

    operand: Expr
    cases: tuple[TypeCase, ...]


@dataclass(frozen=True, slots=True)
class Catch:
    """`catch a | b { result }`."""

    tests: tuple[NameTest, ...]
    result: Expr


@dataclass(frozen=True, slots=True)
class TryCatch(Expr):
    """`try { body } catch ...`."""

    body: Expr
    catches: tuple[Catch, ...]


# --- types


@dataclass(frozen=True, slots=True)
class InstanceOf(Expr):
    """`operand instance of type`."""

    operand: Expr
    type: SequenceType


@dataclass(frozen=True, slots=True)
class TreatAs(Expr):
    """`operand treat as type`."""

    operand: Expr
    type: SequenceType


@dataclass(frozen=True, slots=True)
class CastAs(Expr):
    """`operand cast as type`, `type?` if optional."""

    operand: Expr
    type: QName
    optional: bool = False
    namespaces: tuple[tuple[str, str], ...] = ()  # of a cast to xs:QName: what prefixes mean at its place


@dataclass(frozen=True, slots=True)
class CastableAs(Expr):
    """`operand castable as type`, `type?` if optional."""

    operand: Expr
    type: QName
    optional: bool = False
    namespaces: tuple[tuple[str, str], ...] = ()


# --- constructors


@dataclass(frozen=True, slots=True)
class DirectAttribute:
    """`name="text{expr}text"`: literal text and enclosed expressions in turn."""

    name: QName
    parts: tuple[str | Expr, ...]


@dataclass(frozen=True, slots=True)
class DirectElement(Expr):
    """`<name ...>content</name>`: literal text and expressions (nested constructors among them) in turn.

    `namespaces` are the declarations of this element, prefix first ("" is the default namespace).
    """

    name: QName
    namespaces: tuple[tuple[str, str], ...] = ()
    attributes: tuple[DirectAttribute, ...] = ()
    content: tuple[str | Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Computed(Expr):
    """`element name { content }` and the like, also `<!-- content -->` and `<?name content?>`.

    A computed name is an expression; texts, comments and documents have none. `namespaces` are declared around it: they
    say what the prefix of a computed name means.
    """

    kind: OneOf["element", "attribute", "text", "comment", "processing-instruction", "document"]
    content: Expr
    name: QName | str | Expr | None = None
    namespaces: tuple[tuple[str, str], ...] = ()


# --- modules


@dataclass(frozen=True, slots=True)
class VariableDeclaration(Expr):
    """`declare variable $name as type := value`; external ones may have a default value."""

    name: QName
    value: Expr | None
    type: SequenceType | None = None
    external: bool = False


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a declared function."""

    name: QName
    type: SequenceType | None = None


@dataclass(frozen=True, slots=True)
class FunctionDeclaration(Expr):
    """`declare function name(parameters) as type { body }`."""

    name: QName
    parameters: tuple[Parameter, ...]
    body: Expr
    type: SequenceType | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """A whole query: the declarations of the prolog, then the body."""

    body: Expr
    variables: tuple[VariableDeclaration, ...] = ()
    functions: tuple[FunctionDeclaration, ...] = ()
    base_uri: str = ""
