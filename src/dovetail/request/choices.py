"""Parses arguments that are one of several words; an error suggests the nearest word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

from dovetail.engine.layout import HOWS, How
from dovetail.errors import PlanError

HowName = Literal[
    "inner", "left", "right", "full", "left_semi", "left_anti",
    "leftouter", "left_outer", "rightouter", "right_outer", "outer", "fullouter", "full_outer",
    "semi", "leftsemi", "anti", "leftanti",
]  # fmt: skip
"""All names of `how`: those that Spark's own joins take."""
_HOWS: dict[str, How] = {
    "inner": "inner",
    "left": "left",
    "leftouter": "left",
    "right": "right",
    "rightouter": "right",
    "full": "full",
    "outer": "full",
    "fullouter": "full",
    "semi": "left_semi",
    "leftsemi": "left_semi",
    "anti": "left_anti",
    "leftanti": "left_anti",
}
_T = TypeVar("_T")


def nearest(given: object, known: Iterable[str]) -> str | None:
    """The known word that is most similar to the given one; None if there is none."""
    near = get_close_matches(str(given), list(known), n=1)
    return near[0] if near else None


def one_of(argument: str, given: Any, allowed: Sequence[_T], aliases: Sequence[str] = ()) -> _T:
    """The word, if it is allowed; else a `PlanError` with the nearest one, which may be an alias.

    >>> one_of("keep", "first", ("all", "first"))
    'first'
    """
    for word in allowed:
        if given == word:
            return word
    words = [str(word) for word in allowed]
    near = nearest(given, [*words, *aliases])
    hint = "." if near is None else f"; did you mean {near!r}?"
    raise PlanError(f"{argument}={given!r} is not known{hint} Known: {', '.join(words)}.", argument=argument)


def parse_how(given: Any, allowed: Sequence[How] = HOWS) -> How:
    """The kind of join of one of Spark's names, in upper or lower case, with or without underscores.

    >>> parse_how("left"), parse_how("LeftOuter"), parse_how("anti")
    ('left', 'left', 'left_anti')
    """
    found = _HOWS.get(str(given).lower().replace("_", ""))
    if found is None:
        return one_of("how", given, HOWS, get_args(HowName))
    if found not in allowed:
        raise PlanError(f"how={given!r} is not possible here; use one of {', '.join(allowed)}.", argument="how")
    return found
