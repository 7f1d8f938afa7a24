"""The interval models beside the operators: comparisons, frames moved, and whether a join spills at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from bench.context import BenchContext
from bench.experiment import Cell, Grid
from bench.experiments.models.errors import Compared, against_chart, error_chart, error_table, spreads
from bench.judge import Figures
from bench.rivals.intervals import partners
from dovetail.engine.host import Schedule, run_local
from dovetail.engine.kernels.arrays import F64, I64, int64s
from dovetail.engine.metrics import Metrics
from dovetail.errors import DataError, PlanError
from dovetail.joins.interval.cost import ALGORITHMS, FrameMemory, IntervalStatistics, Price, choose
from dovetail.joins.interval.cost.sampled import SampledSide
from dovetail.joins.interval.cost.statistics import Classes
from dovetail.joins.interval.operators import OPERATORS, Frames
from dovetail.joins.interval.operators.spec import END, START
from dovetail.joins.interval.relation import Relation
from dovetail.spark.hosts.sample import SAMPLE_ROWS

_ROW_BYTES = 24  # start, end and number


@dataclass(frozen=True, slots=True)
class Mix:
    """One input: `rate` rows start at an instant, of which each class (share, duration) has its share.

    Rows of one class come at even steps; a mixture comes at random, as the models assume of neither.
    """

    rate: float
    classes: tuple[tuple[float, int], ...]

    @classmethod
    def even(cls, rate: float, duration: int) -> Mix:
        """Rows that all last the same."""
        return cls(rate, ((1.0, duration),))

    def __str__(self) -> str:
        if len(self.classes) == 1:
            return f"{self.rate:g} x {self.classes[0][1]}"
        parts = ", ".join(f"{100 * share:.4g}% {duration}" for share, duration in self.classes)
        return f"{self.rate:g} x ({parts})"

    def bounds(self, span: int, seed: int) -> tuple[I64, I64]:
        """Starts within `span` instants and their ends, in the order of both."""
        n = round(self.rate * span)
        if len(self.classes) == 1:
            start = np.floor(np.arange(n) * (span / n)).astype(np.int64)
            return int64s(start), int64s(start + self.classes[0][1])
        rng = np.random.default_rng([seed, n])
        start = rng.integers(0, span, n)
        cuts = np.rint(np.cumsum([share for share, _ in self.classes]) * n).astype(int)
        lasts = np.array([duration for _, duration in self.classes])
        end = start + rng.permutation(lasts[np.searchsorted(cuts, np.arange(n), side="right").clip(max=len(lasts) - 1)])
        order = np.lexsort((end, start))
        return int64s(start[order]), int64s(end[order])


def length_classes(lengths: ArrayLike, arrival_rate: float, *, limit: int = 16) -> Classes:
    """(rate, duration) classes, shortest first, whose rates add to `arrival_rate`; at most `limit` of them.

    A sample of few distinct lengths gets a class per length. Otherwise classes are of equal width on the logarithm of
    the length, at least an octave wide, and carry their mean length: the active rows (L) and, edges aside, the join
    size are then those of the sample itself.
    """
    sample = np.asarray(lengths, dtype=np.float64)
    if limit < 1:
        raise PlanError(f"limit = {limit} classes were asked for; give at least 1.")
    if sample.size == 0 or arrival_rate <= 0:
        return ()
    if not np.isfinite(sample).all() or sample.min() <= 0:
        raise PlanError("lengths must be positive and finite; drop null and empty intervals from the sample first.")
    values, counts = np.unique(sample, return_counts=True)
    if values.size > limit:
        values, counts = _octaves(values, counts, limit)
    rates = counts * (arrival_rate / sample.size)
    return tuple(zip(rates.tolist(), values.tolist(), strict=True))


def _octaves(values: F64, counts: I64, limit: int) -> tuple[F64, I64]:
    logs = np.log2(values / values[0])
    width = max(1.0, float(logs[-1]) / limit)
    bins = np.minimum((logs / width).astype(np.int64), limit - 1)
    sizes = np.bincount(bins, weights=counts)
    sums = np.bincount(bins, weights=counts * values)
    used = sizes > 0
    return sums[used] / sizes[used], sizes[used].astype(np.int64)


def summarise(
    starts: ArrayLike,
    ends: ArrayLike,
    tuple_bytes: float,
    *,
    rows: int | None = None,
    instants_per_unit: float = 1.0,
    limit: int = 16,
) -> IntervalStatistics:
    """Statistics of the given intervals `[start, end)`, or of `rows` intervals if the given ones are a sample.

    Every interval must be valid: no nulls, start < end.
    """
    first, last = np.asarray(starts, dtype=np.float64), np.asarray(ends, dtype=np.float64)
    if first.size == 0:
        return IntervalStatistics(0, 0, 0, 0, 0, tuple_bytes)
    lengths = last - first
    if not (lengths > 0).all():
        raise PlanError("an interval with start >= end was given; drop empty and inverted intervals first.")
    n_rows = first.size if rows is None else rows
    span = (first.max() - first.min()) * instants_per_unit + 1
    return IntervalStatistics.measured(
        n_rows,
        float(first.min()),
        float(first.max()),
        float(last.max()),
        float(lengths.mean()),
        float(lengths.max()),
        tuple_bytes,
        classes=length_classes(lengths, n_rows / span, limit=limit),
        instants_per_unit=instants_per_unit,
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two inputs over the same instants."""

    left: Mix
    right: Mix
    span: int

    def __str__(self) -> str:
        return f"{self.left} with {self.right}"

    def bounds(self) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
        """Starts and ends of both."""
        return self.left.bounds(self.span, 1), self.right.bounds(self.span, 2)

    def pairs(self) -> int:
        """How many pairs overlap."""
        return int(partners(*self.bounds()).sum())

    def statistics(self, tuple_bytes: float) -> tuple[IntervalStatistics, IntervalStatistics]:
        """The statistics that the models are given, classes included."""
        left, right = (summarise(start, end, tuple_bytes) for start, end in self.bounds())
        return left, right

    def samples(self, tuple_bytes: float) -> tuple[SampledSide, SampledSide]:
        """Rows drawn as the planner of `interval_join` draws them, over which sweeps are followed."""
        left, right = (_sampled(start, end, tuple_bytes) for start, end in self.bounds())
        return left, right

    def batches(self, pieces: int, payload: int = 0) -> dict[str, list[pa.RecordBatch]]:
        """Both inputs in as many pieces, so that neither runs ahead of the other; `payload` columns of eight bytes."""
        return {
            side: _cut(_rows(side, *bounds, payload), pieces)
            for side, bounds in zip(("left", "right"), self.bounds(), strict=True)
        }


