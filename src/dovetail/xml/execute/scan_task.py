"""Tasks of a scan: files to rows, on columns or by tuples, as `scan_work` decided.

A column of texts or of markup that the result contains unchanged is passed through. Values that must be computed, or
checked because a row has several items, are computed by array functions where texts are plain, else by the evaluator,
once for each text.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.operators import Key
from dovetail.xml.evaluate.plans import Runner, on_path
from dovetail.xml.execute.columns import Arrays, Test, Texts, lists_of, side_by_side, texts_of
from dovetail.xml.execute.rows import (
    ARROW,
    FILE_SHIFT,
    KEY_TYPES,
    Fields,
    Form,
    Items,
    Local,
    State,
    Values,
    element_of,
    encoded,
    key_cell,
    schema_of,
    written,
)
from dovetail.xml.execute.scan_work import XML, ColumnScan, OnColumns, Path, Piece, Pieces, ScanWork, column_name
from dovetail.xml.execute.tasks import MALFORMED, Job, read_document
from dovetail.xml.scan import ROW, Scanner, check, count_name, open_chunks
from dovetail.xml.scan.files import File
from dovetail.xml.syntax.tree import deep_stack
from dovetail.xml.xdm.atomic import UntypedAtomic
from dovetail.xml.xdm.markup import serialise
from dovetail.xml.xdm.values import boolean

KEPT = 1 << 17
"""Answers that are cached; a full cache is emptied."""


class Computed:
    """One expression over columns; `change` is applied to the items it gives for a row."""

    def __init__(
        self, runner: Runner, given: OnColumns, many: dict[Path, bool], change: Callable[[list[Any]], Any]
    ) -> None:
        self._value, self._change = runner.function(given.expression, given.variables), change
        self.columns = [(column_name(path, many[path]), many[path]) for path in given.paths]
        self._known: dict[Any, Any] = {}

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """The value of each row."""
        if not self.columns:
            return [self._answer([])] * batch.num_rows
        if len(self.columns) == 1 and not self.columns[0][1]:
            return self._single(batch, self.columns[0][0])
        rows = zip(*(_cells(batch, name, many) for name, many in self.columns), strict=True)
        return [self._remembered(row) for row in rows]

    def _answer(self, items: list[list[Any]]) -> Any:
        return self._change(self._value(items))

    def _single(self, batch: pa.RecordBatch, name: str) -> list[Any]:
        counts = batch[count_name(name)].to_numpy()
        encoded = pc.dictionary_encode(batch[name], null_encoding="encode")
        answers = np.empty(len(encoded.dictionary) + 1, dtype=object)
        firsts = np.flatnonzero(counts > 1)
        # The first of several items is not enough: only rows with one or none share a cached answer.
        used = np.unique(encoded.indices.to_numpy()[counts <= 1])
        for number, text in zip(used.tolist(), encoded.dictionary.take(pa.array(used)).to_pylist(), strict=True):
            answers[number] = self._remembered((() if text is None else (text,),))
        found: list[Any] = answers[encoded.indices.to_numpy()].tolist()
        for row in firsts.tolist():
            found[row] = self._remembered(((batch[name][row].as_py(),) * int(counts[row]),))
        return found

    def _remembered(self, row: tuple[tuple[str, ...], ...]) -> Any:
        if row not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[row] = self._answer([[UntypedAtomic(text) for text in cell] for cell in row])
        return self._known[row]


class Condition(Computed):
    """A condition over columns: computed by array functions for rows with plain texts, else by the evaluator."""

    def __init__(self, runner: Runner, given: OnColumns, many: dict[Path, bool]) -> None:
        super().__init__(runner, given, many, boolean)
        self._arrays = Arrays(runner, dict(zip(given.variables, self.columns, strict=True)))
        self._expression, self._asked = given.expression, False
        self._test: Test | None = None

    def true(self, batch: pa.RecordBatch) -> pa.Array:
        """For which rows it is true."""
        if not self._asked:  # evaluated with the first row: without rows a wrong constant is no error
            self._test, self._asked = self._arrays.test(self._expression), True
        if self._test is None:
            return pa.array(self.of(batch), pa.bool_())
        known, true = self._test(batch)
        if not known.all():
            true[~known] = self.of(batch.filter(pa.array(~known)))
        return pa.array(true)


def _cells(batch: pa.RecordBatch, name: str, many: bool) -> Iterator[tuple[str, ...]]:
    if many:
        return (tuple(cell) for cell in batch[name].to_pylist())
    counts = batch[count_name(name)].to_pylist()
    return ((text,) * n for text, n in zip(batch[name].to_pylist(), counts, strict=True))


Columned = Callable[[pa.RecordBatch], pa.Array]


def key_column(runner: Runner, key: Key, given: OnColumns, many: dict[Path, bool]) -> Columned:
    """A key of a join as a column: a string, null where there is no item; or a list of strings, each of them once."""
    computed = Computed(runner, given, many, partial(key_cell, key))
    plain = isinstance(given.expression, Variable) and key.kind == "string"

    def column(batch: pa.RecordBatch) -> pa.Array:
        if plain:
            texts = texts_of(batch, *computed.columns[0])
            if texts.known.all():
                return lists_of(batch, *computed.columns[0]) if key.many else texts.array
        return pa.array(computed.of(batch), KEY_TYPES[key.many])

    return column


class Cells:
    """The items of one piece for each row: as texts for output, or typed."""

    def __init__(self, runner: Runner, piece: Piece, many: dict[Path, bool], typed: bool = False) -> None:
        self.path = piece.nodes
        change = (lambda items: items) if typed else (lambda items: [serialise(item) for item in items])
        given = piece.computed
        self._computed = None if given is None else Computed(runner, given, many, change)
        self._plain = given is not None and isinstance(given.expression, Variable)

    def of(self, batch: pa.RecordBatch) -> list[Any]:
        """A list of items for each row."""
        if self._computed is not None:
            return self._computed.of(batch)
        if self.path == ():
            return [[markup] for markup in batch[XML].to_pylist()]
        return list(batch[f"<{'/'.join(self.path or ())}>"].to_pylist())

    def texts(self, batch: pa.RecordBatch) -> Texts | None:
        """The texts of the rows, if they are a column of the scan and no row has several."""
        if not self._plain or self._computed is None:
            return None
        found = texts_of(batch, *self._computed.columns[0])
        return found if found.known.all() else None

    def lists(self, batch: pa.RecordBatch) -> pa.ListArray:
        """A list of texts for each row; for pieces that are not typed."""
        if self.path == ():
            return pa.ListArray.from_arrays(pa.array(np.arange(batch.num_rows + 1, dtype=np.int32)), batch[XML])
        if self.path is not None:
            return batch[f"<{'/'.join(self.path)}>"]
        if self._plain and self._computed is not None:
            found = lists_of(batch, *self._computed.columns[0])
            if found is not None:
                return found
        return pa.array(self.of(batch), pa.list_(pa.string()))


def value_column(runner: Runner, pieces: Pieces, many: dict[Path, bool], form: Form) -> Columned:
    """A variable as a column for other tasks."""
    cells = [Cells(runner, piece, many, typed=form == "items") for piece in pieces]

    def column(batch: pa.RecordBatch) -> pa.Array:
        if form == "items":
            rows = zip(*(one.of(batch) for one in cells), strict=True)
            return pa.array([encoded("items", [i for cell in row for i in cell]) for row in rows], pa.binary())
        lists = [one.lists(batch) for one in cells]
        if len(lists) == 1:
            return lists[0].cast(ARROW[form])
        counts = np.sum([np.diff(one.offsets.to_numpy()) for one in lists], axis=0)
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
        return pa.ListArray.from_arrays(pa.array(offsets), side_by_side(lists))

    return column


def given_out(pieces: list[Cells], batch: pa.RecordBatch) -> pa.Array:
    """The items of all rows, one after the other."""
    if len(pieces) == 1 and pieces[0].path == ():
        return batch[XML]
    return side_by_side([one.lists(batch) for one in pieces])


@dataclass(frozen=True, slots=True)
class ScanTasks:
    """The tasks of a scan. The files of each are packed by themselves: a task gets all of it, and unpacks its own."""

    job: Job
    work: ScanWork
    packed: tuple[bytes, ...]


def packed_apart(packed: Iterable[tuple[File, ...]]) -> tuple[bytes, ...]:
    """The files of each partition by themselves and small."""
    return tuple(zlib.compress(pickle.dumps([(file.number, file.uri, file.size) for file in run])) for run in packed)


def scan_files(tasks: ScanTasks, batches: Iterator[pa.RecordBatch], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The rows of the files of the partitions whose numbers come in."""
    for batch in batches:
        for number in batch["id"].to_pylist():
            files = pickle.loads(zlib.decompress(tasks.packed[number]))  # noqa: S301  (by the driver)
            with deep_stack():
                yield from scanned(tasks.job, tasks.work, [File(*one) for one in files], metrics)


