"""The options of a public function as a value: a dataclass whose fields are the options, with types and defaults.

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
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

from dovetail.request.choices import nearest

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
    kinds = get_type_hints(options, localns=vars(inspect.getmodule(function)))
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
