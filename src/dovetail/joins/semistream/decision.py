"""Which algorithm runs a request, with which sizes, and what it should then do."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.profile import load_profile
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.semistream.cost import (
    Choice,
    Distribution,
    Policy,
    Price,
    Setting,
    SkewEstimate,
    Zipf,
    estimate_skew,
    from_profile,
    suitable_threshold,
    tune,
    uniform,
)
from dovetail.joins.semistream.cost import Sizes as ModelSizes
from dovetail.joins.semistream.cost import choose as choose_algorithm
from dovetail.joins.semistream.cost.models import model_of
from dovetail.joins.semistream.cost.operator_sizes import operator_sizes, setting_of
from dovetail.joins.semistream.cost.prediction import NoRoomError
from dovetail.joins.semistream.cost.rates import drained
from dovetail.joins.semistream.cost.reads import IoCosts, io_costs
from dovetail.joins.semistream.keys import KeyCodes, key_columns
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.operators.registry import ALGORITHMS
from dovetail.joins.semistream.operators.spec import SemiStreamJoin
from dovetail.joins.semistream.operators.waiting import FOREVER
from dovetail.joins.semistream.request import Request
from dovetail.joins.semistream.sizes import FITTED, Sizes

_MOVED = 0.15  # of the exponent, beyond what a sample leaves open
MATCHED, FIRST = "\0matched", "\0first"
ENOUGH = 500  # sampled keys from which a skew can be told


@dataclass(frozen=True, slots=True)
class Sample:
    """Codes of some of the stream's keys, and how many rows a task has in one go, if that is known.

    `once`: no more rows follow, so that whatever a join learns must pay within these.
    """

    keys: I64
    batch_rows: int | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """An algorithm, the sizes of its parts, and where they come from; `price` is its prediction, if there is one.

    `skew` and `io` are what was known of the stream and assumed of the store.
    """

    algorithm: str
    sizes: Sizes
    origin: str
    price: Price | None = None
    skew: SkewEstimate | None = None
    choice: Choice | None = None
    io: IoCosts | None = None

    @property
    def exponent(self) -> float:
        """The skew that was assumed: of the sample, else Zipf's law with exponent 1."""
        return 1.0 if self.skew is None else self.skew.exponent


@dataclass(frozen=True, slots=True)
class Wiring:
    """How an operator is told what to join: the stream's key columns, and the master columns that answers need.

    `tells_match`: answers end with a column that says whether there was a master row; `tells_first`: and with one that
    says which are the first of their stream row.
    """

    on: tuple[str, ...]
    columns: tuple[str, ...]
    how: str
    tells_match: bool = False
    tells_first: bool = False


def sample_of(tables: Iterable[pa.Table | pa.RecordBatch], on: Sequence[str], pages: Pages, rows: int | None) -> Sample:
    """The codes of the keys that have a home in the master data."""
    types = [pages.schema.field(name).type for name in pages.key]
    codes, found = KeyCodes(types), [np.empty(0, np.int64)]
    for table in tables:
        for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
            columns = key_columns(batch, on, types)
            some, valid = codes.encode(columns)
            home = pages.home(columns) >= 0 if pages.indexed else valid
            found.append(some[valid & home])
    return Sample(np.concatenate(found), rows)


def distribution_of(sample: Sample | None, rows: int) -> tuple[Distribution, SkewEstimate | None]:
    """How wanted master rows are: by the sample, else by Zipf's law with exponent 1."""
    rows = max(1, rows)
    if sample is None or len(sample.keys) < ENOUGH:
        return Zipf(rows, 1.0), None
    if len(np.unique(sample.keys)) > rows:  # an index by fences gives keys a home that the master data has not
        return uniform(rows), None
    found = _skew(sample.keys.tobytes(), rows)
    return found.distribution, found


@lru_cache(maxsize=8)
def _skew(keys: bytes, rows: int) -> SkewEstimate:
    """The skew of a sample, estimated once: plans of the same stream ask for it again and again."""
    return estimate_skew(np.frombuffer(keys, np.int64), rows)


