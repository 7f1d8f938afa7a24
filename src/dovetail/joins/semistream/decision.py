"""Decides the algorithm of a request and its sizes, and predicts its rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64
from dovetail.engine.kernels.multimap import HashMultimap
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.profile import load_profile
from dovetail.engine.rows.hashes import KeyCodes
from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.semistream.cost.choose import Choice, PlainPrice, Price, tune
from dovetail.joins.semistream.cost.choose import choose as choose_algorithm
from dovetail.joins.semistream.cost.distribution import Distribution, SkewEstimate, Zipf, estimate_skew, uniform
from dovetail.joins.semistream.cost.hybridjoin import suitable_threshold
from dovetail.joins.semistream.cost.models import MODELS, drained, model_of
from dovetail.joins.semistream.cost.reads import IoCosts, io_costs
from dovetail.joins.semistream.cost.setting import (
    EntryBytes,
    NoRoomError,
    Policy,
    Prediction,
    ReadCosts,
    Setting,
    UnitCosts,
    from_profile,
)
from dovetail.joins.semistream.kernels.segment_match import scratch_bytes
from dovetail.joins.semistream.kernels.waiting_pool import SEGMENT_BYTES
from dovetail.joins.semistream.master.pages import Pages, probed, ranges_of, stream_key
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.operators.operator import SemiStreamJoin, SemiStreamOperator
from dovetail.joins.semistream.operators.waiting import FOREVER
from dovetail.joins.semistream.request import Request
from dovetail.joins.semistream.sizes import FITTED, GARBAGE, PAIR_BYTES, Footprint, Sizes, asks_for_keys, footprint
from dovetail.joins.semistream.within import PairCheck

_RING_BYTES = 33  # of a row in MESHJOIN's ring, beside its entry in the hash table
_MANY_ROWS = 4096
_MOVED = 0.15  # of the exponent, beyond what a sample leaves open
MATCHED, FIRST = "\0matched", "\0first"
ENOUGH = 500  # sampled keys from which a skew can be estimated


@dataclass(frozen=True, slots=True)
class Sample:
    """Codes of sampled stream keys, and the rows that a task has at a time, if known.

    `once`: no more rows follow, so that whatever a join learns must pay within these.
    """

    keys: I64
    batch_rows: int | None = None
    once: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """An algorithm, the sizes of its parts, and where they come from; `price` is its prediction, if there is one.

    `exponent` is the skew that was assumed, `skew` the estimate of it if there was a sample, `io` what reads were
    assumed to cost.
    """

    algorithm: str
    sizes: Sizes
    origin: str
    price: Price | None = None
    skew: SkewEstimate | None = None
    choice: Choice | None = None
    io: IoCosts | None = None
    exponent: float = 1.0

    def same_as(self, other: Decision) -> bool:
        """Whether a join runs alike by both, and for the same reasons."""
        return self.to_json() == other.to_json()

    def to_json(self) -> dict[str, Any]:
        """The part of a decision that a stream's state stores."""
        io = None if self.io is None else asdict(self.io)
        return {"algorithm": self.algorithm, "sizes": asdict(self.sizes), "exponent": self.exponent, "io": io}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Decision:
        """The stored decision; without costs if none were assumed."""
        made = cls(found["algorithm"], Sizes(**found["sizes"]), "carried", exponent=found["exponent"])
        io = found["io"]
        if io is None:
            return made
        read = ReadCosts(*(_points(io["read"][name]) for name in ("random", "sequential")))
        return replace(made, io=IoCosts(read, io["look_up"], io["micro_batch"], io["by_page"]))


