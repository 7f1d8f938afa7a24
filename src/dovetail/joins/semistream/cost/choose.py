"""Chooses the best sizes of a join, by its model or by measuring, and the best algorithm for a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.models import MODELS, BatchPrice, Model, drained, model_of, service_rate
from dovetail.joins.semistream.cost.scans import best_buffer_bytes, seek_equivalent_bytes
from dovetail.joins.semistream.cost.setting import NoRoomError, Prediction, Setting
from dovetail.joins.semistream.sizes import Sizes

Measure = Callable[[Sizes], float]
"""Tuples per second with these sizes, from a model or from a run."""

_LARGEST_SHARE: Final = 0.5  # of memory: no disk buffer is larger

_NO_RATE: Final = -math.inf


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best sizes that were tried, their rate, and every trial in order."""

    sizes: Sizes
    rate: float
    trials: tuple[tuple[Sizes, float], ...]


def tune(algorithm: str, setting: Setting, *, measure: Measure | None = None, trials: int = 400) -> Tuned:
    """The sizes with the highest service rate for `algorithm` in this setting.

    Rates come from the model, or from `measure`, which runs the join; then the model only gives the starting point.
    Starts at the closed form for the buffer (F5), walks on a grid in which neighbours differ by a factor 2, then
    2^(1/2) and 2^(1/4), and stops where no neighbour is better or after `trials` trials. Sizes that do not fit are
    skipped. If none fits, `NoRoomError` is raised.
    Reference: docs/algorithms/semistream.md, 3.1 (F5).
    """
    if trials < 1:
        raise PlanError(f"{trials} trials were allowed; tuning takes at least 1.")
    model = model_of(algorithm)
    climb = _Climb(model, setting, measure or by_model(model, setting), trials)
    near = _near(algorithm, setting, measured=measure is not None)
    if near is not None and measure is None and _waits_at_once(model, setting, near):
        climb.visit([near])
        return climb.result()
    climb.visit(starts(model, setting) if near is None else [near])
    for factor in (2.0, 2**0.5, 2**0.25):
        climb.walk(factor)
    return climb.result()


def _near(algorithm: str, setting: Setting, *, measured: bool) -> Sizes | None:
    """The best sizes by a cheaper estimate: the model before measurements, the plain look-up before costly models."""
    if measured:
        return tune(algorithm, setting).sizes
    if setting.policy.lookup == "oldest":
        return None
    return tune(algorithm, _looking_up_the_oldest(setting)).sizes


def _waits_at_once(model: Model, setting: Setting, sizes: Sizes) -> bool:
    """Whether all rows of a micro-batch that reach storage find slots, so that the look-up policy does not matter."""
    if setting.batch_rows is None:
        return False
    try:
        found = model.predict(_looking_up_the_oldest(setting), sizes)
    except NoRoomError:
        return False
    return setting.batch_rows * (1 - found.p_n) <= (found.sizes.waiting or 1)


def _looking_up_the_oldest(setting: Setting) -> Setting:
    return replace(setting, policy=replace(setting.policy, lookup="oldest"))


def by_model(model: Model, setting: Setting) -> Measure:
    """The rate that the model predicts; minus infinity where the sizes do not fit."""

    def rate(sizes: Sizes) -> float:
        try:
            return service_rate(model.predict(setting, sizes), setting)
        except NoRoomError:
            return _NO_RATE

    return rate


def starts(model: Model, setting: Setting) -> list[Sizes]:
    """Where tuning begins: one page, the closed form for the buffer, and both with small and large caches."""
    if not model.axes:
        return [Sizes(per_segment=1)]
    a = seek_equivalent_bytes(setting, sequential=not model.needs_index)
    best = best_buffer_bytes(setting.memory, a) / (setting.page_rows * setting.row_bytes)
    pages = sorted({1, max(1, min(round(best), most_pages(model, setting)))})
    bases = [Sizes(per_segment=n) for n in pages]
    if model.kept is None:
        return bases
    shares = (0.0, 0.01, 0.1, 0.33, 0.8)
    rows = [min(setting.master_rows, int(share * setting.memory / setting.cached_bytes)) for share in shares]
    found = [model.keeping(base, n, setting) for base in bases for n in rows]
    if setting.batch_rows is None or model.kept == "resident":
        return found
    return [*found, *(_all_but(model, setting, base) for base in bases)]


