"""How long intervals are: whole numbers >= 1, each from one uniform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dovetail.errors import PlanError
from dovetail.workloads.blocks import F64, I64, require, require_count, whole
from dovetail.workloads.calls import parse_call


class Lengths(Protocol):
    """A distribution of interval lengths."""

    def draw(self, u: F64) -> I64:
        """One length >= 1 for each uniform in [0, 1); larger uniforms give no shorter lengths."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every interval has the same length."""

    length: int = 10

    def __post_init__(self) -> None:
        require_count("length", self.length, 1)

    def draw(self, u: F64) -> I64:
        """The length, as often as asked."""
        return np.full(u.size, self.length, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential lengths on whole numbers (the geometric distribution), with exactly this mean."""

    mean: float = 10.0

    def __post_init__(self) -> None:
        require(self.mean >= 1, f"exponential lengths need a mean >= 1, not {self.mean}.")

    def draw(self, u: F64) -> I64:
        """P(length > k) = (1 - 1/mean)^k."""
        if self.mean == 1:
            return np.ones(u.size, dtype=np.int64)
        return 1 + whole(np.log1p(-u) / np.log1p(-1.0 / self.mean))


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Lengths from shortest to longest, each decade as likely as any other: P(k) in proportion to ln((k+1)/k)."""

    shortest: int = 1
    longest: int = 10_000

    def __post_init__(self) -> None:
        _require_bounds(self.shortest, self.longest)

    def draw(self, u: F64) -> I64:
        """The whole part of a continuous log-uniform value in [shortest, longest + 1)."""
        x = self.shortest * np.exp(u * np.log((self.longest + 1) / self.shortest))
        return np.clip(whole(x), self.shortest, self.longest)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Heavy-tailed lengths from shortest to longest: P(length >= k) falls as k^-alpha, cut off above longest."""

    alpha: float = 1.5
    shortest: int = 1
    longest: int = 1_000_000

    def __post_init__(self) -> None:
        require(self.alpha > 0, f"pareto alpha must be positive, not {self.alpha}.")
        _require_bounds(self.shortest, self.longest)

    def draw(self, u: F64) -> I64:
        """The whole part of a continuous Pareto value conditioned to [shortest, longest + 1)."""
        kept = -np.expm1(-self.alpha * np.log((self.longest + 1) / self.shortest))
        x = self.shortest * np.exp(-np.log1p(-u * kept) / self.alpha)
        return np.clip(whole(x), self.shortest, self.longest)


@dataclass(frozen=True, slots=True)
class Mixture:
    """Classes of lengths, each with its share of the rows; shares are taken relative to their sum."""

    parts: tuple[tuple[float, Lengths], ...]

    def __post_init__(self) -> None:
        require(len(self.parts) > 0, "a mixture needs at least one class.")
        require(all(weight > 0 for weight, _ in self.parts), "every class of a mixture needs a positive share.")

    def draw(self, u: F64) -> I64:
        """The uniform picks the class, and its place inside the class's share picks the length."""
        weights = np.array([weight for weight, _ in self.parts])
        bounds = np.concatenate(([0.0], np.cumsum(weights) / weights.sum()))
        which = np.minimum(np.searchsorted(bounds, u, side="right") - 1, len(self.parts) - 1)
        out = np.empty(u.size, dtype=np.int64)
        for number, (_, lengths) in enumerate(self.parts):
            here = which == number
            low, high = bounds[number], bounds[number + 1]
            inside = (u[here] - low) / (high - low)
            out[here] = lengths.draw(np.minimum(inside, np.nextafter(1.0, 0.0)))
        return out


def _require_bounds(shortest: int, longest: int) -> None:
    require_count("shortest", shortest, 1)
    require_count("longest", longest, shortest)


LENGTHS: dict[str, Callable[..., Lengths]] = {
    "fixed": Fixed,
    "exponential": Exponential,
    "loguniform": LogUniform,
    "pareto": Pareto,
}


def parse_lengths(text: str) -> Lengths:
    """Lengths from text: "fixed(10)", "loguniform(1, 10000)", or a mixture "0.9 fixed(5) + 0.1 pareto(1.2)".

    >>> parse_lengths("0.9 fixed(5) + 0.1 exponential(100)")
    Mixture(parts=((0.9, Fixed(length=5)), (0.1, Exponential(mean=100))))
    """
    terms = text.split("+")
    if len(terms) == 1:
        return parse_call(text, LENGTHS)
    parts: list[tuple[float, Lengths]] = []
    for term in terms:
        weight, _, call = term.strip().partition(" ")
        try:
            parts.append((float(weight), parse_call(call, LENGTHS)))
        except ValueError as error:
            if isinstance(error, PlanError):
                raise
            raise PlanError(
                f"class {term.strip()!r} of a mixture needs its share first, as in '0.9 fixed(5)'."
            ) from None
    return Mixture(tuple(parts))