def scanned(job: Job, work: ScanWork, files: Iterable[File], metrics: Metrics) -> Iterator[pa.RecordBatch]:
    """The rows of some files, in order."""
    reading = _Reading(job, work, metrics)
    schema = schema_of(work.wanted, work.forms)
    if not isinstance(work, ColumnScan):
        return written(work.wanted, work.forms, reading.runner, _tuples(reading, files), schema)
    match work.wanted:
        case Items():
            return _items(reading, work, files, schema)
        case State():
            return _state(reading, work, work.wanted, files)
    return _fields(reading, work, work.wanted, files, schema)


class _Reading:
    """Files of a scan and what is found in them, one after the other."""

    def __init__(self, job: Job, work: ScanWork, metrics: Metrics) -> None:
        self.job, self.work, self.metrics = job, work, metrics
        self.runner = job.runner(metrics)
        self._scanner = None if work.request is None else Scanner(work.request, MemoryBudget(job.memory))
        self._filters = [Condition(self.runner, one, work.many) for one in work.filters]

    def files(self, files: Iterable[File]) -> Iterator[File]:
        """The files that are read; with `skip` those that are well-formed."""
        process = psutil.Process()
        for file in files:
            if self.job.skip and not self._is_well_formed(file):
                self.metrics.add("skipped files", unit="files")
                continue
            self.metrics.add("files", unit="files")
            self.metrics.add("bytes", file.size, unit="bytes")
            yield file
            self.metrics.peak("resident memory", process.memory_info().rss)

    def _is_well_formed(self, file: File) -> bool:
        """Whether the reader that this scan uses takes the file."""
        try:
            if self._scanner is None:
                read_document(file.uri, self.job.memory, self.job.stores)
            else:
                check(open_chunks(file.uri, self.job.stores), MemoryBudget(self.job.memory), file.uri)
        except MALFORMED:
            return False
        return True

    def batches(self, file: File) -> Iterator[pa.RecordBatch]:
        """Batches of the scan of a file after the filters that need no nodes."""
        scanner = self._scanner
        assert scanner is not None  # noqa: S101  (asked only where a request is)
        dropped = scanner.dropped
        for batch in scanner.batches(open_chunks(file.uri, self.job.stores), file.uri):
            self.metrics.add("matching subtrees", batch.num_rows, unit="rows")
            for one in self._filters:
                if batch.num_rows:
                    batch = batch.filter(one.true(batch))
            if batch.num_rows:
                yield batch
        self.metrics.add("matching subtrees", scanner.dropped - dropped, unit="rows")

    def nodes(self, file: File) -> Iterator[Any]:
        """The elements of a file that are on the path and pass the filters, or the document."""
        if self._scanner is None:
            for node in on_path(read_document(file.uri, self.job.memory, self.job.stores), self.work.part.scan.path):
                self.metrics.add("matching subtrees", unit="rows")
                yield node
            return
        for batch in self.batches(file):
            for markup in batch[XML].to_pylist():
                yield element_of(markup)