def _points(found: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((size, seconds) for size, seconds in found)


@dataclass(frozen=True, slots=True)
class Wiring:
    """The columns that an operator joins: the stream's key columns, and the master columns that answers need.

    `tells_match`: answers end with a column that says whether there was a master row; `tells_first`: and with one that
    says which are the first of their stream row. `check` is what pairs must fulfil beside equal keys.
    """

    on: tuple[str, ...]
    columns: tuple[str, ...]
    how: str
    tells_match: bool = False
    tells_first: bool = False
    check: PairCheck | None = None


def sample_of(tables: Iterable[pa.Table | pa.RecordBatch], on: Sequence[str], pages: Pages, rows: int | None) -> Sample:
    """The codes of the keys that have a page in the master data."""
    types = [pages.schema.field(name).type for name in pages.key]
    codes, found = KeyCodes(types), [np.empty(0, np.int64)]
    for table in tables:
        for batch in table.to_batches() if isinstance(table, pa.Table) else [table]:
            columns = stream_key(pages, batch, on)
            some, valid = codes.encode(columns)
            home = pages.home(columns) >= 0 if pages.indexed else valid
            found.append(some[valid & home])
    return Sample(np.concatenate(found), rows)


def keys_in(pages: Pages) -> int:
    """The number of keys of these pages: their cells if they have ranges, else their rows."""
    ranges = ranges_of(pages)
    return int(pages.starts[-1]) if ranges is None else len(ranges)


def distribution_of(sample: Sample | None, rows: int) -> tuple[Distribution, SkewEstimate | None]:
    """How often master rows are requested: by the sample, else by Zipf's law with exponent 1."""
    rows = max(1, rows)
    if sample is None or len(sample.keys) < ENOUGH:
        return Zipf(rows, 1.0), None
    if len(np.unique(sample.keys)) > rows:  # an index by fences gives a page to keys that the master data does not have
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

    `io`: the observed cost of reads; measured if not given.
    """
    request = request.beside(pages)
    if request.algorithm != "auto" and (request.sizes is not None or request.tune in ("off", "measure")):
        sizes, origin = request.sizes or FITTED, "explicit" if request.sizes else "even split"
        return _checked(request, wiring, pages, stream, Decision(request.algorithm, sizes, origin))
    io = io or io_costs(pages)
    setting, skew = setting_for(request, pages, stream, sample, io)
    if request.algorithm == "hash_join" or _fits_whole(request, wiring, pages, stream):
        plain = replace(_plain(request, wiring, pages, stream, setting), skew=skew)
        if request.algorithm == "hash_join" or plain.choice is None or not _asks_for_few(setting, plain.choice):
            return plain
    found = _chosen(request, pages, setting, skew) if request.algorithm == "auto" else _tuned(request, setting, skew)
    found = _checked(request, wiring, pages, stream, found)
    return replace(found, io=io, exponent=1.0 if skew is None else skew.exponent)


def is_enough(sample: Sample) -> bool:
    """Whether a skew can be estimated from the sample."""
    return len(sample.keys) >= ENOUGH


def moved(assumed: float, sample: Sample, rows: int) -> bool:
    """Whether the skew of the sample differs enough from the assumed one to split memory again."""
    if len(sample.keys) < ENOUGH or len(np.unique(sample.keys)) > rows:
        return False
    found = _skew(sample.keys.tobytes(), rows)
    return not found.low - _MOVED <= assumed <= found.high + _MOVED


def setting_for(
    request: Request, pages: Pages, stream: pa.Schema, sample: Sample | None, io: IoCosts | None = None
) -> tuple[Setting, SkewEstimate | None]:
    """The input of the models: store, stream, memory, this machine's costs, and the skew of the sample.

    `io`: the cost of reads; if not given it is measured, or taken from the profile for large pages.
    """
    distribution, skew = distribution_of(sample, keys_in(pages))
    looks_up, cache = request.lookup, request.cache
    threshold = 1 if request.fits_cache else cache.threshold
    policy = Policy(looks_up.kind, looks_up.position, cache.replaces, threshold)
    rows = None if sample is None or request.mode == "carry" else sample.batch_rows
    io = io or io_costs(pages)
    costs = from_profile(load_profile())
    if io is not None:
        costs = from_profile(
            load_profile(), read=io.read, look_up=io.look_up, by_page=io.by_page, micro_batch=io.micro_batch
        )
    found = setting_of(pages, stream, request.join_memory, distribution, costs, policy=policy, batch_rows=rows)
    return replace(found, one_pass=sample is not None and sample.once), skew


def setting_of(
    pages: Pages,
    stream: pa.Schema,
    limit: int,
    distribution: Distribution,
    costs: UnitCosts,
    *,
    policy: Policy | None = None,
    batch_rows: int | None = None,
) -> Setting:
    """The setting of joins of a stream with these columns over this store within a budget of `limit` bytes.

    Reads of a simulated device have the device's own cost. The index counts as the store's own memory. Of ranges, a
    cell with all its rows is what the models call a row: these are read, cached and compared together.
    """
    model = pages.device.model
    if model.simulated:
        costs = replace(costs, read=ReadCosts.of_device(model))
    rows, n_pages = int(pages.starts[-1]), max(1, len(pages.starts) - 1)
    cost = footprint(pages, stream, 1, 0, limit)
    keyed = asks_for_keys(pages, ())
    per_key = rows / max(1, keys_in(pages))
    costs = replace(costs, emit=costs.emit + max(0.0, per_key - 1) * costs.probe)
    return Setting(
        memory=limit,
        distribution=distribution,
        row_bytes=cost.master_row * per_key or cost.master_row,
        stream_bytes=max(1.0, cost.stream_row),
        page_bytes=max(1, math.ceil(-(-rows // n_pages) * cost.master_row)),
        costs=costs,
        entries=real_entries(cost),
        order=pages.order,
        indexed=pages.indexed,
        policy=policy or Policy(),
        stored_row_bytes=pages.stored_bytes(0, n_pages) * per_key / rows if rows else None,
        batch_rows=batch_rows,
        keyed=real_entries(replace(cost, keyed=True)) if keyed else None,
    )


def real_entries(cost: Footprint) -> EntryBytes:
    """The bytes that our operators reserve, as the models count them."""
    per_row = 0.1 * cost.master_row + (scratch_bytes(_MANY_ROWS) / _MANY_ROWS) + 16 + PAIR_BYTES
    here = cost.segments.most_rows
    chains = SEGMENT_BYTES * cost.segments.n
    return EntryBytes(
        waiting=cost.waiting_row,
        chunked=_RING_BYTES + HashMultimap(1000).nbytes / 1000 * 2 + GARBAGE * (cost.stream_row + 1),
        chunk_spare=1.0,
        cached_extra=cost.cached_key - cost.master_row,
        # The pinned rows are a segment too: held once to be read, once to be answered from.
        pinned=cost.cached_key + 2.2 * cost.master_row + per_row,
        resident=1.1 * cost.master_row,
        resident_segment=2048.0,
        buffer_extra=per_row,
        fixed=max(0.0, cost.fixed - chains - here * (cost.master_row + per_row)),
        held=cost.hold / 1.1,
        per_segment=float(SEGMENT_BYTES),
    )


def _fits_whole(request: Request, wiring: Wiring, pages: Pages, stream: pa.Schema) -> bool:
    """Whether a hash join of the whole master data is planned: it takes at most half of memory, so that it may grow.

    Of a table of a database the rows were counted when the store was named; there may be many more by now.
    """
    if request.algorithm != "auto" or request.sizes is not None or request.mode == "carry" or pages.device.simulated:
        return False
    if pages.counted == "before":
        return False
    try:
        specification(request, wiring, pages, "hash_join", FITTED).fit(request.join_memory // 2, stream)
    except PlanError:
        return False
    return True


def _asks_for_few(setting: Setting, choice: Choice) -> bool:
    """Whether one batch asks for so few rows that reading all master rows takes longer than the best other join."""
    batch = choice.best.batch
    if not setting.one_pass or batch is None:
        return False
    read_s = setting.costs.load_s(setting.read_bytes(setting.master_rows), sequential=True)
    return read_s + setting.master_rows * setting.costs.probe > batch.seconds


def _plain(request: Request, wiring: Wiring, pages: Pages, stream: pa.Schema, setting: Setting) -> Decision:
    """The hash join of the whole master data, with the prices of the semi-stream joins beside it."""
    sizes = specification(request, wiring, pages, "hash_join", FITTED).fit(request.join_memory, stream)
    try:
        choice = choose_algorithm(setting)
    except PlanError:
        choice = None
    return Decision("hash_join", sizes, "the master data fits in memory", PlainPrice.of(setting), choice=choice)


def _chosen(request: Request, pages: Pages, setting: Setting, skew: SkewEstimate | None) -> Decision:
    try:
        choice = choose_algorithm(setting)
    except PlanError:
        name = smallest(pages)
        return Decision(name, request.sizes or FITTED, "even split: no model finds room", skew=skew)
    best = choice.best
    if best.prediction is None:
        raise PlanError(f"no algorithm can run here: {choice.explain()}", argument="memory")
    sizes, origin = _sizes(request, best.prediction, setting), "model"
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
    price = Price(name, prediction.mu if batch is None else batch.mu, prediction, batch=batch, setting=setting)
    return Decision(name, _sizes(request, prediction, setting), "model", price, skew)


def _sizes(request: Request, tuned: Prediction, setting: Setting) -> Sizes:
    """Tuned sizes, with waiting rows left to fill what the others leave, and the threshold that suits a named cache.

    The threshold is lower if the cache can hold rarer rows, or if fewer rows wait at a time.
    """
    sizes = replace(tuned.sizes, waiting=None)
    if tuned.algorithm != "cachejoin" or not request.fits_cache or not sizes.cached:
        return sizes
    most = setting.batch_rows or FOREVER
    waiting = min(tuned.sizes.waiting or 1, most)
    fitting = suitable_threshold(setting.distribution, sizes.cached, waiting, least=1, most=most)
    return replace(sizes, threshold=fitting)


def _checked(request: Request, wiring: Wiring, pages: Pages, stream: pa.Schema, found: Decision) -> Decision:
    """The decision if it fits the budget; tuned sizes that slightly exceed it are replaced by an even split."""
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
    return PlanError(
        f"{error} In mode 'carry' a sixteenth of memory is for rows that arrive: give a fifteenth more.",
        argument="memory",
    )


def smallest(pages: Pages) -> str:
    """The algorithm that needs the least memory."""
    return "hybridjoin" if pages.indexed else "meshjoin"


def check_store(algorithm: str, pages: Pages) -> None:
    """A `PlanError` if the algorithm needs an index or an order that the store does not have."""
    if algorithm in ("auto", "hash_join"):
        return
    model = model_of(algorithm)
    if model.needs_index and not pages.indexed:
        others = [name for name, other in MODELS.items() if not other.needs_index]
        raise PlanError(
            f"algorithm={algorithm!r} looks keys up, but the store has no index; use one of {', '.join(others)} or "
            f"'auto', or build a page file.",
            argument="algorithm",
        )
    if model.needs_frequency_order and pages.order != "frequency":
        raise PlanError(
            f"algorithm={algorithm!r} pins frequent rows, but the store is in order {pages.order!r}; build it "
            f"with order='frequency', or use 'cachejoin', which learns the frequent rows.",
            argument="algorithm",
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
        check=wiring.check,
        **options,
    )


_MICRO_BATCHES = 4  # timed; the fastest counts, since the others also waited for the processor
_TRIED = Sizes(waiting=16, per_segment=1, cached=16)


def timed_costs(request: Request, wiring: Wiring, pages: Pages, stream: pa.Schema) -> IoCosts | None:
    """The cost of reads and of a micro-batch, both timed on this store, which takes some ten milliseconds.

    A micro-batch is timed as one row of the stream, of another key each time, in a small join of its own. The join has
    a cache, so that all kernels of the common joins are loaded before the first rows are served.
    """
    request = request.beside(pages)
    io = io_costs(pages)
    if io is None or pages.device.simulated or not pages.indexed:
        return io
    rows = _first_rows(wiring, pages, stream)
    trial = specification(request, wiring, pages, "cachejoin", _TRIED)
    try:
        with trial.open(MemoryBudget(request.join_memory, "trial"), {"stream": stream}) as operator:
            times = [_micro_batch_s(operator, rows.slice(at % rows.num_rows, 1)) for at in range(1 + _MICRO_BATCHES)]
            return replace(io, micro_batch=min(times[1:]))
    except (BudgetExceeded, PlanError):
        return io


def _first_rows(wiring: Wiring, pages: Pages, stream: pa.Schema) -> pa.RecordBatch:
    """Rows of the stream with the first keys of the master data, and nulls beside them."""
    master = pages.read(0, 1).slice(0, 1 + _MICRO_BATCHES)
    keys = {name: master.column(key) for name, key in zip(wiring.on, probed(pages), strict=True)}
    columns = [keys[f.name].cast(f.type) if f.name in keys else pa.nulls(master.num_rows, f.type) for f in stream]
    return pa.RecordBatch.from_arrays(columns, schema=stream)


def _micro_batch_s(operator: SemiStreamOperator, rows: pa.RecordBatch) -> float:
    start = time.perf_counter()
    for _ in chain(operator.push("stream", rows), operator.drain()):
        pass
    return time.perf_counter() - start


TRIALS = 8
_NO_RATE = float("-inf")


def measured_sizes(
    request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision
) -> Decision:
    """The decision with the sizes that served these rows quickest; trials start where the model finds the best."""
    request = request.beside(pages)
    sample = sample_of(rows, wiring.on, pages, sum(batch.num_rows for batch in rows))
    setting, skew = setting_for(request, pages, rows[0].schema, sample)

    def rate(sizes: Sizes) -> float:
        return _rate(request, wiring, pages, rows, replace(decision, sizes=sizes))

    try:
        tuned = tune(decision.algorithm, setting, measure=rate, trials=TRIALS)
    except PlanError:
        return decision
    return replace(decision, sizes=tuned.sizes, origin=f"measured in {len(tuned.trials)} trials", skew=skew)


def _rate(request: Request, wiring: Wiring, pages: Pages, rows: Sequence[pa.RecordBatch], decision: Decision) -> float:
    """Rows per second over these rows, everything answered; minus infinity for sizes that do not fit."""
    spec = specification(request, wiring, pages, decision.algorithm, decision.sizes)
    try:
        start = time.perf_counter()
        with spec.open(MemoryBudget(request.join_memory, "trial"), {"stream": rows[0].schema}) as operator:
            for _ in chain(*(operator.push("stream", batch) for batch in rows), operator.drain()):
                pass
    except (BudgetExceeded, PlanError):
        return _NO_RATE
    n_rows: int = sum(batch.num_rows for batch in rows)
    return n_rows / (time.perf_counter() - start)
