"""Reads query text as tokens, and replaces parts of the text.

Text is cut at token positions and never printed from a parse tree, so everything else reaches Spark as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from dovetail.rewrite.hints import Hint, read_hints

DIALECT = "spark"
BRACKETS = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
QUERY_WORDS = (TokenType.SELECT, TokenType.WITH)
JOINS = (
    *(TokenType.LEFT, TokenType.INNER, TokenType.OUTER, TokenType.RIGHT, TokenType.FULL),
    *(TokenType.SEMI, TokenType.ANTI),
)


_EXPLAIN = re.compile(r"\s*explain\s+(?:(?:extended|codegen|cost|formatted)\s+)?", re.IGNORECASE)


def explained(text: str) -> int:
    """The length of the EXPLAIN before a statement; 0 without one. The parser takes what follows it for one text."""
    found = _EXPLAIN.match(text)
    return found.end() if found else 0


def select_from(relations: str, columns: str = "*") -> str:
    """A query over relations that the user wrote."""
    return f"SELECT {columns} FROM {relations}"  # noqa: S608  (the user's own text; names are quoted)


class Source:
    """The text of one query, its tokens, and its hints, which the text no longer has."""

    def __init__(self, text: str) -> None:
        tokens = list(sqlglot.tokenize(text, read=DIALECT))
        self.written = text
        self.text, self.hints = read_hints(text, tokens)
        self.tokens: list[Token] = list(sqlglot.tokenize(self.text, read=DIALECT)) if self.hints else tokens

    @cached_property
    def partner(self) -> dict[int, int]:
        """Opening bracket -> closing bracket, as token numbers."""
        found: dict[int, int] = {}
        opened: list[int] = []
        for number, token in enumerate(self.tokens):
            if token.token_type in BRACKETS:
                opened.append(number)
            elif token.token_type in BRACKETS.values() and opened:
                found[opened.pop()] = number
        return found

    @cached_property
    def asof(self) -> frozenset[int]:
        """Token numbers of ASOF before JOIN; not where it is an alias."""
        kinds = [token.token_type for token in self.tokens]
        words = [n for n, kind in enumerate(kinds) if kind is TokenType.ASOF and kinds[n - 1 : n] != [TokenType.DOT]]
        return frozenset(n for n in words if self._before_join(n) and not self._is_alias(n, words))

    @cached_property
    def matches(self) -> dict[int, Piece]:
        """The MATCH_CONDITION (...) of as-of joins, as Spark writes them, by their first token."""
        words = [n for n, token in enumerate(self.tokens) if token.text.lower() == "match_condition"]
        words = [n for n in words if self.asof and self.kind(n) is TokenType.VAR and n + 1 in self.partner]
        return {n: self.piece(n, self.partner[n + 1] + 1) for n in words}

    def _before_join(self, number: int) -> bool:
        """Whether this word, alone or with words such as LEFT after it, stands before JOIN."""
        kinds = (token.token_type for token in self.tokens[number + 1 :])
        return next((kind for kind in kinds if kind not in JOINS), None) is TokenType.JOIN

    def _is_alias(self, number: int, words: list[int]) -> bool:
        """Whether an ASOF before JOIN is a name: after AS, or where `asof.` is written and no other alias is it."""
        if self.tokens[number - 1].token_type is TokenType.ALIAS:
            return True
        names = [n for n in words if n != number and not self._is_qualifier(n)]
        here = self._brackets_around(number)
        inside = [self._brackets_around(n) for n in names if self._brackets_around(n) != here]  # queries of their own
        used = [n for n in words if self._is_qualifier(n) and here[0] <= n < here[1]]
        used = [n for n in used if not any(here[0] <= a < n < b for a, b in inside)]
        named = [n for n in names if self._brackets_around(n) == here and not self._is_join_word(n)]
        return bool(used) and not named

    def _is_qualifier(self, number: int) -> bool:
        return number + 1 < len(self.tokens) and self.tokens[number + 1].token_type is TokenType.DOT

    def _is_join_word(self, number: int) -> bool:
        return self._before_join(number) and self.tokens[number - 1].token_type is not TokenType.ALIAS

    def _brackets_around(self, number: int) -> tuple[int, int]:
        around = [(a, b) for a, b in self.partner.items() if a < number < b]
        return max(around, default=(0, len(self.tokens)))

    def kind(self, number: int) -> TokenType | None:
        """The type of a token; a word after a dot is part of a name. None outside the text."""
        if not 0 <= number < len(self.tokens):
            return None
        kind = self.tokens[number].token_type
        if number and self.tokens[number - 1].token_type is TokenType.DOT:
            return kind if kind is TokenType.STAR else TokenType.VAR
        return TokenType.VAR if kind is TokenType.ASOF and number not in self.asof else kind

    def hints_of(self, select: int) -> list[Hint]:
        """The hints of the SELECT with this token number."""
        return [hint for hint in self.hints if hint.select == self.tokens[select].start]

    def piece(self, start: int, stop: int) -> Piece:
        """The tokens from start up to stop, which is not included."""
        return Piece(self, start, stop)

    def whole(self) -> Piece:
        """All tokens."""
        return Piece(self, 0, len(self.tokens))


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of tokens of a query, never empty."""

    source: Source
    start: int
    stop: int

    @property
    def span(self) -> tuple[int, int]:
        """The position in the text: first character, and the one after the last."""
        tokens = self.source.tokens
        return tokens[self.start].start, tokens[self.stop - 1].end + 1

    @property
    def text(self) -> str:
        """The piece as it was written."""
        start, stop = self.span
        return self.source.text[start:stop]

    def top(self) -> Iterator[int]:
        """Token numbers outside all brackets; a bracketed part gives its opening bracket only."""
        number = self.start
        while number < self.stop:
            yield number
            number = self.source.partner.get(number, number) + 1

    def outside_case(self) -> Iterator[int]:
        """Like `top`, without the tokens between CASE and its END."""
        depth = 0
        for number in self.top():
            kind = self.source.kind(number)
            if kind is TokenType.CASE:
                depth += 1
            elif kind is TokenType.END and depth:
                depth -= 1
            elif not depth:
                yield number

    def find(self, *kinds: TokenType) -> list[int]:
        """Numbers of the tokens of these types, outside brackets and CASE."""
        return [number for number in self.outside_case() if self.source.kind(number) in kinds]

    def split(self, cuts: list[int]) -> list[Piece]:
        """The pieces between the tokens with these numbers; empty ones are left out."""
        edges = [self.start - 1, *cuts, self.stop]
        return [Piece(self.source, a + 1, b) for a, b in pairwise(edges) if a + 1 < b]

    def inside(self) -> Piece | None:
        """The piece without the parentheses around the whole of it; None if there are none."""
        wrapped = self.source.kind(self.start) is TokenType.L_PAREN
        if wrapped and self.source.partner.get(self.start) == self.stop - 1 and self.stop - self.start > 2:
            return Piece(self.source, self.start + 1, self.stop - 1)
        return None

    def first_kind(self) -> TokenType | None:
        """The type of the first token."""
        return self.source.kind(self.start)