def _sampled(start: I64, end: I64, tuple_bytes: float) -> SampledSide:
    few = np.random.default_rng(3).permutation(len(start))[:SAMPLE_ROWS]
    return SampledSide.of(start[few].astype(float), end[few].astype(float), len(start), tuple_bytes)


def _rows(side: str, start: I64, end: I64, payload: int) -> pa.RecordBatch:
    number = np.arange(len(start))
    columns = {START: start, END: end, f"{side}_id": number}
    return pa.record_batch(columns | {f"{side}_{i}": number + i for i in range(payload)})


def _cut(rows: pa.RecordBatch, pieces: int) -> list[pa.RecordBatch]:
    edges = np.linspace(0, rows.num_rows, pieces + 1).astype(int)
    return [rows.slice(low, high - low) for low, high in pairwise(edges.tolist()) if high > low]


def row_bytes(payload: int) -> int:
    """Bytes of a row in Arrow form without the codes, which repeat its bounds."""
    return _ROW_BYTES + 8 * payload


FRAME_BYTES: Final = 8192
TUPLE_BYTES: Final = 2296  # the wide tuples of the source: three in a frame
COMPARISONS, FRAMES = "comparisons", "frames"
_PIECES = 16
_BUDGET = 8 << 20  # frames decide what is held; bytes decide how long the blocks are that partitioned joins read
_OVERLAPPING = Relation.parse("overlapping")


