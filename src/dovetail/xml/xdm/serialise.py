"""Items to text, as XQuery's xml output method writes them (without XML declaration)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from lxml import etree

from dovetail.xml.xdm.decimals import MAX_DIGITS, plain
from dovetail.xml.xdm.nodes import Attribute, Document, Text, is_node, name_of
from dovetail.xml.xdm.numbers import double_text

_CONTROLS = re.compile("[\x7f-\x9f\u2028]")  # a reader of XML 1.1 would take some of them for line ends
_ESCAPED = re.compile("[&<>\r\x7f-\x9f\u2028]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def text_of(value: Any) -> str:
    """An atomic value as a string, as `string()` gives it."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # the exact type was asked
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if kind is Decimal:
        return plain(value)
    if isinstance(value, int) and value.bit_length() > MAX_DIGITS:
        return plain(Decimal(value))
    return str.__str__(value) if isinstance(value, str) else str(value)


def serialise(item: Any) -> str:
    """One item as text: markup for nodes, the string value for atomic values."""
    if not is_node(item):
        return text_of(item)
    if isinstance(item, Document):
        parts = [escaped(item.holder.text or "")]
        return "".join(parts + [_markup(child, with_tail=True) for child in item.holder])
    if isinstance(item, Text):
        return escaped(item.value)
    if isinstance(item, Attribute):
        return f'{_qualified(item)}="{escaped(item.value, quotes=True)}"'
    return _markup(item, with_tail=False)


def _markup(element: Any, with_tail: bool) -> str:
    text: str = etree.tostring(element, encoding="unicode", with_tail=with_tail)
    if text.isascii() and "\x7f" not in text:
        return text
    return _CONTROLS.sub(lambda match: f"&#{ord(match[0])};", text)


def _qualified(attribute: Attribute) -> str:
    name = name_of(attribute)
    prefix, _, local = name if name else ("", "", attribute.key)
    return f"{prefix}:{local}" if prefix else local


def escaped(text: str, quotes: bool = False) -> str:
    """Text with the characters escaped that markup needs."""
    text = _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"&#{ord(match[0])};", text)
    if quotes:
        text = text.replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
    return text
