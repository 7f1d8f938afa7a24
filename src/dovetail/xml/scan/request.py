"""Requests of a scan of XML files, a path and columns relative to the elements on it; and the automata of requests."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from dovetail.errors import PlanError
from dovetail.xml.kernels.codes import MATCH

ROW = "#row"
"""The column of row numbers within the file, from 0 on in document order."""
ANY = "*"
_STEP = re.compile(r"(?:\{(?P<uri>[^{}]*)\})?(?P<local>[^\s{}@*/:]+)")

Step = tuple[str, str]
"""The namespace (empty: none) and the local name of a step."""


def count_name(name: str) -> str:
    """The column with the number of elements behind a value column of this name."""
    return f"{name}#"


def expanded(step: str) -> Step | None:
    """The expanded name meant by `local` or `{namespace}local`; None for `*`."""
    if step == ANY:
        return None
    match = _STEP.fullmatch(step)
    if match is None:
        raise PlanError(f"step {step!r} of a scan is not a name; write 'local', '{{namespace}}local' or '*'.")
    return match["uri"] or "", match["local"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a scan: the child path from the matching element, and the kind of value at its end.

    `path` holds names as `expanded` reads them; its last step may be an attribute, "@name" or "@{namespace}name"; an
    empty path is the element itself. `kind` "text" gives the string value, "xml" the serialised element. Without
    `many` the first value is given, null if there is none, and how many there are in the column `count_name(name)`;
    with it a list of all, in document order.
    """

    name: str
    path: tuple[str, ...]
    kind: Literal["text", "xml"] = "text"
    many: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("text", "xml"):
            raise PlanError(f"kind {self.kind!r} of scan column {self.name!r} is unknown; allowed: text, xml.")
        for step in self.steps:
            expanded(step)
        if self.attribute is not None:
            expanded(self.attribute)
            if self.kind == "xml" or self.attribute == ANY:
                raise PlanError(f"scan column {self.name!r} asks for an attribute, which has a name and kind 'text'.")

    @property
    def attribute(self) -> str | None:
        """The attribute at the end of the path, if there is one."""
        return self.path[-1][1:] if self.path and self.path[-1].startswith("@") else None

    @property
    def steps(self) -> tuple[str, ...]:
        """The element steps of the path."""
        return self.path if self.attribute is None else self.path[:-1]


Kept = tuple[tuple[str, str], ...]
"""Columns and the text that each of them must have."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """One row for each element on `path`, a child path from the document, in document order.

    `keep` names columns and the text that each must have: a row without that text, or with another one, is left out. A
    row with several texts in such a column is kept, whatever the columns after it have.
    """

    path: tuple[str, ...]
    columns: tuple[Column, ...]
    keep: Kept = ()

    def __post_init__(self) -> None:
        if not self.path:
            raise PlanError("a scan needs a path of at least one step, such as ('dataCollection', 'data').")
        for step in self.path:
            expanded(step)
        names = [ROW, *(column.name for column in self.columns)]
        names += [count_name(column.name) for column in self.columns if not column.many]
        known = {column.name for column in self.columns if column.kind == "text"}
        if any(name not in known for name, _ in self.keep):
            raise PlanError(f"a scan keeps rows by its own columns of texts; given: {self.keep}.")
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(f"columns {twice} of a scan occur twice; give each column a name of its own.")

    def explain(self) -> str:
        """The request in one line."""
        columns = ", ".join(
            f"{c.name}={c.kind}({'/'.join(c.path) or '.'}){'*' if c.many else ''}" for c in self.columns
        )
        kept = "".join(f" where {name}={text!r}" for name, text in self.keep)
        return f"XmlScan: /{'/'.join(self.path)}{kept} -> {columns or 'rows only'}"


# --- the automaton of a request

OPENING = 2
"""Flag of a state at which values begin."""

_Place = tuple[int, int]
"""A column (-1: the path itself) and how many of its steps are made."""


@dataclass(frozen=True, slots=True)
class _State:
    places: frozenset[_Place] = frozenset()
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
def automaton(request: ScanRequest) -> Automaton:
    """The automaton of a request, with only the states that can be reached."""
    steps = [request.path, *(column.steps for column in request.columns)]
    names = list(dict.fromkeys(name for path in steps for step in path if (name := expanded(step)) is not None))
    made = Automaton(names, [_State(), _State(frozenset({(-1, 0)}))])
    numbers = {state: number for number, state in enumerate(made.states)}
    for state in made.states:  # grows while it is walked
        made.delta.append([])
        for symbol in (None, *names):
            below = _below(state, symbol, request)
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
    flags = MATCH if matched else 0
    if matched:
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
    return _State(frozenset(places), flags, tuple(opens), tuple(attributes))


def _moved(places: frozenset[_Place], name: Step | None, request: ScanRequest) -> Iterator[_Place]:
    for number, made in places:
        steps = request.path if number < 0 else request.columns[number].steps
        wanted = expanded(steps[made])
        if wanted is None or wanted == name:
            yield number, made + 1