def decide(
    request: Request,
    wiring: Wiring,
    pages: Pages,
    stream: pa.Schema,
    sample: Sample | None = None,
    io: IoCosts | None = None,
) -> Decision:
    """The algorithm and its sizes: as asked, by the models, or split evenly; a `PlanError` if memory is too small.

    `io`: what reads cost, where that was seen; otherwise it is found out.
    """
    if request.algorithm != "auto" and (request.sizes is not None or request.tune in ("off", "measure")):
        sizes, origin = request.sizes or FITTED, "explicit" if request.sizes else "even split"
        return _checked(request, wiring, pages, stream, Decision(request.algorithm, sizes, origin))
    io = io or io_costs(pages)
    setting, skew = setting_for(request, pages, stream, sample, io)
    found = _chosen(request, pages, setting, skew) if request.algorithm == "auto" else _tuned(request, setting, skew)
    return replace(_checked(request, wiring, pages, stream, found), io=io)


def looks_again(tasks: int) -> bool:
    """Whether, after so many tasks, the skew is estimated again: after 4, 16 and 64 of them, then after every 256."""
    return tasks in (4, 16, 64) or tasks % 256 == 0


def is_enough(sample: Sample) -> bool:
    """Whether a skew can be told from the sample."""
    return len(sample.keys) >= ENOUGH


def moved(assumed: float, sample: Sample, rows: int) -> bool:
    """Whether the sample is so much more or less skewed than was assumed that memory should be split anew."""
    if len(sample.keys) < ENOUGH or len(np.unique(sample.keys)) > rows:
        return False
    found = _skew(sample.keys.tobytes(), rows)
    return not found.low - _MOVED <= assumed <= found.high + _MOVED


def setting_for(
    request: Request, pages: Pages, stream: pa.Schema, sample: Sample | None, io: IoCosts | None = None
) -> tuple[Setting, SkewEstimate | None]:
    """What the models are told: store, stream, memory, this machine's costs, and the skew of the sample.

    `io`: what reads cost; left out, it is found out, and of large pages taken from the profile.
    """
    distribution, skew = distribution_of(sample, int(pages.starts[-1]))
    looks_up, cache = request.lookup, request.cache
    threshold = 1 if request.fits_cache else cache.threshold
    policy = Policy(looks_up.kind, looks_up.position, cache.replaces, threshold)
    rows = None if sample is None or request.mode == "carry" else sample.batch_rows
    io = io or io_costs(pages)
    read, look_up = (None, None) if io is None else (io.read, io.look_up)
    costs = from_profile(load_profile(), read=read, look_up=look_up)
    found = setting_of(pages, stream, request.join_memory, distribution, costs, policy=policy, batch_rows=rows)
    return replace(found, one_pass=sample is not None and sample.once), skew


def _chosen(request: Request, pages: Pages, setting: Setting, skew: SkewEstimate | None) -> Decision:
    try:
        choice = choose_algorithm(setting)
    except PlanError:
        name = smallest(pages)
        return Decision(name, request.sizes or FITTED, "even split: no model finds room", skew=skew)
    best = choice.best
    if best.prediction is None:
        raise PlanError(f"no algorithm can run here: {choice.explain()}")
    sizes, origin = _sizes(request, best.algorithm, best.prediction.sizes, setting), "model"
    if request.sizes is not None or request.tune in ("off", "measure"):
        sizes, origin = request.sizes or FITTED, "explicit" if request.sizes else "even split"
    return Decision(best.algorithm, sizes, origin, best, skew, choice)


def _tuned(request: Request, setting: Setting, skew: SkewEstimate | None) -> Decision:
    name = request.algorithm
    try:
        tuned = tune(name, setting)
        prediction = model_of(name).predict(setting, tuned.sizes)
    except NoRoomError:
        return Decision(name, FITTED, "even split: the model finds no room", skew=skew)
    batch = None if setting.batch_rows is None else drained(prediction, setting, setting.batch_rows)
    price = Price(name, prediction.mu if batch is None else batch.mu, prediction, batch=batch)
    return Decision(name, _sizes(request, name, prediction.sizes, setting), "model", price, skew)


def _sizes(request: Request, algorithm: str, tuned: ModelSizes, setting: Setting) -> Sizes:
    """Tuned sizes as the operator takes them, with the threshold that suits a cache which was only named.

    The less wanted a cached row may be for the cache to hold it, and the fewer rows wait at a time, the lower.
    """
    sizes = operator_sizes(algorithm, tuned, setting)
    if algorithm != "cachejoin" or not request.fits_cache or not tuned.cached_rows:
        return sizes
    most = setting.batch_rows or FOREVER
    waiting = min(tuned.waiting_rows or 1, most)
    fitting = suitable_threshold(setting.distribution, tuned.cached_rows, waiting, least=1, most=most)
    return replace(sizes, threshold=fitting)


