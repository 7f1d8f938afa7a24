"""What a model says of one algorithm with its parts sized: tuples per iteration, seconds, service rate, memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.distribution import Demand
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.sizes import Sizes


class NoRoomError(PlanError):
    """The sizes leave no room in the budget for a single waiting tuple."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One algorithm in its steady state; the source's symbols beside.

    `sizes` are those of the join's parts, `segment_rows` the master rows that are read at a time (d), `kept_rows` the
    pinned, cached or resident ones (d_N or h_R). One iteration finishes `w_n` tuples through the pinned or cached
    part and `w_s` through a segment. It costs `step_s`, whatever it finishes, and `miss_s` and `hit_s` for each such
    tuple. `window` is T_w, `waiting` the tuples that wait on average, `asked` the segments they ask for,
    `bound_steps` the iterations after which a tuple is answered at the latest (F6). `steps_per_load`: iterations that
    share one read. `memory`: bytes of each part. `segments`: what the tuples ask for that reach storage; None where
    storage is read in turn or by single pages.
    F6 and F7 are equations of docs/algorithms/semistream.md, 3.4.
    """

    algorithm: str
    sizes: Sizes
    segment_rows: int
    w_n: float
    w_s: float
    step_s: float
    miss_s: float
    hit_s: float
    window: float
    waiting: float
    asked: float
    bound_steps: float
    memory: tuple[tuple[str, float], ...]
    steps_per_load: int = 1
    kept_rows: int = 0
    segments: Demand | None = field(default=None, repr=False, compare=False)

    @property
    def w(self) -> float:
        """Stream tuples finished per iteration."""
        return self.w_n + self.w_s

    @property
    def p_n(self) -> float:
        """The share of tuples that never reach storage."""
        return self.w_n / self.w

    @property
    def c_loop(self) -> float:
        """Seconds of one iteration."""
        return self.step_s + self.w_s * self.miss_s + self.w_n * self.hit_s

    @property
    def mu(self) -> float:
        """Service rate: tuples per second when the stream is never short."""
        return self.w / self.c_loop

    @property
    def loads_per_tuple(self) -> float:
        """Reads of storage per stream tuple."""
        return 1 / (self.w * self.steps_per_load)

    @property
    def residence_bound_s(self) -> float:
        """Seconds after which every tuple has been answered, the stream never being short (F6)."""
        return self.bound_steps * self.c_loop

    @property
    def mean_residence_s(self) -> float:
        """Seconds that a tuple waits on average, the stream never being short (F7)."""
        return self.waiting / self.mu

    @property
    def memory_bytes(self) -> float:
        """Bytes of all parts."""
        return sum(nbytes for _, nbytes in self.memory)


Parts = tuple[tuple[str, float], ...]


def waiting_room(setting: Setting, sizes: Sizes, cached: tuple[str, float] = ("cache", 0.0)) -> tuple[int, Parts]:
    """h_S, and the bytes of every part: h_S = (M - d v_R - cache - index - counters) / (f v_S + q).

    Reference: replaces the identities 5.1, 6.1, 6.4 and 7.1 of Naeem 2012; docs/algorithms/semistream.md, 3.4 to 3.7.
    """
    n_segments = -(-setting.master_rows // setting.segment_rows(sizes))
    parts = (
        ("disk buffer", setting.buffer_bytes(setting.segment_rows(sizes))),
        cached,
        ("index", setting.index_bytes),
        ("segment counters", setting.entries.per_segment * n_segments),
    )
    room = capacity(setting, sizes, sum(nbytes for _, nbytes in parts), setting.entries.waiting)
    return room, (*(part for part in parts if part[1]), ("waiting tuples", room * setting.entries.waiting))


def capacity(setting: Setting, sizes: Sizes, taken: float, entry_bytes: float, least: int = 1) -> int:
    """Tuples that fit beside `taken` bytes, or as many as the sizes ask for; `least` must fit."""
    room = int((setting.memory - taken) // entry_bytes)
    wanted = room if sizes.waiting is None else sizes.waiting
    if wanted > room or wanted < least:
        raise NoRoomError(
            f"{taken:,.0f} of {setting.memory:,} bytes go to other parts: {max(room, 0):,} tuples can wait, "
            f"{max(wanted, least):,} must; give more memory, smaller segments or a smaller cache."
        )
    return wanted
