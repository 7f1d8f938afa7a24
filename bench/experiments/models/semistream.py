"""The semi-stream models beside the joins, on simulated devices.

Joins are decided as `enrich` decides, run for real, and priced by what they counted: rows a load and rows a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiments.models.errors import Compared, against_chart, error_chart, error_table, spreads
from bench.judge import Figures
from bench.simulation import Meter, SimulatedPages, steps_s
from dovetail.engine.clock import VirtualClock
from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.storage.device import PRESETS, Device, DeviceModel
from dovetail.errors import DataError, PlanError
from dovetail.joins.semistream.cost.models import MODELS
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.decision import Decision, Sample, Wiring, decide, setting_for, specification
from dovetail.joins.semistream.master.pages import Order
from dovetail.joins.semistream.operators.operator import SemiStreamOperator
from dovetail.joins.semistream.request import EnrichOptions, Request
from dovetail.workloads.zipf import ZipfLaw

DEVICES: Final[dict[str, DeviceModel]] = {
    "hdd": PRESETS["hdd"],
    "ssd": PRESETS["ssd"],
    "nvme": DeviceModel("nvme", seek_s=20e-6, bytes_per_s=3e9),
    "object store": PRESETS["object_store"],
}
STREAM = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field("id", pa.int64(), nullable=False)])
PAGE_ROWS, ROW_BYTES = 64, 120
WIRING = Wiring(("key",), ("key",), "inner")
_SAMPLED = 4_000
_FEED = 1 << 16
_AMPLE = 1 << 40  # sizes are fitted to the memory of the scene; pages that are slices would count as a whole


@contextmanager
def typical_costs(place: Path) -> Iterator[None]:
    """Costs that are the same on every machine: the planner finds no profile that was measured on this one."""
    name, before = "DOVETAIL_PROFILE", os.environ.get("DOVETAIL_PROFILE")
    os.environ[name] = str(place / "no-profile.json")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@lru_cache(maxsize=8)
def _law(rows: int, exponent: float) -> ZipfLaw:
    return ZipfLaw(rows, exponent, "integral")


@dataclass(frozen=True, slots=True)
class Scene:
    """One setting: master rows in an order on a device, memory, and a stream by Zipf's law.

    `batch_rows`: rows of a micro-batch that is answered to its end; None for a stream without such ends.
    """

    rows: int
    memory: int
    exponent: float
    device: str
    order: Order = "key"
    batch_rows: int | None = None

    def __str__(self) -> str:
        ends = "endless" if self.batch_rows is None else f"batches of {self.batch_rows:,}"
        return (
            f"{self.rows:,} rows on {self.device} in order of {self.order}, {self.memory >> 10:,} KiB, "
            f"exponent {self.exponent:g}, {ends}"
        )

    def pages(self) -> SimulatedPages:
        """The master data on a device that has done nothing yet."""
        device = Device(DEVICES[self.device], VirtualClock())
        return SimulatedPages(self.rows, PAGE_ROWS, ROW_BYTES, self.order, device, seed=3)

    def keys(self, n: int, seed: int) -> I64:
        """Keys of the stream; by frequency the most frequent key comes first, else frequent keys are scattered."""
        ranks = _law(self.rows, self.exponent).ranks(np.random.default_rng([seed, self.rows]), n) - 1
        if self.order == "frequency":
            return int64s(ranks)
        return int64s(_scattered(self.rows)[ranks])

    def request(self, algorithm: str = "auto") -> Request:
        """The request as a user makes it."""
        options: dict[str, Any] = {"on": "key", "algorithm": algorithm, "memory": self.memory}
        return EnrichOptions(**options).request()

    def sample(self) -> Sample:
        """The stream as the planner sees it."""
        return Sample(self.keys(_SAMPLED, 7), self.batch_rows)

    def decision(self, algorithm: str = "auto") -> Decision:
        """The decision of `enrich`, for one algorithm or among all."""
        return decide(self.request(algorithm), WIRING, self.pages(), STREAM, self.sample())

    def setting(self) -> Setting:
        """The setting that the models are given."""
        return setting_for(self.request(), self.pages(), STREAM, self.sample())[0]


@lru_cache(maxsize=8)
def _scattered(rows: int) -> I64:
    return int64s(np.random.default_rng(rows).permutation(rows))


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of a join in its measured part: rows, loads, answers from memory, and seconds by the table of costs."""

    rows: int
    loads: int
    hits: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def per_load(self) -> float:
        """Rows a load."""
        return self.rows / max(1, self.loads)


