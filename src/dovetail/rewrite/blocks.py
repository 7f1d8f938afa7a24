"""Finds the SELECT blocks of a query, innermost first, and reads their FROM clauses as trees of joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import TokenType as T
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dovetail.rewrite.text import DIALECT, QUERY_WORDS, Patches, Piece, Source, select_from

SET_OPERATORS = (T.UNION, T.EXCEPT, T.INTERSECT)
CLAUSES = (
    *(T.WHERE, T.GROUP_BY, T.HAVING, T.QUALIFY, T.WINDOW, T.ORDER_BY, T.SORT_BY),
    *(T.DISTRIBUTE_BY, T.CLUSTER_BY, T.LIMIT, T.OFFSET, T.SEMICOLON),
)
BEFORE_A_STAR = (T.SELECT, T.DISTINCT, T.ALL, T.COMMA, T.L_PAREN, T.HINT)


@dataclass(frozen=True, slots=True)
class Visible:
    """The definitions of one WITH clause that a block can see."""

    definitions: tuple[Piece, ...]
    recursive: bool


@dataclass(frozen=True, slots=True)
class Star:
    """A star for all columns; `names` is the token where its EXCEPT list begins, if it has one."""

    piece: Piece
    names: int | None


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT ... FROM ... WHERE ..., without the other sides of set operators."""

    source: Source
    start: int
    stop: int
    relations: Piece | None
    where: Piece | None
    withs: tuple[Visible, ...]
    recursive: bool  # inside a definition of WITH RECURSIVE

    def own(self) -> Iterator[int]:
        """Token numbers of the block, without those of queries inside it."""
        number = self.start
        while number < self.stop:
            opens = self.source.kind(number) is T.L_PAREN
            if opens and self.source.kind(number + 1) in QUERY_WORDS:
                number = self.source.partner[number]
            yield number
            number += 1

    def stars(self) -> list[Star]:
        """Stars for all columns of the block, except that of count(*)."""
        found = []
        kind = self.source.kind
        for number in self.own():
            if kind(number) is not T.STAR or kind(number - 1) not in BEFORE_A_STAR or self._counts(number):
                continue
            listed = kind(number + 1) is T.EXCEPT and kind(number + 2) is T.L_PAREN
            found.append(Star(self.source.piece(number, number + 1), number + 3 if listed else None))
        return found

    def shows_all(self) -> bool:
        """Whether the block needs columns that it does not name: a star of all or of one input, a NATURAL join."""
        kind = self.source.kind
        some = (kind(n) is T.NATURAL or (kind(n) is T.STAR and kind(n - 1) is T.DOT) for n in self.own())
        return bool(self.stars()) or any(some)

    def _counts(self, star: int) -> bool:
        kind, tokens = self.source.kind, self.source.tokens
        closed = kind(star - 1) is T.L_PAREN and kind(star + 1) is T.R_PAREN
        return closed and star >= 2 and tokens[star - 2].text.lower() == "count"


def find_blocks(source: Source) -> list[Block]:
    """Every SELECT block of a query, after the blocks inside it and those that it can see by WITH."""
    kind, top = source.kind, list(source.whole().top())
    # A WITH clause before it: of the query, or of one inside CREATE TABLE ... AS or INSERT.
    starts = (
        n for n in top if kind(n) is T.WITH and (kind(n + 1) is T.RECURSIVE or kind(n + 2) in (T.ALIAS, T.L_PAREN))
    )
    return list(_scan(source, next(starts, 0), len(source.tokens), (), False))


def _scan(source: Source, start: int, stop: int, withs: tuple[Visible, ...], recursive: bool) -> Iterator[Block]:
    if source.kind(start) is T.WITH:
        inside, seen, start = _definitions(source, start, withs, recursive)
        yield from inside
        withs = (*withs, seen)
    region = source.piece(start, stop)
    for number in region.top():
        if source.kind(number) in (T.L_PAREN, T.L_BRACKET):
            yield from _scan(source, number + 1, source.partner[number], withs, recursive)
    selects = [number for number in region.top() if source.kind(number) is T.SELECT]
    for select in selects:
        yield _block(source, select, stop, withs, recursive)


