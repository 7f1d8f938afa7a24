"""Work of the tasks of a scan, decided on the driver: which columns they read, which filters need no nodes.

On columns, for speed: texts of child paths are all that the chain needs, and no element is ever built. By tuples: the
elements that pass the filters which need no nodes are built, and the whole chain runs on each of them.
An expression is made of columns if it uses the scanned element only by `data` of child paths, or where a function
takes their typed value. Each such path becomes a column of the scan; the expression itself is unchanged, over variables
that stand for the columns, so that there is one definition of every function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.xml.algebra.expressions import (
    SEQUENCE,
    Call,
    Constant,
    Evaluate,
    Expression,
    Variable,
    substituted,
    variables,
    with_children,
)
from dovetail.xml.algebra.matching import assigned, conjuncts, unnested
from dovetail.xml.algebra.operators import DataScan, Operator, Select, above, chain
from dovetail.xml.execute.parts import ScanPart
from dovetail.xml.execute.rows import Fields, Form, Items, State, Wanted
from dovetail.xml.scan import Column, ScanRequest
from dovetail.xml.syntax.tree import ARITHMETIC, GENERAL, VALUE, VariableRef

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
class OnColumns:
    """An expression over columns: `variables[k]` stands for the texts of `paths[k]`."""

    expression: Expression
    paths: tuple[Path, ...]
    variables: tuple[Variable, ...]


def column_name(path: Path, many: bool) -> str:
    """The scan's column of a path."""
    return f"{'*' if many else ''}{'/'.join(path) or '.'}"


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
        case Call("child" | "attribute" as axis, (inner, test)):
            base, name = child_path(inner, scanned), step_name(test, attribute=axis == "attribute")
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


def written_out(plan: Operator, scan: DataScan) -> dict[Variable, Expression] | None:
    """Every variable of a chain in terms of the scanned one; None if the chain does more than assign."""
    upper = [*above(plan, scan), *chain(scan.input)][:-1]
    return assigned([one for one in upper if not isinstance(one, Select)], {scan.variable: scan.variable})


def conditions(plan: Operator, scan: DataScan, values: Mapping[Variable, Expression]) -> tuple[Expression, ...]:
    """Everything that must be true of a tuple of the chain, lowest first, over the scanned variable."""
    selects = [operator for operator in reversed(above(plan, scan)) if isinstance(operator, Select)]
    return tuple(substituted(part, values) for select in selects for part in conjuncts(select.condition))


