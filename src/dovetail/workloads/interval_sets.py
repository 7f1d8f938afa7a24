"""Sets of intervals [start, end) on whole numbers: the deterministic ones of the sources, and random ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dovetail.errors import PlanError
from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    I64,
    Workload,
    generator,
    require,
    require_count,
    require_seed,
    uniforms,
)
from dovetail.workloads.filler import filler
from dovetail.workloads.lengths import Fixed, Lengths, parse_lengths

_TEN = Fixed(10)


@dataclass(frozen=True, slots=True)
class LambdaIntervals(Workload):
    """Rows `id`, `start`, `end`: at every instant of the range, `rate` intervals of each class (rate, duration) begin.

    Sorted by start. With `padding`, a text `filler` of so many bytes (0, 222 or 2222 in the experiments).
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
