"""What reads of a real store cost by size: timed on a few of its pages."""

from __future__ import annotations

from statistics import median

import numpy as np

from dovetail.errors import PlanError
from dovetail.semistream.cost.units import Points, ReadCosts
from dovetail.semistream.master.pages import Pages


def measured_reads(pages: Pages, most_bytes: int = 4 << 20, repeats: int = 5, seed: int = 0) -> ReadCosts:
    """c_IO of this store: 1, 4, 16 ... pages up to `most_bytes`, anywhere and in turn, medians of `repeats` reads.

    Times are those of the device's clock, so that a simulated device is found to cost what its model says. What the
    system keeps in its cache is read from there, as the joins themselves would.
    Reference: seed 000, section 3.4.
    """
    n_pages = len(pages.starts) - 1
    if n_pages < 1 or repeats < 1:
        raise PlanError(f"{repeats} reads of a store with {n_pages} pages were asked for; both must be at least 1.")
    counts = [4**i for i in range(16) if 4**i <= n_pages]
    fitting = [n for n in counts if n == 1 or pages.stored_bytes(0, n) <= most_bytes]
    rng = np.random.default_rng(seed)
    random, sequential = {}, {}
    for count in fitting:
        size = float(pages.stored_bytes(0, count))
        anywhere = rng.integers(0, n_pages - count + 1, repeats).tolist()
        random[size] = median(_read_s(pages, first, count, jump=True) for first in anywhere)
        in_turn = range(0, n_pages - count + 1, count)[: repeats + 1]
        times = [_read_s(pages, first, count, jump=False) for first in in_turn]
        sequential[size] = median(times[1:] or times)
    return ReadCosts(_rising(random), _rising(sequential))


def _read_s(pages: Pages, first: int, count: int, *, jump: bool) -> float:
    if jump and len(pages.starts) > 2:
        pages.read(0 if first else len(pages.starts) - 2, 1)  # so that no read follows the one before by chance
    clock = pages.device.clock
    start = clock.now_ns()
    pages.read(first, count)
    return (clock.now_ns() - start) / 1e9


def _rising(points: dict[float, float]) -> Points:
    """Points by size, none cheaper than a smaller one: what is faster by chance is taken as no slower."""
    sizes = sorted(points)
    costs = np.maximum.accumulate([points[size] for size in sizes])
    return tuple(zip(sizes, costs.tolist(), strict=True))
