"""Reads the hints of a SELECT for its joins: `SELECT /*+ interval_join(memory='64MB', algorithm='dip') */ ...`.

A hint says how the joins of its SELECT run, never what they match. Hints of Spark stay in the text, and ours are
replaced by spaces, so that positions in the text stay as they are.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from dovetail.errors import PlanError
from dovetail.functions import FINITE
from dovetail.joins.asof.request import AsofOptions
from dovetail.joins.interval.request import JoinOptions
from dovetail.request import nearest

OPTIONS = {
    "interval_join": ("memory", "algorithm", "route", "partitions", "split_points"),
    "asof_join": ("memory", "algorithm", "partitions"),
}
SPARKS = (
    *("broadcast", "broadcastjoin", "mapjoin", "merge", "shuffle_merge", "mergejoin", "shuffle_hash"),
    *("shuffle_replicate_nl", "coalesce", "repartition", "repartition_by_range", "rebalance"),
)
_COMMENT = re.compile(r"\s*/\*\+(.*?)\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint: the join that it is for, its options, its text, and where the word SELECT of its query stands."""

    select: int
    join: str
    options: dict[str, Any]
    text: str


def read_hints(text: str, tokens: Sequence[Token]) -> tuple[str, list[Hint]]:
    """The text with spaces in place of our hints, and the hints; `PlanError` for an option that is not known."""
    found: list[Hint] = []
    for before, token in pairwise(tokens):
        if before.token_type is TokenType.SELECT and token.token_type is TokenType.HINT:
            at = token.start
            while comment := _COMMENT.match(text, at):  # several in a row are one token
                ours, others = _read(before.start, comment[1])
                found += ours
                kept = f"/*+{' '.join(others)}*/" if others else ""
                text = text[:at] + kept.rjust(comment.end() - at) + text[comment.end() :]
                at = comment.end()
    return text, found


def _read(select: int, content: str) -> tuple[list[Hint], list[str]]:
    """The hints of one comment: ours, and the text of all others."""
    ours, others = [], []
    for words in _statements(content):
        hint = _hint(select, content, words)
        if hint is None:
            others.append(_written(content, words))
        else:
            ours.append(hint)
    return ours, others


def _statements(content: str) -> Iterator[list[Token]]:
    """The hints of one comment, each with its parentheses."""
    words: list[Token] = []
    depth = 0
    for token in _tokens(content):
        starts = depth == 0 and token.token_type is not TokenType.L_PAREN
        if starts and words:
            yield words
            words = []
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if not starts or token.token_type is not TokenType.COMMA:
            words.append(token)
    if words:
        yield words


def _tokens(content: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(content, read="spark"))
    except SqlglotError:  # not ours: Spark says what is wrong with it
        return []


def _written(content: str, words: Sequence[Token]) -> str:
    return content[words[0].start : words[-1].end + 1]


def _hint(select: int, content: str, words: Sequence[Token]) -> Hint | None:
    join = words[0].text.lower()
    text = _written(content, words)
    if join not in OPTIONS:
        _check_unknown(join, text)
        return None
    options = dict(_option(join, text, part) for part in _arguments(words[2:-1]))
    # What the options mean is checked here: a join that cannot be planned goes to Spark, a wrong hint is an error.
    JoinOptions(**options).request() if join == "interval_join" else AsofOptions(on="time", **options).request()
    return Hint(select, join, options, text)


def _check_unknown(name: str, text: str) -> None:
    """A `PlanError` for a hint that is neither Spark's nor ours, but looks like one of ours."""
    if name in SPARKS:
        return
    ours = (*OPTIONS, *FINITE)
    near = "interval_join" if name in FINITE or name.startswith("interval_") else nearest(name, OPTIONS)
    if near is None and nearest(name, ours) is None:
        return  # Spark warns of it
    table = f" A table function takes options in its call: {name}(..., memory => '64MB')." if name in FINITE else ""
    raise PlanError(
        f"the hint {text} is not known; did you mean {near or 'interval_join'!r}? Hints for joins are "
        f"{' and '.join(OPTIONS)}; interval_join is also for joins by inequalities.{table}"
    )


def _arguments(words: Sequence[Token]) -> Iterator[list[Token]]:
    """The parts between commas, but for commas in parentheses."""
    part: list[Token] = []
    depth = 0
    for token in words:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.COMMA and not depth:
            yield part
            part = []
        else:
            part.append(token)
    if words:
        yield part


def _option(join: str, text: str, part: Sequence[Token]) -> tuple[str, Any]:
    kinds = [token.token_type for token in part]
    listed = kinds[1:3] == [TokenType.EQ, TokenType.L_PAREN] and kinds[-1] is TokenType.R_PAREN
    if not listed and kinds[1:] not in ([TokenType.EQ, TokenType.STRING], [TokenType.EQ, TokenType.NUMBER]):
        raise PlanError(
            f"the hint {text} is not understood; write options with their values, as in {join}(memory='64MB')."
        )
    name, value = part[0].text.lower(), part[2].text
    if name not in OPTIONS[join]:
        near = nearest(name, OPTIONS[join])
        meant = f"; did you mean {near!r}?" if near else "."
        raise PlanError(f"the hint {text} has no option {name!r}{meant} It takes {', '.join(OPTIONS[join])}.")
    if listed != (name == "split_points"):
        raise PlanError(f"the hint {text}: {_FORMS[listed].format(name)}.")
    if listed:
        return name, [_point(text, point) for point in _arguments(part[3:-1])]
    if kinds[2] is TokenType.STRING:
        return name, value
    if not value.isdecimal():
        raise PlanError(f"the hint {text}: {name} is {value}, which is not a whole number.")
    return name, int(value)


_TIMES: dict[str, Callable[[str], dt.date]] = {"date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat}
_FORMS = {True: "{} takes one value", False: "{} takes a list in parentheses, as in split_points=(10, 20)"}


def _point(text: str, words: Sequence[Token]) -> Any:
    """A bound: a number, a date or a timestamp."""
    kinds, value = [token.token_type for token in words], words[-1].text if words else ""
    sign = -1 if kinds[:1] == [TokenType.DASH] else 1
    if kinds[sign < 0 :] == [TokenType.NUMBER]:
        return sign * (int(value) if value.isdecimal() else Decimal(value))
    kind = words[0].text.lower() if words else ""
    if len(kinds) == 2 and kind in _TIMES and kinds[1] is TokenType.STRING:
        try:
            return _TIMES[kind](value)
        except ValueError as error:
            raise PlanError(f"the hint {text}: {value!r} is no {kind}.") from error
    raise PlanError(
        f"the hint {text}: a split point is a number, DATE '2024-05-01' or TIMESTAMP '2024-05-01 12:00:00', not "
        f"{' '.join(token.text for token in words)!r}."
    )
