"""What unit work costs: reads by size, and one tuple probed, emitted, evicted, received, admitted, compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dovetail.engine.device import DeviceModel
from dovetail.engine.profile import PageCost, Profile
from dovetail.errors import PlanError

Points = tuple[tuple[float, float], ...]
Probes = Literal["segment", "smaller"]


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Seconds for one read by its size, c_IO(x): (bytes, seconds) points for reads anywhere and for reads in turn.

    Between points, and beyond the last two, on a line; below the first as much as there.
    """

    random: Points
    sequential: Points

    def __post_init__(self) -> None:
        for name, points in (("random", self.random), ("sequential", self.sequential)):
            sizes = [size for size, _ in points]
            if not points or sizes != sorted(set(sizes)) or min(min(point) for point in points) < 0:
                raise PlanError(
                    f"the costs of {name} reads are {points}; give at least one (bytes, seconds), sizes rising and "
                    f"nothing negative."
                )

    def seconds(self, nbytes: float, *, sequential: bool = False) -> float:
        """Seconds to read so many bytes in one go."""
        points = self.sequential if sequential else self.random
        if nbytes <= points[-1][0] or len(points) == 1:
            return float(np.interp(nbytes, [size for size, _ in points], [seconds for _, seconds in points]))
        (x0, y0), (x1, y1) = points[-2:]
        return y1 + max(0.0, y1 - y0) / (x1 - x0) * (nbytes - x1)

    def times(self, ratio: float) -> ReadCosts:
        """The costs of a store whose every read takes so many times as long."""
        random, sequential = (
            tuple((size, seconds * ratio) for size, seconds in points) for points in (self.random, self.sequential)
        )
        return ReadCosts(random, sequential)

    @classmethod
    def linear(cls, seek_s: float, bytes_per_s: float, request_s: float = 0.0) -> ReadCosts:
        """A device with a price for a seek, one for every request, and a rate."""
        at = 1e6
        return cls(
            ((0.0, seek_s + request_s), (at, seek_s + request_s + at / bytes_per_s)),
            ((0.0, request_s), (at, request_s + at / bytes_per_s)),
        )

    @classmethod
    def of_device(cls, model: DeviceModel) -> ReadCosts:
        """The costs of a simulated device; the real one has none until it is measured."""
        if model.bytes_per_s is None:
            raise PlanError(f"device {model.name!r} is not simulated; take its costs from a measured profile.")
        return cls.linear(model.seek_s, model.bytes_per_s, model.request_s)


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds per unit of work; the source's symbols beside.

    `probe` one tuple looked up in a hash table, c_H; `emit` one result, c_O; `evict` one tuple out of table and queue,
    c_E; `receive` one tuple from the stream, c_S; `admit` one into table and queue, c_A; `compare` one frequency,
    c_F. `load` is what a read costs beside its bytes: opening, decoding, its part of a call of a kernel; zero in the
    source. `visit` is what rows that meet a resident segment cost together, however few they are, beside a table over
    the segment; zero in the source, whose resident segments are tables. `look_up` is one key asked of a store that
    finds single keys, in which joins that keep no segments read none; None for a store of pages.
    `probes`: the source looks every row of a segment up among the waiting tuples; "smaller" takes whichever side has
    fewer.
    """

    read: ReadCosts
    probe: float
    emit: float
    evict: float
    receive: float
    admit: float
    compare: float
    load: float = 0.0
    visit: float = 0.0
    look_up: float | None = None
    probes: Probes = "segment"

    def __post_init__(self) -> None:
        each = (
            self.probe,
            self.emit,
            self.evict,
            self.receive,
            self.admit,
            self.compare,
            self.load,
            self.visit,
            self.look_up or 0.0,
        )
        if min(each) < 0 or not np.isfinite(each).all():
            raise PlanError(f"unit costs {each} were given; each is a finite number of seconds, not negative.")
        if self.probes not in ("segment", "smaller"):
            raise PlanError(f"probes={self.probes!r} was given; it is 'segment' or 'smaller'.")

    def load_s(self, nbytes: float, *, sequential: bool = False) -> float:
        """Seconds to bring so many bytes into memory in one go."""
        return self.read.seconds(nbytes, sequential=sequential) + self.load

    def find_s(self, nbytes: float) -> float:
        """Seconds for a segment to be there as far as it is asked for: read, or only its keys looked up, each apart."""
        return self.load_s(nbytes) if self.look_up is None else self.load

    @property
    def each_found_s(self) -> float:
        """Seconds for a key to be looked up by itself; none where segments are read."""
        return self.look_up or 0.0

    def visit_s(self, segment_rows: float) -> float:
        """Seconds for some rows to meet a resident segment, beside what each of them costs."""
        return self.visit + self.probe * segment_rows if self.visit else 0.0

    def probing_s(self, segment_rows: float, tuples: float) -> float:
        """Seconds to match a segment with the tuples that wait for it."""
        return self.probe * (segment_rows if self.probes == "segment" else min(segment_rows, tuples))


SOURCE_COSTS = UnitCosts(
    read=ReadCosts.linear(4.0e-3, 1 / 0.099e-6),
    probe=2617e-9,
    emit=2000e-9,
    evict=5248e-9,
    receive=3749e-9,
    admit=3588e-9,
    compare=100e-9,
)
"""The source's costs: its table 5.2 divided by the tuples of an iteration, and a disk that fits its printed facts.

The disk (4 ms and 0.099 us per byte) and the frequency comparison are ours.
Reference: Naeem 2012, table 5.2; docs/algorithms/semistream.md, 3.0.
"""


def from_profile(profile: Profile, *, read: ReadCosts | None = None, look_up: float | None = None) -> UnitCosts:
    """This machine's costs, for joins whose kernels look the smaller side up.

    A profile has no cost of taking one tuple from the stream; a row between Python and the JVM stands for it. `read`
    replaces the reads of local pages by those of another store, and `look_up` is a key of a store that finds them.
    """
    pages = ReadCosts(_points(profile.page_read_random), _points(profile.page_read_sequential))
    return UnitCosts(
        read=read or pages,
        probe=profile.probe.seconds,
        emit=profile.emit.seconds,
        evict=profile.evict.seconds,
        receive=profile.python_to_jvm_row.seconds,
        admit=profile.insert.seconds,
        compare=profile.compare.seconds,
        load=profile.segment_load.seconds,
        visit=profile.segment_visit.seconds,
        look_up=look_up,
        probes="smaller",
    )


def _points(pages: tuple[PageCost, ...]) -> Points:
    return tuple(sorted((float(page.nbytes), page.cost.seconds) for page in pages))
