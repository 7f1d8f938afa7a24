"""Which waiting row decides what is loaded next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dovetail.errors import PlanError
from dovetail.joins.semistream.kernels import waiting_pool as pool

Kind = Literal["oldest", "alternate", "guarded", "position", "greedy", "greedy_oldest"]
_CODES = {
    "oldest": pool.BY_OLDEST,
    "alternate": pool.BY_ALTERNATE,
    "guarded": pool.BY_GUARDED,
    "position": pool.BY_POSITION,
    "greedy": pool.BY_GREEDY,
    "greedy_oldest": pool.BY_GREEDY_OLDEST,
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up policy; `position` is a share of the queue counted from its newest end, 1 being the oldest row.

    `oldest` never starves a row. `alternate` takes the oldest row and the one at the position in turn; `guarded` does
    so only where the latter's segment has more waiting rows than the former's. `position` always takes the position,
    `greedy` the segment that most rows wait for; both can starve rows until `max_residence` steps in.
    Reference: Naeem 2014, 3 and 4; docs/algorithms/semistream.md, 2.12. Guarded look-ups are ours.

    >>> Lookup.of("guarded"), Lookup.of(0.25)
    (Lookup(kind='guarded', position=0.3), Lookup(kind='position', position=0.25))
    """

    kind: Kind = "oldest"
    position: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise PlanError(
                f"lookup={self.kind!r} is not one of {list(get_args(Kind))}; or give a position in (0, 1].",
                argument="lookup",
            )
        if not 0 < self.position <= 1:
            raise PlanError(
                f"lookup={self.position} is outside (0, 1]; 0.3 is a good one, 1 is the oldest.", argument="lookup"
            )

    @classmethod
    def of(cls, lookup: Lookup | str | float) -> Lookup:
        """The policy meant by a name or by a bare position."""
        if isinstance(lookup, Lookup):
            return lookup
        if isinstance(lookup, str):
            return cls(lookup)  # type: ignore[arg-type]  # checked there
        return cls("position", float(lookup))

    @property
    def code(self) -> int:
        """The policy's number in the kernels."""
        return _CODES[self.kind]

    def __str__(self) -> str:
        return self.kind if self.kind in ("oldest", "greedy", "greedy_oldest") else f"{self.kind}({self.position:g})"


OLDEST = Lookup("oldest")


@dataclass(frozen=True, slots=True)
class Residence:
    """How long a row may wait before oldest rows go first: so many loads, so many seconds, or both."""

    loads: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.loads is not None and self.loads < 1) or (self.seconds is not None and self.seconds < 0):
            raise PlanError(f"max_residence loads={self.loads}, seconds={self.seconds}: give at least 1 load or 0 s.")
