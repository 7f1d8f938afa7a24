"""Direct constructors: XML in the query text, read character by character."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.xml.syntax.reader import QNAME, Reader
from dovetail.xml.syntax.tree import XML, XMLNS, Computed, DirectAttribute, DirectElement, Expr, Literal, QName

_SPACE = re.compile(r"[ \t\n]*")
_TEXT = re.compile(r"[^<{}]+")
_INSTRUCTION = re.compile(rf"<\?({QNAME.pattern})(?:[ \t\n]+(.*?))?\?>", re.DOTALL)


def direct(reader: Reader) -> Expr:
    """The constructor that starts at the next token."""
    start = reader.lexer.peek().start
    reader.lexer.move(start)
    return reader.at(start, _node(reader))


def _node(reader: Reader) -> Expr:
    text, start = reader.lexer.text, reader.lexer.offset
    if text.startswith("<!--", start):
        return _comment(reader, start)
    if text.startswith("<?", start):
        return _instruction(reader, start)
    return _element(reader, start)


def _comment(reader: Reader, start: int) -> Expr:
    end = reader.lexer.text.find("--", start + 4)
    if end < 0 or not reader.lexer.text.startswith("-->", end):
        raise reader.lexer.error("XPST0003", "a comment must end with --> and not hold --", start)
    content = reader.lexer.text[start + 4 : end]
    reader.lexer.move(end + 3)
    return Computed("comment", Literal(content))


def _instruction(reader: Reader, start: int) -> Expr:
    match = _INSTRUCTION.match(reader.lexer.text, start)
    if match is None or match[1].lower() == "xml" or ":" in match[1]:
        raise reader.lexer.error("XPST0003", "not a processing instruction <?target content?>", start)
    reader.lexer.move(match.end())
    return Computed("processing-instruction", Literal(match[match.lastindex or 0] if match[4] else ""), match[1])


# --- elements


def _element(reader: Reader, start: int) -> Expr:
    tag = _qname(reader, start + 1)
    reader.deeper()
    outer = dict(reader.namespaces), reader.element_namespace
    try:
        declared = _declare(reader, reader.lexer.offset)
        attributes = _attributes(reader)
        name = reader.resolve(tag, reader.element_namespace, start + 1)
        content = _body(reader, tag)
    finally:
        reader.namespaces, reader.element_namespace = outer
    reader.depth -= 1
    return DirectElement(name, declared, attributes, content)


def _qname(reader: Reader, offset: int) -> str:
    match = QNAME.match(reader.lexer.text, offset)
    if match is None:
        raise reader.lexer.error("XPST0003", "a name expected", offset)
    reader.lexer.move(match.end())
    return match.group()


def _space(reader: Reader) -> bool:
    match = _SPACE.match(reader.lexer.text, reader.lexer.offset)
    moved = match is not None and match.end() > reader.lexer.offset
    if match is not None:
        reader.lexer.move(match.end())
    return moved


def _declare(reader: Reader, offset: int) -> tuple[tuple[str, str], ...]:
    """Takes the namespace declarations of a tag, wherever they stand among its attributes."""
    declared: dict[str, str] = {}
    for name, start in _names_of_attributes(reader):
        if name != "xmlns" and not name.startswith("xmlns:"):
            continue
        parts = _value_at(reader, start)
        if any(not isinstance(part, str) for part in parts):
            raise reader.lexer.error("XQST0022", f"{name} needs a literal namespace", start)
        _declare_one(reader, declared, name[6:], "".join(map(str, parts)), start)
    reader.lexer.move(offset)
    reader.namespaces.update((prefix, uri) for prefix, uri in declared.items() if prefix)
    reader.element_namespace = declared.get("", reader.element_namespace)
    return tuple(declared.items())


def _declare_one(reader: Reader, declared: dict[str, str], prefix: str, uri: str, start: int) -> None:
    if prefix in declared:
        raise reader.lexer.error("XQST0071", f"the prefix {prefix!r} is declared twice", start)
    if prefix == "xmlns" or uri == XMLNS or (prefix == "xml") != (uri == XML):
        raise reader.lexer.error("XQST0070", f"the prefix {prefix!r} cannot stand for {uri!r}", start)
    if prefix and not uri:
        raise reader.lexer.error("XQST0085", f"the prefix {prefix!r} cannot be undeclared", start)
    declared[prefix] = uri


def _names_of_attributes(reader: Reader) -> Iterator[tuple[str, int]]:
    """Names of a tag's attributes and where their values start; values are skipped, not parsed."""
    text = reader.lexer.text
    while _space(reader) and text[reader.lexer.offset : reader.lexer.offset + 1] not in (">", "/", ""):
        name = _qname(reader, reader.lexer.offset)
        _equals(reader)
        start = reader.lexer.offset
        yield name, start
        reader.lexer.move(_end_of_value(reader, start))


def _equals(reader: Reader) -> None:
    _space(reader)
    if not reader.lexer.text.startswith("=", reader.lexer.offset):
        raise reader.lexer.error("XPST0003", "'=' expected after the name of an attribute")
    reader.lexer.move(reader.lexer.offset + 1)
    _space(reader)
    if reader.lexer.text[reader.lexer.offset : reader.lexer.offset + 1] not in ("'", '"'):
        raise reader.lexer.error("XPST0003", "an attribute value in quotes expected")


