"""Tasks of a query: their inputs, and functions from batches to batches, independent of Spark.

A scan task (see `scan_task`) reads files. A task above a join runs the chain on the rows that Spark joined. The last
task runs the whole plan, or the rest of it over the rows of its parts, and gives the rows of the result: one serialised
item a row, or one typed column for each atom that `return` gives.
"""

from __future__ import annotations

import codecs
import datetime
import decimal
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from dovetail.engine.memory import MemoryBudget, Reservation, format_bytes
from dovetail.engine.metrics import Metrics
from dovetail.engine.rows.columns import nbytes
from dovetail.errors import BudgetExceeded, DataError, XQueryError
from dovetail.xml.algebra.expressions import Variable
from dovetail.xml.algebra.matching import needs_context, reads_data
from dovetail.xml.algebra.operators import DistributeResult
from dovetail.xml.evaluate.calls import Static
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.evaluate.plans import RemoteTuples, Runner
from dovetail.xml.execute.parts import JoinWork
from dovetail.xml.execute.rows import ITEMS, Fields, Form, Forms, Sent, Values, batched, decoded, written
from dovetail.xml.scan import open_chunks
from dovetail.xml.scan.files import NO_STORES, Collection, File, Stores, address_of, has_options, is_at_or_below
from dovetail.xml.syntax.tree import Module, deep_stack
from dovetail.xml.xdm.markup import parse_xml, serialise, text_of
from dovetail.xml.xdm.nodes import Document
from dovetail.xml.xdm.temporal import DateTime

MALFORMED = (DataError, XQueryError)
"""Errors of a wrong document; all other errors end the query, even with on_error="skip"."""


def read_document(uri: str, memory: int, stores: Stores = NO_STORES) -> Document:
    """One file as a document, unpacked if it is gzip; `BudgetExceeded` if text and tree take more than `memory`.

    The tree is counted before it is built.
    """
    text, tree = bytearray(), 0
    for chunk in open_chunks(uri, stores):
        text += chunk
        tree += _tree_bytes(chunk, _hides_markup(text))
        if _COPIES * len(text) + tree > memory:
            raise BudgetExceeded(
                f"{uri} is read as a whole, and with its tree has more than {format_bytes(memory)}, which is the "
                "budget of a task; give more memory=, or leave it out."
            )
    data = bytes(text)
    del text
    return parse_xml(data, uri)


