"""What is wrong with a pipeline file: every problem with its line, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dovetail.errors import PlanError
from dovetail.pipeline.file.locate import KeyPath, nearest_line
from dovetail.request.choices import nearest


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem: where it is, and in one sentence what is wrong; what is allowed; what to do."""

    line: int
    text: str
    step: str | None = None

    def shown(self, file: str) -> str:
        """The problem as compilers print theirs."""
        return f"{file}:{self.line}: {self.text}"


class PipelineError(PlanError):
    """A pipeline that cannot run as it is written; the message has one line for each problem."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.shown(file) for problem in problems))
        self.file, self.problems = file, tuple(problems)


@dataclass(slots=True)
class Problems:
    """Problems as they are found; the same one is kept once."""

    lines: dict[KeyPath, int]
    found: list[Problem] = field(default_factory=list)

    def add(self, path: KeyPath, what: str, allowed: str = "", remedy: str = "") -> None:
        """One more, at the line of this key or of the table that should have it."""
        text = "; ".join(part for part in (what, allowed, remedy) if part)
        self.at(nearest_line(self.lines, path), text, str(path[1]) if len(path) > 1 else None)

    def at(self, line: int, text: str, step: str | None = None) -> None:
        """One more, at a line."""
        sentence = " ".join(text.split()).rstrip(".")
        problem = Problem(line, sentence if sentence.endswith("?") else f"{sentence}.", step)
        if problem not in self.found:
            self.found.append(problem)

    def sorted(self) -> list[Problem]:
        """All of them, by line."""
        return sorted(self.found, key=lambda problem: problem.line)

    def of(self, step: str) -> bool:
        """Whether a step has problems."""
        return any(problem.step == step for problem in self.found)


def meant(given: str, known: Iterable[str]) -> str:
    """What to do about a word that is not known: the nearest one that is, if any is near."""
    near = nearest(given, known)
    return "" if near is None else f"did you mean {near!r}?"


def listed(names: Iterable[str]) -> str:
    """Names one after the other, or that there are none."""
    return ", ".join(names) or "none"
