"""Whole queries: operators by precedence, the prolog with its declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.xml.syntax import tree
from dovetail.xml.syntax.expressions import call, keyword_expr, path
from dovetail.xml.syntax.reader import Reader
from dovetail.xml.syntax.tree import CODEPOINT, FN, XML, XMLNS, XS, Expr, Module, QName, deep_stack

_RESERVED = frozenset((FN, XS, XML, f"{XS}-instance", f"{FN}/math", f"{FN}/map", f"{FN}/array"))


@dataclass(slots=True)
class Prolog:
    """Declarations read so far."""

    variables: list[tree.VariableDeclaration] = field(default_factory=list)
    functions: list[tree.FunctionDeclaration] = field(default_factory=list)
    base_uri: str = ""
    seen: set[str] = field(default_factory=set)  # settings that may be given once only


def read_prolog(reader: Reader) -> Prolog:
    """Reads all declarations; settings take effect in the reader at once."""
    prolog = Prolog()
    _version(reader)
    if reader.sees("module", "namespace"):
        raise reader.unsupported("library modules are", "XQST0016")
    while True:
        if reader.sees("import", "module") or reader.sees("import", "schema"):
            code = "XQST0016" if reader.sees("import", "module") else "XQST0009"
            raise reader.unsupported("imports are", code)
        if not reader.sees("declare") or reader.lexer.peek(1).kind not in ("name", "%"):
            return prolog
        _declaration(reader, prolog)
        reader.expect(";")


def _version(reader: Reader) -> None:
    if not (reader.sees("xquery", "version") or reader.sees("xquery", "encoding")):
        return
    reader.lexer.take()
    if reader.takes("version"):
        start = reader.lexer.peek().start
        version = reader.string()
        if version not in ("1.0", "3.0", "3.1"):
            raise reader.lexer.error("XQST0031", f"XQuery {version} is not supported", start)
    if reader.takes("encoding"):
        reader.string()
    reader.expect(";")


def _declaration(reader: Reader, prolog: Prolog) -> None:
    reader.lexer.take()
    what = reader.lexer.peek().text
    if what == "%":
        raise reader.unsupported("annotations are")
    if what in ("variable", "function"):
        start = reader.lexer.take().start
        (_variable if what == "variable" else _function)(reader, prolog, start)
    elif what in _SETTINGS:
        _SETTINGS[what](reader, prolog)
    else:
        raise reader.unsupported(f"declare {what} is")


def _variable(reader: Reader, prolog: Prolog, start: int) -> None:
    name, kind = reader.variable(), reader.optional_type()
    if any(variable.name == name for variable in prolog.variables):
        raise reader.lexer.error("XQST0049", f"${name} is declared twice", start)
    external = reader.takes("external")
    value = reader.single() if reader.takes(":=") else None
    if value is None and not external:
        raise reader.unexpected("':=' or 'external' expected")
    prolog.variables.append(reader.at(start, tree.VariableDeclaration(name, value, kind, external)))


def _function(reader: Reader, prolog: Prolog, start: int) -> None:
    name = reader.name(reader.function_namespace)
    if not name.uri:
        raise reader.lexer.error("XQST0060", f"the function {name} is in no namespace", start)
    if name.uri in _RESERVED:
        raise reader.lexer.error("XQST0045", f"{name} is in a reserved namespace; declare it as local:{name}", start)
    parameters = _parameters(reader, start)
    if any(other.name == name and len(other.parameters) == len(parameters) for other in prolog.functions):
        raise reader.lexer.error("XQST0034", f"{name}#{len(parameters)} is declared twice", start)
    kind = reader.optional_type()
    if reader.sees("external"):
        raise reader.unsupported("external functions are")
    prolog.functions.append(reader.at(start, tree.FunctionDeclaration(name, parameters, reader.enclosed(), kind)))


def _parameters(reader: Reader, start: int) -> tuple[tree.Parameter, ...]:
    reader.expect("(")
    parameters: list[tree.Parameter] = []
    while not reader.takes(")"):
        if parameters:
            reader.expect(",")
        name = reader.variable()
        if any(other.name == name for other in parameters):
            raise reader.lexer.error("XQST0039", f"${name} names two parameters", start)
        parameters.append(tree.Parameter(name, reader.optional_type()))
    return tuple(parameters)


# --- settings


def _once(reader: Reader, prolog: Prolog, what: str, code: str) -> None:
    if what in prolog.seen:
        raise reader.lexer.error(code, f"{what} is declared twice", reader.lexer.peek().start)
    prolog.seen.add(what)


def _namespace(reader: Reader, prolog: Prolog) -> None:
    reader.expect("namespace")
    start = reader.lexer.peek().start
    prefix = _plain(reader.name(), reader, start)
    reader.expect("=")
    uri = reader.string()
    _once(reader, prolog, f"the namespace {prefix}", "XQST0033")
    if prefix in ("xml", "xmlns") or uri in (XML, XMLNS):
        raise reader.lexer.error("XQST0070", f"the prefix {prefix} cannot stand for {uri!r}", start)
    reader.namespaces[prefix] = uri


def _plain(name: QName, reader: Reader, start: int) -> str:
    if name.prefix or name.uri:
        raise reader.lexer.error("XPST0003", "a prefix expected", start)
    return name.local


def _default(reader: Reader, prolog: Prolog) -> None:
    reader.expect("default")
    if reader.takes("element", "namespace"):
        _once(reader, prolog, "the default element namespace", "XQST0066")
        reader.element_namespace = reader.string()
    elif reader.takes("function", "namespace"):
        _once(reader, prolog, "the default function namespace", "XQST0066")
        reader.function_namespace = reader.string()
    elif reader.takes("order", "empty"):
        _once(reader, prolog, "the order of empty keys", "XQST0069")
        reader.empty_greatest = _either(reader, "greatest", "least")
    elif reader.takes("collation"):
        _once(reader, prolog, "the default collation", "XQST0038")
        start = reader.lexer.peek().start
        if reader.string() != CODEPOINT:
            raise reader.lexer.error("XQST0038", f"only the collation {CODEPOINT} is supported", start)
    else:
        raise reader.unexpected("element, function, order or collation expected")


def _either(reader: Reader, first: str, second: str) -> bool:
    if reader.takes(first):
        return True
    reader.expect(second)
    return False


_CHOICES = {
    "boundary-space": ("XQST0068", "preserve", "strip"),
    "ordering": ("XQST0065", "ordered", "unordered"),  # both are answered in order
    "construction": ("XQST0067", "preserve", "strip"),  # trees are untyped: there is no type to keep or to strip
}
"""Settings of two words, and the error of one that is declared twice."""


def _choice(reader: Reader, prolog: Prolog) -> None:
    what = reader.lexer.take().text
    code, first, second = _CHOICES[what]
    _once(reader, prolog, what, code)
    chosen = _either(reader, first, second)
    if what == "boundary-space":
        reader.preserve_space = chosen


def _base_uri(reader: Reader, prolog: Prolog) -> None:
    _once(reader, prolog, reader.expect("base-uri").text, "XQST0032")
    prolog.base_uri = reader.string()


def _copy_namespaces(reader: Reader, prolog: Prolog) -> None:
    _once(reader, prolog, reader.expect("copy-namespaces").text, "XQST0055")
    if not (
        _either(reader, "preserve", "no-preserve") and reader.takes(",") and _either(reader, "inherit", "no-inherit")
    ):
        raise reader.unsupported("copy-namespaces other than 'preserve, inherit' is")


_SETTINGS: dict[str, Callable[[Reader, Prolog], None]] = {
    "namespace": _namespace,
    "default": _default,
    "base-uri": _base_uri,
    "copy-namespaces": _copy_namespaces,
    **dict.fromkeys(_CHOICES, _choice),
}


_LEVELS = {
    **{"or": 1, "and": 2, "||": 4, "to": 5, "+": 6, "-": 6, "*": 7, "div": 7, "idiv": 7, "mod": 7},
    **{"union": 8, "|": 8, "intersect": 9, "except": 9, "instance": 10, "treat": 11, "castable": 12, "cast": 13},
    **{"=>": 14},
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "=", "!=", "<", "<=", ">", ">=", "is", "<<", ">>"), 3),
}
_ONCE = frozenset((3, 5, 10, 11, 12, 13))  # operators that do not repeat without parentheses
MAX_CHAIN = 200


def _single(reader: Reader) -> Expr:
    return keyword_expr(reader) or operators(reader, 1)


def operators(reader: Reader, lowest: int) -> Expr:
    """Operands joined by operators that bind at least as tightly as `lowest`."""
    start = reader.lexer.peek().start
    left, highest = _unary(reader), 99
    for _ in range(MAX_CHAIN):
        token = reader.lexer.peek()
        level = _LEVELS.get(token.text, 0) if token.kind in ("name", token.text) else 0
        if not lowest <= level <= highest:
            return left
        reader.lexer.take()
        left = reader.at(start, _operation(reader, token.text, level, left))
        highest = level - 1 if level in _ONCE else level
    raise reader.unsupported(f"more than {MAX_CHAIN} operators in a row are")


def _operation(reader: Reader, op: str, level: int, left: Expr) -> Expr:
    if level >= 10:
        return _typed(reader, op, left)
    return tree.Operation(tree.BINARY[op], (left, operators(reader, level + 1)))


def _typed(reader: Reader, op: str, left: Expr) -> Expr:
    if op == "=>":
        if not reader.lexer.peek(1).kind == "(" or reader.lexer.peek().kind not in ("name", "braced"):
            raise reader.unsupported("=> before anything but a call by name is")
        return call(reader, left)
    reader.expect("of" if op == "instance" else "as")
    if op in ("instance", "treat"):
        return (tree.InstanceOf if op == "instance" else tree.TreatAs)(left, reader.sequence_type())
    kind, optional = reader.single_type()
    return (tree.CastAs if op == "cast" else tree.CastableAs)(left, kind, optional, reader.prefixes_for(kind))


def _unary(reader: Reader) -> Expr:
    signs = []
    while reader.sees("+") or reader.sees("-"):
        signs.append(reader.lexer.take())
        reader.deeper()
    start = reader.lexer.peek().start
    left = path(reader)
    while reader.takes("!"):
        left = reader.at(start, tree.SimpleMap(left, path(reader)))
    for sign in reversed(signs):
        left = reader.at(sign.start, tree.Operation("minus" if sign.kind == "-" else "plus", (left,)))
    reader.depth -= len(signs)
    return left


def parse(text: str) -> Module:
    """The tree of a query. Raises XQueryError with the W3C code, line and column of the first mistake."""
    with deep_stack():
        return _module(Reader(text, _single))


def _module(reader: Reader) -> Module:
    prolog: Prolog = read_prolog(reader)
    if reader.sees("end"):
        raise reader.unexpected("a query body expected")
    body = reader.expr()
    if not reader.sees("end"):
        raise reader.unexpected("the end of the query expected")
    return Module(body, tuple(prolog.variables), tuple(prolog.functions), prolog.base_uri)
