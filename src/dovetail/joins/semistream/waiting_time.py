"""How long rows waited, as counts by powers of two that add up over tasks, and percentiles of them."""

from __future__ import annotations

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.metrics import Metrics


def report_waits(metrics: Metrics, name: str, buckets: I64) -> None:
    """Count rows by waiting time: "name.lt_2^b_ns" rows took less than 2**b ns, but not less than half of it."""
    for b, n in enumerate(buckets.tolist()):
        if n:
            metrics.add(f"{name}.lt_2^{b:02d}_ns", n)


def wait_percentiles(metrics: Metrics, name: str, shares: tuple[float, ...] = (0.5, 0.95, 0.99)) -> dict[float, float]:
    """For each share the seconds within which that share of all rows was served, an upper bound within a factor two."""
    prefix = f"{name}.lt_2^"
    found = sorted((int(e.name[len(prefix) :].split("_")[0]), e.value) for e in metrics.entries() if prefix in e.name)
    total, out = sum(n for _, n in found), {}
    for share in shares:
        reached, seconds = 0, 0.0
        for bits, n in found:
            if reached < share * total:
                reached, seconds = reached + n, 2.0**bits / 1e9
        out[share] = seconds
    return out
