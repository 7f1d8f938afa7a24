"""Single bits of a bitmap, numbered as Arrow does: bit 0 is the lowest of byte 0."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I64, U8
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def set_bits(bits: U8, positions: I64) -> None:
    """Set the bits at these positions, which must lie inside the bitmap."""
    for i in range(positions.size):
        bits[positions[i] >> 3] |= np.uint8(1 << (positions[i] & 7))


@register_warmup
def _warm() -> None:
    set_bits(np.zeros(1, np.uint8), np.zeros(1, np.int64))
