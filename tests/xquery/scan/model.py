"""Defines a scan plainly: the document as a tree by expat, rows and values by walking it."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from dovetail.xml.scan import ROW, Column, ScanRequest, count_name
from dovetail.xml.scan.request import expanded

_XML = "http://www.w3.org/XML/1998/namespace"


@dataclass
class Element:
    """An element with its qualified name, attributes in order, children (elements, strings, marks) and namespaces."""

    name: str
    attributes: list[tuple[str, str]]
    outer: dict[str, str]
    scope: dict[str, str]
    children: list[Element | str | tuple[str, str]] = field(default_factory=list)

    def expanded(self, name: str, default: bool) -> tuple[str, str]:
        prefix, _, local = name.rpartition(":")
        return (self.scope.get(prefix, "") if prefix or default else ""), local


def tree(document: bytes) -> Element:
    """The root element of a document that is well-formed."""
    parser = expat.ParserCreate()
    parser.ordered_attributes, parser.buffer_text = True, True
    document_node = Element("", [], {}, {"xml": _XML})
    open_nodes = [document_node]

    def start(name: str, flat: list[str]) -> None:
        pairs = list(zip(flat[::2], flat[1::2], strict=True))
        outer = open_nodes[-1].scope
        scope = outer | {n.partition(":")[2]: v for n, v in pairs if n == "xmlns" or n.startswith("xmlns:")}
        own = [(n, v) for n, v in pairs if n != "xmlns" and not n.startswith("xmlns:")]
        open_nodes[-1].children.append(Element(name, own, outer, scope))
        open_nodes.append(open_nodes[-1].children[-1])  # type: ignore[arg-type]  # it was put there as an element

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_nodes.pop()
    parser.CharacterDataHandler = lambda text: open_nodes[-1].children.append(text)
    parser.CommentHandler = lambda text: open_nodes[-1].children.append(("<!--", f"{text}-->"))
    parser.ProcessingInstructionHandler = lambda target, body: open_nodes[-1].children.append(
        ("<?", f"{target} {body}?>" if body else f"{target}?>")
    )
    parser.Parse(document, True)
    return next(child for child in document_node.children if isinstance(child, Element))


def text_of(node: Element) -> str:
    """The string value of an element."""
    parts = (text_of(c) if isinstance(c, Element) else c for c in node.children if not isinstance(c, tuple))
    return "".join(parts)


def xml_of(node: Element, outer: dict[str, str] | None = None) -> str:
    """The element as the xml output method writes it."""
    known = {} if outer is None else outer
    added = {p: u for p, u in node.scope.items() if p != "xml" and known.get(p, "") != u}
    parts = [f"<{node.name}"]
    parts += [f' xmlns{":" * bool(p)}{p}="{_escaped(u, True)}"' for p, u in sorted(added.items())]
    parts += [f' {name}="{_escaped(value, True)}"' for name, value in node.attributes]
    inside = "".join(_child(child, node.scope) for child in node.children)
    return "".join(parts) + (f">{inside}</{node.name}>" if inside else "/>")


def _child(child: Element | str | tuple[str, str], scope: dict[str, str]) -> str:
    if isinstance(child, Element):
        return xml_of(child, scope)
    return _escaped(child, False) if isinstance(child, str) else "".join(child)


def _escaped(text: str, in_attribute: bool) -> str:
    special = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\r": "&#xD;", "\u2028": "&#x2028;"}
    special |= {chr(c): f"&#x{c:x};" for c in range(0x7F, 0xA0)}
    if in_attribute:
        special |= {"\t": "&#x9;", "\n": "&#xA;", '"': "&#34;"}
    return "".join(special.get(c, c) for c in text)


def _matches(node: Element, step: str) -> bool:
    wanted = expanded(step)
    return wanted is None or node.expanded(node.name, True) == wanted


def _below(nodes: list[Element], steps: tuple[str, ...]) -> list[Element]:
    for step in steps:
        nodes = [c for node in nodes for c in node.children if isinstance(c, Element) and _matches(c, step)]
    return nodes


def _values(node: Element, column: Column) -> list[str]:
    ends = _below([node], column.steps)
    if column.attribute is not None:
        wanted = expanded(column.attribute)
        return [v for end in ends for n, v in end.attributes if end.expanded(n, False) == wanted]
    return [text_of(end) if column.kind == "text" else xml_of(end) for end in ends]


def rows(document: bytes, request: ScanRequest) -> list[dict[str, object]]:
    """The rows of a scan that starts at the document."""
    found = []
    top = Element("", [], {}, {}, [tree(document)])
    for number, node in enumerate(_below([top], request.path)):
        row: dict[str, object] = {ROW: number}
        for column in request.columns:
            values = _values(node, column)
            row[column.name] = values if column.many else (values[0] if values else None)
            if not column.many:
                row[count_name(column.name)] = len(values)
        found.append(row)
    return found
