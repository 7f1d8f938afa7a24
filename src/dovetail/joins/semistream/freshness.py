"""When a join takes up a newer version of its master data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dovetail.errors import PlanError
from dovetail.request.amounts import parse_seconds


@dataclass(frozen=True, slots=True)
class Freshness:
    """`per_batch`: every micro-batch takes the newest version. `ttl`: only when the one in use is `seconds` old.

    `pinned`: the first version serves the query for good, restarts included.
    """

    kind: Literal["per_batch", "ttl", "pinned"] = "per_batch"
    seconds: float = 0.0

    @classmethod
    def of(cls, given: Freshness | str) -> Freshness:
        """The freshness meant by a name or by `ttl(...)`."""
        if isinstance(given, Freshness):
            return given
        if given in ("per_batch", "pinned"):
            return cls(given)  # type: ignore[arg-type]  # one of the two names
        raise PlanError(
            f"freshness={given!r} is not known; use 'per_batch', 'pinned' or ttl(\"10 min\").", argument="freshness"
        )

    def __str__(self) -> str:
        return f"ttl({self.seconds:g} s)" if self.kind == "ttl" else self.kind


def ttl(age: str | float) -> Freshness:
    """Freshness that keeps a version until it was taken up `age` ago ("10 min", or seconds).

    >>> print(dovetail.ttl("10 min"))
    ttl(600 s)
    """
    return Freshness("ttl", parse_seconds("ttl", age))