# Measured with lxml: the text that is parsed, and content of nodes, which grows by doubling; 128 bytes of a node, 240
# of an attribute with its value, and at most 64 for a byte of dense markup.
_COPIES, _NODE, _ATTRIBUTE, _DENSEST = 3, 128, 240, 64
_ATTRIBUTES = (b'="', b"='", b"= ", b"=\t", b"=\n", b"=\r", b"=\0")  # with \0 in UTF-16
_DECLARED = re.compile(rb"<\?xml[^>]{1,200}?encoding\s*=\s*[\"']([\w.-]+)")
_STARTS = (b"<", b" ", b"\t", b"\r", b"\n", b"\0", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _tree_bytes(text: bytes, hides_markup: bool) -> int:
    """Bytes that the nodes of a piece of XML take beside their content; a text between two tags is a node."""
    if hides_markup:
        return _DENSEST * len(text)
    tags = text.count(b"<")
    nodes = 2 * tags - text.count(b"</") - text.count(b"><")
    attributes = text.count(b"=")
    if attributes * _ATTRIBUTE > len(text):  # many: those in content, such as addresses, are not counted
        attributes = sum(map(text.count, _ATTRIBUTES))
    return _NODE * nodes + _ATTRIBUTE * attributes


def _hides_markup(text: bytearray) -> bool:
    """Whether a document is in an encoding, such as EBCDIC, in which markup has other bytes than in ASCII."""
    declared = _DECLARED.match(text)
    if declared is None:
        return bool(text) and not text.startswith(_STARTS)
    try:
        name = codecs.lookup(declared[1].decode()).name
        return not name.startswith(("utf-8", "utf-16", "utf-32")) and (
            name == "utf-7" or "</='>".encode(name) != b"</='>"
        )
    except (LookupError, UnicodeError):
        return True


class CollectionFiles:
    """Documents that `doc` and `collection` read in a task, one by one; with `skip` malformed ones are left out.

    `doc` opens documents of the collections, and those at or below the places in `documents`.
    """

    def __init__(
        self,
        collections: Mapping[str, Collection],
        skip: bool,
        metrics: Metrics,
        memory: int = 64 << 20,
        documents: Sequence[str] = (),
        stores: Stores = NO_STORES,
    ) -> None:
        self._collections, self._skip, self._metrics = collections, skip, metrics
        self._memory, self._documents_at, self._stores = memory, documents, stores

    def doc(self, uri: str) -> Document:
        """The document at an address."""
        if not Path(uri).is_file() and "://" not in uri:
            raise XQueryError("FODC0002", f"there is no document {uri!r}")
        address = address_of(uri)
        listed = (address_of(file.uri) for one in self._collections.values() for file in one.files)
        if not any(is_at_or_below(address, place) for place in self._documents_at) and address not in listed:
            if has_options(address):
                raise XQueryError(
                    "FODC0002",
                    f"doc({uri!r}) has a '?' or '#', by which an address may lead to another server, so it "
                    "is not opened; leave it out, or allow this very address with documents=[...]",
                )
            raise XQueryError(
                "FODC0002", f"doc({uri!r}) is in no collection, so it is not opened; allow it with documents=[...]"
            )
        return read_document(uri, self._memory, self._stores)

    def collection(self, uri: str | None) -> Iterator[Document]:
        """The documents of a collection, in the order of their names."""
        found = self._collections.get(uri or "")
        if found is None:
            known = ", ".join(map(repr, self._collections)) or "none"
            raise XQueryError("FODC0002", f"there is no collection {uri!r}; collections: {known}")
        return self._documents(found.files)

    def _documents(self, files: Iterable[File]) -> Iterator[Document]:
        for file in files:
            try:
                document = read_document(file.uri, self._memory, self._stores)
            except MALFORMED:
                if not self._skip:
                    raise
                self._metrics.add("skipped files", unit="files")
                continue
            self._metrics.add("files", unit="files")
            self._metrics.add("bytes", file.size, unit="bytes")
            yield document


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one query; all its tasks have the same time of day.

    `item` is the address of its context document, `documents` are the places that `doc` may open beside the
    collections, with `calls_doc` it may call it, and `stores` says how buckets are reached.
    """

    module: Module
    collections: Mapping[str, Collection]
    variables: Mapping[str, list[Any]] = field(default_factory=dict)
    skip: bool = False
    memory: int = 64 << 20
    item: str | None = None
    documents: tuple[str, ...] = ()
    calls_doc: bool = False
    stores: Stores = field(default_factory=dict, repr=False)
    now: DateTime = field(default_factory=lambda: Context().now)

    def without_files(self) -> Job:
        """The same for tasks that read no collection by name: lists of files may be long.

        A function may use a declared variable whose value is read from a collection; then the lists stay.
        """
        if self.calls_doc:
            return self
        values = (one.value for one in self.module.variables if one.value is not None)
        return self if any(reads_data(value, self.module) for value in values) else replace(self, collections={})

    def context(self, metrics: Metrics) -> Context:
        """The dynamic context of a task."""
        item = () if self.item is None else (address_of(self.item),)
        allowed = (*self.documents, *item)
        documents = CollectionFiles(self.collections, self.skip, metrics, self.memory, allowed, self.stores)
        return Context(self.variables, documents, now=self.now)

    def runner(self, metrics: Metrics) -> Runner:
        """Compiles and runs plans and expressions in a task."""
        return runner_of(self.module, self.context(metrics), self.item)


def runner_of(module: Module, context: Context, item: str | None = None) -> Runner:
    """The runner of a query in a task; `item` is the address of the context document."""
    if item is not None and any(needs_context(one.value) for one in module.variables):
        # The plan reads the context item by its address; only functions that use such variables need it here.
        context.item = context.doc(item)
    return Runner(Static(module), context)


@dataclass(frozen=True, slots=True)
class Typed:
    """One column: its name, the type of its atoms, and the variable that holds them."""

    name: str
    kind: str
    variable: Variable


@dataclass(frozen=True, slots=True)
class Row:
    """How an item, or the items of a tuple, become cells. Without `columns`: one item, serialised."""

    columns: tuple[Typed, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        if not self.columns:
            return ITEMS
        return pa.schema([(column.name, _TYPES.get(column.kind, _TEXT)[0]) for column in self.columns])

    def cells(self, item: Any) -> tuple[Any, ...]:
        """The cells of an item; with columns the item is the list of the values of a tuple."""
        if not self.columns:
            return (serialise(item),)
        return tuple(cell(column, items) for column, items in zip(self.columns, item, strict=True))

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables of each tuple that the result needs; none if the result is items."""
        return tuple(column.variable for column in self.columns)

    def typed(self, batch: pa.RecordBatch, forms: Forms) -> pa.RecordBatch:
        """Cells that tasks sent, in the columns of the result."""
        found = []
        for column, kind in zip(self.columns, self.schema.types, strict=True):
            form, sent = forms[column.variable], batch[f"v{column.variable.number}"].to_pylist()
            found.append(pa.array([cell(column, decoded(form, one)) for one in sent], kind))
        return pa.RecordBatch.from_arrays(found, schema=self.schema)


def cell(column: Typed, items: list[Any]) -> Any:
    """One atom as a cell, null if there is none."""
    if not items:
        return None
    if len(items) > 1:
        raise XQueryError(
            "XPTY0004", f"column {column.name!r} would have {len(items)} atoms in one row; one is allowed"
        )
    try:
        return _TYPES.get(column.kind, _TEXT)[1](items[0])
    except (ValueError, OverflowError) as error:
        raise XQueryError("FOCA0001", f"{text_of(items[0])} does not fit into column {column.name!r}") from error


_ROUNDING = decimal.Context(prec=20_000)  # Python's own has 28 digits, and a cell has 38


def _integer(value: Any) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError
    return int(value)


def _decimal(value: Any) -> Decimal:
    with_places = Decimal(value).quantize(Decimal(1).scaleb(-18), context=_ROUNDING)
    if with_places.adjusted() >= 20:
        raise OverflowError
    return with_places


def _date_time(value: Any) -> datetime.datetime:
    whole = int(value.second)
    micros = int((value.second - whole) * 1_000_000)
    zone = datetime.timezone(datetime.timedelta(minutes=value.zone or 0))
    return datetime.datetime(value.year, value.month, value.day, value.hour, value.minute, whole, micros, zone)


_TYPES: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "integer": (pa.int64(), _integer),
    "decimal": (pa.decimal128(38, 18), _decimal),
    "double": (pa.float64(), float),
    "float": (pa.float32(), float),
    "boolean": (pa.bool_(), bool),
    "date": (pa.date32(), lambda value: datetime.date(value.year, value.month, value.day)),
    "dateTime": (pa.timestamp("us", tz="UTC"), _date_time),
}
_TEXT = (pa.string(), text_of)
"""Atomic types with a column type of their own, and the cells of their values; all others are given as text."""