def counted(scene: Scene, found: Decision, setting: Setting, loads: int) -> Counted:
    """The join as decided, first until it has settled, then over as many rows as about `loads` reads answer.

    Reads cost what the device charges. Everything else is counted and priced by the same table that the models use.
    """
    pages = scene.pages()
    spec = specification(scene.request(found.algorithm), WIRING, pages, found.algorithm, found.sizes)
    spec = replace(spec, sizes=spec.fit(scene.memory, STREAM))
    keys = _Keys(scene)
    with spec.open(MemoryBudget(_AMPLE), {"stream": STREAM}) as operator:
        warm, measure = _lengths(scene, found, operator.sizes.waiting or 1, loads)
        answered = _feed(operator, keys, warm, scene.batch_rows)
        meter = Meter(operator)
        answered += _feed(operator, keys, measure, scene.batch_rows)
        did, seconds = meter.did(), meter.reading_s()
        answered += sum(batch.num_rows for batch in operator.drain())
        if answered != warm + measure:
            raise DataError(f"{found.algorithm} in {scene} took {warm + measure:,} rows and answered {answered:,}.")
        seconds += steps_s(operator, did, setting.costs)
        if scene.batch_rows:
            seconds += -(-measure // scene.batch_rows) * _visits_s(found.algorithm, operator, did, setting, measure)
    return Counted(did["rows"], did["loads"], did["answered_by_cache"], seconds)


class _Keys:
    """The stream, in turn."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._drawn = scene, 0

    def next(self, n: int) -> pa.RecordBatch:
        """The next n rows."""
        self._drawn += 1
        keys = self._scene.keys(n, 100 + self._drawn)
        return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(np.arange(n))], schema=STREAM)


def _lengths(scene: Scene, found: Decision, waiting: int, loads: int) -> tuple[int, int]:
    """Rows before and in the measured part: rounds of the waiting rows, or whole micro-batches.

    Joins that learn what is wanted are given more time for it. Loads bound both, so that a scene takes seconds.
    """
    learns = found.algorithm in ("cachejoin", "sscj", "ssij", "partitioned")
    measured = loads * max(1.0, _per_load(found))
    if found.algorithm == "inlj":
        return 100, loads
    if scene.batch_rows is None:
        before = _whole(8 * measured, waiting, 10) if learns else 3 * waiting
        return before, _whole(measured, waiting, 8)
    batch = scene.batch_rows
    before = _whole(min(5 * measured, max(5 * waiting, 2 * scene.rows)), batch, 100) if learns else batch
    return before, max(2 * batch, _whole(measured, batch, 8))


def _whole(rows: float, unit: int, most: int) -> int:
    """About `rows` rows in whole units, at least one unit."""
    return unit * max(1, min(most, round(rows / unit)))


def _per_load(found: Decision) -> float:
    price = found.price
    if price is None or price.prediction is None:
        return 1.0
    return price.batch.rows / max(1.0, price.batch.steps) if price.batch else 1 / price.prediction.loads_per_tuple


def _feed(operator: SemiStreamOperator, keys: _Keys, rows: int, batch_rows: int | None) -> int:
    """Rows pushed, micro-batches answered to their end; how many answers came."""
    answers, each = 0, batch_rows or _FEED
    for start in range(0, rows, each):
        answers += sum(batch.num_rows for batch in operator.push("stream", keys.next(min(each, rows - start))))
        if batch_rows:
            answers += sum(batch.num_rows for batch in operator.drain())
    return answers


def _visits_s(
    algorithm: str, operator: SemiStreamOperator, did: dict[str, int], setting: Setting, measured: int
) -> float:
    """Seconds a micro-batch in which rows meet resident segments, were all of these asked for alike.

    Operators do not count such meetings, so they are taken from the answers that they did count.
    """
    kept = operator.sizes.resident or 0
    if algorithm not in ("ssij", "partitioned") or not kept:
        return 0.0
    starts = operator.pages.starts
    segment = int(starts[min(operator.sizes.per_segment or 1, len(starts) - 1)])
    hits = did["answered_by_cache"] * (setting.batch_rows or measured) / measured
    return setting.costs.visit_s(segment) * -kept * float(np.expm1(-hits / kept))


def candidates(setting: Setting) -> tuple[str, ...]:
    """The algorithms that can run: those that pin rows want an order of frequency, lists without a bound no stream."""
    ordered = setting.order == "frequency"
    bounded = setting.batch_rows is not None
    return tuple(
        name
        for name, model in MODELS.items()
        if (ordered or not model.needs_frequency_order) and (bounded or name != "partitioned")
    )


def decided(scene: Scene, setting: Setting) -> dict[str, Decision]:
    """The decision of `enrich` for each algorithm that can run and has room for its least sizes."""
    found = {}
    for algorithm in candidates(setting):
        with suppress(PlanError):
            decision = scene.decision(algorithm)
            spec = specification(scene.request(algorithm), WIRING, scene.pages(), algorithm, decision.sizes)
            spec.fit(scene.memory, STREAM)
            found[algorithm] = decision
    return found


LOADS: Final = {"small": 250, "full": 4_000}
"""Loads that are measured of each join, about; some times as many come before."""


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


PER_LOAD, RATE = "rows a load", "rows a second"
EVERY: Final = 3
"""Of the scenes of the choice every third one is run again here, whole."""


def predicted(found: Decision) -> tuple[float, float] | None:
    """Rows a load and rows a second as the model has them; None where no model found room."""
    price = found.price
    if price is None or price.prediction is None:
        return None
    loads = price.batch.steps / price.batch.rows if price.batch else price.prediction.loads_per_tuple
    return 1 / max(loads, 1e-9), price.rate


def compare(some: Sequence[Scene], loads: int) -> tuple[list[Compared], int]:
    """Every algorithm that can run in every scene, and the rows that were answered."""
    compared, rows = [], 0
    for scene in some:
        setting = scene.setting()
        for algorithm, found in decided(scene, setting).items():
            told = predicted(found)
            if told is None:
                continue
            did = counted(scene, found, setting, loads)
            rows += did.rows
            if did.loads:
                compared.append(Compared(algorithm, PER_LOAD, str(scene), told[0], did.per_load))
            compared.append(Compared(algorithm, RATE, str(scene), told[1], did.rate))
    return compared, rows


def errors(bench: BenchContext) -> Figures:
    """Predictions and counts of every third scene."""
    with typical_costs(bench.scratch):
        compared, rows = compare(scenes()[::EVERY], LOADS[bench.scale])
    found = spreads(compared)
    charts = [against_chart(compared, RATE, RATE), error_chart(found, PER_LOAD), error_chart(found, RATE)]
    return Figures({"found": found}, [*charts, error_table(found, "Predicted against counted")], rows)
