"""The tasks of a scan: files to rows, on columns or by tuples, as `scan_work` decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import XQueryError
from dovetail.xquery.algebra.run_expressions import Compiler, Tuple
from dovetail.xquery.execute.aggregate import Local
from dovetail.xquery.execute.batching import ROWS, batched
from dovetail.xquery.execute.columns import Path
from dovetail.xquery.execute.files import MALFORMED, File, read_document
from dovetail.xquery.execute.job import Job
from dovetail.xquery.execute.runner import TaskRunner, on_path
from dovetail.xquery.execute.scan_work import XML, Pieces, ScanWork
from dovetail.xquery.execute.vector import Computed
from dovetail.xquery.execute.wire import ARROW, Form, Items, element_of, encoded
from dovetail.xquery.scan import ROW, ScanRequest, check, open_chunks, scan
from dovetail.xquery.xdm.serialise import serialise
from dovetail.xquery.xdm.values import boolean

ITEM, ORDER, STATE = "item", "o", "state"
FILE_SHIFT = 40
"""Bits of an order number for the place in its file; above them stands the number of the file."""


def key_of(items: Items) -> str | None:
    """A key of a join: None if there is no item, an error if there are several."""
    if len(items) > 1:
        raise XQueryError("XPTY0004", f"an operand of a comparison is a sequence of {len(items)} items; one is allowed")
    return str(items[0]) if items else None


def schema_of(work: ScanWork) -> pa.Schema:
    """The columns of a scan's rows."""
    if work.wanted.items is not None:
        return pa.schema([pa.field(ITEM, pa.string(), nullable=False)])
    if work.wanted.aggregate is not None:
        return pa.schema([(ORDER, pa.int64()), (STATE, pa.binary())])
    fields = [(ORDER, pa.int64()), *((f"k{n}", pa.string()) for n in range(len(work.wanted.keys)))]
    fields += [(f"v{v.number}", ARROW[form]) for v, form in zip(work.wanted.variables, work.forms, strict=True)]
    return pa.schema(fields)


