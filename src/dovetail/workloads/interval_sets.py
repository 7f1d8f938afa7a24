"""Sets of intervals [start, end) on whole numbers: the deterministic ones of the sources, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    F64,
    I64,
    Workload,
    filler,
    generator,
    require,
    require_count,
    require_seed,
    uniforms,
    whole,
)
from dovetail.workloads.options import parse_call


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


_TEN = Fixed(10)


@dataclass(frozen=True, slots=True)
class LambdaIntervals(Workload):
    """Rows `id`, `start`, `end`: at every instant of the range, `rate` intervals of each class (rate, duration) begin.

    Sorted by start. With `padding`, a text `filler` of that many bytes (0, 222 or 2222 in the experiments).
    Reference: Carman 2020, 3.4; mixtures of classes are the complex sets of 4.4.6; docs/algorithms/interval.md, 5.2.
    """

    time_range: int
    classes: tuple[tuple[int, int], ...]
    padding: int = 0
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        require_count("time_range", self.time_range, 1)
        require_count("padding", self.padding)
        require(len(self.classes) > 0, "classes must hold at least one (rate, duration).")
        for rate, duration in self.classes:
            require_count("rate", rate, 1)
            require_count("duration", duration, 1)
        object.__setattr__(self, "rows", self.time_range * sum(rate for rate, _ in self.classes))

    @property
    def schema(self) -> pa.Schema:
        """id, start, end, and filler if there is padding."""
        return _interval_schema(("id", "start", "end"), self.padding)

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        durations = np.repeat([duration for _, duration in self.classes], [rate for rate, _ in self.classes])
        start = ids // durations.size
        end = start + durations[ids % durations.size]
        return _interval_arrays((ids, start, end), self.padding)


@dataclass(frozen=True, slots=True)
class RandomIntervals(Workload):
    """Rows `id`, `key`, `start`, `end`: starts uniform over the range, lengths from any distribution, keys 1..keys.

    Key 1 takes `hot_share` of the rows, the others are uniform; without a hot share all keys are. Unsorted. `padding`
    as in `LambdaIntervals`.
    """

    rows: int
    time_range: int
    lengths: Lengths = _TEN
    keys: int = 1
    hot_share: float = 0.0
    seed: int = 0
    padding: int = 0

    def __post_init__(self) -> None:
        require_count("rows", self.rows)
        require_count("time_range", self.time_range, 1)
        require_count("keys", self.keys, 1)
        require_count("padding", self.padding)
        require_seed(self.seed)
        require(0.0 <= self.hot_share <= 1.0, f"hot_share is a share from 0 to 1, not {self.hot_share}.")
        require(
            self.keys > 1 or self.hot_share in (0.0, 1.0),
            f"hot_share {self.hot_share} needs at least two keys; there is one.",
        )

    @property
    def schema(self) -> pa.Schema:
        """id, key, start, end, and filler if there is padding."""
        return _interval_schema(("id", "key", "start", "end"), self.padding)

    def columns(self, block: int, n: int) -> list[pa.Array]:
        """The first n rows of one block."""
        ids = block * BLOCK_ROWS + np.arange(n, dtype=np.int64)
        start = generator(self.seed, "start", block).integers(0, self.time_range, n)
        end = start + self.lengths.draw(uniforms(self.seed, "length", block, n))
        return _interval_arrays((ids, self._keys(block, n), start, end), self.padding)

    def _keys(self, block: int, n: int) -> I64:
        rng = generator(self.seed, "key", block)
        if not self.hot_share:
            return rng.integers(1, self.keys + 1, n)
        hot = uniforms(self.seed, "hot", block, n) < self.hot_share
        return np.where(hot, 1, rng.integers(min(2, self.keys), self.keys + 1, n))


def _interval_schema(names: tuple[str, ...], padding: int) -> pa.Schema:
    fields = [(name, pa.int64()) for name in names]
    return pa.schema(fields + ([("filler", pa.string())] if padding else []))


def _interval_arrays(columns: tuple[I64, ...], padding: int) -> list[pa.Array]:
    return [pa.array(column) for column in columns] + ([filler(columns[0], padding)] if padding else [])


def intervals(
    rows: int = 100_000,
    time_range: int = 1_000_000,
    lengths: str = "fixed(10)",
    keys: int = 1,
    hot_share: float = 0.0,
    seed: int = 0,
    padding: int = 0,
) -> RandomIntervals:
    """Random intervals with lengths given as text: "exponential(20)", "loguniform(1, 10000)", "pareto(1.2, 1, 5000)".

    Classes are added up, each with its share: "0.9 fixed(5) + 0.1 exponential(1000)".
    """
    return RandomIntervals(rows, time_range, parse_lengths(lengths), keys, hot_share, seed, padding)


def lambda_intervals(
    time_range: int = 1_000, rate: int = 10, duration: int = 10, padding: int = 0, classes: str = ""
) -> LambdaIntervals:
    """Deterministic intervals of one class, or of those in `classes`, "rate x duration" each: "5x5, 10x100".

    >>> lambda_intervals(classes="5x5, 10x100").classes
    ((5, 5), (10, 100))
    """
    parsed = tuple(_class(part) for part in classes.split(",")) if classes else ((rate, duration),)
    return LambdaIntervals(time_range, parsed, padding)


def _class(text: str) -> tuple[int, int]:
    rate, _, duration = text.partition("x")
    try:
        return int(rate), int(duration)
    except ValueError:
        raise PlanError(f"cannot read class {text.strip()!r}; write rate x duration, such as '5x100'.") from None
