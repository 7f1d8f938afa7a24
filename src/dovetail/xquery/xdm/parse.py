"""XML to nodes, with nothing fetched and nothing expanded on a document's word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lxml import etree

from dovetail.errors import XQueryError
from dovetail.xquery.xdm.nodes import Document, adopt


def parser() -> Any:
    """A new parser with the safe settings; other readers of XML in the library use the same ones."""
    return etree.XMLParser(**SAFE)


SAFE: dict[str, bool] = {
    "resolve_entities": False,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "no_network": True,
    "huge_tree": False,
    "remove_blank_text": False,
    "strip_cdata": True,
}


def parse_xml(data: bytes | str, uri: str | None = None) -> Document:
    """The document of an XML text. Raises FODC0006 if it is malformed or has a forbidden declaration."""
    source = data.encode() if isinstance(data, str) else data
    try:
        root = etree.fromstring(source, parser())
    except etree.XMLSyntaxError as error:
        raise malformed(uri or "the given text", error) from None
    check_declarations(root.getroottree(), uri or "the given text")
    return adopt(root, uri)


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
