"""What FROM says, as a tree of joins over relations."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import TokenType as T
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dovetail.rewrite.text import DIALECT, QUERY_WORDS, Piece, select_from

JOIN_WORDS = (T.LEFT, T.RIGHT, T.FULL, T.INNER, T.OUTER, T.CROSS, T.NATURAL, T.SEMI, T.ANTI, T.ASOF)
HOWS = {T.SEMI: "left_semi", T.ANTI: "left_anti", T.FULL: "full", T.LEFT: "left", T.RIGHT: "right"}


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, a subquery or a function in FROM, with the alias that the query gives it."""

    piece: Piece
    lateral: bool


@dataclass(frozen=True, slots=True)
class Join:
    """Two sides of a join; `words` and `criterion` are its text, `on` the condition alone."""

    left: Node
    right: Node
    how: str
    words: str
    criterion: Piece | None
    on: Piece | None
    merges: bool  # USING or NATURAL: columns of both sides become one
    asof: bool = False


Node = Relation | Join


def relation_tree(piece: Piece) -> Node | None:
    """The tree of a FROM clause; None for what no tree of joins can say (PIVOT, several ON)."""
    if piece.find(T.PIVOT, T.UNPIVOT):
        return None
    groups = [_chain(group) for group in piece.split(_commas(piece))]
    tree = groups[0]
    for group in groups[1:]:
        if tree is None or group is None:
            return None
        tree = Join(tree, group, "inner", "CROSS JOIN", None, None, False)
    return tree


def _commas(piece: Piece) -> list[int]:
    """The commas between relations: not those between the rows of an inline table, which end at its alias or a join."""
    kind, found, rows = piece.source.kind, [], False
    for number in piece.outside_case():
        named = kind(number) in (T.VAR, T.IDENTIFIER) and kind(number - 1) in (T.R_PAREN, T.NUMBER, T.STRING)
        if kind(number) is T.VALUES:
            rows = True
        elif named or kind(number) in (T.ALIAS, T.JOIN, *JOIN_WORDS):
            rows = False
        elif kind(number) is T.COMMA and not rows:
            found.append(number)
    return found


def relations_of(node: Node) -> list[Relation]:
    """The relations of a tree, as written from left to right."""
    if isinstance(node, Relation):
        return [node]
    return relations_of(node.left) + relations_of(node.right)


def joins_of(node: Node) -> list[Join]:
    """The joins of a tree, inner ones first."""
    if isinstance(node, Relation):
        return []
    return [*joins_of(node.left), *joins_of(node.right), node]


def _chain(piece: Piece) -> Node | None:
    joins = piece.find(T.JOIN)
    starts = [_first_word(piece, number) for number in joins]
    edges = [*starts, piece.stop]
    tree = _relation(piece, piece.start, edges[0])
    for start, join, stop in zip(starts, joins, edges[1:], strict=True):
        tree = tree and _join(piece, tree, start, join, stop)
    return tree


def _first_word(piece: Piece, join: int) -> int:
    while join > piece.start and piece.source.kind(join - 1) in JOIN_WORDS:
        join -= 1
    return join


def _join(piece: Piece, left: Node, start: int, join: int, stop: int) -> Node | None:
    source = piece.source
    criteria = source.piece(join + 1, stop).find(T.ON, T.USING)
    if len(criteria) > 1:
        return None
    end = criteria[0] if criteria else stop
    right = _relation(piece, join + 1, end)
    if right is None:
        return None
    words = [source.kind(number) for number in range(start, join)]
    how = next((HOWS[word] for word in (T.SEMI, T.ANTI, T.FULL, T.LEFT, T.RIGHT) if word in words), "inner")
    on = source.piece(end + 1, stop) if criteria and source.kind(end) is T.ON and end + 1 < stop else None
    merges = T.NATURAL in words or bool(criteria and source.kind(end) is T.USING)
    criterion = source.piece(end, stop) if criteria else None
    return Join(left, right, how, source.piece(start, join + 1).text, criterion, on, merges, T.ASOF in words)


def _relation(piece: Piece, start: int, stop: int) -> Node | None:
    if start >= stop:
        return None
    found = piece.source.piece(start, stop)
    inside = found.inside()
    if inside is not None and inside.first_kind() not in QUERY_WORDS and inside.find(T.JOIN):
        return relation_tree(inside)
    return Relation(found, found.first_kind() is T.LATERAL)


def alias_and_qualifiers(relation: Relation) -> tuple[str | None, tuple[tuple[str, ...], ...]]:
    """The name of a relation in its query, and the ways to write it before a column; (None, ()) if it has no name."""
    text = relation.piece.text
    query = select_from(f"x, {text}" if relation.lateral else text)
    try:
        read = sqlglot.parse_one(query, dialect=DIALECT)
    except SqlglotError:
        return None, ()
    holder = read.find(exp.From) if not relation.lateral else next(iter(read.args.get("joins") or []), None)
    found = holder.this if holder is not None else None
    if found is None or (isinstance(found, exp.Subquery) and not found.alias):
        return None, ()
    if found.alias:
        return found.alias, ((found.alias,),)
    if isinstance(found, exp.Table) and isinstance(found.this, exp.Identifier):
        parts = tuple(part.name for part in found.parts)
        return parts[-1], tuple(parts[-length:] for length in range(1, len(parts) + 1))
    return None, ()
