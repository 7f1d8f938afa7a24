"""Zipf-distributed ranks and keys over any domain, for any exponent >= 0, and a pseudo-random order of the domain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from dovetail.workloads.blocks import (
    BLOCK_ROWS,
    F64,
    I64,
    U64,
    generator,
    require,
    require_count,
    require_seed,
    uniforms,
)

TABLE_LIMIT = 1 << 20
"""Up to this domain the order is a stored shuffle; above it, a keyed bijection computed per value."""


def permuted(values: I64, domain: int, seed: int, purpose: str = "rank to key") -> I64:
    """The image of values in [0, domain) under one fixed bijection of that domain, chosen by seed and purpose."""
    if domain <= TABLE_LIMIT:
        return _table(domain, seed, purpose)[values]
    return _walk(values.astype(np.uint64), domain, _multipliers(seed, purpose)).astype(np.int64)


@lru_cache(maxsize=8)
def _table(domain: int, seed: int, purpose: str) -> I64:
    return generator(seed, purpose).permutation(domain).astype(np.int64)


@lru_cache(maxsize=64)
def _multipliers(seed: int, purpose: str) -> tuple[int, int, int]:
    words = generator(seed, purpose).integers(0, 2**63, 3).tolist()
    return words[0] | 1, words[1] | 1, words[2]


def _walk(x: U64, domain: int, keys: tuple[int, int, int]) -> U64:
    """Cycle walking: a bijection of the next power of two, applied again to whatever falls outside the domain."""
    bits = (domain - 1).bit_length()
    x = _scramble(x, bits, keys)
    outside = np.flatnonzero(x >= domain)
    while outside.size:
        moved = _scramble(x[outside], bits, keys)
        x[outside] = moved
        outside = outside[moved >= domain]
    return x


def _scramble(x: U64, bits: int, keys: tuple[int, int, int]) -> U64:
    """Add, multiply by an odd number, fold the top half down: each step is invertible within the given bits."""
    mask, fold = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    x = (x + np.uint64(keys[2])) & mask
    for multiplier in (keys[0], keys[1], keys[0]):
        x = (x * np.uint64(multiplier)) & mask
        x ^= x >> fold
    return x


Law = Literal["discrete", "integral"]

_NEAR_ONE = 1e-9  # closer to exponent 1 than this, the power law's integral is taken as the logarithm
_DIRECT_TERMS = 4096


@dataclass(frozen=True, slots=True)
class ZipfLaw:
    """Ranks 1..domain, rank r with a probability in proportion to r^-exponent; exponent 0 is uniform.

    "discrete" is exactly that. "integral" is a continuous power law cut into unit steps, whose head is lighter: rank r
    gets the integral of x^-exponent from r to r + 1.
    "discrete" is drawn by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996).
    Reference: "integral" is Naeem 2012, figure 5.4, for every exponent; docs/algorithms/semistream.md, 4.1.
    """

    domain: int
    exponent: float
    kind: Law = "discrete"

    def __post_init__(self) -> None:
        require_count("domain", self.domain, 1)
        require(self.domain <= 2**52, f"domain {self.domain} is too large; the largest is 2**52.")
        require(
            np.isfinite(self.exponent) and self.exponent >= 0, f"exponent must be finite and >= 0, not {self.exponent}."
        )
        require(self.kind in ("discrete", "integral"), f"law must be 'discrete' or 'integral', not {self.kind!r}.")

    def ranks(self, rng: np.random.Generator, n: int) -> I64:
        """n independent ranks."""
        if self.exponent == 0:
            return rng.integers(1, self.domain + 1, n)
        if self.kind == "integral":
            return self._integral_ranks(rng.random(n))
        return self._discrete_ranks(rng, n)

    def share(self, first: int) -> float:
        """The probability of a rank among the first ones: what a cache of the most popular keys can answer."""
        first = max(0, min(first, self.domain))
        if self.kind == "integral":
            whole = float(self._area(np.float64(self.domain + 1)))
            return float(self._area(np.float64(first + 1))) / whole
        return _harmonic(first, self.exponent) / _harmonic(self.domain, self.exponent)

    def _area(self, x: F64 | np.float64) -> F64:
        """The integral of t^-exponent from 1 to x."""
        g = 1.0 - self.exponent
        area: F64 = np.log(x) if abs(g) < _NEAR_ONE else np.expm1(g * np.log(x)) / g
        return area

    def _area_inverse(self, y: F64) -> F64:
        g = 1.0 - self.exponent
        if abs(g) < _NEAR_ONE:
            return np.exp(y)
        # Rounding may push g * y to -1, the end of the infinite tail; the caller cuts ranks off at the domain.
        return np.exp(np.log1p(np.maximum(g * y, -1.0 + 1e-16)) / g)

    def _integral_ranks(self, u: F64) -> I64:
        whole = self._area(np.float64(self.domain + 1))
        return np.minimum(self._area_inverse(u * whole), float(self.domain)).astype(np.int64)

    def _discrete_ranks(self, rng: np.random.Generator, n: int) -> I64:
        out = np.empty(n, dtype=np.int64)
        todo: I64 | slice = slice(None)
        missing = n
        while missing:
            ranks, accepted = self._propose(rng.random(missing))
            out[todo] = ranks
            rejected = np.flatnonzero(~accepted)
            todo = rejected if isinstance(todo, slice) else todo[rejected]
            missing = rejected.size
        return out

    def _propose(self, u: F64) -> tuple[I64, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
        """One proposal for each uniform under the hat x^-exponent, and whether the histogram accepts it."""
        low = float(self._area(np.float64(1.5))) - 1.0
        high = float(self._area(np.float64(self.domain + 0.5)))
        y = high + u * (low - high)
        x = self._area_inverse(y)
        k = np.clip(np.floor(x + 0.5), 1.0, float(self.domain))
        # Close enough below its rank a proposal is under the histogram for every rank: no power needed.
        squeeze = 2.0 - float(self._area_inverse(self._area(np.float64(2.5)) - 2.0**-self.exponent))
        accepted = k - x <= squeeze
        unsure = np.flatnonzero(~accepted)
        ks = k[unsure]
        accepted[unsure] = y[unsure] >= self._area(ks + 0.5) - ks**-self.exponent
        return k.astype(np.int64), accepted


def _harmonic(n: int, exponent: float) -> float:
    """Sum of i^-exponent for i = 1..n: the head term by term, the tail by Euler and Maclaurin."""
    head = min(n, _DIRECT_TERMS)
    total = float(np.sum(np.arange(head, 0, -1, dtype=np.float64) ** -exponent))
    if n == head:
        return total
    g, m, k = 1.0 - exponent, float(head), float(n)
    log = np.log(k / m)
    integral = log if abs(g) < _NEAR_ONE else m**g * np.expm1(g * log) / g
    slope = -exponent * (k ** (-exponent - 1) - m ** (-exponent - 1))
    return total + float(integral + (k**-exponent - m**-exponent) / 2 + slope / 12)


@dataclass(frozen=True, slots=True)
class ZipfKeys:
    """Keys first_key .. first_key + domain - 1 under a Zipf law.

    Rank 1 is the smallest key, unless `scattered`: then ranks are spread over the domain by a bijection that depends on
    the seed. With `drift_rows` the bijection changes after every `drift_rows` rows, so that other keys become popular.
    With `absent`, that share of the rows carries a negative key, which no master has.
    """

    domain: int
    exponent: float = 1.0
    law: Law = "discrete"
    scattered: bool = False
    drift_rows: int = 0
    absent: float = 0.0
    first_key: int = 1

    def __post_init__(self) -> None:
        ZipfLaw(self.domain, self.exponent, self.law)
        require_count("drift_rows", self.drift_rows)
        require(0.0 <= self.absent <= 1.0, f"absent is a share from 0 to 1, not {self.absent}.")
        require(self.first_key >= 0, f"first_key must not be negative; it is {self.first_key}.")

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """The first n keys of one block."""
        law = ZipfLaw(self.domain, self.exponent, self.law)
        # Rejected proposals are redrawn after the whole block, so a shorter block must draw as much as a full one.
        positions = law.ranks(generator(seed, f"{purpose} ranks", block), BLOCK_ROWS)[:n] - 1
        keys = self._placed(positions, block, seed) + self.first_key
        if self.absent:
            gone = uniforms(seed, f"{purpose} absent", block, n) < self.absent
            keys[gone] = -1 - keys[gone]
        return keys

    def _placed(self, positions: I64, block: int, seed: int) -> I64:
        if not self.scattered and not self.drift_rows:
            return positions
        if not self.drift_rows:
            return permuted(positions, self.domain, seed)
        epochs = (block * BLOCK_ROWS + np.arange(positions.size)) // self.drift_rows
        for epoch in np.unique(epochs):
            if epoch or self.scattered:
                here = epochs == epoch
                positions[here] = permuted(positions[here], self.domain, seed, _drift_purpose(int(epoch)))
        return positions


def _drift_purpose(epoch: int) -> str:
    return "rank to key" if epoch == 0 else f"rank to key, drift {epoch}"


def zipf_keys(
    n: int, domain: int, exponent: float, seed: int, *, scattered: bool = False, law: Law = "discrete"
) -> I64:
    """n Zipf keys from 1..domain; key 1 is the most frequent unless the keys are `scattered` over the domain.

    Fewer keys are a prefix of more keys of the same seed.

    >>> zipf_keys(6, 1000, 1.0, seed=1)
    array([ 13, 513,   1,  14,  14, 139])
    """
    require_count("n", n)
    require_seed(seed)
    spec = ZipfKeys(domain, exponent, law, scattered)
    out = np.empty(n, dtype=np.int64)
    for first in range(0, n, BLOCK_ROWS):
        part = out[first : first + BLOCK_ROWS]
        part[:] = spec.keys(seed, "key", first // BLOCK_ROWS, part.size)
    return out
