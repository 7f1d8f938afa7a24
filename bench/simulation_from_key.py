"""HYBRIDJOIN with loads that begin at the key looked up, as an experiment: what the sources may have run.

A load gives the `d` rows from the oldest waiting key on, not the aligned segment that the key is in. Waiting rows just
below the key stay behind and cause another, overlapping load, so that it needs more loads than aligned segments do.
Only counted: no join of ours reads this way.
Reference: docs/algorithms/semistream.md, 1.2, 6.11 and 8.4.
"""

from __future__ import annotations

import numpy as np

from bench.simulation import SOURCE_UNITS, Experiment, Keys, Rate, UnitCosts
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel


def rate_from_key(of: Experiment, keys: Keys, warm: float, measure: float, units: UnitCosts = SOURCE_UNITS) -> Rate:
    """The rate of HYBRIDJOIN over a stream that is never short; lengths are in multiples of the waiting rows.

    Reads and steps are priced as `service_rate` does for aligned segments.
    """
    d = of.rows("hybridjoin")
    slots = of.memory.waiting(d)
    stream = int64s(keys(int((warm + measure + 1) * slots)))
    loads, rows = hybridjoin_from_key(stream, of.n, d, slots, int(warm * slots))
    each = of.disk.read_s(d * of.memory.row_bytes) + d * units.probe
    return Rate("HybridJoin from key", rows / loads, 0.0, rows / (loads * each + rows * units.stay), loads)


@kernel
def hybridjoin_from_key(stream: I64, n: int, d: int, slots: int, warm: int) -> tuple[int, int]:
    """Loads, and rows that they answered, after `warm` rows were and until the stream has no more to admit.

    A row of the stream waits as long as its key was not loaded after it was admitted.
    """
    waiting, loaded_at = np.zeros(n, np.int64), np.zeros(n, np.int64)
    admitted, answered, oldest, loads, rows = 0, 0, 0, 0, 0
    free = slots
    while admitted + free <= len(stream):
        for at in range(admitted, admitted + free):
            waiting[stream[at]] += 1
        admitted += free
        while loaded_at[stream[oldest]] > oldest:
            oldest += 1
        first = stream[oldest]
        free = 0
        for key in range(first, min(first + d, n)):
            free += waiting[key]
            waiting[key] = 0
            loaded_at[key] = admitted
        answered += free
        if answered > warm:
            loads += 1
            rows += free
    return loads, rows
