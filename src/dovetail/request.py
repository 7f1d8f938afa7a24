"""Parses and checks the arguments that all joins share: one name, one meaning, one message.

In this order: options as a value and as a function's signature; words such as `how`, with Spark's aliases; sizes,
durations, counts and flags; keys, output columns and suffixes. A family's `request.py` has the options of that family
only. Every error names its argument: `PlanError.argument`.

A function that is decorated with `takes(Options)` is written for its inputs and the checked request. Its callers, type
checkers and `help` see the inputs, by position, and the options, by name:

    @takes(JoinOptions)
    def interval_join(left: DataFrame, right: DataFrame, request: Request) -> DataFrame: ...

    interval_join(left, right, how="left")

So a function and its `plan_` twin share one signature, and options are parsed in one place: `JoinOptions.request`.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
    overload,
)

from dovetail.engine.memory import format_bytes, parse_bytes
from dovetail.engine.rows.layout import HOWS, How
from dovetail.errors import PlanError

_P = ParamSpec("_P")
_A = TypeVar("_A")
_B = TypeVar("_B")
_R = TypeVar("_R")
_Q = TypeVar("_Q")
_Q_co = TypeVar("_Q_co", covariant=True)


class Options(Protocol[_Q_co]):
    """The options of a function, as they were given."""

    def request(self) -> _Q_co:
        """The checked request; a `PlanError`, with the argument, for a wrong option."""
        ...


class takes(Generic[_P, _Q]):  # noqa: N801  (a decorator)
    """Give a function these options in place of its last parameter, the request."""

    def __init__(self, options: Callable[_P, Options[_Q]]) -> None:
        self.options = options

    @overload
    def __call__(self, function: Callable[[_A, _B, _Q], _R]) -> Callable[Concatenate[_A, _B, _P], _R]: ...
    @overload
    def __call__(self, function: Callable[[_A, _Q], _R]) -> Callable[Concatenate[_A, _P], _R]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The public function."""
        options, name = self.options, function.__name__
        signature = _signature(function, options)
        n_inputs = len(inspect.signature(function).parameters) - 1

        @functools.wraps(function)
        def public(*given: Any, **named: Any) -> Any:
            asked = _bound(name, signature, given, named)
            inputs = [asked.pop(side) for side in list(signature.parameters)[:n_inputs]]
            return function(*inputs, cast(Any, options)(**asked).request())

        public.__signature__ = signature  # type: ignore[attr-defined]  # what `help` and editors read
        public.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {
            "return": signature.return_annotation
        }
        return public


def _signature(function: Callable[..., Any], options: Any) -> inspect.Signature:
    """The inputs of the function and then the options; types are resolved, so that editors list words."""
    written, hints = inspect.signature(function), get_type_hints(function)
    inputs = [parameter.replace(annotation=hints[name]) for name, parameter in list(written.parameters.items())[:-1]]
    # Types of the options mean what they mean in their own module; the function's knows those that need Spark.
    names = vars(inspect.getmodule(function)) | vars(inspect.getmodule(options))
    kinds = get_type_hints(options, localns=names)
    asked = [p.replace(annotation=kinds[p.name]) for p in inspect.signature(options).parameters.values()]
    return inspect.Signature([*inputs, *asked], return_annotation=hints["return"])