Batches = Iterator[pa.RecordBatch]


_ORDER = Variable(1 << 62)
"""Stands for the order numbers of a row among the variables of its tuple; no plan counts this far."""


def run_joined(
    job: Job,
    work: JoinWork,
    forms: Forms,
    orders: tuple[str, ...],
    schema: pa.Schema,
    batches: Batches,
) -> Batches:
    """The chain above a join, on the rows that Spark joined: variables in their forms, and order numbers.

    Fields get one more order number among equal ones.
    """
    runner = job.runner(Metrics())
    with deep_stack():
        given = RemoteTuples((_ORDER, *forms), _joined(forms, orders, batches))
        found = runner.prepared(work.plan, (_ORDER, *work.wanted.expressions), given=[given])()
        tuples: Iterator[Any] = ((order, values) for order, *values in found)
        sent: list[Form] = []
        if isinstance(work.wanted, Fields):
            tuples, sent = _numbered(tuples), ["items" for _ in work.wanted.variables]
        yield from written(work.wanted, sent, runner, tuples, schema)


def _joined(forms: Forms, orders: tuple[str, ...], batches: Batches) -> Iterator[list[Any]]:
    for batch in batches:
        cells = [batch[f"v{variable.number}"].to_pylist() for variable in forms]
        numbers = zip(*(batch[name].to_pylist() for name in orders), strict=True)
        for order, *row in zip(numbers, *cells, strict=True):
            yield [order, *(decoded(form, cell) for form, cell in zip(forms.values(), row, strict=True))]


def _numbered(tuples: Iterable[tuple[Any, list[Values]]]) -> Iterator[tuple[Any, list[Values]]]:
    last, number = None, 0
    for order, values in tuples:
        last, number = order, number + 1 if order == last else 0
        yield (*order, number), values


@dataclass(frozen=True, slots=True)
class WholeTask:
    """The only task of a query that is not divided."""

    job: Job
    plan: DistributeResult
    row: Row


def run_whole(task: WholeTask, batches: Batches, metrics: Metrics) -> Batches:
    """The whole query in this task; documents are read one by one."""
    for _ in batches:
        items = task.job.runner(metrics).items(task.plan, task.row.variables)
        yield from batched(map(task.row.cells, items), task.row.schema)


CUT = "cut"
MARKER = -1
"""Stands for the number of a part in a row that belongs to none."""


def run_rest(job: Job, rest: DistributeResult, sent: Sequence[Sent], row: Row, batches: Batches) -> Batches:
    """The answer of the rest of a plan over the rows that its parts sent, sorted by part and order.

    All rows are held at once. More of them than the job's memory is `BudgetExceeded`.
    """
    runner = job.runner(Metrics())
    held = MemoryBudget(job.memory, "last task").reserve("rows of other tasks")
    found: list[list[Any]] = [[] for _ in sent]
    for batch in batches:
        _hold(held, batch)
        cells = {name: batch[name].to_pylist() for name in batch.schema.names}
        for at, number in enumerate(cells[CUT]):
            if number != MARKER:
                found[number].append(sent[number].read(cells, at))
    given = [one.given(runner, rows) for one, rows in zip(sent, found, strict=True)]
    yield from batched(map(row.cells, runner.items(rest, row.variables, given)), row.schema)


def _hold(held: Reservation, batch: pa.RecordBatch) -> None:
    if not held.try_grow(nbytes(batch)):
        raise BudgetExceeded(
            f"the last task of the query already holds {format_bytes(held.used)} of rows that other tasks sent, and "
            f"memory={format_bytes(held.budget.limit)} is the limit; give more memory, or select, aggregate or return "
            "less before what one task must do: order by, group by, conditions between collections without an equality."
        )


def retype(row: Row, forms: Forms, batches: Batches) -> Batches:
    """Values of variables that tasks sent as typed columns."""
    for batch in batches:
        yield row.typed(batch, forms)
