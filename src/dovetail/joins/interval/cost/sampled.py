"""Rows that each sweep holds and moves in a byte budget, found by following the sweep over samples of both inputs.

The source's formulas assume classes of constant rate, and for mixed durations that all rows last as long as the
longest. A few long rows then look like an input that spills throughout. A sample says when they are active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from dovetail.engine.kernels.arrays import F64, I64, Bool
from dovetail.joins.interval.cost.model import Algorithm

SWEEPS: Final = ("sort_merge", "time_sweep", "forward_scan")
_MOST_SPILLS: Final = 48  # of one sample; what comes after them is extrapolated


@dataclass(frozen=True, slots=True, eq=False)
class SampledSide:
    """A sample of one input in the order of starts: its bounds, rows of the input for each, and bytes of a row."""

    start: F64
    end: F64
    weight: float
    row_bytes: float

    @classmethod
    def of(cls, start: F64, end: F64, rows: float, row_bytes: float) -> SampledSide:
        """The sample of an input of `rows` rows, in any order."""
        order = np.argsort(start, kind="stable")
        return cls(start[order], end[order], rows / max(1, len(start)), row_bytes)

    @property
    def each(self) -> float:
        """Bytes that a row of the sample stands for."""
        return self.weight * self.row_bytes

    def started(self, at: F64, side: str = "right") -> I64:
        """How many rows start up to (right) or before (left) these times."""
        return np.searchsorted(self.start, at, side="left" if side == "left" else "right").astype(np.int64)

    def ended(self, first: int, at: F64) -> I64:
        """How many rows from `first` on end no later than these times."""
        return np.searchsorted(np.sort(self.end[first:]), at, side="right").astype(np.int64)

    def horizon(self, first: int, at: F64) -> F64:
        """The latest end of rows from `first` on that started up to these times."""
        latest = np.concatenate([[-np.inf], np.maximum.accumulate(self.end[first:])])
        return np.asarray(latest[np.maximum(0, self.started(at) - first)], np.float64)


@dataclass(frozen=True, slots=True)
class Moved:
    """The prediction for one sweep: bytes held at most and on average if memory were ample, rows written and read,
    and spills."""

    needed: float
    usual: float = 0.0
    written: tuple[float, float] = (0.0, 0.0)
    read: tuple[float, float] = (0.0, 0.0)
    spills: float = 0.0


def follow(algorithm: Algorithm, r: SampledSide, s: SampledSide, capacity: float) -> Moved:
    """Rows that a sweep of R and S holds and moves with `capacity` bytes for active tuples; S is sort-merge's inner."""
    return _Followed(algorithm, (r, s), capacity).moved()


class _Followed:
    """A sweep over two samples: where each side's memory begins, and what was moved so far."""

    def __init__(self, algorithm: Algorithm, sides: tuple[SampledSide, SampledSide], capacity: float) -> None:
        self.algorithm, self.sides, self.capacity = algorithm, sides, capacity
        starts = [sides[0].start] if algorithm == "sort_merge" else [side.start for side in sides]
        self.grid = np.unique(np.concatenate(starts))
        self.first = [0, 0]  # of each side, the first row that was not freed by a spill
        self.written, self.read, self.reached = [0.0, 0.0], [0.0, 0.0], [0, 0]

    def moved(self) -> Moved:
        """The moves of the whole run."""
        at, spills, needed, usual = 0, 0, 0.0, 0.0
        while at < len(self.grid):
            held = self._held(at)
            if not at and not spills:
                needed, usual = float(held.max(initial=0.0)), float(held.mean())
            over = held > self.capacity
            if not over.any():
                break
            at += int(over.argmax())
            if spills == _MOST_SPILLS:
                return self._extrapolated(at, needed, usual, spills)
            spills += 1
            self._spill(float(self.grid[at]))
        return Moved(needed, usual, (self.written[0], self.written[1]), (self.read[0], self.read[1]), float(spills))

    def _extrapolated(self, at: int, needed: float, usual: float, spills: int) -> Moved:
        times = len(self.grid) / max(1, at, max(self.first) * len(self.grid) // max(map(len, self._starts())))
        written, read = ([times * n for n in what] for what in (self.written, self.read))
        return Moved(needed, usual, (written[0], written[1]), (read[0], read[1]), spills * times)

    def _starts(self) -> list[F64]:
        return [side.start for side in self.sides]

    def _held(self, at: int) -> F64:
        """Bytes in memory at each time from `at` on, if nothing spills from there."""
        grid = self.grid[at:]
        held = np.zeros(len(grid))
        for number in (0, 1):
            if self.algorithm != "sort_merge" or number == 1:
                held += self._rows(number, grid) * self.sides[number].each
        return held

    def _rows(self, number: int, grid: F64) -> I64:
        """Sampled rows of a side in memory at these times."""
        side, first = self.sides[number], self.first[number]
        if self.algorithm == "forward_scan":
            held = self._loaded(number, grid) - np.maximum(first, side.started(grid, "left"))
            return np.asarray(np.maximum(0, held), np.int64)
        upto = side.started(grid) if self.algorithm == "time_sweep" else self._loaded(number, grid)
        return np.asarray(np.maximum(0, upto - first - side.ended(first, grid)), np.int64)

    def _loaded(self, number: int, grid: F64) -> I64:
        """How far a side is read at these times: up to the end of rows of the other that started and were not freed."""
        side, other = self.sides[number], self.sides[1 - number].horizon(self.first[1 - number], grid)
        return np.maximum(side.started(grid), side.started(other, "left"))

    def _spill(self, now: float) -> None:
        """Stream one side past what memory holds of the other, which is freed."""
        time = np.array([now])
        counts = [int(self._rows(number, time)[0]) for number in (0, 1)]
        number = 1 if self.algorithm == "sort_merge" or counts[1] >= counts[0] else 0
        side, other = self.sides[number], self.sides[1 - number]
        inside = np.flatnonzero(self._in_memory(number, now)) + self.first[number]
        elsewhere = 0.0 if self.algorithm == "sort_merge" else counts[1 - number] * other.each
        room = max(1, int((self.capacity - elsewhere) / side.each))
        inside = inside[:room] if len(inside) else np.array([min(self.first[number], len(side.start) - 1)])
        position = int(self._position(1 - number, time)[0])
        stop = int(other.started(np.array([side.end[inside].max()]), "left")[0])
        self._stream(1 - number, position, max(position, stop))
        self.first[number] = int(inside[-1]) + 1

    def _in_memory(self, number: int, now: float) -> Bool:
        side, first = self.sides[number], self.first[number]
        time = np.array([now])
        mine = side.start[first:] >= now if self.algorithm == "forward_scan" else side.end[first:] > now
        upto = side.started(time) if self.algorithm == "time_sweep" else self._loaded(number, time)
        mine[max(0, int(upto[0]) - first) :] = False
        return np.asarray(mine, np.bool_)

    def _position(self, number: int, time: F64) -> I64:
        if self.algorithm == "forward_scan":
            return self._loaded(number, time)
        return self.sides[number].started(time, "left" if self.algorithm == "sort_merge" else "right")

    def _stream(self, number: int, first: int, stop: int) -> None:
        """Rows of a side are read past memory; those that were not on disk are written."""
        weight = self.sides[number].weight
        self.read[number] += (stop - first) * weight
        self.written[number] += max(0, stop - max(first, self.reached[number])) * weight
        self.reached[number] = max(self.reached[number], stop)
