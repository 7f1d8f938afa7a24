"""The frame model of join memory: how many tuples a budget holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dovetail.errors import PlanError

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
