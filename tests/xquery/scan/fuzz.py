"""Random documents against expat's tree and libxml2's judgement: `python -m tests.xquery.scan.fuzz N [SEED]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lxml import etree
from tests.xquery.scan import model
from tests.xquery.scan.documents import Documents

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.xml.scan import Column, Scanner, ScanRequest, check, scanner

REQUESTS = (
    ScanRequest(("*", "*"), (Column("self", (), "xml"), Column("text", ()), Column("x", ("@x",)))),
    ScanRequest(
        ("*",),
        (
            Column("xml", ("*",), "xml", many=True),
            Column("b", ("b",), "xml"),
            Column("a", ("{u1}a",), many=True),
            Column("deep", ("*", "{d}b"), many=True),
            Column("lang", ("*", "@{http://www.w3.org/XML/1998/namespace}lang"), many=True),
            Column("px", ("r", "@{u2}x"), many=True),
        ),
    ),
    ScanRequest(("*", "r", "*"), (Column("t", ("v",)), Column("s", (), "xml"), Column("v", ("v",), "xml", many=True))),
)

_TOLERATED = ("WAR_NS_URI", "WAR_NS_URI_RELATIVE")
"""What libxml2 calls an error and neither XML nor its namespaces do: a namespace that is not a URI."""


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    """The scanner reads `size` bytes at first, and then as few as it can."""
    before = scanner._BLOCK
    scanner._BLOCK = size
    try:
        yield
    finally:
        scanner._BLOCK = before


def scanned(document: bytes, request: ScanRequest, memory: str = "16MB") -> list[dict[str, object]]:
    """All rows of a scan."""
    return [row for batch in Scanner(request, MemoryBudget(memory)).batches([document]) for row in batch.to_pylist()]


def compare(document: bytes, request: ScanRequest, block: int) -> None:
    """Fail if the scan of a well-formed document differs from the model."""
    with blocks_of(block):
        found = scanned(document, request)
    wanted = model.rows(document, request)
    assert found == wanted, (document, request.explain(), block, found, wanted)


def refusal(document: bytes, block: int = 1 << 18) -> str | None:
    """What the scanner finds wrong, or None."""
    with blocks_of(block):
        try:
            check([document], MemoryBudget("16MB"))
        except DataError as error:
            return str(error)
    return None


def libxml2_refuses(document: bytes) -> str | None:
    """What libxml2 finds wrong, or None; namespace errors, which it reports but tolerates, count."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=False)
    try:
        etree.fromstring(document, parser)
    except etree.XMLSyntaxError as error:
        if not len(parser.error_log):
            return str(error)
    wrong = [e for e in parser.error_log.filter_from_errors() if e.type_name not in _TOLERATED]
    return str(wrong[0]) if wrong else None


def judge(document: bytes, block: int) -> None:
    """Fail if scanner and libxml2 do not agree whether a document is well-formed."""
    ours, theirs = refusal(document, block), libxml2_refuses(document)
    if ours is not None and ("document type" in ours or ("a name that" in ours and "'<!DOCTYPE" in ours)):
        return  # libxml2 reads document types, and takes names in them that its namespaces do not allow
    assert (ours is None) == (theirs is None), (document, ours, theirs)


def main(n: int, seed: int = 0) -> None:
    """Try `n` documents, each with every request, and four damaged copies of it."""
    refused = 0
    for number in range(seed, seed + n):
        source = Documents(number)
        document = source.document().encode()
        block = source.rng.choice((1, 2, 7, 50, 1 << 18, source.rng.randint(1, len(document))))
        for request in REQUESTS:
            compare(document, request, block)
        for _ in range(4):
            damaged = source.damaged(document)
            judge(damaged, block)
            refused += refusal(damaged) is not None
    print(f"{n} documents scanned as the model says; of {4 * n} damaged ones {refused} refused, as by libxml2.")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
