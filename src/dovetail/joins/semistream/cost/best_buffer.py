"""The disk buffer that serves a MESHJOIN best, in closed form.

Reference: equation F5 of docs/algorithms/semistream.md, 3.1.
"""

from __future__ import annotations

import math

from dovetail.joins.semistream.cost.setting import Setting


def seek_equivalent_bytes(setting: Setting, *, sequential: bool = False) -> float:
    """a: the bytes whose transfer and probing take as long as one seek, from the costs of 64 KiB and 1 MiB."""
    costs = setting.costs
    small, large = 65_536.0, 1_048_576.0
    low, high = (costs.load_s(size, sequential=sequential) for size in (small, large))
    per_byte = max(0.0, high - low) / (large - small)
    seek = max(0.0, low - per_byte * small)
    return seek / (per_byte + costs.probe / setting.row_bytes) if seek else 0.0


def best_buffer_bytes(memory: float, a: float) -> float:
    """b* = -a + sqrt(a^2 + a M), about sqrt(a M): where b (M - b) / (a + b) is largest."""
    return -a + math.sqrt(a * a + a * memory)


def loss_of(buffer: float, memory: float, a: float) -> float:
    """The share of the best rate that another buffer loses."""

    def rate(b: float) -> float:
        return b * (memory - b) / (a + b)

    return 1 - rate(buffer) / rate(best_buffer_bytes(memory, a))
