"""XML to nodes, with nothing fetched and nothing expanded on a document's word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xml.xdm.nodes import Document, adopt


def parser() -> Any:
    """A new parser that takes nodes of any size, for texts that have no document type or a checked one."""
    # Without collected IDs, xml:id is an attribute like others, as in a scan; but external DTDs would be loaded.
    return etree.XMLParser(huge_tree=True, collect_ids=False, **_SAFE)


_SAFE: dict[str, bool] = {
    "resolve_entities": False,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "no_network": True,
    "remove_blank_text": False,
    "strip_cdata": True,
}
_BLOCK = 1 << 12
_ENCODING = re.compile(rb"encoding\s*=\s*[\"']([^\"']*)")
_LIKE_ASCII = (b"utf-8", b"us-ascii", b"iso-8859-1")
"""Encodings in which a document type starts with the bytes `<!DOCTYPE`; there are others in which it does."""


def parse_xml(data: bytes | str, uri: str | None = None) -> Document:
    """The document of an XML text. Raises FODC0006 if it is malformed or has a forbidden declaration."""
    source, name = data.encode() if isinstance(data, str) else data, uri or "the given text"
    try:
        if not _surely_declares_nothing(source):
            _check_document_type(source, name)
        root = etree.fromstring(source, parser())
    except etree.XMLSyntaxError as error:
        raise malformed(name, error) from None
    return adopt(root, uri)


def _surely_declares_nothing(source: bytes) -> bool:
    head = source[: source.find(b"?>")] if source.startswith(b"<?xml") else b""
    encoding = _ENCODING.search(head)
    like_ascii = source.startswith(b"<") and (encoding is None or encoding[1].lower() in _LIKE_ASCII)
    return like_ascii and b"<!DOCTYPE" not in source


def _check_document_type(source: bytes, name: str) -> None:
    """Reads up to the root with all limits on, so that nothing is loaded or expanded by a parser that has none."""
    start = etree.XMLPullParser(events=("start",), huge_tree=False, recover=True, **_SAFE)
    for at in range(0, len(source), _BLOCK):
        start.feed(source[at : at + _BLOCK])
        for _, root in start.read_events():
            check_declarations(root.getroottree(), name)
            return
    check_declarations(etree.fromstring(source, etree.XMLParser(huge_tree=False, **_SAFE)).getroottree(), name)


def parse_file(path: Path | str, uri: str | None = None) -> Document:
    """The document of a file, its address as base URI. Raises FODC0002 if it cannot be read."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise XQueryError("FODC0002", f"cannot read {path}: {error.strerror}") from None
    return parse_xml(data, str(path) if uri is None else uri)


def malformed(name: str, error: Any) -> XQueryError:
    """The error of a file that is not well-formed, with the file, line and column."""
    line, column = error.position
    return XQueryError("FODC0006", f"{name}, line {line}, column {column}: {error.msg}")


def check_declarations(tree: Any, name: str) -> None:
    """Refuses documents that declare entities or need an outside DTD: both change what the document says."""
    dtd = tree.docinfo.internalDTD
    if dtd is None:
        return
    if dtd.system_url or dtd.external_id:
        raise XQueryError(
            "FODC0006", f"{name} names the external DTD {dtd.system_url!r}; DTDs are never fetched. Remove the DOCTYPE."
        )
    entity = next(dtd.iterentities(), None)
    if entity is not None:
        raise XQueryError(
            "FODC0006",
            f"{name} declares the entity {entity.name!r}; entities are never expanded. Replace it by its text.",
        )
