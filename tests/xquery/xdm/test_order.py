from __future__ import annotations

from random import Random
from typing import Any

from dovetail.xml.evaluate.axes import AXES, attributes, descendants
from dovetail.xml.xdm.markup import parse_xml
from dovetail.xml.xdm.nodes import Document, in_document_order, parent_of, root_of


def random_tree(random: Random, depth: int = 4) -> str:
    inside = "".join(
        random.choice(("t", "<!--c-->", "<?p q?>", random_tree(random, depth - 1) if depth else ""))
        for _ in range(random.randint(0, 5))
    )
    return f'<e a="1" b="2">{inside}</e>'


def walk(document: Document) -> list[Any]:
    """All nodes in document order, by the definition: a node, its attributes, its children."""
    nodes: list[Any] = [document]
    for node in descendants(document):
        nodes += [node, *attributes(node)]
    return nodes


def test_any_shuffled_nodes_come_back_in_order() -> None:
    random = Random(5)  # noqa: S311  (test data, no secret)
    for size in (1, 2, 3, 60):
        documents = [parse_xml(random_tree(random)) for _ in range(3)]
        expected = [node for document in documents for node in walk(document)]
        for _ in range(5):
            chosen = [node for node in expected if random.random() < size / 60]
            shuffled = chosen * 2
            random.shuffle(shuffled)
            assert in_document_order(shuffled) == chosen


def test_long_lists_of_siblings() -> None:
    document = parse_xml("<a>" + "<b>t</b>u" * 500 + "</a>")
    expected = walk(document)
    shuffled = expected[:]
    Random(6).shuffle(shuffled)  # noqa: S311  (test data, no secret)
    assert in_document_order(shuffled) == expected


def test_axes_are_what_their_definitions_say() -> None:
    random = Random(7)  # noqa: S311  (test data, no secret)
    for _ in range(12):
        document = parse_xml(random_tree(random, 3))
        nodes = walk(document)
        above = {node: [*chain(node)] for node in nodes}
        plain = [node for node in nodes if node not in {found for each in nodes for found in attributes(each)}]
        for at, node in enumerate(nodes):
            inside = [other for other in plain if node in above[other]]
            behind = [other for other in nodes[at + 1 :] if other in plain and other not in inside]
            before = [other for other in nodes[:at] if other in plain and other not in above[node]]
            assert list(AXES["descendant"](node)) == inside
            assert list(AXES["following"](node)) == behind
            assert list(AXES["preceding"](node)) == before[::-1]
            assert list(AXES["ancestor"](node)) == above[node]
            same = [other for other in plain if other != node and parent_of(other) == parent_of(node) and node in plain]
            siblings = list(AXES["preceding-sibling"](node))[::-1] + list(AXES["following-sibling"](node))
            assert siblings == (same if parent_of(node) is not None else [])
            assert root_of(node) == document


def chain(node: Any) -> list[Any]:
    found = []
    while (node := parent_of(node)) is not None:
        found.append(node)
    return found
