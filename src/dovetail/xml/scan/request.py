"""Requests of a scan of XML files: a path, and columns relative to the elements on it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dovetail.errors import PlanError

ROW = "#row"
"""The column of row numbers within the file, from 0 on in document order."""
ANY = "*"
_STEP = re.compile(r"(?:\{(?P<uri>[^{}]*)\})?(?P<local>[^\s{}@*/:]+)")

Step = tuple[str, str]
"""The namespace (empty: none) and the local name of a step."""


def count_name(name: str) -> str:
    """The column that says how many elements a value column of this name stands for."""
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
    """A column of a scan: the child path from the matching element, and what of its end is wanted.

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
    row with several texts in such a column stays, and so does what the columns after it say.
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
