"""Memory in the source's units: frames that hold whole tuples, for runs that are compared with the cost models."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.errors import PlanError


@dataclass(frozen=True, slots=True)
class Frames:
    """`count` frames of `frame_bytes`, for tuples of `tuple_bytes`: how many tuples the active sets may hold.

    `reserved` frames (inputs, output, spill) are deducted; 0 is the reading in which every frame holds data. Bytes are
    still charged to the budget as they are; only the capacity comes from here.
    Reference: Carman 2020, table 3.3; docs/algorithms/interval.md, 5.1.

    >>> Frames(256, 8192, 2296).tuples
    768
    """

    count: int = 256
    frame_bytes: int = 8192
    tuple_bytes: int = 2296
    reserved: int = 0

    def __post_init__(self) -> None:
        if min(self.count, self.frame_bytes, self.tuple_bytes) < 1 or self.reserved < 0:
            raise PlanError(f"{self} needs positive sizes and a reserve of 0 frames or more")
        if self.tuple_bytes > self.frame_bytes:
            raise PlanError(f"a tuple of {self.tuple_bytes} bytes does not fit a frame of {self.frame_bytes} bytes")
        if self.reserved >= self.count:
            raise PlanError(f"{self.reserved} reserved of {self.count} frames leave no frame for data")

    @property
    def tuples_per_frame(self) -> int:
        """T_f of the cost model."""
        return self.frame_bytes // self.tuple_bytes

    @property
    def tuples(self) -> int:
        """T_M of the cost model, reserved frames deducted."""
        return self.tuples_per_frame * (self.count - self.reserved)
