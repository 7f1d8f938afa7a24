"""Which requests of a run find their page among those used last."""

from __future__ import annotations

import numpy as np

from dovetail.engine.kernels.arrays import I32, I64
from dovetail.engine.kernels.compile import kernel, register_warmup


@kernel
def hits_until(pages: I64, start: int, place: I32, used: I64, now: int) -> int:
    """The first request, from `start` on, whose page has no place; those before mark theirs as used now, one by one."""
    for row in range(start, len(pages)):
        at = place[pages[row]]
        if at < 0:
            return row
        used[at] = now + row - start
    return len(pages)


@register_warmup
def _warm() -> None:
    some = np.arange(2, dtype=np.int64)
    some.flags.writeable = False
    hits_until(some, 0, np.full(2, -1, np.int32), np.zeros(2, np.int64), 0)