def _all_but(model: Model, setting: Setting, base: Sizes) -> Sizes:
    """The sizes with the largest cache that leaves slots for a whole micro-batch."""
    try:
        room = model.predict(_looking_up_the_oldest(setting), base).sizes.waiting or 0
    except NoRoomError:
        return base
    entries = (setting.keyed if model.looks_up(setting) else None) or setting.entries
    spare = (room - (setting.batch_rows or 0)) * entries.waiting
    each = setting.row_bytes + entries.cached_extra
    return model.keeping(base, max(0, min(setting.master_rows, int(spare / each))), setting)


class _Climb:
    """Trials so far, and steps from the best of them to its neighbours."""

    def __init__(self, model: Model, setting: Setting, measure: Measure, limit: int) -> None:
        self.model, self.setting, self.measure, self.limit = model, setting, measure, limit
        self.tried: dict[Sizes, float] = {}

    def visit(self, candidates: Iterable[Sizes]) -> None:
        for sizes in candidates:
            if sizes not in self.tried and len(self.tried) < self.limit:
                self.tried[sizes] = self.measure(sizes)

    def best(self) -> Sizes:
        return max(self.tried, key=lambda sizes: self.tried[sizes])

    def walk(self, factor: float) -> None:
        before = None
        while before != (before := self.best()) and len(self.tried) < self.limit:
            self.visit(neighbours(self.model, self.setting, before, factor))

    def result(self) -> Tuned:
        best = self.best()
        if self.tried[best] == _NO_RATE:
            raise NoRoomError(
                f"{self.model.name} does not fit in {self.setting.memory:,} bytes with pages of "
                f"{self.setting.page_bytes:,}; give more memory or smaller pages."
            )
        return Tuned(best, self.tried[best], tuple(self.tried.items()))


def neighbours(model: Model, setting: Setting, sizes: Sizes, factor: float) -> list[Sizes]:
    """Sizes one step away on each axis and on pairs of axes, never without a page or a part."""
    pages = sizes.per_segment or 1
    found = []
    for n_pages in _around(pages, factor, 1, most_pages(model, setting)) if model.axes else [pages]:
        base = replace(sizes, per_segment=n_pages)
        if "parts" in model.axes:
            found += [replace(base, parts=n) for n in _around(min(sizes.parts or 1, n_pages), factor, 1, n_pages)]
        elif model.kept is not None:
            found += [replace(base, **{model.kept: n}) for n in _kept_around(model, setting, sizes, base, factor)]
        else:
            found.append(base)
    return [other for other in found if other != sizes]


