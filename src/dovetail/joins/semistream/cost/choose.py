"""The algorithm for a setting: every candidate tuned and priced, best first, those that cannot run with the reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.models import MODELS, Model, model_of
from dovetail.joins.semistream.cost.prediction import NoRoomError, Prediction
from dovetail.joins.semistream.cost.rates import BatchPrice, Residence, at_rate, drained, page_reads_suffice
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.cost.tune import tune

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
    """What one algorithm would do at its best sizes, or why it cannot run.

    `rate` is the rows/s that can be served, zero when it cannot run. `residence` is known where the arrival rate is,
    `batch` where there are micro-batches.
    """

    algorithm: str
    rate: float = 0.0
    prediction: Prediction | None = None
    residence: Residence | None = None
    reason: str = ""
    batch: BatchPrice | None = None

    @property
    def feasible(self) -> bool:
        """Whether it can run at all."""
        return self.prediction is not None


@dataclass(frozen=True, slots=True)
class Choice:
    """Every price, best first, and what else should be known."""

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
        if best.residence is not None and best.residence.sustained:
            return f"{best.algorithm}: keeps up with the stream and answers after {_seconds(best.residence.mean_s)}"
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

    Without an arrival rate the highest service rate wins, in micro-batches if the setting has them. With one, those
    that keep up come first, by the mean wait of a tuple; micro-batches leave it aside. Rates within 1 % go to the
    simpler algorithm. A `PlanError` if none can run.
    Reference: docs/algorithms/semistream.md, 1.6.
    """
    if not algorithms:
        raise PlanError(f"no algorithm was given; choose among {', '.join(ALGORITHMS)}.")
    prices = sorted((price(name, setting) for name in algorithms), key=_rank)
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
        return Price(algorithm, batch.mu, prediction, batch=batch)
    rate = prediction.mu
    if setting.arrival is None:
        return Price(algorithm, rate, prediction)
    residence = at_rate(model.predict, setting, prediction, setting.arrival)
    if algorithm == "inlj" and residence.sustained and not page_reads_suffice(setting, setting.arrival):
        return Price(algorithm, rate, prediction, _overloaded(residence), "too busy to stay ahead of bursts")
    return Price(algorithm, rate, prediction, residence, "" if residence.sustained else "falls behind the stream")


def _obstacle(model: Model, setting: Setting) -> str:
    if model.needs_index and not setting.indexed:
        return "needs an index, which the store has not"
    if model.needs_frequency_order and setting.order != "frequency":
        return "needs master data in order of frequency"
    if model.name == "partitioned" and setting.policy.max_age is None and setting.batch_rows is None:
        return "rows of rare segments would wait for ever; set max_age"
    return ""


def _overloaded(residence: Residence) -> Residence:
    return Residence(False, residence.mean_s, residence.longest_s, residence.waiting)


def _rank(price: Price) -> tuple[bool, bool, float]:
    keeps_up = price.residence is not None and price.residence.sustained
    return (
        not price.feasible,
        price.residence is not None and not keeps_up,
        price.residence.mean_s if keeps_up and price.residence else -price.rate,
    )


def _simpler_first(prices: list[Price]) -> list[Price]:
    """The winner is the simplest of those within 1 % of the best rate; a slow stream has no such ties."""
    best = prices[0]
    if best.residence is not None and best.residence.sustained:
        return prices
    alike = [p for p in prices if p.feasible and p.rate >= best.rate * (1 - _ALIKE)]
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
    wait = found.mean_residence_s if price.residence is None else price.residence.mean_s
    if price.batch is not None:
        wait = price.batch.seconds
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
