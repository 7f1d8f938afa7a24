"""Where points of the sources are run: on a simulated disk, over a page file here, over a table of a database here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from bench.context import BenchContext
from bench.experiment import Experiment, Findings, Ground
from bench.experiments.semistream.counting import MEASURES, Point, count, counted, describe, divisor
from bench.experiments.semistream.timing import NEEDS_SERVER, Timed, page_file, run, server_table
from dovetail.joins.semistream.master.pages import Pages

Store = Callable[[BenchContext, int], AbstractContextManager[Pages]]


class Found(Protocol):
    """What is known of a point that was run."""

    @property
    def per_second(self) -> float:
        """Rows a second."""

    @property
    def rows_per_load(self) -> float:
        """Stream rows that a load of master rows answered."""

    @property
    def cached_share(self) -> float:
        """The share of the stream that rows in memory answered."""


@dataclass(frozen=True, slots=True)
class Medium:
    """Where the master data is: how it is opened, and what master rows and memory are divided by."""

    name: str
    store: Store
    small: int
    full: int

    def divide(self, bench: BenchContext) -> int:
        """What the source's sizes are divided by."""
        return self.full if bench.scale == "full" else self.small

    def note(self, bench: BenchContext) -> str:
        """Where and at what scale, in a sentence."""
        kind = "a page file, as far as it is not in the system's cache," if self.name == "disk" else "PostgreSQL here,"
        return (
            f"Master data in {kind} at 1/{self.divide(bench)} of the source's master data and memory, h_S/n_p = 76 at "
            "50 MB and 2 million rows; every answer was checked."
        )


DISK = Medium("disk", page_file, small=20, full=1)
DATABASE = Medium("database", server_table, small=50, full=4)


class Runner:
    """Runs points: counted on the simulated disk, or by the clock over stores that it keeps open."""

    few = False
    """Whether points take so long that some of them have to do."""

    def __init__(self, bench: BenchContext) -> None:
        self.divide, self.note, self.checked = divisor(bench), describe(divisor(bench)), 0

    def count(self, point: Point) -> Found:
        """What the join of this point does."""
        return count(point)

    def rate(self, point: Point) -> float:
        """Rows a second."""
        return self.count(point).per_second


class ClockRunner(Runner):
    """Stores of a medium, each opened when it is first needed."""

    few = True

    def __init__(self, bench: BenchContext, medium: Medium, stack: ExitStack) -> None:
        super().__init__(bench)
        self.medium, self.divide, self.note = medium, medium.divide(bench), medium.note(bench)
        self._bench, self._stack = bench, stack
        self._stores: dict[int, Pages] = {}
        self._found: dict[tuple[Point, bool], Timed] = {}

    def pages(self, rows: int) -> Pages:
        """The store of so many master rows."""
        if rows not in self._stores:
            self._stores[rows] = self._stack.enter_context(self.medium.store(self._bench, rows))
        return self._stores[rows]

    def count(self, point: Point, *, rounds: bool = False) -> Timed:
        """The join of this point by the clock, once; `rounds` as our library loads."""
        if (point, rounds) not in self._found:
            found = run(point, self.pages(point.master_rows), self.medium.name, rounds=rounds)
            self._found[point, rounds] = found
            self.checked += found.checked
        return self._found[point, rounds]


@contextmanager
def opened(bench: BenchContext, medium: Medium) -> Iterator[ClockRunner]:
    """The runner over a medium, whose stores are closed behind it."""
    with ExitStack() as stack:
        yield ClockRunner(bench, medium, stack)


Work = Callable[[BenchContext, Runner], Findings]
ClockWork = Callable[[BenchContext, ClockRunner], Findings]


def everywhere(
    name: str,
    places: tuple[str, ...],
    claim: str,
    work: Work,
    source: str = "Naeem 2012",
    ground: Ground = "measured",
) -> tuple[Experiment, ...]:
    """The same experiment on the simulated disk, over a page file and over a database."""
    simulated = counted(name, places, claim, lambda bench: work(bench, Runner(bench)), source)
    return simulated, *on_stores(name, places, claim, work, source, ground)


def on_stores(
    name: str,
    places: tuple[str, ...],
    claim: str,
    work: ClockWork,
    source: str = "Naeem 2012",
    ground: Ground = "measured",
) -> tuple[Experiment, ...]:
    """The same experiment over a page file and over a database; "counted" if it looks at loads alone, not at time."""
    return tuple(
        Experiment(
            f"semistream-{medium.name}-{name}",
            "semistream",
            source,
            places,
            claim,
            partial(_at, medium, work),
            (*MEASURES, "bench/enrichment_server"),
            ground,
            requires=NEEDS_SERVER if medium is DATABASE else (),
        )
        for medium in (DISK, DATABASE)
    )


def _at(medium: Medium, work: ClockWork, bench: BenchContext) -> Findings:
    with opened(bench, medium) as runner:
        found = work(bench, runner)
        return replace(found, rows=found.rows + runner.checked)
