"""What reads of a store are assumed to cost, and whether those that a join made cost as much."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.engine.device import Device
from dovetail.joins.semistream.cost.measure_reads import look_up_s, store_reads
from dovetail.joins.semistream.cost.units import ReadCosts
from dovetail.joins.semistream.master.pages import KeyedPages, Pages

LARGE_PAGE = 2 << 20  # bytes; such as row groups of Parquet files that were not written for look-ups
MOVED = 3.0  # times dearer or cheaper than assumed; less may be chance, or what the system kept in memory
_ENOUGH_S = 0.02  # of reading, from which its cost can be told


@dataclass(frozen=True, slots=True)
class IoCosts:
    """Seconds of a read by its size, and of one key where a store finds single ones."""

    read: ReadCosts
    look_up: float | None = None

    def times(self, ratio: float) -> IoCosts:
        """All costs so many times as high."""
        return replace(
            self, read=self.read.times(ratio), look_up=None if self.look_up is None else self.look_up * ratio
        )


@dataclass(frozen=True, slots=True)
class IoDone:
    """Reads made: how many, their bytes, and the time they took on the device's clock."""

    requests: int = 0
    nbytes: int = 0
    busy_s: float = 0.0

    @classmethod
    def by(cls, device: Device) -> IoDone:
        """Everything that a device did so far."""
        return cls(device.requests, device.bytes_read, device.busy_ns / 1e9)

    def since(self, before: IoDone) -> IoDone:
        """What was done after `before`."""
        return IoDone(self.requests - before.requests, self.nbytes - before.nbytes, self.busy_s - before.busy_s)


def io_costs(pages: Pages) -> IoCosts | None:
    """The costs of this store: of a simulated device by its model, of a real one timed on a few of its pages.

    None of a store with large pages, which would take too long, or without rows.
    """
    if not int(pages.starts[-1]):
        return None
    if pages.device.simulated:
        return IoCosts(ReadCosts.of_device(pages.device.model))
    if pages.stored_bytes(0, 1) > LARGE_PAGE:
        return None
    return IoCosts(store_reads(pages), look_up_s(pages))


def dearer(costs: IoCosts | None, done: IoDone, pages: Pages) -> float | None:
    """How many times as much as assumed these reads cost; None if that is about once, or if there were too few."""
    if costs is None or not done.requests or done.busy_s < _ENOUGH_S:
        return None
    expected = _expected_s(costs, done, pages)
    ratio = done.busy_s / expected if expected else 1.0
    return None if 1 / MOVED <= ratio <= MOVED else ratio


def _expected_s(costs: IoCosts, done: IoDone, pages: Pages) -> float:
    if costs.look_up is not None and isinstance(pages, KeyedPages) and pages.finds_keys:
        stored = pages.stored_bytes(0, len(pages.starts) - 1) / max(1, int(pages.starts[-1]))
        return costs.look_up * done.nbytes / max(1.0, stored)
    return done.requests * costs.read.seconds(done.nbytes / done.requests)