def scanned(job: Job, work: ScanWork, files: Iterable[File], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The rows of some files, in order."""
    rows = _ByTuples(job, work, metrics) if work.tuples else _OnColumns(job, work, metrics)
    last = 0
    for file in files:
        if job.skip and not _is_well_formed(job, work, file):
            metrics.add("skipped files", unit="files")
            continue
        metrics.add("files", unit="files")
        metrics.add("bytes", file.size, unit="bytes")
        last = file.number
        yield from rows.of(file)
        metrics.peak("resident memory", psutil.Process().memory_info().rss)
    if rows.local is not None and rows.local.seen:
        state = encoded("items", rows.local.state())
        yield pa.RecordBatch.from_pydict({ORDER: [last << FILE_SHIFT], STATE: [state]}, schema=schema_of(work))


def _is_well_formed(job: Job, work: ScanWork, file: File) -> bool:
    """Whether the reader that this scan uses takes the file."""
    try:
        if work.request is None:
            read_document(file.uri)
        else:
            check(open_chunks(file.uri), MemoryBudget(job.memory), file.uri)
    except MALFORMED:
        return False
    return True


class _Rows:
    """What both ways have in common."""

    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        self.job, self.work, self.metrics, self.schema = job, work, metrics, schema_of(work)
        self.compiler: Compiler = job.compiler(metrics)
        aggregate = work.wanted.aggregate
        self.local = None if aggregate is None else Local(self.compiler, aggregate)
        self.filters = [Computed(self.compiler, one, work.many, boolean) for one in work.filters]

    def matching(self, file: File, request: ScanRequest) -> Iterator[pa.RecordBatch]:
        """Batches of the scan after the filters that need no nodes."""
        budget = MemoryBudget(self.job.memory)
        for batch in scan(open_chunks(file.uri), request, budget, file.uri):
            self.metrics.add("matching subtrees", batch.num_rows, unit="rows")
            for one in self.filters:
                if batch.num_rows:
                    batch = batch.filter(one.true(batch))
            if batch.num_rows:
                yield batch


class _OnColumns(_Rows):
    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        super().__init__(job, work, metrics)
        many, typed = work.many, work.wanted.aggregate is not None
        self._items = [_Cells(self.compiler, piece, many, typed) for piece in _each(work.items)]
        self._keys = [Computed(self.compiler, one, many, key_of) for one in work.keys]
        self._values = [
            _Value(self.compiler, pieces, many, form) for pieces, form in zip(work.values, work.forms, strict=True)
        ]

    def of(self, file: File) -> Iterator[pa.RecordBatch]:
        assert self.work.request is not None  # noqa: S101  (columns come from a scan by path)
        for batch in self.matching(file, self.work.request):
            if self.local is not None:
                self.local.add([item for row in self._items[0].of(batch) for item in row])
            elif self.work.wanted.items is not None:
                yield self._given_out(batch)
            else:
                order = pa.array(batch[ROW].to_numpy() + (file.number << FILE_SHIFT))
                keys = [pa.array(one.of(batch), pa.string()) for one in self._keys]
                yield pa.RecordBatch.from_arrays(
                    [order, *keys, *(one.of(batch) for one in self._values)], schema=self.schema
                )

    def _given_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(self._items) == 1 and self._items[0].path == ():
            items = batch[XML]
        else:
            cells = [one.of(batch) for one in self._items]
            found = [item for row in zip(*cells, strict=True) for cell in row for item in cell]
            items = pa.array(found, pa.string())
        return pa.RecordBatch.from_arrays([items], schema=self.schema)


def _each(pieces: Pieces) -> Iterator[Pieces]:
    return ((piece,) for piece in pieces)


class _Cells:
    """The items of one piece for each row: as texts to give out, or typed for an aggregate."""

    def __init__(self, compiler: Compiler, pieces: Pieces, many: dict[Path, bool], typed: bool = False) -> None:
        (piece,) = pieces
        self.path = piece.nodes
        change = (lambda items: items) if typed else (lambda items: [serialise(item) for item in items])
        self._computed = None if piece.computed is None else Computed(compiler, piece.computed, many, change)

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        if self._computed is not None:
            return self._computed.of(batch)
        if self.path == ():
            return [[markup] for markup in batch[XML].to_pylist()]
        return list(batch[f"<{'/'.join(self.path or ())}>"].to_pylist())


class _Value:
    """A variable as a column for other tasks."""

    def __init__(self, compiler: Compiler, pieces: Pieces, many: dict[Path, bool], form: Form) -> None:
        self._form, self._pieces = form, pieces
        self._cells = [_Cells(compiler, piece, many, typed=form == "items") for piece in _each(pieces)]

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        if len(self._pieces) == 1 and self._pieces[0].nodes == () and self._form == "nodes":
            offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32))
            return pa.ListArray.from_arrays(offsets, batch[XML])
        rows = zip(*(one.of(batch) for one in self._cells), strict=True)
        cells = [[item for cell in row for item in cell] for row in rows]
        if self._form == "items":
            return pa.array([encoded("items", cell) for cell in cells], pa.binary())
        return pa.array(cells, ARROW[self._form])


class _ByTuples(_Rows):
    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        super().__init__(job, work, metrics)
        self._waiting: Items = []

    def of(self, file: File) -> Iterator[pa.RecordBatch]:
        runner = TaskRunner(self.compiler, feed=lambda: self._nodes(file))
        tuples = enumerate(runner.tuples(self.work.plan, {}), file.number << FILE_SHIFT)
        yield from batched((row for order, given in tuples for row in self._row(given, order)), self.schema)
        self._settle()

    def _settle(self) -> None:
        if self.local is not None:
            self.local.add(self._waiting)
            self._waiting = []

    def _nodes(self, file: File) -> Iterator[Any]:
        if self.work.request is None:
            for node in on_path(read_document(file.uri), self.work.part.scan.path):
                self.metrics.add("matching subtrees", unit="rows")
                yield node
            return
        for batch in self.matching(file, self.work.request):
            for markup in batch[XML].to_pylist():
                yield element_of(markup)

    def _row(self, given: Tuple, order: int) -> list[Any]:
        wanted, closure = self.work.wanted, self.compiler.closure
        if wanted.items is not None:
            return [(serialise(item),) for item in given[wanted.items]]
        if self.local is not None and wanted.aggregate is not None:
            self._waiting += closure(wanted.aggregate.expression.arguments[0])(given)  # type: ignore[attr-defined]  # a call, by A2
            if len(self._waiting) >= ROWS:
                self._settle()
            return []
        keys = [key_of(closure(key)(given)) for key in wanted.keys]
        values = [encoded(form, given[one]) for one, form in zip(wanted.variables, self.work.forms, strict=True)]
        return [(order, *keys, *values)]
