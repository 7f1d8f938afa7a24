"""The contract of every join: a frozen specification opens a running operator, and a host drives that.

What only some operators can do is a capability with a name and one method: `Drains`, `Snapshots`, `Restores`,
`Retires`, `Resizes`. Who drives an operator asks for the capability, whatever its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

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

    A host exhausts what a call returns before it makes the next call; a call may do its work only while it is
    iterated. Every side's batches are pushed in their order, in any interleaving with other sides. After `finish` comes
    nothing but `close`; `close` may come at any time, twice too, and frees all memory and files. `metrics` are final
    after `close`.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch this operator gives."""
        ...

    @property
    def metrics(self) -> Metrics:
        """What this operator did so far."""
        ...

    def push(self, side: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take one batch of a side and give the answers it makes possible now."""
        ...

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Do deferred work while all inputs pause; return promptly once `until()` says that input is back."""
        ...

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give everything still owed; all inputs have ended."""
        ...

    def close(self) -> None:
        """Free memory and files, whatever state the operator is in."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Drains(Protocol):
    """The capability of giving all that is owed without ending."""

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Give all that is owed to the rows pushed so far; nothing is owed afterwards, and more rows may come."""
        ...


class Snapshots(Protocol[S_co]):
    """The capability of being stored between two pushes."""

    def snapshot(self) -> S_co:
        """Everything that later answers depend on; the operator goes on as before."""
        ...


class Restores(Protocol[S_contra]):
    """The capability of going on from what was stored of another operator."""

    def restore(self, state: S_contra, /) -> Iterable[pa.RecordBatch]:
        """Take up a state, in an operator that has seen no rows; gives answers for which there is no room inside."""
        ...


class Retires(Protocol):
    """The capability of forgetting the oldest rows."""

    def retire(self, until: int) -> None:
        """Rows that came up to this tick of the operator's clock leave; nothing may be owed."""
        ...


class Resizes(Protocol[M_contra]):
    """The capability of going on with another budget, or another split of it."""

    def resize(self, sizes: M_contra, /) -> Iterator[pa.RecordBatch]:
        """Take up the sizes; gives answers of rows for which there is no more room."""
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
    """What most operators share: a schema, metrics, and resources that close with them, last one first.

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
        """Take one batch of a side and give the answers it makes possible now."""

    def idle(self, until: Until) -> Iterator[pa.RecordBatch]:
        """Nothing: there is no deferred work unless a subclass says so."""
        return iter(())

    @abstractmethod
    def finish(self) -> Iterator[pa.RecordBatch]:
        """Give everything still owed; all inputs have ended."""

    def close(self) -> None:
        """Close what this operator owns and record the peak of its memory."""
        self.metrics.peak("memory_peak", self.budget.peak)
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