def _tuples(reading: _Reading, files: Iterable[File]) -> Iterator[tuple[tuple[int, ...], list[Values]]]:
    """The values of the chain above the scan for each element, with order numbers."""
    work = reading.work
    run = reading.runner.prepared(work.part.plan, work.wanted.expressions, fed=True)
    for file in reading.files(files):
        for order, values in enumerate(run(reading.nodes(file)), file.number << FILE_SHIFT):
            yield (order,), values


def _items(reading: _Reading, work: ColumnScan, files: Iterable[File], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    pieces = [Cells(reading.runner, piece, work.many) for piece in work.values[0]]
    for file in reading.files(files):
        for batch in reading.batches(file):
            yield pa.RecordBatch.from_arrays([given_out(pieces, batch)], schema=schema)


def _fields(
    reading: _Reading, work: ColumnScan, wanted: Fields, files: Iterable[File], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    runner, many = reading.runner, work.many
    made = [key_column(runner, key, one, many) for key, one in zip(wanted.keys, work.keys, strict=True)]
    made += [value_column(runner, pieces, many, form) for pieces, form in zip(work.values, work.forms, strict=True)]
    for file in reading.files(files):
        for batch in reading.batches(file):
            order = pa.array(batch[ROW].to_numpy() + (file.number << FILE_SHIFT))
            yield pa.RecordBatch.from_arrays([order, *(column(batch) for column in made)], schema=schema)


def _state(reading: _Reading, work: ColumnScan, wanted: State, files: Iterable[File]) -> Iterator[pa.RecordBatch]:
    local, last = Local(reading.runner, wanted), 0
    (piece,) = work.values[0]
    cells = Cells(reading.runner, piece, work.many, typed=True)
    for file in reading.files(files):
        last = file.number
        for batch in reading.batches(file):
            texts = cells.texts(batch)
            if texts is None or not local.add_texts(texts):
                local.add([item for row in cells.of(batch) for item in row])
    yield from local.rows(last << FILE_SHIFT)
