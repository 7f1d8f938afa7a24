"""Reads through a storage device: the real one, or a simulated one, so that I/O experiments are repeatable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dovetail.engine.clock import Clock, RealClock
from dovetail.engine.metrics import Metrics
from dovetail.errors import ConfigError, PlanError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """The cost of one read: `request_s` always, `seek_s` if it does not follow the last read, and time for its bytes.

    `bytes_per_s=None` stands for the machine itself: nothing is simulated.
    """

    name: str
    seek_s: float = 0.0
    request_s: float = 0.0
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.seek_s < 0 or self.request_s < 0 or (self.bytes_per_s is not None and self.bytes_per_s <= 0):
            raise PlanError(
                f"device {self.name!r} has seek_s={self.seek_s}, request_s={self.request_s}, "
                f"bytes_per_s={self.bytes_per_s}; times must be 0 or more and the rate above 0."
            )
        if self.bytes_per_s is None and (self.seek_s or self.request_s):
            raise PlanError(f"device {self.name!r} has latencies but no bytes_per_s; give a rate, or no latencies.")

    @property
    def simulated(self) -> bool:
        """Whether times on this device are computed rather than measured."""
        return self.bytes_per_s is not None

    def read_s(self, nbytes: int, sequential: bool = False) -> float:
        """Seconds that the model charges for one read; 0 for the real device."""
        if self.bytes_per_s is None:
            return 0.0
        return (0.0 if sequential else self.seek_s) + self.request_s + nbytes / self.bytes_per_s

    def explain(self) -> str:
        """The model in one line, which says whether it is a simulation."""
        if self.bytes_per_s is None:
            return f"{self.name} (measured)"
        return (
            f"{self.name} (simulated: seek {self.seek_s * 1e3:g} ms, request {self.request_s * 1e3:g} ms, "
            f"{self.bytes_per_s / 1e6:g} MB/s)"
        )


# Round figures of their class: a 7200 rpm disk (average seek plus half a turn), a SATA flash disk, a database in the
# same data centre (one round trip and one index look-up a request), and an object store (time to first byte; every
# request pays it, so that a sequential read saves nothing).
PRESETS = {
    "real": DeviceModel("real"),
    "hdd": DeviceModel("hdd", seek_s=0.0125, bytes_per_s=150e6),
    "ssd": DeviceModel("ssd", seek_s=0.0001, bytes_per_s=500e6),
    "database": DeviceModel("database", request_s=0.001, bytes_per_s=100e6),
    "object_store": DeviceModel("object_store", request_s=0.03, bytes_per_s=90e6),
}


class Device:
    """Reads through a model: each is counted and takes at least as long, on the device's clock, as the model says.

    With a `VirtualClock` time is exactly the model's and nothing waits; with the real clock the caller waits until the
    model's time has passed. Metrics of simulated devices carry a note.

    >>> from dovetail.engine.clock import VirtualClock
    >>> disk = Device("hdd", VirtualClock())
    >>> disk.call(lambda: b"page", nbytes=1_500_000), disk.busy_ns
    (b'page', 22500000)
    """

    def __init__(self, model: DeviceModel | str = "real", clock: Clock | None = None) -> None:
        self.model = _preset(model) if isinstance(model, str) else model
        self.clock: Clock = clock or RealClock()
        self.requests = self.seeks = self.bytes_read = self.busy_ns = 0
        self.at_once = 1  # requests that are under way at a time, when many are made
        self._follows: object = None

    @property
    def simulated(self) -> bool:
        """Whether this device's times are computed rather than measured."""
        return self.model.simulated

    def read(self, path: Path, offset: int, size: int) -> bytes:
        """`size` bytes of a file from `offset` on, fewer at its end; reading on from the last read needs no seek."""

        def fetch() -> bytes:
            with path.open("rb", buffering=0) as file:
                file.seek(offset)
                return file.read(size)

        try:
            return self.call(fetch, nbytes=len, place=(path, offset))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; check that it exists and can be read.") from error

    def call(
        self, fetch: Callable[[], T], nbytes: int | Callable[[T], int], place: tuple[object, int] | None = None
    ) -> T:
        """The result of `fetch`, charged as one read of `nbytes`, which may be a function of the result.

        `place` is the thing read and the position in it; a read that starts where the last one ended is sequential.
        Without a place every read counts as a seek. A fetch that fails is not charged.
        """
        start_ns = self.clock.now_ns()
        result = fetch()
        size = nbytes if isinstance(nbytes, int) else nbytes(result)
        sequential = place is not None and place == self._follows
        self._follows = None if place is None else (place[0], place[1] + size)
        owed_ns = round(self.model.read_s(size, sequential) * 1e9) - (self.clock.now_ns() - start_ns)
        if owed_ns > 0:
            self.clock.sleep(owed_ns / 1e9)
        self.requests += 1
        self.seeks += not sequential
        self.bytes_read += size
        self.busy_ns += self.clock.now_ns() - start_ns
        return result

    def report(self, metrics: Metrics, side: str | None = None) -> None:
        """Add this device's counts to a task's metrics, with a note if it was simulated. Once per task."""
        metrics.add("device_requests", self.requests, side, unit="requests")
        metrics.add("device_seeks", self.seeks, side, unit="seeks")
        metrics.add("device_bytes", self.bytes_read, side, unit="bytes")
        metrics.add_ns("device_time", self.busy_ns, side)
        if self.simulated:
            metrics.note(f"times include a simulated device: {self.model.explain()}")

    def explain(self) -> str:
        """The device in one line, which says whether it is simulated."""
        return self.model.explain()


def _preset(name: str) -> DeviceModel:
    if name not in PRESETS:
        raise PlanError(f"unknown device {name!r}; there are {sorted(PRESETS)}, or give a DeviceModel.")
    return PRESETS[name]