def _bound(name: str, signature: inspect.Signature, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name; a `TypeError` for an unknown option or another wrong call."""
    for option in named:
        if option not in signature.parameters:
            near = nearest(option, list(signature.parameters))
            hint = "" if near is None else f"; did you mean {near!r}?"
            raise TypeError(f"{name}() has no option {option!r}{hint} Options: {', '.join(signature.parameters)}")
    try:
        return dict(signature.bind(*given, **named).arguments)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}; inputs are given by position, options by name") from None


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
        if isinstance(given, type(word)) and given == word:  # other types may compare as they like, as Columns do
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


DEFAULT_MEMORY = "64MB"
"""The default budget of each task of a join."""
MIN_MEMORY = 1 << 20
"""The smallest budget of a task. Online joins and enrichment need less: they find what their rows need at least."""
MOST_PARTITIONS = 100_000
MOST_CELLS = 1_000
"""The most partitions of joins that cut both inputs at values of a sample: as-of and nearest joins."""
_UNITS = {
    "ms": 1e-3, "millisecond": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0,
    "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0,
}  # fmt: skip
_TOO_LONG = 1_000_000_000 * 86_400.0  # seconds: Python's timedelta ends below
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_size(argument: str, given: int | str, least: int = 1) -> int:
    """Bytes of a number or of text such as "64MB"; a `PlanError` if it is not a size, or below the least.

    >>> parse_size("memory", "64MB")
    67108864
    """
    size = parse_bytes(given, argument)
    if size < least:
        raise PlanError(
            f"{argument}={given!r} is {size} bytes; this join needs at least {format_bytes(least)} per task.",
            argument=argument,
        )
    return size


def parse_seconds(argument: str, given: str | float) -> float:
    """Seconds of a number or of text such as "5s", "10 min" or "1 day"; a `PlanError` for anything else.

    >>> parse_seconds("ttl", "10 min"), parse_seconds("ttl", "250ms")
    (600.0, 0.25)
    """
    seconds = _seconds_in_text(given) if isinstance(given, str) else given
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise PlanError(
            f'{argument}={given!r} is not a length of time; write seconds, or text such as "5s" or "10 min".',
            argument=argument,
        )
    if seconds >= _TOO_LONG:
        raise PlanError(f"{argument}={given!r} is too long; give less than 1,000,000,000 days.", argument=argument)
    return float(seconds)


def parse_ms(argument: str, given: str | float) -> int:
    """Whole milliseconds, at least one, of a number of seconds or of such text.

    >>> parse_ms("wait", "25 ms"), parse_ms("retain", "2 hours"), parse_ms("wait", 0.5)
    (25, 7200000, 500)
    """
    return max(1, round(parse_seconds(argument, given) * 1000))


Distance = int | float | Decimal | timedelta
Closed = Literal["left", "right", "both", "neither"]
CLOSED: tuple[Closed, ...] = get_args(Closed)
"""How far apart two values are: a number, or a length of time."""


def parse_distance(argument: str, given: Any, signed: bool = False) -> Distance:
    """A number, a timedelta, or a length of time as text; below zero only if `signed`.

    >>> parse_distance("tolerance", 5), parse_distance("tolerance", "10 min"), parse_distance("gap", "0 s")
    (5, datetime.timedelta(seconds=600), datetime.timedelta(0))
    """
    if isinstance(given, str):
        text = given.strip().removeprefix("-") if signed else given
        none = _seconds_in_text(text) == 0
        length = timedelta(0) if none else timedelta(seconds=parse_seconds(argument, text))
        return -length if text != given.strip() and signed else length
    known = isinstance(given, (int, float, Decimal, timedelta)) and not isinstance(given, bool)
    if not known or (isinstance(given, (float, Decimal)) and not math.isfinite(given)):
        raise PlanError(
            f'{argument}={given!r} must be a number, a timedelta, or text such as "10 min".', argument=argument
        )
    if not signed and given < (timedelta(0) if isinstance(given, timedelta) else 0):
        raise PlanError(f"{argument}={given!r} is below zero; give a length.", argument=argument)
    return given  # type: ignore[no-any-return]  # one of the types above


def parse_count(argument: str, given: Any, most: int | None = None) -> int:
    """A whole number from 1, up to `most` if that is given.

    >>> parse_count("partitions", 8)
    8
    """
    whole = not isinstance(given, bool) and hasattr(given, "__index__")
    if not whole or given < 1 or (most is not None and given > most):
        upto = "" if most is None else f" to {most:,}"
        raise PlanError(f"{argument}={given!r} is not possible; give a whole number from 1{upto}.", argument=argument)
    return int(given)


def parse_partitions(given: int | None, most: int = MOST_PARTITIONS) -> int | None:
    """The number of partitions; None lets the join decide."""
    return None if given is None else parse_count("partitions", given, most)


def parse_flag(argument: str, given: Any) -> bool:
    """True or False; a `PlanError` for anything else."""
    if not isinstance(given, bool):
        raise PlanError(f"{argument}={given!r} must be True or False.", argument=argument)
    return given


def parse_condition(given: Any) -> Any:
    """A condition as it was given, a Column or SQL text; None for none, a `PlanError` for anything else."""
    if given is None or is_column(given) or (isinstance(given, str) and given.strip()):
        return given
    raise PlanError(
        f"condition={given!r} must be a Column, or SQL text over the columns of the result; write one, or leave it "
        "out.",
        argument="condition",
    )


def items_of(given: Any) -> list[Any] | None:
    """What a list, or anything else that is iterable, has; None for text and for what is not iterable."""
    try:
        return None if isinstance(given, str) else list(given)
    except TypeError:
        return None


def is_column(given: Any) -> bool:
    """Whether it is a Column of Spark, which this module does not import."""
    return hasattr(type(given), "isNotNull")


def _seconds_in_text(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    if match is None:
        return None
    unit = match[2].lower()
    factor = _UNITS.get(unit, _UNITS.get(unit.removesuffix("s")))
    return None if factor is None else float(match[1]) * factor


Keys = str | Sequence[str | tuple[str, str]]
"""The type of `on`: "k", ["k", "l"], [("left_k", "right_k")], or a mixture."""


@dataclass(frozen=True, slots=True)
class Key:
    """An equality key: its column on each side. A `shared` key was given by one name and appears once in the result."""

    left: str
    right: str
    shared: bool

    @property
    def name(self) -> str | tuple[str, str]:
        """The key as it was given: one name, or a pair of names."""
        return self.left if self.shared else (self.left, self.right)


def parse_keys(on: Any, required: bool = False, argument: str = "on") -> tuple[Key, ...]:
    """The keys that `on` (or an argument of another name) lists; a single name stands for both sides.

    >>> parse_keys(["k", ("a", "b")])
    (Key(left='k', right='k', shared=True), Key(left='a', right='b', shared=False))
    """
    keys = tuple(_key(on, item, argument) for item in _items(on))
    if required and not keys:
        raise PlanError(
            f"{argument}={on!r} names no key; give a column name, or (left name, right name) pairs.", argument=argument
        )
    return keys


def _items(on: Any) -> list[Any]:
    found = items_of(on)
    if found is not None:
        return found
    return [] if on is None else [on]


def _key(on: Any, item: Any, argument: str) -> Key:
    if isinstance(item, str):
        return Key(item, item, True)
    if isinstance(item, (tuple, list)) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return Key(item[0], item[1], False)
    raise PlanError(
        f"{argument}={on!r}: each key is a column name or a (left name, right name) pair, not {item!r}.",
        argument=argument,
    )


def parse_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """The requested columns of the result, in order; None for all."""
    if columns is None:
        return None
    named = items_of(columns)
    if not named or not all(isinstance(name, str) for name in named):
        raise PlanError(f"columns={columns!r} must be a list of output column names.", argument="columns")
    if len(set(named)) < len(named):
        raise PlanError(f"columns={named} has a name twice; give each once.", argument="columns")
    return tuple(named)


def parse_suffixes(suffixes: Sequence[str]) -> tuple[str, str]:
    """The suffixes of names that both inputs have: left and right."""
    listed = isinstance(suffixes, (list, tuple)) and len(suffixes) == 2
    if not listed or not all(isinstance(suffix, str) for suffix in suffixes):
        raise PlanError(
            f"suffixes={suffixes!r} must be two strings: one for the first input's names that both have, one for the "
            "second's.",
            argument="suffixes",
        )
    return suffixes[0], suffixes[1]


def known_column(what: str, name: str, names: Sequence[str], argument: str) -> str:
    """The name, if it is one of these; else a `PlanError` with the nearest one."""
    if name in names:
        return name
    near = nearest(name, names)
    hint = "" if near is None else f" Did you mean {near!r}?"
    raise PlanError(f"{what} has no column {name!r}; it has {list(names)}.{hint}", argument=argument)


def column_in_any_case(what: str, name: str, names: Sequence[str], argument: str) -> str:
    """The one of these names that is the same in any case, as for Spark; else a `PlanError` with the nearest one."""
    same = [each for each in names if each.lower() == name.lower()]
    return same[0] if name not in names and len(same) == 1 else known_column(what, name, names, argument)


def wanted_columns(columns: tuple[str, ...] | None, every: Sequence[str]) -> tuple[str, ...]:
    """The columns of the result in order: the requested ones, or all.

    >>> wanted_columns(("ID",), ["id", "Name"]), wanted_columns(None, ["id", "Name"])
    (('id',), ('id', 'Name'))
    """
    if columns is None:
        return tuple(every)
    found = tuple(column_in_any_case("columns: the result", name, every, "columns") for name in columns)
    if len(set(found)) < len(found):
        raise PlanError(f"columns={list(columns)} has a name twice; give each once.", argument="columns")
    return found


def output_names(
    left: Sequence[str], right: Sequence[str], shared: Collection[str], suffixes: tuple[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The name in the result of each column of both inputs; `shared` columns of the right one are left out.

    Names that both inputs have, in any case, get the suffixes, because Spark ignores case.

    >>> output_names(["k", "v"], ["k", "V"], {"k"}, ("", "_right"))
    ({'k': 'k', 'v': 'v'}, {'V': 'V_right'})
    """
    theirs = [name for name in right if name not in shared]
    in_left, in_right = {name.lower() for name in left}, {name.lower() for name in theirs}
    left_out = {name: name + suffixes[0] if name.lower() in in_right else name for name in left}
    right_out = {name: name + suffixes[1] if name.lower() in in_left else name for name in theirs}
    count = Counter(name.lower() for name in (*left_out.values(), *right_out.values()))
    twice = [name for name in (*left_out.values(), *right_out.values()) if count[name.lower()] > 1]
    if twice:
        alone = len(set(twice)) == len(twice)  # in case
        same, remedy = (
            ("differ in case alone", "rename") if alone else ("appear twice", "choose other suffixes, or rename")
        )
        raise PlanError(
            f"columns {sorted(set(twice))} would {same} in the result with suffixes={suffixes!r}; {remedy} them.",
            argument="suffixes",
        )
    return left_out, right_out