def _kept_around(model: Model, setting: Setting, sizes: Sizes, base: Sizes, factor: float) -> list[int]:
    """Numbers to keep one step from those of `sizes`, and as many rows with the segments of `base`."""
    name = model.kept or ""
    each = {"cached": 1, "pinned": setting.page_rows, "resident": setting.segment_rows(base)}[name]
    before = {"resident": setting.segment_rows(sizes)}.get(name, each)
    rows = (getattr(sizes, name) or 0) * before
    around = _around(max(rows, each), factor, 0, setting.master_rows)
    return sorted({n // each for n in (*around, rows)})


def most_pages(model: Model, setting: Setting) -> int:
    """The longest segment that is tried, in pages."""
    if model.looks_up(setting):
        return 1
    pages = int(setting.memory * _LARGEST_SHARE // (setting.page_rows * setting.row_bytes))
    return max(1, min(pages, -(-setting.master_rows // setting.page_rows)))


def _around(n: int, factor: float, least: int, most: int) -> list[int]:
    wanted = {math.floor(n / factor), n, math.ceil(n * factor)}
    return sorted({min(max(value, least), most) for value in wanted})


ALGORITHMS: Final[tuple[str, ...]] = tuple(MODELS)

_SIMPLEST_FIRST: Final = (
    "inlj",
    "meshjoin",
    "r_meshjoin",
    "hybridjoin",
    "ssij",
    "optimised_x_hybridjoin",
    "x_hybridjoin",
    "cachejoin",
    "sscj",
    "partitioned",
)

_ALIKE: Final = 0.01  # rates that differ by less are decided by what is simpler

# wait: of a tuple on average, or of a whole micro-batch
_COLUMNS: Final = ("algorithm", "rows/s", "per load", "segment", "cached", "waiting", "wait", "remark")


@dataclass(frozen=True, slots=True)
class Price:
    """The prediction for one algorithm at its best sizes, or the reason why it cannot run.

    `rate` is the rows/s that can be served in `setting`, zero when it cannot run. `batch` is set if the setting has
    micro-batches.
    """

    algorithm: str
    rate: float = 0.0
    prediction: Prediction | None = None
    reason: str = ""
    batch: BatchPrice | None = None
    setting: Setting | None = field(default=None, repr=False, compare=False)

    def micro_batch_s(self, rows: int, seen: int) -> float | None:
        """Seconds of a micro-batch of `rows` rows after `seen` earlier rows; None if it cannot run."""
        if self.prediction is None or self.setting is None:
            return None
        return drained(self.prediction, replace(self.setting, seen_rows=seen), rows).seconds

    @property
    def feasible(self) -> bool:
        """Whether it can run at all."""
        return self.prediction is not None


@dataclass(frozen=True, slots=True)
class PlainPrice(Price):
    """The prediction for a hash join of all master rows: each stream row is looked up in the table, and none waits."""

    @classmethod
    def of(cls, setting: Setting) -> PlainPrice:
        """The price in a setting whose master rows fit in memory."""
        rate = 1 / (setting.costs.probe + setting.costs.emit)
        rows = setting.batch_rows
        batch = None if rows is None else BatchPrice(rows, 0.0, rows / rate + setting.costs.micro_batch)
        return cls("hash_join", rate, batch=batch, setting=setting)

    def micro_batch_s(self, rows: int, seen: int) -> float | None:
        """Seconds of a micro-batch, whatever came before it."""
        fixed = 0.0 if self.setting is None else self.setting.costs.micro_batch
        return rows / self.rate + fixed


@dataclass(frozen=True, slots=True)
class Choice:
    """Every price, best first, and a note."""

    prices: tuple[Price, ...]
    note: str = ""

    @property
    def best(self) -> Price:
        """The price of the algorithm to run."""
        return self.prices[0]

    @property
    def reason(self) -> str:
        """Why the winner won, in one line."""
        best = self.best
        runner_up = next((p for p in self.prices[1:] if p.feasible), None)
        if runner_up is None:
            return f"{best.algorithm}: the only one that can run"
        if best.rate < runner_up.rate * (1 + _ALIKE):
            return f"{best.algorithm}: no slower than {runner_up.algorithm}, and simpler"
        return f"{best.algorithm}: {best.rate / runner_up.rate:.2f} times the rate of {runner_up.algorithm}"

    def explain(self) -> str:
        """The reason, the note if any, the winner's memory, and the table of prices with the losers."""
        table = [_COLUMNS, *(_cells(price) for price in self.prices)]
        widths = [max(len(row[i]) for row in table) for i in range(len(_COLUMNS))]
        lines = ["  ".join(_pad(cell, widths[i], i) for i, cell in enumerate(row)).rstrip() for row in table]
        return "\n".join([self.reason, *([self.note] if self.note else []), _memory(self.best), *lines])


def choose(setting: Setting, *, algorithms: Sequence[str] = ALGORITHMS) -> Choice:
    """The best of `algorithms` for this setting, with the price of every candidate.

    The highest service rate wins, in micro-batches if the setting has them. Rates within 1 % go to the simpler
    algorithm. A `PlanError` if none can run.
    Reference: docs/algorithms/semistream.md, 1.6.
    """
    if not algorithms:
        raise PlanError(f"no algorithm was given; choose among {', '.join(ALGORITHMS)}.")
    prices = sorted((price(name, setting) for name in algorithms), key=lambda price: (not price.feasible, -price.rate))
    if not prices[0].feasible:
        why = "; ".join(f"{p.algorithm}: {p.reason}" for p in prices)
        raise PlanError(f"none of the algorithms given can run here: {why}.")
    return Choice(tuple(_simpler_first(prices)), _note(setting))


def price(algorithm: str, setting: Setting) -> Price:
    """One algorithm tuned by its model, or the reason why it cannot run."""
    model = model_of(algorithm)
    obstacle = _obstacle(model, setting)
    if obstacle:
        return Price(algorithm, reason=obstacle)
    try:
        prediction = model.predict(setting, tune(algorithm, setting).sizes)
    except NoRoomError as error:
        return Price(algorithm, reason=f"does not fit: {error}")
    if setting.batch_rows is not None:
        batch = drained(prediction, setting, setting.batch_rows)
        return Price(algorithm, batch.mu, prediction, batch=batch, setting=setting)
    return Price(algorithm, prediction.mu, prediction, setting=setting)


def _obstacle(model: Model, setting: Setting) -> str:
    if model.needs_index and not setting.indexed:
        return "needs an index, which the store has not"
    if model.needs_frequency_order and setting.order != "frequency":
        return "needs master data in order of frequency"
    if model.name == "partitioned" and setting.policy.max_age is None and setting.batch_rows is None:
        return "rows of rare segments would wait for ever; set max_age"
    return ""


def _simpler_first(prices: list[Price]) -> list[Price]:
    """The winner is the simplest of those within 1 % of the best rate."""
    alike = [p for p in prices if p.feasible and p.rate >= prices[0].rate * (1 - _ALIKE)]
    alike.sort(key=lambda p: _SIMPLEST_FIRST.index(p.algorithm))
    return alike + [p for p in prices if p not in alike]


def _note(setting: Setting) -> str:
    if not setting.fits:
        return ""
    return (
        f"all {setting.master_rows:,} master rows fit in memory ({setting.master_rows * setting.cached_bytes:,.0f} of "
        f"{setting.memory:,} bytes): a plain in-memory or broadcast join needs none of these"
    )


def _memory(best: Price) -> str:
    parts = best.prediction.memory if best.prediction else ()
    return "memory: " + ", ".join(f"{name} {nbytes:,.0f}" for name, nbytes in parts if nbytes)


def _cells(price: Price) -> tuple[str, ...]:
    found = price.prediction
    if found is None:
        return (price.algorithm, "-", "-", "-", "-", "-", "-", price.reason)
    wait = found.mean_residence_s if price.batch is None else price.batch.seconds
    return (
        price.algorithm,
        f"{price.rate:,.0f}",
        _per_load(price, found),
        f"{found.segment_rows:,}",
        f"{found.kept_rows:,}",
        f"{found.sizes.waiting or 0:,}",
        _seconds(wait),
        price.reason,
    )


def _per_load(price: Price, found: Prediction) -> str:
    loads = found.loads_per_tuple if price.batch is None else price.batch.steps / price.batch.rows
    return f"{1 / loads:,.1f}" if loads > 1e-7 else "no loads"


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column in (0, len(_COLUMNS) - 1) else cell.rjust(width)


def _seconds(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "no end"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
