"""The work of partitioned joins beside that of sweeps, counted: comparisons, and frames written and read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from bench.context import BenchContext
from bench.experiment import Cell, Grid
from bench.experiments.models.interval import Mix, Pair, Setting, _moved, grid
from bench.judge import Figures

SWEEPS: Final = ("sort_merge", "time_sweep", "forward_scan")
PARTITIONED: Final = ("oip", "dip")
_SPAN, _FRAMES, _SHORT = 500, 48, 2


@dataclass(frozen=True, slots=True)
class Work:
    """Comparisons of a join, and the frames that it moves."""

    comparisons: int
    frames: int


@dataclass(frozen=True, slots=True)
class Done:
    """The work of every join in one setting, over `rows` rows of both inputs."""

    setting: str
    rows: int
    by: dict[str, Work]

    @classmethod
    def of(cls, setting: Setting) -> Done:
        """The counts of the operators themselves, whose pairs are checked."""
        by = {}
        for name in (*SWEEPS, *PARTITIONED):
            metrics = setting.counted(name)
            compared = metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive")
            by[name] = Work(int(compared), int(_moved(metrics)))
        return cls(str(setting), sum(len(start) for start, _ in setting.pair.bounds()), by)

    def more(self, name: str) -> float:
        """Comparisons a row that a sweep makes beyond this join, of sweeps that move no more frames than it.

        Infinite if every sweep moves more; below zero if one makes fewer.
        """
        own = self.by[name]
        some = [one.comparisons for one in map(self.by.__getitem__, SWEEPS) if one.frames <= own.frames]
        return (min(some) - own.comparisons) / self.rows if some else float("inf")

    @property
    def all_spill(self) -> bool:
        """Whether no sweep holds its active rows in memory."""
        return all(self.by[name].frames for name in SWEEPS)


def settings() -> Iterator[Setting]:
    """The grid of the models, and inputs of which many rows, up to more than half, last long in short memory."""
    yield from grid(True)
    for rate, share, long, other in product((1.0, 4.0), (0.02, 0.2, 0.6), (100, 400), (0.1, 2.0)):
        classes = ((1 - share, _SHORT), (share, long))
        mixed = Mix(rate, classes)
        for right in (Mix.even(other, _SHORT), Mix(other, classes)):
            yield Setting(Pair(mixed, right, _SPAN), _FRAMES)
        yield Setting(Pair(Mix.even(other, _SHORT), mixed, _SPAN), _FRAMES)


def told(found: Sequence[Done]) -> Figures:
    """The most that a sweep compares beyond each partitioned join, and the counts of all settings."""
    heads = ("setting", "rows", *(f"{name}, {what}" for name in found[0].by for what in ("comparisons", "frames")))
    rows: list[list[Cell]] = [
        [one.setting, one.rows, *(n for work in one.by.values() for n in (work.comparisons, work.frames))]
        for one in found
    ]
    named = {
        "n": len(found),
        "spilled": sum(one.all_spill for one in found),
        "most": {name: max(one.more(name) for one in found) for name in PARTITIONED},
    }
    return Figures(named, [Grid("Counted work of all operators", heads, rows)])


def work(bench: BenchContext) -> Figures:
    """The work of all joins in all settings, which are the same at every scale."""
    return told([Done.of(setting) for setting in settings()])
