"""The tasks of a scan: files to rows, on columns or by tuples, as `scan_work` decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.xml.algebra.expressions import Expression
from dovetail.xml.execute.aggregate import Local
from dovetail.xml.execute.batching import ROWS, batched
from dovetail.xml.execute.cells import Cells, KeyColumn, Value, given_out
from dovetail.xml.execute.files import MALFORMED, File, read_document
from dovetail.xml.execute.job import Job
from dovetail.xml.execute.keys import key_cell
from dovetail.xml.execute.runner import on_path
from dovetail.xml.execute.scan_work import XML, ScanWork, Wanted
from dovetail.xml.execute.vector import Condition
from dovetail.xml.execute.wire import ARROW, KEY_TYPES, Items, element_of, encoded
from dovetail.xml.scan import ROW, Scanner, check, open_chunks
from dovetail.xml.xdm.serialise import serialise

ITEM, ORDER, STATE = "item", "o", "state"
FILE_SHIFT = 40
"""Bits of an order number for the place in its file; above them stands the number of the file."""


def schema_of(work: ScanWork) -> pa.Schema:
    """The columns of a scan's rows."""
    if work.wanted.items is not None:
        return pa.schema([pa.field(ITEM, pa.string(), nullable=False)])
    if work.wanted.aggregate is not None:
        return pa.schema([(ORDER, pa.int64()), (STATE, pa.binary())])
    fields = [(ORDER, pa.int64()), *((f"k{n}", KEY_TYPES[key.many]) for n, key in enumerate(work.wanted.keys))]
    fields += [(f"v{v.number}", ARROW[form]) for v, form in zip(work.wanted.variables, work.forms, strict=True)]
    return pa.schema(fields)


def scanned(job: Job, work: ScanWork, files: Iterable[File], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The rows of some files, in order."""
    rows = _ByTuples(job, work, metrics) if work.tuples else _OnColumns(job, work, metrics)
    last, process = 0, psutil.Process()
    for file in files:
        if job.skip and not _is_well_formed(job, work, file):
            metrics.add("skipped files", unit="files")
            continue
        metrics.add("files", unit="files")
        metrics.add("bytes", file.size, unit="bytes")
        last = file.number
        yield from rows.of(file)
        metrics.peak("resident memory", process.memory_info().rss)
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
        self.runner = job.runner(metrics)
        aggregate = work.wanted.aggregate
        self.local = None if aggregate is None else Local(self.runner, aggregate)
        self.scanner = None if work.request is None else Scanner(work.request, MemoryBudget(job.memory))
        self.filters = [Condition(self.runner, one, work.many) for one in work.filters]

    def matching(self, file: File, scanner: Scanner) -> Iterator[pa.RecordBatch]:
        """Batches of the scan after the filters that need no nodes."""
        dropped = scanner.dropped
        for batch in scanner.batches(open_chunks(file.uri), file.uri):
            self.metrics.add("matching subtrees", batch.num_rows, unit="rows")
            for one in self.filters:
                if batch.num_rows:
                    batch = batch.filter(one.true(batch))
            if batch.num_rows:
                yield batch
        self.metrics.add("matching subtrees", scanner.dropped - dropped, unit="rows")


class _OnColumns(_Rows):
    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        super().__init__(job, work, metrics)
        many, typed = work.many, work.wanted.aggregate is not None
        self._items = [Cells(self.runner, piece, many, typed) for piece in work.items]
        self._keys = [
            KeyColumn(self.runner, key, one, many) for key, one in zip(work.wanted.keys, work.keys, strict=True)
        ]
        self._values = [
            Value(self.runner, pieces, many, form) for pieces, form in zip(work.values, work.forms, strict=True)
        ]

    def of(self, file: File) -> Iterator[pa.RecordBatch]:
        assert self.scanner is not None  # noqa: S101  (columns come from a scan by path)
        for batch in self.matching(file, self.scanner):
            if self.local is not None:
                self._gather(self.local, batch)
            elif self.work.wanted.items is not None:
                yield pa.RecordBatch.from_arrays([given_out(self._items, batch)], schema=self.schema)
            else:
                order = pa.array(batch[ROW].to_numpy() + (file.number << FILE_SHIFT))
                columns = [order, *(one.of(batch) for one in self._keys), *(one.of(batch) for one in self._values)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _gather(self, local: Local, batch: pa.RecordBatch) -> None:
        texts = self._items[0].texts(batch)
        if texts is None or not local.add_texts(texts):
            local.add([item for row in self._items[0].of(batch) for item in row])


class _ByTuples(_Rows):
    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        super().__init__(job, work, metrics)
        self._waiting: Items = []
        self._file: File | None = None
        self._run = self.runner.prepared(work.plan, _values(work.wanted), feed=self._nodes)

    def of(self, file: File) -> Iterator[pa.RecordBatch]:
        self._file = file
        numbered = enumerate(self._run(), file.number << FILE_SHIFT)
        yield from batched((row for order, given in numbered for row in self._row(given, order)), self.schema)
        self._settle()

    def _settle(self) -> None:
        if self.local is not None:
            self.local.add(self._waiting)
            self._waiting = []

    def _nodes(self) -> Iterator[Any]:
        file = self._file
        assert file is not None  # noqa: S101  (set before a run starts)
        if self.scanner is None:
            for node in on_path(read_document(file.uri), self.work.part.scan.path):
                self.metrics.add("matching subtrees", unit="rows")
                yield node
            return
        for batch in self.matching(file, self.scanner):
            for markup in batch[XML].to_pylist():
                yield element_of(markup)

    def _row(self, given: list[Items], order: int) -> list[Any]:
        wanted = self.work.wanted
        if wanted.items is not None:
            return [(serialise(item),) for item in given[0]]
        if self.local is not None:
            self._waiting += given[0]
            if len(self._waiting) >= ROWS:
                self._settle()
            return []
        n = len(wanted.keys)
        keys = [key_cell(key, items) for key, items in zip(wanted.keys, given[:n], strict=True)]
        values = [encoded(form, items) for items, form in zip(given[n:], self.work.forms, strict=True)]
        return [(order, *keys, *values)]


def _values(wanted: Wanted) -> tuple[Expression, ...]:
    """What is computed for each tuple."""
    if wanted.items is not None:
        return (wanted.items,)
    if wanted.aggregate is not None:
        return wanted.aggregate.expression.arguments  # type: ignore[attr-defined,no-any-return]  # a call, by `aggregate_in_two_steps`
    return (*(key.expression for key in wanted.keys), *wanted.variables)
