"""The SELECT blocks of a query, innermost first, with the names that WITH makes visible to each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import TokenType as T

from dovetail.rewrite.text import QUERY_WORDS, Piece, Source

SET_OPERATORS = (T.UNION, T.EXCEPT, T.INTERSECT)
CLAUSES = (
    *(T.WHERE, T.GROUP_BY, T.HAVING, T.QUALIFY, T.WINDOW, T.ORDER_BY, T.SORT_BY),
    *(T.DISTRIBUTE_BY, T.CLUSTER_BY, T.LIMIT, T.OFFSET, T.SEMICOLON),
)
BEFORE_A_STAR = (T.SELECT, T.DISTINCT, T.ALL, T.COMMA, T.L_PAREN, T.HINT)


@dataclass(frozen=True, slots=True)
class Visible:
    """The part of one WITH clause that a block can see."""

    definitions: tuple[Piece, ...]
    recursive: bool


@dataclass(frozen=True, slots=True)
class Star:
    """A star that stands for all columns; `names` is where an EXCEPT list begins, if it has one."""

    piece: Piece
    names: int | None


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT ... FROM ... WHERE ..., without what a set operator joins to it."""

    source: Source
    start: int
    stop: int
    relations: Piece | None
    where: Piece | None
    withs: tuple[Visible, ...]
    recursive: bool  # inside a definition of WITH RECURSIVE

    def own(self) -> Iterator[int]:
        """Token numbers of the block itself, without those of queries inside it."""
        number = self.start
        while number < self.stop:
            opens = self.source.kind(number) is T.L_PAREN
            if opens and self.source.kind(number + 1) in QUERY_WORDS:
                number = self.source.partner[number]
            yield number
            number += 1

    def stars(self) -> list[Star]:
        """Stars that stand for all columns of the block, except that of count(*)."""
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
    """Every SELECT block of a query; a block comes after those inside it and those it can see by WITH."""
    return list(_scan(source, 0, len(source.tokens), (), False))


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
