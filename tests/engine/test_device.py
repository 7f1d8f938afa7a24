"""Clocks and devices: a simulated run takes exactly the modelled time, and says that it was simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.engine.clock import RealClock, VirtualClock
from dovetail.engine.metrics import Metrics
from dovetail.engine.storage.device import PRESETS, Device, DeviceModel
from dovetail.errors import ConfigError, PlanError

SLOW = DeviceModel("slow", seek_s=0.010, request_s=0.001, bytes_per_s=1000.0)


def test_virtual_time_passes_only_when_told() -> None:
    clock = VirtualClock(5)
    assert clock.now_ns() == clock.now_ns() == 5
    clock.sleep(1e-9)
    clock.advance(2)
    clock.advance_ns(3)
    assert clock.now_ns() == 2_000_000_009
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_real_time_does_not_run_backwards() -> None:
    clock = RealClock()
    before = clock.now_ns()
    clock.sleep(0.001)
    clock.sleep(-1)
    assert clock.now_ns() - before >= 1_000_000


def test_sequential_reads_save_the_seek_and_times_are_exact(tmp_path: Path) -> None:
    file = tmp_path / "pages"
    file.write_bytes(bytes(range(100)))
    clock = VirtualClock()
    disk = Device(SLOW, clock)
    assert disk.read(file, 10, 20) == bytes(range(10, 30))
    assert clock.now_ns() == 31_000_000
    disk.read(file, 30, 10)  # follows the first: no seek
    assert clock.now_ns() == 42_000_000
    disk.read(file, 30, 10)  # does not follow itself
    assert clock.now_ns() == 63_000_000
    assert disk.read(file, 95, 10) == bytes(range(95, 100))  # the file ends: 5 bytes are charged
    assert clock.now_ns() == 79_000_000
    assert (disk.requests, disk.seeks, disk.bytes_read, disk.busy_ns) == (4, 3, 45, 79_000_000)


def test_calls_are_charged_by_what_they_return() -> None:
    clock = VirtualClock()
    store = Device(SLOW, clock)
    assert store.call(lambda: [1, 2, 3], nbytes=lambda rows: 10 * len(rows)) == [1, 2, 3]
    assert clock.now_ns() == 41_000_000
    store.call(lambda: None, nbytes=0)
    assert store.seeks == 2, "without a place every call is a seek"

    def failing() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        store.call(failing, nbytes=1)
    assert (store.requests, clock.now_ns()) == (2, 52_000_000)


def test_work_inside_the_fetch_counts_towards_the_model() -> None:
    clock = VirtualClock()
    disk = Device(DeviceModel("d", seek_s=0.005, bytes_per_s=1e9), clock)
    disk.call(lambda: clock.advance(0.002), nbytes=0)
    assert disk.busy_ns == 5_000_000
    disk.call(lambda: clock.advance(0.008), nbytes=0)
    assert disk.busy_ns == 13_000_000


def test_the_real_device_adds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    real = Device(clock=VirtualClock())
    assert real.read(file, 1, 1) == b"b"
    assert (real.simulated, real.busy_ns) == (False, 0)
    metrics = Metrics()
    real.report(metrics)
    assert metrics.notes == ()
    assert metrics.as_dict()["device_bytes"] == 1


def test_a_simulation_says_so() -> None:
    disk = Device("hdd", VirtualClock())
    disk.call(lambda: b"", nbytes=150)
    metrics = Metrics()
    disk.report(metrics, side="master")
    assert disk.explain() == "hdd (simulated: seek 12.5 ms, request 0 ms, 150 MB/s)"
    assert metrics.notes == ("times include a simulated device: " + disk.explain(),)
    assert metrics.seconds("device_time", "master") == 0.012501
    assert Device().explain() == "real (measured)"


def test_presets_are_ordered_as_their_classes_are() -> None:
    page = {name: model.read_s(16 * 1024) for name, model in PRESETS.items()}
    assert page["real"] < page["ssd"] < page["database"] < page["hdd"] < page["object_store"]
    assert PRESETS["hdd"].read_s(10**6, sequential=True) < PRESETS["hdd"].read_s(10**6)
    assert PRESETS["object_store"].read_s(1, sequential=True) == PRESETS["object_store"].read_s(1)


def test_wrong_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"unknown device 'floppy'.*'hdd'"):
        Device("floppy")
    for wrong in ({"seek_s": -1.0, "bytes_per_s": 1.0}, {"bytes_per_s": 0.0}, {"seek_s": 1.0}):
        with pytest.raises(PlanError, match="device 'x'"):
            DeviceModel("x", **wrong)
    with pytest.raises(ConfigError, match="cannot read"):
        Device().read(tmp_path / "missing", 0, 1)