@dataclass(frozen=True, slots=True)
class Setting:
    """Two inputs and a number of frames."""

    pair: Pair
    frames: int

    def __str__(self) -> str:
        return f"{self.pair}, {self.frames} frames"

    def predicted(self) -> dict[str, Price]:
        """The prices of the five algorithms, inputs as given."""
        memory = FrameMemory(FRAME_BYTES, self.frames)
        prices = choose(*self.pair.statistics(TUPLE_BYTES), memory, samples=self.pair.samples(TUPLE_BYTES)).prices
        return {price.algorithm: price for price in prices if not price.swapped}

    def counted(self, algorithm: str) -> Metrics:
        """The operator's own counts; DataError if it finds another number of pairs than sorted bounds tell."""
        frames = Frames(self.frames, FRAME_BYTES, TUPLE_BYTES)
        spec = OPERATORS[algorithm](relation=_OVERLAPPING, emit="count", frames=frames)
        run = run_local(spec, self.pair.batches(_PIECES), _BUDGET, Schedule("round_robin"))
        for _ in run:
            pass
        found, expected = run.metrics.value("pairs"), self.pair.pairs()
        if found != expected:
            raise DataError(f"{algorithm} found {found:,} pairs of {self}, not {expected:,}.")
        return run.metrics


def grid(small: bool) -> Iterator[Setting]:
    """Rates and durations from sparse to dense, alike and not, single and mixed, in memory from short to ample."""
    long = 500 if small else 4_000
    same = [(1.0, 20), (10.0, 10), (1.0, 100), (6.0, 50), (3.0, 150)]
    other = [((1.0, 10), (10.0, 100)), ((10.0, 100), (1.0, 10)), ((5.0, 200), (1.0, 5)), ((20.0, 5), (2.0, 150))]
    pairs = [Pair(Mix.even(*one), Mix.even(*one), long) for one in same]
    pairs += [Pair(Mix.even(*one), Mix.even(*two), long) for one, two in other]
    short, tail = ((0.9, 10), (0.1, 100)), ((0.7, 5), (0.2, 50), (0.1, 300))
    pairs += [
        Pair(Mix(5.0, short), Mix(5.0, short), long),
        Pair(Mix(5.0, tail), Mix.even(2.0, 20), long),
        Pair(Mix.even(4.0, 30), Mix(4.0, tail), long),
        Pair(Mix(2.0, tail), Mix(8.0, short), long),
    ]
    for pair, frames in product(pairs, (48, 192, 768)):
        yield Setting(pair, frames)


@dataclass(frozen=True, slots=True)
class Spilled:
    """Whether an algorithm spilled, as predicted and as it was."""

    algorithm: str
    setting: str
    predicted: bool
    found: bool


def _moved(metrics: Metrics) -> float:
    return float(
        sum(metrics.value(name, side) for name in ("frames_written", "frames_read") for side in ("left", "right"))
    )


def compare(settings: Sequence[Setting]) -> tuple[list[Compared], list[Spilled], int]:
    """Every algorithm in every setting: errors, spills, and the pairs that were checked."""
    compared, spilled, rows = [], [], 0
    for setting in settings:
        prices = setting.predicted()
        for algorithm in ALGORITHMS:
            price, metrics = prices[algorithm], setting.counted(algorithm)
            rows += int(metrics.value("pairs"))
            done = float(metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive"))
            compared.append(Compared(algorithm, COMPARISONS, str(setting), price.comparisons, done))
            moved = _moved(metrics)
            spilled.append(Spilled(algorithm, str(setting), price.spills, moved > 0))
            if price.spills and moved:
                compared.append(Compared(algorithm, FRAMES, str(setting), price.frames, moved))
    return compared, spilled, rows


def _spill_table(spilled: Sequence[Spilled]) -> Grid:
    rows: list[list[Cell]] = []
    for name in ALGORITHMS:
        some = [one for one in spilled if one.algorithm == name]
        wrong = [one for one in some if one.predicted != one.found]
        false = sum(one.predicted for one in wrong)
        rows.append(
            [name, len(some), sum(one.found for one in some), len(some) - len(wrong), false, len(wrong) - false]
        )
    heads = ("algorithm", "settings", "spilled", "predicted right", "predicted, did not", "did, not predicted")
    return Grid("Does it spill?", heads, rows)


def errors(bench: BenchContext) -> Figures:
    """Predictions and counts over the grid."""
    compared, spilled, rows = compare(list(grid(bench.scale == "small")))
    found = spreads(compared)
    shown = [against_chart(compared, FRAMES, FRAMES), error_chart(found, COMPARISONS), error_chart(found, FRAMES)]
    tables = [error_table(found, "Predicted against counted"), _spill_table(spilled)]
    return Figures({"found": found, "spilled": spilled}, [*shown, *tables], rows)
