"""Direct constructors: XML in the query text, read character by character."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.xml.syntax.lexer import QNAME
from dovetail.xml.syntax.names import XML, XMLNS, QName
from dovetail.xml.syntax.parse_flwor import FlworParser
from dovetail.xml.syntax.tree import (
    ComputedComment,
    ComputedInstruction,
    DirectAttribute,
    DirectElement,
    Expr,
    Literal,
)

_SPACE = re.compile(r"[ \t\n]*")
_TEXT = re.compile(r"[^<{}]+")
_INSTRUCTION = re.compile(rf"<\?({QNAME.pattern})(?:[ \t\n]+(.*?))?\?>", re.DOTALL)


class DirectParser(FlworParser):
    """`<a b="{c}">text{d}</a>`, `<!-- -->` and `<? ?>`; the lexer stands at `<` before and after the end behind."""

    def direct(self) -> Expr:
        """The constructor that starts at the next token."""
        start = self.lexer.peek().start
        self.lexer.move(start)
        return self.at(start, self._node())

    def _node(self) -> Expr:
        text, start = self.lexer.text, self.lexer.offset
        if text.startswith("<!--", start):
            return self._comment(start)
        if text.startswith("<?", start):
            return self._instruction(start)
        return self._element(start)

    def _comment(self, start: int) -> Expr:
        end = self.lexer.text.find("--", start + 4)
        if end < 0 or not self.lexer.text.startswith("-->", end):
            raise self.lexer.error("XPST0003", "a comment must end with --> and not hold --", start)
        content = self.lexer.text[start + 4 : end]
        self.lexer.move(end + 3)
        return ComputedComment(Literal(content))

    def _instruction(self, start: int) -> Expr:
        match = _INSTRUCTION.match(self.lexer.text, start)
        if match is None or match[1].lower() == "xml" or ":" in match[1]:
            raise self.lexer.error("XPST0003", "not a processing instruction <?target content?>", start)
        self.lexer.move(match.end())
        return ComputedInstruction(match[1], Literal(match[match.lastindex or 0] if match[4] else ""))

    # --- elements

    def _element(self, start: int) -> Expr:
        tag = self._qname(start + 1)
        self.deeper()
        outer = dict(self.namespaces), self.element_namespace
        try:
            declared = self._declare(self.lexer.offset)
            attributes = self._attributes()
            name = self.resolve(tag, self.element_namespace, start + 1)
            content = self._body(tag)
        finally:
            self.namespaces, self.element_namespace = outer
        self.depth -= 1
        return DirectElement(name, declared, attributes, content)

    def _qname(self, offset: int) -> str:
        match = QNAME.match(self.lexer.text, offset)
        if match is None:
            raise self.lexer.error("XPST0003", "a name expected", offset)
        self.lexer.move(match.end())
        return match.group()

    def _space(self) -> bool:
        match = _SPACE.match(self.lexer.text, self.lexer.offset)
        moved = match is not None and match.end() > self.lexer.offset
        if match is not None:
            self.lexer.move(match.end())
        return moved

    def _declare(self, offset: int) -> tuple[tuple[str, str], ...]:
        """Takes the namespace declarations of a tag, wherever they stand among its attributes."""
        declared: dict[str, str] = {}
        for name, start in self._names_of_attributes():
            if name != "xmlns" and not name.startswith("xmlns:"):
                continue
            parts = self._value_at(start)
            if any(not isinstance(part, str) for part in parts):
                raise self.lexer.error("XQST0022", f"{name} needs a literal namespace", start)
            self._declare_one(declared, name[6:], "".join(map(str, parts)), start)
        self.lexer.move(offset)
        self.namespaces.update((prefix, uri) for prefix, uri in declared.items() if prefix)
        self.element_namespace = declared.get("", self.element_namespace)
        return tuple(declared.items())

    def _declare_one(self, declared: dict[str, str], prefix: str, uri: str, start: int) -> None:
        if prefix in declared:
            raise self.lexer.error("XQST0071", f"the prefix {prefix!r} is declared twice", start)
        if prefix == "xmlns" or uri == XMLNS or (prefix == "xml") != (uri == XML):
            raise self.lexer.error("XQST0070", f"the prefix {prefix!r} cannot stand for {uri!r}", start)
        if prefix and not uri:
            raise self.lexer.error("XQST0085", f"the prefix {prefix!r} cannot be undeclared", start)
        declared[prefix] = uri

    def _names_of_attributes(self) -> Iterator[tuple[str, int]]:
        """Names of a tag's attributes and where their values start; values are skipped, not parsed."""
        text = self.lexer.text
        while self._space() and text[self.lexer.offset : self.lexer.offset + 1] not in (">", "/", ""):
            name = self._qname(self.lexer.offset)
            self._equals()
            start = self.lexer.offset
            yield name, start
            self.lexer.move(self._end_of_value(start))

    def _equals(self) -> None:
        self._space()
        if not self.lexer.text.startswith("=", self.lexer.offset):
            raise self.lexer.error("XPST0003", "'=' expected after the name of an attribute")
        self.lexer.move(self.lexer.offset + 1)
        self._space()
        if self.lexer.text[self.lexer.offset : self.lexer.offset + 1] not in ("'", '"'):
            raise self.lexer.error("XPST0003", "an attribute value in quotes expected")

    def _end_of_value(self, start: int) -> int:
        text, quote, offset, depth = self.lexer.text, self.lexer.text[start], start + 1, 0
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
        raise self.lexer.error("XPST0003", "an attribute value is not closed", start)

    def _attributes(self) -> tuple[DirectAttribute, ...]:
        attributes: dict[QName, DirectAttribute] = {}
        text = self.lexer.text
        while self._space() and text[self.lexer.offset : self.lexer.offset + 1] not in (">", "/", ""):
            start = self.lexer.offset
            written = self._qname(start)
            self._equals()
            parts = self._value_at(self.lexer.offset)
            if written == "xmlns" or written.startswith("xmlns:"):
                continue
            name = self.resolve(written, "", start)
            if name in attributes:
                raise self.lexer.error("XQST0040", f"the attribute {written} is given twice", start)
            attributes[name] = DirectAttribute(name, parts)
        return tuple(attributes.values())

    def _value_at(self, start: int) -> tuple[str | Expr, ...]:
        """An attribute value, parsed; white space is normalised as in XML, references stay as they are."""
        text, quote = self.lexer.text, self.lexer.text[start]
        plain = re.compile(f"[^{quote}{{}}<]+")
        parts: list[str | Expr] = []
        offset = start + 1
        while True:
            match = plain.match(text, offset)
            if match is not None:
                parts.append(self.lexer.unescape(re.sub(r"[\t\n]", " ", match.group()), offset))
                offset = match.end()
            two = text[offset : offset + 2]
            if two in ("{{", "}}", quote * 2):
                parts.append(two[0])
                offset += 2
            elif two[:1] == quote:
                self.lexer.move(offset + 1)
                return _joined(parts)
            elif two[:1] == "{":
                offset = self._enclosed_at(offset, parts)
            else:
                raise self.lexer.error("XPST0003", f"{two[:1] or 'the end'!r} in an attribute value", offset)

    def _enclosed_at(self, offset: int, parts: list[str | Expr]) -> int:
        self.lexer.move(offset)
        parts.append(self.enclosed())
        return self.lexer.offset

    # --- content

    def _body(self, tag: str) -> tuple[str | Expr, ...]:
        text, offset = self.lexer.text, self.lexer.offset
        if text.startswith("/>", offset):
            self.lexer.move(offset + 2)
            return ()
        if not text.startswith(">", offset):
            raise self.lexer.error("XPST0003", "'>' or an attribute expected", offset)
        self.lexer.move(offset + 1)
        content = self._content()
        start = self.lexer.offset
        if self._qname(start + 2) != tag:
            raise self.lexer.error("XQST0118", f"</{tag}> expected", start)
        self._space()
        if not text.startswith(">", self.lexer.offset):
            raise self.lexer.error("XPST0003", "'>' expected")
        self.lexer.move(self.lexer.offset + 1)
        return content

    def _content(self) -> tuple[str | Expr, ...]:
        """Text and nodes up to the closing tag; text that is only white space between them is left out."""
        content: list[str | Expr] = []
        run: list[str] = []
        while not self.lexer.text.startswith("</", self.lexer.offset):
            part = self._text_part(run)
            if part is None:
                self._flush(content, run)
                content.append(self._node_part())
        self._flush(content, run)
        return tuple(content)

    def _flush(self, content: list[str | Expr], run: list[str]) -> None:
        """Ends a run of text. An empty string in the run marks text that counts even if it is white space."""
        if any(not part or not part.isspace() for part in run) or (self.preserve_space and run):
            content.append("".join(run))
        run.clear()

    def _text_part(self, run: list[str]) -> str | None:
        text, offset = self.lexer.text, self.lexer.offset
        match = _TEXT.match(text, offset)
        if match is not None:
            part = self.lexer.unescape(match.group(), offset)
            run += [part, ""] if "&" in match.group() else [part]
            self.lexer.move(match.end())
            return part
        if text[offset : offset + 2] in ("{{", "}}"):
            run.append(text[offset])
            self.lexer.move(offset + 2)
            return text[offset]
        if text.startswith("<![CDATA[", offset):
            return self._cdata(run, offset)
        return None

    def _cdata(self, run: list[str], offset: int) -> str:
        end = self.lexer.text.find("]]>", offset)
        if end < 0:
            raise self.lexer.error("XPST0003", "a CDATA section is not closed", offset)
        run += [self.lexer.text[offset + 9 : end], ""]
        self.lexer.move(end + 3)
        return run[-2]

    def _node_part(self) -> Expr:
        offset = self.lexer.offset
        here = self.lexer.text[offset : offset + 1]
        if here == "<":
            return self.at(offset, self._node())
        if here != "{":
            message = "'}' in content must be written '}}'" if here == "}" else "an element is not closed"
            raise self.lexer.error("XPST0003", message, offset)
        parts: list[str | Expr] = []
        self._enclosed_at(offset, parts)
        self.lexer.move(self.lexer.offset)  # what comes behind is text again, not tokens
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
