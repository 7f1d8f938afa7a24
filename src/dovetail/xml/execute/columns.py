"""Which parts of a chain over a scan need no nodes, only texts of child paths: they are computed on columns.

An expression is made of columns if it meets the scanned element only by `data` of child paths, or where a function
takes their typed value. Each such path becomes a column of the scan; the expression itself stays what it is, over
variables that stand for the columns, so that there is one definition of every function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.xml.algebra.expressions import (
    Call,
    Constant,
    Evaluate,
    Expression,
    Variable,
    substituted,
    variables,
    with_children,
)
from dovetail.xml.algebra.functions import ARITHMETIC, GENERAL, VALUE
from dovetail.xml.algebra.operators import Assign, DataScan, Operator, Select
from dovetail.xml.algebra.walk import above, chain
from dovetail.xml.rules.matching import conjuncts
from dovetail.xml.syntax.tree import VariableRef

Path = tuple[str, ...]

_STRICT = frozenset(
    (
        *VALUE.values(), *ARITHMETIC.values(), "upper-case", "lower-case", "contains", "starts-with", "ends-with",
        "substring", "substring-before", "substring-after", "string-length", "normalize-space", "translate",
        "string", "number", "abs", "floor", "ceiling", "round", "minus", "plus",
    )
)  # fmt: skip
"""Functions that allow one item for an argument at most: a second one is an error."""
_COUNTING = frozenset((*GENERAL.values(), "exists", "empty", "count", "distinct-values", "string-join"))
"""Functions that take typed values, any number of them, or only count."""
_INNER = frozenset(("and", "or", "not", "boolean", "concat", "string-concat", "true", "false", "sequence"))


def _is_strict(name: str) -> bool:
    dated = name.partition("-from-")[2] in ("date", "dateTime", "time")
    return name in _STRICT or name.startswith("xs:") or dated


@dataclass(frozen=True, slots=True)
class Use:
    """A column that an expression needs: a path, and whether all values matter or only the first and their number."""

    path: Path
    many: bool


@dataclass(frozen=True, slots=True)
class OnColumns:
    """An expression over columns: `variables[k]` stands for the texts of `uses[k]`."""

    expression: Expression
    uses: tuple[Use, ...]
    variables: tuple[Variable, ...]


def step_name(test: Expression, attribute: bool = False) -> str | None:
    """A name test as the scan writes it; None if the scan has no such test."""
    if not isinstance(test, Constant) or not isinstance(test.value, str):
        return None
    name = test.value
    if name == "*":
        return None if attribute else "*"
    if name.startswith("*:") or name.endswith("*"):
        return None
    found = name[1:] if name.startswith("Q{") else name
    return f"@{found}" if attribute else found


def scan_path(path: Iterable[str]) -> Path | None:
    """The path of a DATASCAN as the scanner takes it; None if it cannot."""
    steps = [step_name(Constant(name)) for name in path]
    return None if None in steps or not steps else tuple(steps)  # type: ignore[arg-type]  # no None is left


def child_path(expression: Expression, scanned: Variable) -> Path | None:
    """The path of child steps from the scanned element that the expression is; () is the element itself."""
    if expression == scanned:
        return ()
    match expression:
        case Call("child", (inner, test)):
            base, name = child_path(inner, scanned), step_name(test)
            inside = base is not None and not (base and base[-1].startswith("@"))
            return (*base, name) if inside and base is not None and name is not None else None
        case Call("attribute", (inner, test)):
            base, name = child_path(inner, scanned), step_name(test, attribute=True)
            inside = base is not None and not (base and base[-1].startswith("@"))
            return (*base, name) if inside and base is not None and name is not None else None
    return None


class _Translation:
    """Replaces paths by variables, numbered from `first` on."""

    def __init__(self, scanned: Variable, first: int) -> None:
        self.scanned, self.first = scanned, first
        self.found: dict[Path, tuple[Variable, bool]] = {}

    def column(self, path: Path, many: bool) -> Variable:
        variable, before = self.found.get(path, (Variable(self.first + len(self.found)), False))
        self.found[path] = (variable, before or many)
        return variable

    def _is_raw(self, expression: Expression) -> bool:
        return child_path(expression, self.scanned) is not None or is_global(expression)

    def of(self, expression: Expression, many: bool = True) -> Expression | None:
        """The expression over columns, where its typed value is wanted; None if it needs nodes."""
        path = child_path(expression, self.scanned)
        if path is not None:
            return self.column(path, many)
        if isinstance(expression, Constant):
            return expression
        if is_global(expression):
            return Call("data", (expression,))
        if not isinstance(expression, Call):
            return None
        name = expression.name
        if name == "data":
            return self.of(expression.arguments[0], many)
        strict = _is_strict(name)
        if not strict and name not in _COUNTING and name not in _INNER:
            return None
        if name in _INNER and any(self._is_raw(one) for one in expression.arguments):
            return None  # the truth of a node is not the truth of its text
        inner = [self.of(argument, not strict) for argument in expression.arguments]
        return None if None in inner else with_children(expression, tuple(inner))  # type: ignore[arg-type]  # no None is left


def is_global(expression: Expression) -> bool:
    """Whether the expression is a reference to a variable that the query declares."""
    return isinstance(expression, Evaluate) and not expression.bindings and isinstance(expression.tree, VariableRef)


def on_columns(expression: Expression, scanned: Variable, many: bool = True) -> OnColumns | None:
    """The expression over columns, its typed value that is; None if it needs nodes.

    Without `many` a second item is an error in any case, so that it is enough to know that there is one.
    """
    first = 1 + max((v.number for v in variables(expression)), default=0)
    translation = _Translation(scanned, first)
    new = translation.of(expression, many)
    if new is None or any(v == scanned for v in variables(new)):
        return None
    uses = tuple(Use(path, many) for path, (_, many) in translation.found.items())
    return OnColumns(new, uses, tuple(variable for variable, _ in translation.found.values()))


def written_out(plan: Operator, scan: DataScan) -> dict[Variable, Expression] | None:
    """What every variable of a chain is in terms of the scanned one; None if the chain does more than assign."""
    values: dict[Variable, Expression] = {scan.variable: scan.variable}
    for operator in reversed([*above(plan, scan), *chain(scan.input)][:-1]):
        if isinstance(operator, Assign):
            values[operator.variable] = substituted(operator.expression, values)
        elif not isinstance(operator, Select):
            return None
    return values


def conditions(plan: Operator, scan: DataScan, values: Mapping[Variable, Expression]) -> tuple[Expression, ...]:
    """Everything that must be true of a tuple of the chain, lowest first, over the scanned variable."""
    selects = [operator for operator in reversed(above(plan, scan)) if isinstance(operator, Select)]
    return tuple(substituted(part, values) for select in selects for part in conjuncts(select.condition))
