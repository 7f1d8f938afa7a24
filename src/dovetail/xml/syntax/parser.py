"""Whole queries: operators by precedence, the prolog with its declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dovetail.xml.syntax.names import FN, XML, XMLNS, XS, QName
from dovetail.xml.syntax.parse_flwor import CODEPOINT
from dovetail.xml.syntax.parse_path import PathParser
from dovetail.xml.syntax.stack import deep_stack
from dovetail.xml.syntax.tree import (
    Arithmetic,
    CastableAs,
    CastAs,
    Comparison,
    Expr,
    FunctionDeclaration,
    InstanceOf,
    Logical,
    Module,
    Parameter,
    Range,
    Sequence,
    SetOperation,
    SimpleMap,
    StringConcat,
    TreatAs,
    Unary,
    VariableDeclaration,
)

_RESERVED = frozenset((FN, XS, XML, f"{XS}-instance", f"{FN}/math", f"{FN}/map", f"{FN}/array"))


@dataclass(slots=True)
class Prolog:
    """Declarations read so far."""

    variables: list[VariableDeclaration] = field(default_factory=list)
    functions: list[FunctionDeclaration] = field(default_factory=list)
    base_uri: str = ""
    seen: set[str] = field(default_factory=set)  # settings that may be given once only


def read_prolog(parser: PathParser) -> Prolog:
    """Reads all declarations; settings take effect in the parser at once."""
    prolog = Prolog()
    _version(parser)
    if parser.sees("module", "namespace"):
        raise parser.unsupported("library modules are", "XQST0016")
    while True:
        if parser.sees("import", "module") or parser.sees("import", "schema"):
            code = "XQST0016" if parser.sees("import", "module") else "XQST0009"
            raise parser.unsupported("imports are", code)
        if not parser.sees("declare") or parser.lexer.peek(1).kind not in ("name", "%"):
            return prolog
        _declaration(parser, prolog)
        parser.expect(";")


def _version(parser: PathParser) -> None:
    if not (parser.sees("xquery", "version") or parser.sees("xquery", "encoding")):
        return
    parser.lexer.take()
    if parser.takes("version"):
        start = parser.lexer.peek().start
        version = parser.string()
        if version not in ("1.0", "3.0", "3.1"):
            raise parser.lexer.error("XQST0031", f"XQuery {version} is not supported", start)
    if parser.takes("encoding"):
        parser.string()
    parser.expect(";")


def _declaration(parser: PathParser, prolog: Prolog) -> None:
    parser.lexer.take()
    what = parser.lexer.peek().text
    if what == "%":
        raise parser.unsupported("annotations are")
    if what in ("variable", "function"):
        start = parser.lexer.take().start
        (_variable if what == "variable" else _function)(parser, prolog, start)
    elif what in _SETTINGS:
        _SETTINGS[what](parser, prolog)
    else:
        raise parser.unsupported(f"declare {what} is")


def _variable(parser: PathParser, prolog: Prolog, start: int) -> None:
    name, kind = parser.variable(), parser.optional_type()
    if any(variable.name == name for variable in prolog.variables):
        raise parser.lexer.error("XQST0049", f"${name} is declared twice", start)
    external = parser.takes("external")
    value = parser.single() if parser.takes(":=") else None
    if value is None and not external:
        raise parser.unexpected("':=' or 'external' expected")
    prolog.variables.append(parser.at(start, VariableDeclaration(name, value, kind, external)))


def _function(parser: PathParser, prolog: Prolog, start: int) -> None:
    name = parser.name(parser.function_namespace)
    if not name.uri:
        raise parser.lexer.error("XQST0060", f"the function {name} is in no namespace", start)
    if name.uri in _RESERVED:
        raise parser.lexer.error("XQST0045", f"{name} is in a reserved namespace; declare it as local:{name}", start)
    parameters = _parameters(parser, start)
    if any(other.name == name and len(other.parameters) == len(parameters) for other in prolog.functions):
        raise parser.lexer.error("XQST0034", f"{name}#{len(parameters)} is declared twice", start)
    kind = parser.optional_type()
    if parser.sees("external"):
        raise parser.unsupported("external functions are")
    prolog.functions.append(parser.at(start, FunctionDeclaration(name, parameters, parser.enclosed(), kind)))


def _parameters(parser: PathParser, start: int) -> tuple[Parameter, ...]:
    parser.expect("(")
    parameters: list[Parameter] = []
    while not parser.takes(")"):
        if parameters:
            parser.expect(",")
        name = parser.variable()
        if any(other.name == name for other in parameters):
            raise parser.lexer.error("XQST0039", f"${name} names two parameters", start)
        parameters.append(Parameter(name, parser.optional_type()))
    return tuple(parameters)


# --- settings


def _once(parser: PathParser, prolog: Prolog, what: str, code: str) -> None:
    if what in prolog.seen:
        raise parser.lexer.error(code, f"{what} is declared twice", parser.lexer.peek().start)
    prolog.seen.add(what)


def _namespace(parser: PathParser, prolog: Prolog) -> None:
    parser.expect("namespace")
    start = parser.lexer.peek().start
    prefix = _plain(parser.name(), parser, start)
    parser.expect("=")
    uri = parser.string()
    _once(parser, prolog, f"the namespace {prefix}", "XQST0033")
    if prefix in ("xml", "xmlns") or uri in (XML, XMLNS):
        raise parser.lexer.error("XQST0070", f"the prefix {prefix} cannot stand for {uri!r}", start)
    parser.namespaces[prefix] = uri


def _plain(name: QName, parser: PathParser, start: int) -> str:
    if name.prefix or name.uri:
        raise parser.lexer.error("XPST0003", "a prefix expected", start)
    return name.local


def _default(parser: PathParser, prolog: Prolog) -> None:
    parser.expect("default")
    if parser.takes("element", "namespace"):
        _once(parser, prolog, "the default element namespace", "XQST0066")
        parser.element_namespace = parser.string()
    elif parser.takes("function", "namespace"):
        _once(parser, prolog, "the default function namespace", "XQST0066")
        parser.function_namespace = parser.string()
    elif parser.takes("order", "empty"):
        _once(parser, prolog, "the order of empty keys", "XQST0069")
        parser.empty_greatest = _either(parser, "greatest", "least")
    elif parser.takes("collation"):
        _once(parser, prolog, "the default collation", "XQST0038")
        start = parser.lexer.peek().start
        if parser.string() != CODEPOINT:
            raise parser.lexer.error("XQST0038", f"only the collation {CODEPOINT} is supported", start)
    else:
        raise parser.unexpected("element, function, order or collation expected")


def _either(parser: PathParser, first: str, second: str) -> bool:
    if parser.takes(first):
        return True
    parser.expect(second)
    return False


def _boundary(parser: PathParser, prolog: Prolog) -> None:
    _once(parser, prolog, parser.expect("boundary-space").text, "XQST0068")
    parser.preserve_space = _either(parser, "preserve", "strip")


def _base_uri(parser: PathParser, prolog: Prolog) -> None:
    _once(parser, prolog, parser.expect("base-uri").text, "XQST0032")
    prolog.base_uri = parser.string()


def _ordering(parser: PathParser, prolog: Prolog) -> None:
    _once(parser, prolog, parser.expect("ordering").text, "XQST0065")
    _either(parser, "ordered", "unordered")  # both are answered in order


def _construction(parser: PathParser, prolog: Prolog) -> None:
    _once(parser, prolog, parser.expect("construction").text, "XQST0067")
    _either(parser, "preserve", "strip")  # trees are untyped: there is no type to keep or to strip


def _copy_namespaces(parser: PathParser, prolog: Prolog) -> None:
    _once(parser, prolog, parser.expect("copy-namespaces").text, "XQST0055")
    if not (
        _either(parser, "preserve", "no-preserve") and parser.takes(",") and _either(parser, "inherit", "no-inherit")
    ):
        raise parser.unsupported("copy-namespaces other than 'preserve, inherit' is")


_SETTINGS: dict[str, Callable[[PathParser, Prolog], None]] = {
    "namespace": _namespace,
    "default": _default,
    "boundary-space": _boundary,
    "base-uri": _base_uri,
    "ordering": _ordering,
    "construction": _construction,
    "copy-namespaces": _copy_namespaces,
}


_LEVELS = {
    **{"or": 1, "and": 2, "||": 4, "to": 5, "+": 6, "-": 6, "*": 7, "div": 7, "idiv": 7, "mod": 7},
    **{"union": 8, "|": 8, "intersect": 9, "except": 9, "instance": 10, "treat": 11, "castable": 12, "cast": 13},
    **{"=>": 14},
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "=", "!=", "<", "<=", ">", ">=", "is", "<<", ">>"), 3),
}
_ONCE = frozenset((3, 5, 10, 11, 12, 13))  # operators that do not repeat without parentheses
_VALUE = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_NODE = frozenset(("is", "<<", ">>"))
MAX_CHAIN = 200


class Parser(PathParser):
    """One query text, from its first token to its last."""

    def expr(self) -> Expr:
        """Expressions separated by commas."""
        start = self.lexer.peek().start
        items = [self.single()]
        while self.takes(","):
            items.append(self.single())
        return items[0] if len(items) == 1 else self.at(start, Sequence(tuple(items)))

    def single(self) -> Expr:
        """One expression. Expressions nest to a fixed depth, so that no query can exhaust the stack."""
        self.deeper()
        found = self.keyword_expr() or self.operators(1)
        self.depth -= 1
        return found

    def operators(self, lowest: int) -> Expr:
        """Operands joined by operators that bind at least as tightly as `lowest`."""
        start = self.lexer.peek().start
        left, highest = self._unary(), 99
        for _ in range(MAX_CHAIN):
            token = self.lexer.peek()
            level = _LEVELS.get(token.text, 0) if token.kind in ("name", token.text) else 0
            if not lowest <= level <= highest:
                return left
            self.lexer.take()
            left = self.at(start, self._operation(token.text, level, left))
            highest = level - 1 if level in _ONCE else level
        raise self.unsupported(f"more than {MAX_CHAIN} operators in a row are")

    def _operation(self, op: str, level: int, left: Expr) -> Expr:
        if level >= 10:
            return self._typed(op, left)
        right = self.operators(level + 1)
        if level == 3:
            return Comparison("value" if op in _VALUE else "node" if op in _NODE else "general", op, left, right)
        return _binary(op, left, right)

    def _typed(self, op: str, left: Expr) -> Expr:
        if op == "=>":
            if not self.lexer.peek(1).kind == "(" or self.lexer.peek().kind not in ("name", "braced"):
                raise self.unsupported("=> before anything but a call by name is")
            return self.call(left)
        self.expect("of" if op == "instance" else "as")
        if op in ("instance", "treat"):
            return (InstanceOf if op == "instance" else TreatAs)(left, self.sequence_type())
        kind, optional = self.single_type()
        return (CastAs if op == "cast" else CastableAs)(left, kind, optional, self.prefixes_for(kind))

    def _unary(self) -> Expr:
        signs = []
        while self.sees("+") or self.sees("-"):
            signs.append(self.lexer.take())
            self.deeper()
        start = self.lexer.peek().start
        left = self.path()
        while self.takes("!"):
            left = self.at(start, SimpleMap(left, self.path()))
        for sign in reversed(signs):
            left = self.at(sign.start, Unary("-" if sign.kind == "-" else "+", left))
        self.depth -= len(signs)
        return left


def _binary(op: Any, left: Expr, right: Expr) -> Expr:
    if op in ("and", "or"):
        return Logical(op, left, right)
    if op == "||":
        return StringConcat(left, right)
    if op == "to":
        return Range(left, right)
    if op in ("union", "|", "intersect", "except"):
        return SetOperation("union" if op == "|" else op, left, right)
    return Arithmetic(op, left, right)


def parse(text: str) -> Module:
    """The tree of a query. Raises XQueryError with the W3C code, line and column of the first mistake."""
    with deep_stack():
        return _module(Parser(text))


def _module(parser: Parser) -> Module:
    prolog: Prolog = read_prolog(parser)
    if parser.sees("end"):
        raise parser.unexpected("a query body expected")
    body = parser.expr()
    if not parser.sees("end"):
        raise parser.unexpected("the end of the query expected")
    return Module(
        body,
        tuple(prolog.variables),
        tuple(prolog.functions),
        tuple(parser.namespaces.items()),
        parser.element_namespace,
        prolog.base_uri,
    )
