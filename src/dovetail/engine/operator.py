"""Defines the operator contract: a specification describes a join, `open` starts it, and a host drives it.

Every operator has push, idle, finish and close. What only some can do is a protocol of one method: `Ends`, `Drains`,
`Snapshots`, `Restores`, `Retires`, `Resizes`. A host tests for a protocol, never for a class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import DovetailError

Until = Callable[[], bool]
S_co = TypeVar("S_co", covariant=True)
S_contra = TypeVar("S_contra", contravariant=True)
M_contra = TypeVar("M_contra", contravariant=True)


class OperatorError(DovetailError, RuntimeError):
    """An operator, or the host that drives it, broke the operator contract: a fault of Dovetail, worth a report."""


class Operator(Protocol):
    """A join in progress, inside one task and one budget.

    A host exhausts the iterator of a call before it makes the next call; a call may do its work only while it is
    iterated. Every side's batches are pushed in their order, in any interleaving with other sides. After `finish` only
    `close` is called; `close` may be called at any time, also twice, and frees all memory and files. `metrics` are
    final after `close`.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch of the result."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The metrics so far."""
        ...

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take one batch of a side; yields the results that are now possible."""
        ...

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Do deferred work while all inputs pause; return promptly once `until()` says that input resumes."""
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields all pending results; all inputs have ended."""
        ...

    def close(self) -> None:
        """Free memory and files, whatever state the operator is in."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@runtime_checkable
class Ends(Protocol):
    """The capability to reuse the memory of inputs that have ended."""

    def end(self, side: str) -> None:
        """Note that no more batches of this side come; the call may be repeated."""
        ...


class Drains(Protocol):
    """The capability to produce all pending results before the inputs have ended."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yields all pending results of the rows pushed so far; more rows may follow."""
        ...


class Snapshots(Protocol[S_co]):
    """The capability to be stored between two pushes."""

    def snapshot(self) -> S_co:
        """Everything that later results depend on; the operator is unchanged."""
        ...


class Restores(Protocol[S_contra]):
    """The capability to continue from a stored state."""

    def restore(self, state: S_contra, /) -> Iterable[pa.RecordBatch]:
        """Load a state into an operator that has seen no rows; returns results that do not fit in memory."""
        ...


class Retires(Protocol):
    """The capability to drop the oldest rows."""

    def retire(self, until: int) -> None:
        """Drop rows that arrived up to this tick of the operator's clock; no result may be pending."""
        ...


class Resizes(Protocol[M_contra]):
    """The capability to continue with another budget, or another split of it."""

    def resize(self, sizes: M_contra, /) -> Iterator[pa.RecordBatch]:
        """Adopt the sizes; returns results of rows that no longer fit."""
        ...


class Specification(Protocol):
    """A join as a frozen value: validated when built, printable in one line, opened once per task."""

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of the inputs that `push` takes."""
        ...

    def open(self, budget: MemoryBudget, schemas: Mapping[str, pa.Schema], spill_dir: Path | None = None) -> Operator:
        """The running operator for inputs of these schemas; `PlanError` when they do not fit the specification."""
        ...

    def explain(self) -> str:
        """The specification in one line."""
        ...


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class OperatorBase(ABC):
    """Base class with a schema, metrics, and resources that are closed with the operator, last one first.

    Subclasses write `push` and `finish`, and `idle` if they have deferred work.
    """

    def __init__(self, schema: pa.Schema, budget: MemoryBudget, metrics: Metrics | None = None) -> None:
        self.schema, self.budget = schema, budget
        self.metrics = metrics or Metrics()
        self._resources = ExitStack()

    def own(self, resource: C) -> C:
        """The resource itself, which will be closed with this operator, also after a failure."""
        self._resources.callback(resource.close)
        return resource

    @abstractmethod
    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take one batch of a side; yields the results that are now possible."""

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nothing: a subclass with deferred work overrides this."""
        return iter(())

    @abstractmethod
    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields all pending results; all inputs have ended."""

    def close(self) -> None:
        """Close what this operator owns and record the peak of its memory."""
        self.metrics.peak("memory_peak", self.budget.peak)
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
