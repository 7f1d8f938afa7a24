"""Local host: drives any operator over iterators of batches, in any interleaving, with delays and pauses."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, Self, get_args

import pyarrow as pa

from dovetail.engine.clock import Clock, VirtualClock
from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.engine.operator import Ends, Operator, OperatorError, Specification, Until
from dovetail.engine.rows.packing import unpack_rows
from dovetail.engine.storage.spool import HeldBytes
from dovetail.errors import PlanError

Order = Literal["random", "round_robin", "sequential"]


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of one side, in place of a batch: nothing arrives from it for `seconds` of the host's clock."""

    seconds: float

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise PlanError(f"a pause of {self.seconds} s is not possible; give 0 or more.")


Input = Iterable[pa.RecordBatch | Pause]  # or a pa.Table, or a pa.RecordBatchReader, which have no types to name


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order in which sides deliver, and when all of them pause. Equal schedules give equal runs.

    `random` picks among the sides that have something, by `weights` where given (default 1 each); `round_robin` takes
    them in turn; `sequential` exhausts a side before the next. After a batch, with probability `pause_chance`, every
    side pauses for `pause_s`. On a virtual clock each call of `until` takes `poll_s`, so that an idle operator is
    interrupted after a fixed number of calls.
    """

    order: Order = "random"
    seed: int = 0
    weights: tuple[tuple[str, float], ...] = ()
    pause_chance: float = 0.0
    pause_s: float = 0.01
    poll_s: float = 0.001

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise PlanError(f"unknown order {self.order!r}; there are {list(get_args(Order))}.")
        if not 0 <= self.pause_chance <= 1 or self.pause_s < 0 or self.poll_s <= 0:
            raise PlanError(
                f"pause_chance={self.pause_chance}, pause_s={self.pause_s}, poll_s={self.poll_s}: the chance must be "
                f"between 0 and 1, the pause 0 or more, and asking must take more than 0."
            )
        if any(weight <= 0 for _, weight in self.weights):
            raise PlanError(f"weights {self.weights} must be above 0; leave a side out for weight 1.")


class _Waiting(NamedTuple):
    """Rows of a side that the operator has not taken, or the end of a side."""

    side: str
    schema: pa.Schema | None
    ticket: pa.Buffer | int


class InTurns:
    """An operator whose `push`, `idle` and `finish` give at most `most_rows` result rows a call, in the same order.

    What a call has to leave is given by the next ones, of any kind; `pending` says whether there is some. Rows that are
    pushed meanwhile wait, in memory up to `waiting_bytes` and then on disk, and the operator takes them when the
    results of earlier ones were given. After `finish`, call it again while results are `pending`.

    >>> from dovetail.engine.memory import MemoryBudget
    >>> from dovetail.joins.online.operators import Diner
    >>> rows = pa.RecordBatch.from_pydict({"k": [1] * 10})
    >>> schemas = {"left": rows.schema, "right": rows.schema}
    >>> with InTurns(Diner(on=("k",)).open(MemoryBudget("1MB"), schemas), most_rows=30) as join:
    ...     given = [sum(b.num_rows for b in join.push(side, rows)) for side in ("left", "right")]
    ...     while join.pending:
    ...         given.append(sum(b.num_rows for b in join.finish()))
    >>> given[:4], sum(given)
    ([0, 30, 30, 30], 100)
    """

    def __init__(
        self, operator: Operator, most_rows: int, waiting_bytes: int = 1 << 20, directory: Path | None = None
    ) -> None:
        if most_rows < 1:
            raise PlanError(f"most_rows={most_rows} is too small; a call gives at least one row.", argument="most_rows")
        self.operator, self.most_rows = operator, most_rows
        self._inbox: deque[_Waiting] = deque()
        self._held = HeldBytes(waiting_bytes, directory, "waiting rows")
        self._current: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._until: Until = _never
        self._last: Callable[[], Iterator[pa.RecordBatch]] | None = None
        self._ends = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch of the result."""
        return self.operator.schema

    @property
    def metrics(self) -> Metrics:
        """The operator's metrics, and the most batches that waited."""
        return self.operator.metrics

    @property
    def pending(self) -> bool:
        """Whether another call may give results of what was pushed or finished before."""
        return bool(self._rest or self._current or self._inbox or self._last)

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one side; results that are possible by now."""
        if self.pending:
            self._inbox.append(_Waiting(side, batch.schema, self._held.keep(batch.serialize())))
            self.metrics.peak("batches_waiting", len(self._inbox), unit="batches")
        else:
            self._current = self.operator.push(side, batch)
        return self._turn()

    def end(self, side: str) -> None:
        """Note that no more rows of this side are pushed."""
        self._inbox.append(_Waiting(side, None, 0))

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Results that are pending; if there are none, deferred work until `until()`."""
        self._until = until
        if not self.pending:
            self._current = self.operator.idle(lambda: self._until())
        return self._turn()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Results of the end of all inputs; to be called again while there are some `pending`."""
        if not self._ends:
            self._ends, self._last = True, self.operator.finish
        return self._turn()

    def _turn(self) -> Iterator[pa.RecordBatch]:
        left = self.most_rows
        while left and (batch := self._next()) is not None:
            self._rest = batch.slice(left) if batch.num_rows > left else None
            given = batch.slice(0, left)
            left -= given.num_rows
            if given.num_rows:
                yield given

    def _next(self) -> pa.RecordBatch | None:
        """The next batch of results; None if there are none before another call."""
        while True:
            if self._rest is not None:
                found, self._rest = self._rest, None
                return found
            if self._current is not None and (batch := next(self._current, None)) is not None:
                return batch
            self._current = self._started()
            if self._current is None:
                return None

    def _started(self) -> Iterator[pa.RecordBatch] | None:
        """The results of the next call that the operator waits for, if there is one."""
        while self._inbox:
            side, schema, ticket = self._inbox.popleft()
            if schema is not None:
                batch = unpack_rows(self._held.read(ticket), schema)
                self._held.let_go(ticket)
                return self.operator.push(side, batch)
            if isinstance(self.operator, Ends):
                self.operator.end(side)
        last, self._last = self._last, None
        return None if last is None else last()

    def close(self) -> None:
        """Free memory and files, whatever is pending."""
        self._held.close()
        self.operator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _never() -> bool:
    return False


def run_local(
    spec: Specification,
    inputs: Mapping[str, Input],
    budget: MemoryBudget | int | str,
    schedule: Schedule | None = None,
    *,
    schemas: Mapping[str, pa.Schema] | None = None,
    spill_dir: Path | None = None,
    clock: Clock | None = None,
    rows_per_call: int | None = None,
) -> LocalRun:
    """The result of a join over local inputs, batch by batch; the operator is closed at the end, also after failures.

    A side without any batch needs its schema in `schemas`. With `rows_per_call` at most that number of result rows
    comes between two batches that are taken from the inputs, and in a pause; the rest follows later, and batches that
    arrive meanwhile wait on disk. The host checks the operator: results must have the announced schema, and the closed
    operator must have released all memory; otherwise `OperatorError`.
    """
    if set(inputs) != set(spec.sides):
        raise PlanError(f"inputs are {sorted(inputs)}; this join takes {sorted(spec.sides)}.")
    if rows_per_call is not None and rows_per_call < 1:
        raise PlanError(f"rows_per_call={rows_per_call} is too small; give 1 or more, or leave it out.")
    feeds = {side: _Feed(side, inputs[side], (schemas or {}).get(side)) for side in spec.sides}
    memory = budget if isinstance(budget, MemoryBudget) else MemoryBudget(budget)
    clock = clock or VirtualClock()
    return LocalRun(spec, feeds, memory, schedule or Schedule(), spill_dir, clock, rows_per_call)


class LocalRun(Iterator[pa.RecordBatch]):
    """A running local join: iterate it for its result, or take all of it with `table()`."""

    def __init__(
        self,
        spec: Specification,
        feeds: dict[str, _Feed],
        budget: MemoryBudget,
        schedule: Schedule,
        spill_dir: Path | None,
        clock: Clock,
        rows_per_call: int | None,
    ) -> None:
        self.budget, self.clock = budget, clock
        self._feeds, self._schedule = feeds, schedule
        self._used_before = budget.used
        self._random = random.Random(schedule.seed)  # noqa: S311  (repeatable schedules, no secrets)
        operator = spec.open(budget, {side: feed.schema for side, feed in feeds.items()}, spill_dir)
        self._operator: Operator = operator if rows_per_call is None else InTurns(operator, rows_per_call, 0, spill_dir)
        self._answers = self._drive(self._operator)
        self._turns = list(feeds)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return self._operator.schema

    @property
    def metrics(self) -> Metrics:
        """The operator's metrics; final once the whole result was taken."""
        return self._operator.metrics

    def __next__(self) -> pa.RecordBatch:
        return next(self._answers)

    def table(self) -> pa.Table:
        """The rest of the result, as one table."""
        return pa.Table.from_batches(list(self), self.schema)

    def close(self) -> None:
        """Stop early and close the operator."""
        self._answers.close()
        self._operator.close()

    def _drive(self, operator: Operator) -> Generator[pa.RecordBatch]:
        with operator:
            live = dict(self._feeds)
            while live:
                ready = self._ready(live)
                if not ready:
                    yield from self._wait(operator, min(feed.ready_ns for feed in live.values()))
                    continue
                side = self._pick(ready)
                item = next(live[side].items, None)
                if item is None:
                    del live[side]
                    if isinstance(operator, Ends):
                        operator.end(side)
                elif isinstance(item, Pause):
                    live[side].pause(self.clock.now_ns(), item.seconds)
                else:
                    yield from self._checked(operator.push(side, item))
                    self._maybe_pause(live)
            yield from self._checked(operator.finish())
            while isinstance(operator, InTurns) and operator.pending:
                yield from self._checked(operator.finish())
        self._check_released()

    def _ready(self, live: dict[str, _Feed]) -> list[str]:
        considered = list(live)[:1] if self._schedule.order == "sequential" else list(live)
        return [side for side in considered if live[side].ready_ns <= self.clock.now_ns()]

    def _pick(self, ready: list[str]) -> str:
        if self._schedule.order == "random":
            weights = dict(self._schedule.weights)
            return self._random.choices(ready, [weights.get(side, 1.0) for side in ready])[0]
        side = min(ready, key=self._turns.index)
        self._turns.remove(side)
        self._turns.append(side)
        return side

    def _wait(self, operator: Operator, wake_ns: int) -> Iterator[pa.RecordBatch]:
        clock = self.clock

        def until() -> bool:
            if isinstance(clock, VirtualClock):
                clock.advance(self._schedule.poll_s)
            return clock.now_ns() >= wake_ns

        yield from self._checked(operator.idle(until))
        if clock.now_ns() < wake_ns:
            clock.sleep((wake_ns - clock.now_ns()) / 1e9)

    def _maybe_pause(self, live: dict[str, _Feed]) -> None:
        if self._random.random() < self._schedule.pause_chance:
            for feed in live.values():
                feed.pause(self.clock.now_ns(), self._schedule.pause_s)

    def _checked(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in answers:
            if not batch.schema.equals(self.schema):
                raise OperatorError(f"an answer has schema {batch.schema}; the operator announced {self.schema}.")
            yield batch

    def _check_released(self) -> None:
        held = self.budget.used - self._used_before
        if held:
            parts = {name: now for name, (now, _) in self.budget.components().items() if now}
            raise OperatorError(f"the closed operator still holds {held} bytes of its budget: {parts}.")


class _Feed:
    """The items of one side, its schema, and the time from which it has something."""

    def __init__(self, side: str, source: Input, schema: pa.Schema | None) -> None:
        self.ready_ns = 0
        if isinstance(source, pa.Table):
            source = source.to_reader()
        if isinstance(source, pa.RecordBatchReader):
            schema = schema or source.schema
        self.items: Iterator[pa.RecordBatch | Pause] = iter(source)
        self.schema: pa.Schema = schema or self._peeked(side)

    def pause(self, now_ns: int, seconds: float) -> None:
        """Deliver nothing for `seconds` from now."""
        self.ready_ns = max(self.ready_ns, now_ns + round(seconds * 1e9))

    def _peeked(self, side: str) -> pa.Schema:
        seen: list[pa.RecordBatch | Pause] = []
        for item in self.items:
            seen.append(item)
            if not isinstance(item, Pause):
                self.items = chain(seen, self.items)
                return item.schema
        raise PlanError(f"input {side!r} has no batch, so its schema is unknown; give schemas={{{side!r}: ...}}.")