XML = "#xml"
"""The scan's column of whole elements."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a row's items: elements on a path as markup, or the items of an expression over columns."""

    nodes: Path | None = None
    computed: OnColumns | None = None


Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ScanWork:
    """The work of the tasks of one scan by tuples: elements are built, and the chain runs on them.

    Without `request` documents are parsed one by one. `forms` are those of the wanted variables.
    """

    part: ScanPart
    wanted: Wanted
    request: ScanRequest | None
    filters: tuple[OnColumns, ...]
    many: dict[Path, bool]
    forms: tuple[Form, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ColumnScan(ScanWork):
    """The work of the tasks of one scan on columns: no element is built.

    `values` are the items that are given out or aggregated, or those of each wanted variable.
    """

    values: tuple[Pieces, ...]
    keys: tuple[OnColumns, ...]


class _Columns:
    """Columns that expressions over the scanned element need: paths to texts, and whether all texts matter.

    Otherwise the first text and their number are enough. `nodes` are paths to elements that are given out as markup.
    """

    def __init__(self, scanned: Variable) -> None:
        self.scanned = scanned
        self.texts: dict[Path, bool] = {}
        self.nodes: set[Path] = set()

    def over(self, expression: Expression, many: bool = True) -> OnColumns | None:
        """The expression over columns, its typed value that is; None if it needs nodes.

        Without `many` a second item is an error in any case, so that it is enough to know that there is one.
        """
        first = 1 + max((v.number for v in variables(expression)), default=0)
        translation = _Translation(self.scanned, first)
        new = translation.of(expression, many)
        if new is None or any(v == self.scanned for v in variables(new)):
            return None
        for path, (_, every) in translation.found.items():
            self.texts[path] = self.texts.get(path, False) or every
        return OnColumns(new, tuple(translation.found), tuple(one for one, _ in translation.found.values()))

    def typed(self, expression: Expression) -> Pieces | None:
        """The typed value of an expression as a piece."""
        computed = self.over(expression)
        return None if computed is None else (Piece(computed=computed),)

    def pieces(self, expression: Expression) -> Pieces | None:
        """A sequence in terms of columns; None if it needs nodes for more than output."""
        if isinstance(expression, Call) and expression.name == SEQUENCE:
            inner = [self.pieces(one) for one in expression.arguments]
            return None if None in inner else tuple(piece for one in inner for piece in one or ())
        path = child_path(expression, self.scanned)
        if path is None:
            return self.typed(expression)
        if path and path[-1].startswith("@"):
            return None
        self.nodes.add(path)
        return (Piece(nodes=path),)

    def aggregated(self, wanted: State, values: dict[Variable, Expression]) -> Pieces | None:
        """The typed values that an aggregate takes; one that counts elements needs nothing of them."""
        expression = substituted(wanted.call.arguments[0], values)
        if wanted.call.name == "count" and expression == self.scanned:
            return (Piece(computed=OnColumns(Constant(1), (), ())),)
        return self.typed(expression)

    def request(self, path: Path, whole: bool, filters: Iterable[OnColumns]) -> ScanRequest:
        found = [Column(column_name(path, many), path, "text", many) for path, many in self.texts.items()]
        found += [Column(f"<{'/'.join(path)}>", path, "xml", True) for path in sorted(self.nodes) if path]
        if whole or () in self.nodes:
            found.append(Column(XML, (), "xml"))
        return ScanRequest(path, tuple(found), keep=self._kept(filters))

    def _kept(self, filters: Iterable[OnColumns]) -> tuple[tuple[str, str], ...]:
        """The first conditions that each compare a path with one text: the scan drops other rows."""
        found = []
        for one in filters:
            text = _asked_text(one.expression)
            if text is None:
                break
            (path,) = one.paths
            found.append((column_name(path, self.texts[path]), text))
        return tuple(found)


def _asked_text(condition: Expression) -> str | None:
    """The string that the condition compares a column with by `eq`."""
    match condition:
        case Call("boolean", (inner,)):
            return _asked_text(inner)
        case Call("value-eq", (Variable(), Constant(str() as text)) | (Constant(str() as text), Variable())):
            return text
    return None


def planned_scan(part: ScanPart, wanted: Wanted, by_tuples: bool = False) -> ScanWork:
    """How the tasks of this part work; `by_tuples` forces elements to be built."""
    work = "as asked for" if by_tuples else _on_columns(part, wanted)
    return _by_tuples(part, wanted, work) if isinstance(work, str) else work


def _on_columns(part: ScanPart, wanted: Wanted) -> ColumnScan | str:
    """The work on columns, or the reason why there is none."""
    path, plan, scanned = scan_path(part.scan.path), part.plan, part.scan.variable
    if path is None:
        return "the scan gives whole documents"
    taken = unnested(plan, wanted.variable) if isinstance(wanted, Items) else None
    if taken is not None:
        plan = taken[1]
    values = written_out(plan, part.scan)
    if values is None:
        return "a tuple has more than one answer"
    columns = _Columns(scanned)
    filters = [columns.over(one) for one in conditions(plan, part.scan, values)]
    keys, forms = list[OnColumns | None](), tuple[Form, ...]()
    if isinstance(wanted, Fields):
        keys = [columns.over(substituted(one.expression, values), many=one.many) for one in wanted.keys]
        forms = tuple(form_of(values[one], scanned, one in wanted.typed) for one in wanted.variables)
        sent = zip(wanted.variables, forms, strict=True)
        found = [(columns.typed if form == "texts" else columns.pieces)(values[one]) for one, form in sent]
    elif isinstance(wanted, State):
        found = [columns.aggregated(wanted, values)]
    else:
        found = [columns.pieces(substituted(wanted.variable if taken is None else taken[0], values))]
    if None in filters or None in keys:
        return "a condition needs nodes"
    if None in found:
        return "an answer needs nodes"
    known = tuple(one for one in filters if one is not None)
    return ColumnScan(
        part, wanted, columns.request(path, False, known), known, columns.texts, forms,
        "only texts and markup of child paths are needed", tuple(one for one in found if one is not None),
        tuple(one for one in keys if one is not None),
    )  # fmt: skip


def form_of(expression: Expression, scanned: Variable, typed_only: bool = False) -> Form:
    """How a value is sent between tasks; with `typed_only` its typed value suffices."""
    path = child_path(expression, scanned)
    if path is not None and typed_only:
        return "texts"
    if path is not None and not (path and path[-1].startswith("@")):
        return "nodes"
    typed = isinstance(expression, Call) and expression.name == "data"
    inner = child_path(expression.arguments[0], scanned) if isinstance(expression, Call) and typed else None
    return "texts" if inner is not None else "items"


def _by_tuples(part: ScanPart, wanted: Wanted, why: str) -> ScanWork:
    path, scanned, forms = scan_path(part.scan.path), part.scan.variable, tuple[Form, ...]()
    if isinstance(wanted, Fields):
        values = written_out(part.plan, part.scan) or {scanned: scanned}
        forms = tuple(
            form_of(values[one], scanned, one in wanted.typed) if part.scan.path and one in values else "items"
            for one in wanted.variables
        )
    columns = _Columns(scanned)
    filters = () if path is None else _first_filters(part, columns)
    request = None if path is None else columns.request(path, True, filters)
    return ScanWork(part, wanted, request, filters, columns.texts, forms, why)


def _first_filters(part: ScanPart, columns: _Columns) -> tuple[OnColumns, ...]:
    """The lowest conditions that need no nodes, up to the first that does."""
    chain = above(part.plan, part.scan)
    for place in range(len(chain) + 1):
        top = chain[place] if place < len(chain) else part.scan
        values = written_out(top, part.scan)
        if values is not None:
            break
    found: list[OnColumns] = []
    for one in conditions(top, part.scan, values or {}):
        new = columns.over(one)
        if new is None:
            break
        found.append(new)
    return tuple(found)
