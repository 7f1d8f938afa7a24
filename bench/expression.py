"""Evaluates the expressions of tables: names, numbers, texts, arithmetic, comparisons, comprehensions and calls.

An expression sees the names that it is given and the functions here. It has no statements, no lambda, no names that
begin with an underscore; of Python's and NumPy's own types it may call a few methods that only read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from dovetail.errors import PlanError

Names = Mapping[str, Any]
_FUNCTIONS = (abs, all, any, bool, dict, enumerate, float, int, len, list, map, max, min, range, reversed, round, set,
              sorted, str, sum, tuple, zip)  # fmt: skip
_WORDS: Names = {each.__name__: each for each in _FUNCTIONS} | {
    "np": SimpleNamespace(arange=np.arange, array=np.array, diff=np.diff, max=np.max, maximum=np.maximum)
}
_METHODS = ("argmax", "argmin", "count", "endswith", "get", "index", "items", "join", "keys", "max", "mean", "min",
            "startswith", "sum", "tolist", "values")  # fmt: skip
"""Attributes of Python's and NumPy's own types that an expression may have."""
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
}  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg}


def value_of(text: str, names: Names) -> Any:
    """The value of an expression; PlanError for one that is not allowed."""
    return _value(_parsed(text.strip()), names)


def checked(text: str) -> None:
    """`PlanError` for a text that is no expression."""
    _parsed(text.strip())


def filled(text: str) -> str:
    """The expression of a text that is filled in as f-strings are."""
    return f'f"""{text} """[:-1]'


def text_of(text: str, names: Names) -> str:
    """A text with its figures filled in."""
    return str(value_of(filled(text), names))


@cache
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise PlanError(f"{text!r} is no expression: {error.msg}.") from error


def _value(node: ast.expr, names: Names) -> Any:
    def of(part: ast.expr) -> Any:
        return _value(part, names)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _named(name, names)
        case ast.Attribute(value=owner, attr=name):
            return _attribute(of(owner), name)
        case ast.Subscript(value=owner, slice=at):
            return of(owner)[of(at)]
        case ast.Slice():
            return slice(*(part and of(part) for part in (node.lower, node.upper, node.step)))
        case ast.BinOp(left=left, right=right, op=op) if type(op) in _BINARY:
            return _BINARY[type(op)](of(left), of(right))
        case ast.UnaryOp(operand=operand, op=unary) if type(unary) in _UNARY:
            return _UNARY[type(unary)](of(operand))
        case ast.IfExp():
            return of(node.body) if of(node.test) else of(node.orelse)
        case ast.Call(func=function):
            return of(function)(*_spread(node.args, names), **{str(k.arg): of(k.value) for k in node.keywords})
        case ast.Tuple(elts=parts):
            return tuple(_spread(parts, names))
        case ast.List(elts=parts):
            return _spread(parts, names)
        case _:
            return _compound(node, names)


def _compound(node: ast.expr, names: Names) -> Any:
    """Comparisons, conditions, dictionaries, comprehensions and texts."""
    match node:
        case ast.Compare():
            return _compared(node, names)
        case ast.BoolOp(values=parts, op=op):
            return _either(parts, isinstance(op, ast.Or), names)
        case ast.Dict(keys=keys, values=values):
            return {_value(k, names): _value(v, names) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.ListComp(elt=each, generators=loops) | ast.GeneratorExp(elt=each, generators=loops):
            return [_value(each, inner) for inner in _rounds(loops, names)]
        case ast.SetComp(elt=each, generators=loops):
            return {_value(each, inner) for inner in _rounds(loops, names)}
        case ast.DictComp(key=key, value=value, generators=loops):
            return {_value(key, inner): _value(value, inner) for inner in _rounds(loops, names)}
        case ast.JoinedStr(values=parts):
            return "".join(_value(part, names) for part in parts)
        case ast.FormattedValue(value=value, format_spec=spec):
            return format(_value(value, names), _value(spec, names) if spec else "")
    raise PlanError(f"{ast.unparse(node)!r} is a {type(node).__name__}, which no table may have.")


def _named(name: str, names: Names) -> Any:
    for known in (names, _WORDS):
        if name in known:
            return known[name]
    raise PlanError(f"there is no figure {name!r}; there are {sorted(names)}.")


def _attribute(owner: Any, name: str) -> Any:
    own = type(owner).__module__.partition(".")[0] not in ("builtins", "numpy")
    if isinstance(owner, ModuleType | type) or name.startswith("_") or not (own or name in _METHODS):
        raise PlanError(f"{name!r} of a {type(owner).__name__} may not be asked for in a table.")
    return getattr(owner, name)


def _spread(parts: Sequence[ast.expr], names: Names) -> list[Any]:
    found: list[Any] = []
    for part in parts:
        found.extend(_value(part.value, names) if isinstance(part, ast.Starred) else [_value(part, names)])
    return found


def _compared(node: ast.Compare, names: Names) -> Any:
    left: Any = _value(node.left, names)
    result: Any = True
    for op, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, names)
        result = _COMPARED[type(op)](left, right)
        if part is not node.comparators[-1] and not result:
            return result
        left = right
    return result


def _either(parts: Sequence[ast.expr], wanted: bool, names: Names) -> Any:
    """The first part that decides: for `or` one that is true, for `and` one that is not."""
    found: Any = None
    for part in parts:
        found = _value(part, names)
        if bool(found) is wanted:
            break
    return found


def _rounds(loops: Sequence[ast.comprehension], names: Names) -> Iterator[Names]:
    """The names in every round of nested loops."""
    for item in _value(loops[0].iter, names):
        inner = {**names, **_bound(loops[0].target, item)}
        if all(_value(test, inner) for test in loops[0].ifs):
            yield from _rounds(loops[1:], inner) if loops[1:] else [inner]


def _bound(target: ast.expr, item: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: item}
    if not isinstance(target, ast.Tuple):
        raise PlanError(f"{ast.unparse(target)!r} is no name.")
    items, found = list(item), dict[str, Any]()
    for at, part in enumerate(target.elts):
        if isinstance(part, ast.Starred):
            last = len(items) - len(target.elts) + at + 1
            found |= _bound(part.value, items[at:last])
            items = [*items[:at], None, *items[last:]]
        else:
            found |= _bound(part, items[at])
    if len(items) != len(target.elts):
        raise PlanError(f"{ast.unparse(target)!r} does not fit {len(items)} values.")
    return found
