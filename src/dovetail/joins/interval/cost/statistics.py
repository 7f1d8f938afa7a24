"""Inputs of the cost models: statistics of each side, and the memory of the join in frames."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from dovetail.errors import PlanError

Classes = tuple[tuple[float, float], ...]
_RATE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True)
class IntervalStatistics:
    """A summary of one input in the symbols of the source: T, range, lambda, d, L, b.

    Times are counted in instants: intervals are `[start, end)` on whole numbers and last at least one instant.
    Bounds of another grain (seconds as floats, say) are brought to instants by `measured`. `rows` is a whole number for
    an input that was counted and may be fractional for an expected share of one.
    `classes` are (arrival rate, duration) of subrelations with rates constant over the range; none means that all
    rows last `mean_duration`. `start_max` makes the range exact; without it the last start is assumed to be one mean
    duration before `end_max`.
    Reference: Carman 2020, table 4.1; docs/algorithms/interval.md, 4.0.

    >>> s = IntervalStatistics(10_000, 0, 1_009, 10, 10, 74)
    >>> s.time_range, s.arrival_rate, s.active
    (1000.0, 10.0, 100.0)
    """

    rows: float
    start_min: float
    end_max: float
    mean_duration: float
    max_duration: float
    tuple_bytes: float
    classes: Classes = ()
    start_max: float | None = None

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise PlanError(f"an input of {self.rows} rows was given; rows must be >= 0.")
        if self.tuple_bytes <= 0:
            raise PlanError(f"tuples of {self.tuple_bytes:g} bytes were given; tuple_bytes must be positive.")
        if self.rows:
            self._check_times()
            self._check_classes()

    @classmethod
    def measured(
        cls,
        rows: float,
        start_min: float,
        start_max: float,
        end_max: float,
        mean_duration: float,
        max_duration: float,
        tuple_bytes: float,
        *,
        classes: Classes = (),
        instants_per_unit: float = 1.0,
    ) -> IntervalStatistics:
        """The summary of bounds in any unit; both sides of a join must use the same `instants_per_unit`.

        Durations below one instant count as one. For bounds without a grain choose a fine one, so that an instant is
        short against the mean duration. `classes` are rates and durations in the unit of the bounds.
        """
        n = instants_per_unit
        if not (math.isfinite(n) and n > 0):
            raise PlanError(f"{n:g} instants per unit were given; the scale must be positive and finite.")
        first, last = start_min * n, start_max * n
        mean = max(1.0, mean_duration * n)
        longest = max(mean, max_duration * n)
        share = rows / (last - first + 1) / (sum(rate for rate, _ in classes) or 1.0)
        scaled = tuple((rate * share, min(longest, max(1.0, d * n))) for rate, d in classes)
        return cls(rows, first, max(end_max * n, last + 1), mean, longest, tuple_bytes, scaled, last)

    def _check_times(self) -> None:
        numbers = (self.start_min, self.end_max, self.mean_duration, self.max_duration, self.start_max or 0.0)
        if not all(math.isfinite(x) for x in numbers):
            raise PlanError(f"time statistics must be finite; {numbers} were given.")
        if self.end_max <= self.start_min:
            raise PlanError(f"the time range [{self.start_min:g}, {self.end_max:g}) is empty; end_max must be larger.")
        if self.mean_duration < 1 or self.max_duration < self.mean_duration:
            raise PlanError(
                f"durations of mean {self.mean_duration:g} and maximum {self.max_duration:g} were given; the models "
                "need 1 <= mean <= maximum, in instants (use IntervalStatistics.measured for finer bounds)."
            )
        if self.start_max is not None and not self.start_min <= self.start_max <= self.end_max:
            raise PlanError(f"start_max {self.start_max:g} lies outside [{self.start_min:g}, {self.end_max:g}].")

    def _check_classes(self) -> None:
        if any(rate <= 0 or not 1 <= d <= self.max_duration * (1 + 1e-9) for rate, d in self.classes):
            raise PlanError(
                f"classes {self.classes} were given; each needs a positive rate and a duration between 1 and "
                f"max_duration = {self.max_duration:g}."
            )
        total = sum(rate for rate, _ in self.classes)
        if self.classes and not math.isclose(total, self.arrival_rate, rel_tol=_RATE_TOLERANCE):
            raise PlanError(
                f"the classes' rates add to {total:g}, but {self.rows} rows over {self.time_range:g} instants arrive "
                f"at {self.arrival_rate:g}; scale the rates."
            )

    @property
    def time_range(self) -> float:
        """Instants at which rows can start, r_end - r_start."""
        if self.start_max is not None:
            return float(self.start_max - self.start_min + 1)
        return max(1.0, float(self.end_max - self.start_min - self.mean_duration + 1))

    @property
    def arrival_rate(self) -> float:
        """Rows that start per instant, lambda = T / range."""
        return self.rows / self.time_range if self.rows else 0.0

    @property
    def duration(self) -> float:
        """Mean duration in instants, d."""
        return float(self.mean_duration)

    @property
    def active(self) -> float:
        """Rows alive at one instant, L = lambda * d (the sum over classes where there are any)."""
        if self.classes:
            return sum(rate * d for rate, d in self.classes)
        return self.arrival_rate * self.duration

    def subrelations(self) -> tuple[IntervalStatistics, ...]:
        """One input per class, each with a single duration; the input itself where there are no classes."""
        if not self.classes or not self.rows:
            return (replace(self, classes=()),)
        return tuple(self._subrelation(rate, d) for rate, d in self.classes)

    def _subrelation(self, rate: float, d: float) -> IntervalStatistics:
        start_max = self.start_min + self.time_range - 1
        rows = rate * self.time_range
        return IntervalStatistics(rows, self.start_min, start_max + d, d, d, self.tuple_bytes, start_max=start_max)

    def worst_case(self) -> IntervalStatistics:
        """All rows as long as the longest: what the source puts in place of a mixed input in its I/O models."""
        if not self.rows:
            return replace(self, classes=())
        start_max = self.start_min + self.time_range - 1
        return replace(
            self,
            mean_duration=self.max_duration,
            end_max=max(self.end_max, start_max + self.max_duration),
            start_max=start_max,
            classes=(),
        )

    def split_into(self, partitions: int) -> IntervalStatistics:
        """One middle partition of `partitions` equal ranges under SPLIT: rows that start in it or reach into it."""
        if partitions < 1:
            raise PlanError(f"{partitions} partitions were asked for; give at least 1.")
        if partitions == 1 or not self.rows:
            return self
        carried = min(self.duration - 1, self.time_range * (partitions - 1) / partitions)
        width = self.time_range / partitions + carried
        start_max = self.start_min + width - 1
        rows = self.arrival_rate * width
        return replace(self, rows=rows, end_max=start_max + self.max_duration, start_max=start_max)


DEFAULT_FRAMES: Final = 256
FEWEST_FRAMES: Final = 6  # the sweep and the forward scan reserve five and need one more to hold a tuple


@dataclass(frozen=True, slots=True)
class FrameMemory:
    """Join memory of `frames` frames (F_M) of `frame_bytes` bytes each (f).

    A frame holds whole tuples only, so its remainder is lost: floor(f / b) tuples of b bytes.
    Reference: Carman 2020, tables 3.3 and 4.1; docs/algorithms/interval.md, 4.0 and 5.1.

    >>> FrameMemory(8_192).tuples(2_296)
    768
    """

    frame_bytes: int = 8_192
    frames: int = DEFAULT_FRAMES

    def __post_init__(self) -> None:
        if self.frame_bytes < 1:
            raise PlanError(f"a frame of {self.frame_bytes} bytes holds nothing; give frame_bytes >= 1.")
        if self.frames < FEWEST_FRAMES:
            raise PlanError(
                f"{self.frames} frames of join memory were given; at least {FEWEST_FRAMES} are needed, "
                "because up to five are reserved for inputs, output and spilling."
            )

    @classmethod
    def fitting(cls, budget_bytes: int, *tuple_bytes: float) -> FrameMemory:
        """The budget cut into 256 frames, or into fewer where such a frame would hold no tuple of the widest input."""
        widest = max(1, *(int(-(-b // 1)) for b in tuple_bytes))
        frames = min(DEFAULT_FRAMES, budget_bytes // widest)
        if frames < FEWEST_FRAMES:
            raise PlanError(
                f"a budget of {budget_bytes} bytes holds {frames} tuples of {widest} bytes; "
                f"give at least {FEWEST_FRAMES * widest} bytes."
            )
        return cls(budget_bytes // frames, frames)

    def tuples_per_frame(self, tuple_bytes: float) -> int:
        """Tuples of `tuple_bytes` in one frame, T_f = floor(f / b)."""
        fit = int(self.frame_bytes // tuple_bytes)
        if fit < 1:
            raise PlanError(
                f"a tuple of {tuple_bytes:g} bytes does not fit a frame of {self.frame_bytes} bytes; "
                "give larger frames (FrameMemory.fitting chooses them)."
            )
        return fit

    def tuples(self, tuple_bytes: float) -> int:
        """Tuples of `tuple_bytes` in all of the memory, T_M = floor(f / b) * F_M."""
        return self.tuples_per_frame(tuple_bytes) * self.frames

    def frames_of(self, rows: float, tuple_bytes: float) -> int:
        """Frames that `rows` tuples fill, F = ceil(T / T_f)."""
        return int(-(-rows // self.tuples_per_frame(tuple_bytes)))
