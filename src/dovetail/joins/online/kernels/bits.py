"""Bits of rows in an array of bytes, set in the order given."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8, Bool
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def mark_bits(bits: U8, places: I64) -> Bool:
    """Set the bits at these places; for each, whether it was not set before."""
    fresh = np.empty(len(places), np.bool_)
    for at in range(len(places)):
        byte, bit = places[at] >> 3, np.uint8(1 << (places[at] & 7))
        fresh[at] = (bits[byte] & bit) == 0
        bits[byte] |= bit
    return fresh


@register_warmup
def warm_bits() -> None:
    """Compile the kernel."""
    mark_bits(np.zeros(1, np.uint8), np.zeros(1, np.int64))