def _definitions(
    source: Source, start: int, withs: tuple[Visible, ...], recursive: bool
) -> tuple[list[Block], Visible, int]:
    """The blocks inside a WITH clause, what the clause makes visible, and where the query after it starts."""
    number = start + 1
    recurs = source.kind(number) is T.RECURSIVE
    number += recurs
    blocks: list[Block] = []
    seen: list[Piece] = []
    while True:
        begin = number
        while source.kind(number) not in (T.ALIAS, None):
            number = source.partner.get(number, number) + 1
        body = number + 1
        end = source.partner.get(body, body)
        visible = (*withs, Visible(tuple(seen), recurs)) if seen else withs
        blocks += _scan(source, body + 1, end, visible, recursive or recurs)
        seen.append(source.piece(begin, end + 1))
        number = end + 1
        if source.kind(number) is not T.COMMA:
            return blocks, Visible(tuple(seen), recurs), number
        number += 1


def _block(source: Source, select: int, stop: int, withs: tuple[Visible, ...], recursive: bool) -> Block:
    end = next((n for n in source.piece(select + 1, stop).top() if _is_set_operator(source, n)), stop)
    marks = [n for n in source.piece(select + 1, end).outside_case() if _starts_clause(source, n)]
    edges = [*marks, end]
    pieces: dict[T | None, Piece] = {}
    for mark, after in pairwise(edges):
        if mark + 1 < after:
            pieces.setdefault(source.kind(mark), source.piece(mark + 1, after))
    return Block(source, select, end, pieces.get(T.FROM), pieces.get(T.WHERE), withs, recursive)


def _is_set_operator(source: Source, number: int) -> bool:
    return source.kind(number) in SET_OPERATORS and source.kind(number - 1) is not T.STAR


def _starts_clause(source: Source, number: int) -> bool:
    kind = source.kind(number)
    if kind is T.FROM:
        return source.kind(number - 1) is not T.DISTINCT
    if kind is T.WINDOW:  # a clause that names windows, not the function window(time, '1 hour')
        return source.kind(number + 1) is not T.L_PAREN
    return kind in CLAUSES or (kind is T.LATERAL and source.kind(number + 1) is T.VIEW)


def within(block: Block, text: str, patches: Patches) -> str:
    """Rendered text with the WITH clauses that the block sees."""
    for number, seen in enumerate(reversed(block.withs)):
        text = select_from(f"({text})") if number else text
        definitions = ", ".join(patches.render(piece.span) for piece in seen.definitions)
        text = f"WITH {'RECURSIVE ' if seen.recursive else ''}{definitions} {text}"
    return text


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
    match: Piece | None = None  # the comparison in MATCH_CONDITION of an as-of join

    @property
    def using(self) -> tuple[str, ...]:
        """The names in USING, as they are written."""
        if self.criterion is None or self.criterion.first_kind() is not T.USING:
            return ()
        tokens = self.criterion.source.tokens[self.criterion.start + 2 : self.criterion.stop - 1]
        return tuple(token.text for token in tokens if token.token_type is not T.COMMA)


Node = Relation | Join


def relation_tree(piece: Piece) -> Node | None:
    """The tree of a FROM clause; None if it is no tree of joins (PIVOT, several ON)."""
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
    words = [source.kind(number) for number in range(start, join)]
    match = _match(source.piece(join + 1, end)) if T.ASOF in words and join + 1 < end else None
    right = _relation(piece, join + 1, end if match is None else match.start)
    if right is None or (match is not None and match.stop < end):
        return None
    how = next((HOWS[word] for word in (T.SEMI, T.ANTI, T.FULL, T.LEFT, T.RIGHT) if word in words), "inner")
    on = source.piece(end + 1, stop) if criteria and source.kind(end) is T.ON and end + 1 < stop else None
    merges = T.NATURAL in words or bool(criteria and source.kind(end) is T.USING)
    criterion = source.piece(end, stop) if criteria else None
    compared = None if match is None else source.piece(match.start + 1, match.stop).inside()
    return Join(left, right, how, source.piece(start, join + 1).text, criterion, on, merges, T.ASOF in words, compared)


def _match(piece: Piece) -> Piece | None:
    """The MATCH_CONDITION (...) after the right relation of an as-of join."""
    return next((piece.source.matches[number] for number in piece.top() if number in piece.source.matches), None)


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
    piece = relation.piece
    text = piece.text
    bare = [token.token_type for token in piece.source.tokens[piece.stop - 2 : piece.stop]]
    if piece.stop - piece.start > 1 and bare[1] is T.ASOF and bare[0] is not T.ALIAS:
        text = f"{text[: -len('asof')]} AS asof"  # the parser takes a bare ASOF for the word before JOIN
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
