"""A pseudo-random order of any domain: where the key of each rank stands, without storing the domain."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dovetail.workloads.blocks import I64, U64, generator

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