def _checked(request: Request, wiring: Wiring, pages: Pages, stream: pa.Schema, found: Decision) -> Decision:
    """The decision if it fits the budget; tuned sizes that do not, by a hair, give way to an even split."""
    spec = specification(request, wiring, pages, found.algorithm, found.sizes)
    try:
        spec.fit(request.join_memory, stream)
    except PlanError as error:
        if found.origin == "explicit" or found.sizes == FITTED:
            raise _with_arrivals(request, error) from error
        specification(request, wiring, pages, found.algorithm, FITTED).fit(request.join_memory, stream)
        return Decision(found.algorithm, FITTED, "even split: tuned sizes do not fit", skew=found.skew)
    return found


def _with_arrivals(request: Request, error: PlanError) -> PlanError:
    """The error with what mode "carry" takes of the budget beside the join, if it does."""
    if request.join_memory == request.memory:
        return error
    return PlanError(f"{error} In mode 'carry' a sixteenth of memory is for rows that arrive: give a fifteenth more.")


def smallest(pages: Pages) -> str:
    """The algorithm that needs the least memory."""
    return "hybridjoin" if pages.indexed else "meshjoin"


def check_store(algorithm: str, pages: Pages) -> None:
    """A `PlanError` if the algorithm needs an index or an order that the store has not."""
    if algorithm == "auto":
        return
    model = model_of(algorithm)
    if model.needs_index and not pages.indexed:
        others = [name for name in ALGORITHMS if not model_of(name).needs_index]
        raise PlanError(
            f"algorithm={algorithm!r} looks keys up, but the store has no index; use one of {', '.join(others)} or "
            f"'auto', or build a page file."
        )
    if model.needs_frequency_order and pages.order != "frequency":
        raise PlanError(
            f"algorithm={algorithm!r} pins the most wanted rows, but the store is in order {pages.order!r}; build it "
            f"with order='frequency', or use 'cachejoin', which learns what is wanted."
        )


def specification(request: Request, wiring: Wiring, pages: Pages, algorithm: str, sizes: Sizes) -> SemiStreamJoin:
    """The operator's specification for these pages."""
    kind = ALGORITHMS[algorithm]
    names = {field.name for field in fields(kind)}
    options: dict[str, Any] = {"lookup": request.lookup, "cache": request.cache}
    if algorithm != "cachejoin":
        del options["cache"]  # SSCJ is CACHEJOIN with a cache of its own kind
    options = {name: value for name, value in options.items() if name in names}
    return kind(
        pages=pages,
        on=wiring.on,
        how=wiring.how,  # type: ignore[arg-type]  # one of the operators' own
        columns=wiring.columns,
        sizes=sizes,
        null_safe=request.null_safe,
        matched=MATCHED if wiring.tells_match else None,
        first=FIRST if wiring.tells_first else None,
        **options,
    )


TRIALS = 8
_NO_RATE = float("-inf")


def measured_sizes(
    request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision
) -> Decision:
    """The decision with the sizes that served these rows quickest; trials start where the model finds the best."""
    sample = sample_of(rows, wiring.on, pages, sum(batch.num_rows for batch in rows))
    setting, skew = setting_for(request, pages, rows[0].schema, sample)

    def rate(sizes: ModelSizes) -> float:
        found = operator_sizes(decision.algorithm, sizes, setting)
        return _rate(request, wiring, pages, rows, replace(decision, sizes=found))

    try:
        tuned = tune(decision.algorithm, setting, measure=rate, trials=TRIALS)
    except PlanError:
        return decision
    sizes = operator_sizes(decision.algorithm, tuned.sizes, setting)
    return replace(decision, sizes=sizes, origin=f"measured in {len(tuned.trials)} trials", skew=skew)


def _rate(request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision) -> float:
    """Rows per second over these rows, everything answered; minus infinity for sizes that do not fit."""
    spec = specification(request, wiring, pages, decision.algorithm, decision.sizes)
    try:
        start = time.perf_counter()
        with spec.open(MemoryBudget(request.join_memory, "trial"), {"stream": rows[0].schema}) as operator:
            for batch in rows:
                for _ in operator.push("stream", batch):
                    pass
            for _ in operator.drain():
                pass
    except (BudgetExceeded, PlanError):
        return _NO_RATE
    n_rows: int = sum(batch.num_rows for batch in rows)
    return n_rows / (time.perf_counter() - start)