def _end_of_value(reader: Reader, start: int) -> int:
    text, quote, offset, depth = reader.lexer.text, reader.lexer.text[start], start + 1, 0
    while offset < len(text):
        here = text[offset]
        if not depth and text[offset : offset + 2] in ("{{", "}}"):
            offset += 1
        elif depth and here in "'\"":
            offset = text.find(here, offset + 1)
            if offset < 0:
                break
        elif here == quote:
            if text[offset + 1 : offset + 2] != quote:
                return offset + 1
            offset += 1
        elif here == "{":
            depth += 1
        elif here == "}":
            depth -= 1
        offset += 1
    raise reader.lexer.error("XPST0003", "an attribute value is not closed", start)


def _attributes(reader: Reader) -> tuple[DirectAttribute, ...]:
    attributes: dict[QName, DirectAttribute] = {}
    text = reader.lexer.text
    while _space(reader) and text[reader.lexer.offset : reader.lexer.offset + 1] not in (">", "/", ""):
        start = reader.lexer.offset
        written = _qname(reader, start)
        _equals(reader)
        parts = _value_at(reader, reader.lexer.offset)
        if written == "xmlns" or written.startswith("xmlns:"):
            continue
        name = reader.resolve(written, "", start)
        if name in attributes:
            raise reader.lexer.error("XQST0040", f"the attribute {written} is given twice", start)
        attributes[name] = DirectAttribute(name, parts)
    return tuple(attributes.values())


def _value_at(reader: Reader, start: int) -> tuple[str | Expr, ...]:
    """An attribute value, parsed; white space is normalised as in XML, references stay as they are."""
    text, quote = reader.lexer.text, reader.lexer.text[start]
    plain = re.compile(f"[^{quote}{{}}<]+")
    parts: list[str | Expr] = []
    offset = start + 1
    while True:
        match = plain.match(text, offset)
        if match is not None:
            parts.append(reader.lexer.unescape(re.sub(r"[\t\n]", " ", match.group()), offset))
            offset = match.end()
        two = text[offset : offset + 2]
        if two in ("{{", "}}", quote * 2):
            parts.append(two[0])
            offset += 2
        elif two[:1] == quote:
            reader.lexer.move(offset + 1)
            return _joined(parts)
        elif two[:1] == "{":
            offset = _enclosed_at(reader, offset, parts)
        else:
            raise reader.lexer.error("XPST0003", f"{two[:1] or 'the end'!r} in an attribute value", offset)


def _enclosed_at(reader: Reader, offset: int, parts: list[str | Expr]) -> int:
    reader.lexer.move(offset)
    parts.append(reader.enclosed())
    return reader.lexer.offset


# --- content


def _body(reader: Reader, tag: str) -> tuple[str | Expr, ...]:
    text, offset = reader.lexer.text, reader.lexer.offset
    if text.startswith("/>", offset):
        reader.lexer.move(offset + 2)
        return ()
    if not text.startswith(">", offset):
        raise reader.lexer.error("XPST0003", "'>' or an attribute expected", offset)
    reader.lexer.move(offset + 1)
    content = _content(reader)
    start = reader.lexer.offset
    if _qname(reader, start + 2) != tag:
        raise reader.lexer.error("XQST0118", f"</{tag}> expected", start)
    _space(reader)
    if not text.startswith(">", reader.lexer.offset):
        raise reader.lexer.error("XPST0003", "'>' expected")
    reader.lexer.move(reader.lexer.offset + 1)
    return content


def _content(reader: Reader) -> tuple[str | Expr, ...]:
    """Text and nodes up to the closing tag; text that is only white space between them is left out."""
    content: list[str | Expr] = []
    run: list[str] = []
    while not reader.lexer.text.startswith("</", reader.lexer.offset):
        part = _text_part(reader, run)
        if part is None:
            _flush(reader, content, run)
            content.append(_node_part(reader))
    _flush(reader, content, run)
    return tuple(content)


def _flush(reader: Reader, content: list[str | Expr], run: list[str]) -> None:
    """Ends a run of text. An empty string in the run marks text that counts even if it is white space."""
    if any(not part or not part.isspace() for part in run) or (reader.preserve_space and run):
        content.append("".join(run))
    run.clear()


def _text_part(reader: Reader, run: list[str]) -> str | None:
    text, offset = reader.lexer.text, reader.lexer.offset
    match = _TEXT.match(text, offset)
    if match is not None:
        part = reader.lexer.unescape(match.group(), offset)
        run += [part, ""] if "&" in match.group() else [part]
        reader.lexer.move(match.end())
        return part
    if text[offset : offset + 2] in ("{{", "}}"):
        run.append(text[offset])
        reader.lexer.move(offset + 2)
        return text[offset]
    if text.startswith("<![CDATA[", offset):
        return _cdata(reader, run, offset)
    return None


def _cdata(reader: Reader, run: list[str], offset: int) -> str:
    end = reader.lexer.text.find("]]>", offset)
    if end < 0:
        raise reader.lexer.error("XPST0003", "a CDATA section is not closed", offset)
    run += [reader.lexer.text[offset + 9 : end], ""]
    reader.lexer.move(end + 3)
    return run[-2]


def _node_part(reader: Reader) -> Expr:
    offset = reader.lexer.offset
    here = reader.lexer.text[offset : offset + 1]
    if here == "<":
        return reader.at(offset, _node(reader))
    if here != "{":
        message = "'}' in content must be written '}}'" if here == "}" else "an element is not closed"
        raise reader.lexer.error("XPST0003", message, offset)
    parts: list[str | Expr] = []
    _enclosed_at(reader, offset, parts)
    reader.lexer.move(reader.lexer.offset)  # the following characters are text, not tokens
    inner = parts[0]
    assert isinstance(inner, Expr)  # noqa: S101  (for the type checker: _enclosed_at appends an expression)
    return inner


def _joined(parts: list[str | Expr]) -> tuple[str | Expr, ...]:
    joined: list[str | Expr] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)
