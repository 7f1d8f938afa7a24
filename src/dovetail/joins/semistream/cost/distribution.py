"""How wanted the rows of master data are: what the models ask of a distribution, and the power laws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, Protocol

import numpy as np

from dovetail.engine.kernels.arrays import F64
from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.segments import Segments, in_frequency_order, shuffled

Law = Literal["integral", "discrete"]

_NEAR_ONE = 1e-9  # closer to exponent 1 than this, the power law's integral is taken as the logarithm
_SUMMED = 4096  # terms of a discrete law that are added one by one
_TERMS: Final = np.arange(_SUMMED + 1.0)


class Distribution(Protocol):
    """Which share of the stream asks for which rows; rank 1 is the row asked for most."""

    @property
    def rows(self) -> int:
        """Rows of the master data, R_t."""
        ...

    def share(self, ranks: F64) -> F64:
        """The share of the stream that asks for the first so many ranks, p_N; ranks may be fractional."""
        ...

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Segments:
        """The p_i of segments of so many rows, among tuples that the `cached` most wanted rows do not answer.

        `ordered`: rows lie most wanted first, and the cached ones are not in any segment. Otherwise they lie as the
        distribution knows, or anyhow.
        """
        ...


def cached_share(distribution: Distribution, cached: int) -> float:
    """p_N: the share of the stream that the `cached` most wanted rows answer."""
    return float(distribution.share(np.array([float(cached)]))[0])


@dataclass(frozen=True, slots=True)
class Zipf:
    """Rank r is wanted in proportion to r^-exponent; exponent 0 is uniform.

    "integral" is the power law of the source's generator, continuous and cut into unit steps: rank r has the integral
    from r to r + 1, and p_N of the first k ranks is F(k + 1) / F(rows + 1), exact for streams made so. "discrete" is
    Zipf's own law, whose head is heavier.
    Reference: Naeem 2012, 5.3 and figure 5.4, made general in the exponent; docs/algorithms/semistream.md, 4.1.

    >>> round(cached_share(Zipf(2_000_000, 1.0), 16_000), 3)
    0.667
    """

    rows: int
    exponent: float = 1.0
    law: Law = "integral"

    def __post_init__(self) -> None:
        if self.rows < 1 or not 0 <= self.exponent < float("inf"):
            raise PlanError(
                f"a Zipf distribution over {self.rows} rows with exponent {self.exponent} was given; there must be a "
                f"row, and the exponent is finite and not negative."
            )
        if self.law not in ("integral", "discrete"):
            raise PlanError(f"law {self.law!r} was given; it is 'integral' or 'discrete'.")

    def share(self, ranks: F64) -> F64:
        """The share of the stream that asks for the first so many ranks."""
        inside = np.clip(np.asarray(ranks, np.float64), 0.0, float(self.rows))
        if self.law == "integral":
            return power_area(inside + 1.0, self.exponent) / power_area(np.float64(self.rows + 1.0), self.exponent)
        return power_sum(inside, self.exponent) / power_sum(np.array([float(self.rows)]), self.exponent)

    def segments(self, segment_rows: int, *, ordered: bool, cached: int = 0) -> Segments:
        """The p_i of segments; rows that are not ordered are taken as shuffled."""
        place = in_frequency_order if ordered else shuffled
        return place(self.share, self.rows, segment_rows, min(cached, self.rows))


def uniform(rows: int) -> Zipf:
    """Every row is wanted as often as every other."""
    return Zipf(rows, 0.0)


def power_area(x: F64 | np.float64, exponent: float) -> F64:
    """The integral of t^-exponent from 1 to x, continuous through exponent 1."""
    g = 1.0 - exponent
    area: F64 = np.log(x) if abs(g) < _NEAR_ONE else np.expm1(g * np.log(x)) / g
    return area


def power_sum(n: F64, exponent: float) -> F64:
    """The sum of i^-exponent for i up to n: the head term by term, the tail by Euler and Maclaurin; between, a line."""
    head = _head_sums(exponent)
    near = np.interp(n, _TERMS, head)
    m, k = float(_SUMMED), np.maximum(n, _SUMMED)
    area = power_area(k, exponent) - power_area(np.float64(m), exponent)
    slope = -exponent * (k ** (-exponent - 1) - m ** (-exponent - 1)) / 12
    far: F64 = head[-1] + area + (k**-exponent - m**-exponent) / 2 + slope
    return np.where(n <= _SUMMED, near, far)


@lru_cache(maxsize=32)
def _head_sums(exponent: float) -> F64:
    """The sums of the first 0, 1, 2 ... terms."""
    sums: F64 = np.concatenate([[0.0], np.cumsum(_TERMS[1:] ** -exponent)])
    return sums
