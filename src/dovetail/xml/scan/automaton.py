"""A scan request as a deterministic automaton over the names of elements on the way down."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from dovetail.xml.kernels.codes import AGAIN, MATCH
from dovetail.xml.scan.request import ScanRequest, Step, expanded

OPENING = 4
"""Flag of a state at which values begin."""

_Place = tuple[int, int]
"""A column (-1: the path itself) and how many of its steps are made."""


@dataclass(frozen=True, slots=True)
class _State:
    places: frozenset[_Place] = frozenset()
    inside: bool = False
    document: bool = False
    flags: int = 0
    opens: tuple[int, ...] = ()
    attributes: tuple[tuple[Step, int], ...] = ()


@dataclass(slots=True)
class Automaton:
    """States by number (0: nothing can match any more, 1: the document) and where each symbol leads.

    Symbol k + 1 is `names[k]`, symbol 0 any other name.
    """

    names: list[Step]
    states: list[_State] = field(default_factory=list)
    delta: list[list[int]] = field(default_factory=list)


@functools.lru_cache(maxsize=64)
def automaton(request: ScanRequest, below_root: bool = False) -> Automaton:
    """The automaton of a request, with only the states that can be reached.

    With `below_root` the root element begins no row, whatever its name.
    """
    steps = [request.path, *(column.steps for column in request.columns)]
    names = list(dict.fromkeys(name for path in steps for step in path if (name := expanded(step)) is not None))
    made = Automaton(names, [_State(), _State(frozenset({(-1, 0)}), document=True)])
    numbers = {state: number for number, state in enumerate(made.states)}
    for state in made.states:  # grows while it is walked
        made.delta.append([])
        for symbol in (None, *names):
            below = _below(state, symbol, request)
            if below_root and state.document:
                below = _State(below.places & {(-1, 0), (-1, 1)})
            if below not in numbers:
                numbers[below] = len(made.states)
                made.states.append(below)
            made.delta[-1].append(numbers[below])
    return made


def _below(state: _State, name: Step | None, request: ScanRequest) -> _State:
    """The state of a child of this name (None: a name that the request does not mention)."""
    places = set(_moved(state.places, name, request))
    matched = (-1, len(request.path)) in places
    places.discard((-1, len(request.path)))
    flags = 0
    if matched and state.inside:
        flags = AGAIN
    elif matched:
        flags = MATCH
        places |= {(number, 0) for number in range(len(request.columns))}
    opens, attributes = [], []
    for number, made in sorted(places):
        if number >= 0 and made == len((column := request.columns[number]).steps):
            places.discard((number, made))
            if column.attribute is None:
                opens.append(number)
            elif (wanted := expanded(column.attribute)) is not None:
                attributes.append((wanted, number))
    flags |= OPENING if opens or attributes else 0
    inside = bool(places) and (state.inside or matched)
    return _State(frozenset(places), inside, False, flags, tuple(opens), tuple(attributes))


def _moved(places: frozenset[_Place], name: Step | None, request: ScanRequest) -> Iterator[_Place]:
    for number, made in places:
        steps = request.path if number < 0 else request.columns[number].steps
        wanted = expanded(steps[made])
        if wanted is None or wanted == name:
            yield number, made + 1
        if number < 0 and made == 0 and request.anywhere:
            yield number, 0
