"""The prolog of a query: what it declares before its body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.xml.syntax.names import FN, XML, XMLNS, XS, QName
from dovetail.xml.syntax.parse_flwor import CODEPOINT
from dovetail.xml.syntax.parse_path import PathParser
from dovetail.xml.syntax.tree import FunctionDeclaration, Parameter, VariableDeclaration

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
