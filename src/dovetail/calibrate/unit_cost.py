"""Makes unit costs from repeated measurements: median and quartiles; the processor and versions of this machine."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dovetail.engine.profile import Cost
from dovetail.version import __version__

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work goes into a calibration."""

    repeats: int
    rows: int
    spark_repeats: int
    spark_rows: int
    file_bytes: int
    page_sizes: tuple[int, ...]
    page_reads: int


FIRST_USE = Effort(3, 200_000, 0, 0, 16 << 20, (4096, 65_536, 1_048_576), 16)
QUICK = Effort(5, 200_000, 3, 400_000, 64 << 20, (4096, 65_536, 1_048_576), 32)
THOROUGH = Effort(15, 1_000_000, 9, 4_000_000, 1 << 30, (4096, 16_384, 65_536, 262_144, 1_048_576), 200)


def cost_of(samples: Sequence[float]) -> Cost:
    """Median and quartiles of per-unit seconds; a difference of two noisy times may fall below 0 and counts as 0."""
    values = sorted(max(0.0, sample) for sample in samples)
    if len(values) == 1:
        return Cost(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Cost(median, low, high, len(values))


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def worked(work: Callable[[], object]) -> float:
    """Seconds of a processor that one call takes; waits for a busy machine do not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def repeated(work: Callable[[], float], repeats: int) -> Cost:
    """The cost from `repeats` calls, after one call to warm up; each call returns seconds per unit."""
    work()
    return cost_of([work() for _ in range(repeats)])


def seconds(value: float, like: float | None = None) -> str:
    """A duration with three significant digits, in the unit that suits it or another value that it stands beside."""
    unit, size = next((u for u in UNITS if (value if like is None else like) >= u[1]), UNITS[-1])
    return f"{digits(value / size)} {unit}"


def digits(value: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "pandas")
"""Packages whose versions decide figures; a benchmark adds those of its rivals."""


def cpu_model() -> str:
    """The model name that the kernel reports, or what Python knows of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def versions(extra: Iterable[str] = ()) -> dict[str, str | None]:
    """Version by package; None for a package that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "dovetail": __version__}
    for package in sorted({*PACKAGES, *extra}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
