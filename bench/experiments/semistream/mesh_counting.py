"""MESHJOIN and R-MESHJOIN with the memory of chapters 3 and 4, counted on a disk whose every request has a price.

The chapters read a text file, and say nothing of its costs but where the best buffer lies. One number explains all of
those: the bytes `a` whose reading and probing take as long as a request. Taken from the first printed optimum it is
0.0477 MB in chapter 3 and 0.00195 MB in chapter 4. Small scale divides rows, memory, buffer and the price of a request
alike, which leaves service rates as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bench.experiments.semistream.printed_meshjoin import eq_3_2, eq_3_3, eq_4_2, eq_4_3
from bench.simulation import SOURCE_UNITS, Rate, SimulatedPages, service_rate
from dovetail.engine.clock import VirtualClock
from dovetail.engine.device import Device, DeviceModel
from dovetail.joins.semistream.operators.meshjoin import MeshJoin, RMeshJoin
from dovetail.joins.semistream.sizes import Sizes

MB = 2**20
V_R, V_S, V_P = 120, 20, 8192
SECONDS_PER_BYTE = 99e-9
CHAPTER_3, CHAPTER_4 = 0.0477, 0.00195
"""Megabytes that take as long as a request, by the first printed optimum of each chapter."""
_FEWEST_ROWS = 40
_UNITS = {"c_e": SOURCE_UNITS.remove, "c_s": SOURCE_UNITS.arrive, "c_a": SOURCE_UNITS.admit, "c_h": SOURCE_UNITS.probe}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """MESHJOIN, or R-MESHJOIN if there are parts, at the source's scale; sizes in megabytes are of 2^20 bytes."""

    memory_mb: float
    buffer_mb: float
    rows: int = 3_500_000
    fudge: float = 4.8
    equal_mb: float = CHAPTER_3
    parts: int = 0

    @property
    def request_s(self) -> float:
        """Seconds of a request."""
        return self.equal_mb * MB * (SECONDS_PER_BYTE + SOURCE_UNITS.probe / V_R)

    @property
    def n_p(self) -> float:
        """Partitions of the master data."""
        return self.rows * V_R / (self.buffer_mb * MB)

    @property
    def w(self) -> float:
        """Stream rows of an iteration: (3.3), or (4.2) with what the disk buffer leaves."""
        if self.parts:
            room = (self.memory_mb - self.buffer_mb) * MB / (self.fudge * V_S + 4)
            return eq_4_2(h_s=room, n_p=self.n_p, parts=self.parts)
        pages = {"b": self.buffer_mb * MB / V_P, "n_r": self.rows * V_R / V_P}
        return eq_3_3(memory=self.memory_mb * MB, v_p=V_P, v_s=V_S, f=self.fudge, **pages)

    @property
    def loop_s(self) -> float:
        """Seconds of an iteration by (3.2) or (4.3); output is paid for each result."""
        reading = self.request_s + self.buffer_mb * MB * SECONDS_PER_BYTE
        rows, emit = self.buffer_mb * MB / V_R, self.w * SOURCE_UNITS.emit
        if self.parts:
            sizes = {"b": rows, "v_p": 1.0, "v_r": 1.0, "parts": float(self.parts)}
            return eq_4_3(c_io=reading, w=self.w, c_o=0.0, **sizes, **_UNITS) + emit
        return eq_3_2(
            c_io=reading, w=self.w, b=rows, v_p=1, v_r=1, sigma=self.w / rows, c_o=SOURCE_UNITS.emit, **_UNITS
        )

    @property
    def rate(self) -> float:
        """Service rate by the equations."""
        return self.w / self.loop_s


def fair(of: Mesh, divide: int) -> int:
    """What sizes can be divided by at most, so that an iteration has rows enough."""
    return max(1, min(divide, int(of.w / _FEWEST_ROWS)))


@lru_cache(maxsize=1024)
def count_mesh(of: Mesh, divide: int) -> Rate:
    """What the running join does with a uniform stream, counted over half a round after the first.

    Sizes are divided by less where w would be so small that whole rows distort it.
    """
    divide = fair(of, divide)
    rows, buffer = of.rows // divide, int(of.buffer_mb * MB / V_R / divide)
    page = max(1, buffer // max(1, of.parts))
    disk = DeviceModel("the source's file", request_s=of.request_s / divide, bytes_per_s=1 / SECONDS_PER_BYTE)
    pages = SimulatedPages(rows, page, V_R, device=Device(disk, VirtualClock()))
    chunks = -(-(len(pages.starts) - 1) // max(1, of.parts)) * max(1, of.parts)
    sizes = Sizes(waiting=max(1, round(of.w / divide)) * chunks, per_segment=max(1, of.parts), parts=of.parts or None)
    kind = RMeshJoin if of.parts else MeshJoin
    rng = np.random.default_rng(5)
    join = kind(pages=pages, on=("key",), how="left_semi", sizes=sizes)
    return service_rate(join, lambda n: rng.integers(0, rows, n), sizes.waiting or 1, (sizes.waiting or 2) // 2)


def best_buffer(of: Mesh, rate: Callable[[Mesh], float] = lambda mesh: mesh.rate) -> float:
    """The buffer in megabytes with the highest rate: by golden section on its logarithm."""
    low, high = math.log(0.01), math.log(of.memory_mb / 2)
    golden = (math.sqrt(5) - 1) / 2

    def at(x: float) -> float:
        return rate(replace(of, buffer_mb=math.exp(x)))

    while high - low > 1e-6:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (left, high) if at(left) < at(right) else (low, right)
    return math.exp((low + high) / 2)


def tuned(of: Mesh) -> Mesh:
    """The same join with its best buffer."""
    return replace(of, buffer_mb=best_buffer(of))
