"""The scenes over which the semi-stream models and their choice are judged."""

from __future__ import annotations

from itertools import product
from typing import Final

from bench.experiments.models.semistream_runs import DEVICES, Scene
from dovetail.joins.semistream.master.pages import Order

LOADS: Final = {"small": 250, "full": 4_000}
"""About so many loads are measured of each join, and some times as many come before."""


def scenes() -> list[Scene]:
    """Devices, skews, orders, micro-batches, and memory from a twentieth of the master data to most of it."""
    return [*_endless(), *_ordered(), *_in_batches(), *_by_memory()]


def _endless() -> list[Scene]:
    shapes = ((10_000, 256 << 10), (20_000, 768 << 10))
    return [
        Scene(rows, memory, exponent, device)
        for device, (rows, memory), exponent in product(DEVICES, shapes, (0.0, 0.7, 1.1))
    ]


def _ordered() -> list[Scene]:
    orders: tuple[tuple[Order, tuple[str, ...]], ...] = (("frequency", tuple(DEVICES)), ("none", ("hdd", "ssd")))
    return [
        Scene(20_000, 512 << 10, exponent, device, order)
        for order, devices in orders
        for device, exponent in product(devices, (0.7, 1.1))
    ]


def _in_batches() -> list[Scene]:
    key = [
        Scene(20_000, 512 << 10, exponent, device, "key", batch)
        for device, batch, exponent in product(DEVICES, (500, 10_000), (0.5, 1.1))
    ]
    ordered = [
        Scene(20_000, 512 << 10, 1.0, device, "frequency", batch)
        for device, batch in product(("hdd", "ssd"), (500, 10_000))
    ]
    return key + ordered


def _by_memory() -> list[Scene]:
    sizes = (192 << 10, 384 << 10, 768 << 10, 1536 << 10)
    return [Scene(20_000, memory, 1.0, "ssd", "key", batch) for memory, batch in product(sizes, (None, 2_000))]