def conjuncts(piece: Piece) -> list[Piece]:
    """The parts between ANDs, without parentheses; a condition with OR at the top is one part."""
    if piece.find(TokenType.OR, TokenType.XOR):
        return [piece]
    cuts, between = [], 0
    for number in piece.find(TokenType.AND, TokenType.BETWEEN):
        if piece.source.kind(number) is TokenType.BETWEEN:
            between += 1
        elif between:
            between -= 1
        else:
            cuts.append(number)
    parts = piece.split(cuts)
    if len(parts) > 1:
        return [inner for part in parts for inner in conjuncts(part)]
    inside = piece.inside()
    if inside is None or inside.first_kind() in QUERY_WORDS or inside.find(TokenType.COMMA):
        return [piece]
    return conjuncts(inside)


def expression(text: str) -> exp.Expression | None:
    """The parse tree of one SQL expression; None if sqlglot cannot read it as one."""
    try:
        query = sqlglot.parse_one(f"SELECT {text}", dialect=DIALECT)
    except SqlglotError:
        return None
    if not isinstance(query, exp.Select) or len(query.expressions) != 1 or query.find(exp.From):
        return None
    found = query.expressions[0]
    return None if isinstance(found, exp.Alias) else found


OFFSET = len("SELECT ")


class Patches:
    """Replacements in a text; rendered text is a format string for `str.format`, with the views that it names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._found: dict[tuple[int, int], str] = {}

    def add(self, span: tuple[int, int], replacement: str) -> None:
        """Replace a part of the text; earlier replacements inside it are dropped."""
        self._found = {(a, b): to for (a, b), to in self._found.items() if not (span[0] <= a and b <= span[1])}
        self._found[span] = replacement

    def render(self, span: tuple[int, int] | None = None) -> str:
        """A part of the text with the replacements inside it."""
        start, stop = span or (0, len(self.text))
        parts, at = [], start
        for (a, b), to in sorted(self._found.items()):
            if a >= start and b <= stop:
                parts += [escaped(self.text[at:a]), to]
                at = b
        return "".join([*parts, escaped(self.text[at:stop])])


def escaped(text: str) -> str:
    """Text that `str.format` leaves unchanged."""
    return text.replace("{", "{{").replace("}", "}}")
