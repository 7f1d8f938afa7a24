"""XQuery over collections of XML files on Spark: the functions that users call."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession

from dovetail.engine.storage.remote import Remote, is_remote
from dovetail.errors import PlanError
from dovetail.request import takes
from dovetail.spark.frames import parallelism, require_classic
from dovetail.spark.places import address_of, place_of
from dovetail.spark.task import MetricsSink
from dovetail.xml.algebra.expressions import SEQUENCE, Call, Constant, Expression, Variable
from dovetail.xml.algebra.matching import source_name
from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import Assign, DistributeResult, Operator, Unnest, all_parts, next_number
from dovetail.xml.algebra.properties import Facts
from dovetail.xml.evaluate.calls import check_module
from dovetail.xml.execute.tasks import Job, Row, Typed
from dovetail.xml.plan import XQueryPlan
from dovetail.xml.request import Request, XQueryOptions
from dovetail.xml.rules.order import Rewriting, rewrite
from dovetail.xml.scan.files import ENDINGS, WILD, Collection, Stores, collection_of, local_paths
from dovetail.xml.syntax.parser import parse
from dovetail.xml.syntax.tree import Module, deep_stack
from dovetail.xml.xdm.values import cast

PARTITION_BYTES = 128 << 20


@takes(XQueryOptions)
def xquery(spark: SparkSession, query: str, request: Request) -> DataFrame:
    """The answer of an XQuery query over collections of XML files, as a lazy DataFrame in the order of the query.

    Args:
        spark: The session.
        query: The text of the query.
        collections: The locations of the collections that the query names: a directory (all .xml and .xml.gz below it),
            a file or a glob, local, at `s3a:` or `hdfs:`, or on another file system that both Hadoop and Arrow know.
            Their documents come in the order of their names.
        variables: Values of the query's external variables by name: strings, numbers, booleans, dates, or lists.
        output: "items" gives one column, `item`, with one serialised item a row. "columns" gives one typed column for
            each atom of the sequence that `return` gives, one row a tuple.
        on_error: "fail", or "skip": malformed files are left out as a whole and counted in the metrics.
        partitions: The number of tasks that read a collection; by default as many as run at once, more if a task would
            get more than 128 MB.
        memory: The budget of each task to scan a file: the largest matching element must fit into it, and the tree of
            a document that is read as a whole, as by `doc`: some 15 times its text where markup is dense. Also the
            limit for rows of other tasks in the last task, if a query has one (`explain` says so).
        context: The place of one XML file: its document is the context item of the query, `.`, from which paths like
            `/a/b` and `//c` start.
        route: How the query runs: auto, or a slower way with the same result: tuples (every element is built) or
            one_task (nothing is divided).
        documents: Files and directories, or beginnings of addresses, that `doc` may open beside the documents of the
            collections and of `context`. Any other is FODC0002.

    Returns:
        The answer. Before an action, only the list of the files is read.

    Raises:
        XQueryError: for a wrong query, with its W3C code, line and column; for an error in a task, raised by the
        action. PlanError: for a collection without files, an unknown option or variable.

    >>> from pathlib import Path
    >>> _ = Path(f"{place}/books.xml").write_text("<books><book>Emma</book><book>Ulysses</book></books>")
    >>> query = 'for $b in collection("/books")/books/book order by $b descending return data($b)'
    >>> [row.item for row in dovetail.xquery(spark, query, {"/books": f"{place}/books.xml"}).collect()]
    ['Ulysses', 'Emma']
    """
    return make_plan(spark, query, request).frame()


@takes(XQueryOptions)
def plan_xquery(spark: SparkSession, query: str, request: Request) -> XQueryPlan:
    """The plan of `xquery` with the same arguments: `explain`, `frame`, `metrics`.

    >>> plan = dovetail.plan_xquery(spark, "for $x in (1, 2) return $x + 1", route="one_task")
    >>> [row.item for row in plan.frame().collect()]
    ['2', '3']
    """
    return make_plan(spark, query, request)


@deep_stack()
def make_plan(spark: SparkSession, query: str, request: Request) -> XQueryPlan:
    """The plan of a query; only the list of its files is read."""
    item = None if request.context is None else _document(spark, request.context)
    module, rewriting = _rewritten(query, item)
    plan, row = rewriting.plan, Row()
    assert isinstance(plan, DistributeResult)  # noqa: S101  (every plan ends in it)
    if request.output == "columns":
        plan, row = in_columns(plan)
    found = {name: _listed(spark, name, str(place)) for name, place in request.collections.items()}
    _check_names(plan, found)
    values = _values(module, request.variables)
    # Conservative: "doc" may also be an element. Then tasks get lists of files that they do not need.
    stores = _stores(spark, [*map(str, request.collections.values()), item or "", *request.documents])
    job = Job(module, found, values, request.skips, request.memory, item, request.documents, "doc" in query, stores)
    wanted = request.partitions or _partitions(spark, found.values())
    return XQueryPlan(spark, job, rewriting, plan, row, wanted, request.route, [MetricsSink(spark)])


@functools.lru_cache(maxsize=128)
def _rewritten(query: str, context: str | None) -> tuple[Module, Rewriting]:
    """A query and its plans, which depend on these texts only and are cached."""
    module = parse(query)
    check_module(module)
    return module, rewrite(normalise(module, context))


def _listed(spark: SparkSession, name: str, pattern: str) -> Collection:
    return collection_of(name, pattern, _paths(spark, pattern))


def _paths(spark: SparkSession, pattern: str) -> list[tuple[str, int]]:
    if pattern.startswith("hdfs:") or not ("://" in pattern or pattern.startswith("file:")):
        pattern = address_of(spark, pattern)
    local = local_paths(pattern)
    return hadoop_paths(spark, pattern) if local is None else local


def _document(spark: SparkSession, place: str) -> str:
    """The address of the one file at a place."""
    found = _paths(spark, place)
    if len(found) != 1:
        raise PlanError(f"context={place!r} is {len(found)} files; give the place of one XML file.", argument="context")
    return found[0][0]


def _stores(spark: SparkSession, addresses: Iterable[str]) -> Stores:
    """How the buckets and hosts of these addresses are reached, with what Spark was given."""
    remote = [place_of(spark, one) for one in addresses if is_remote(one)]
    return {place.host: place.access for place in remote if isinstance(place, Remote)}


def _partitions(spark: SparkSession, found: Iterable[Collection]) -> int:
    largest = max((one.size for one in found), default=0)
    return max(parallelism(spark), -(-largest // PARTITION_BYTES))


def _check_names(plan: DistributeResult, known: Mapping[str, Collection]) -> None:
    """Collections that the plan names must be given."""
    for part in all_parts(plan):
        if isinstance(part, Call) and part.name == "collection":
            name = source_name(part.arguments[0]) if part.arguments else Constant("")
            if isinstance(name, Constant) and name.value not in known:
                raise PlanError(
                    f"the query reads the collection {name.value!r}, which is not given; collections: "
                    f"{', '.join(map(repr, known)) or 'none'}.",
                    argument="collections",
                )


def _values(module: Module, given: Mapping[str, Any]) -> dict[str, list[Any]]:
    declared = {str(one.name): one for one in module.variables if one.external}
    for name in given:
        if name not in declared:
            raise PlanError(
                f"variable ${name} is given, but the query declares no such external variable; it declares: "
                f"{', '.join(f'${one}' for one in declared) or 'none'}.",
                argument="variables",
            )
    missing = [name for name, one in declared.items() if name not in given and one.value is None]
    if missing:
        raise PlanError(
            f"the external variable ${missing[0]} has no value; give it in variables={{...}}.", argument="variables"
        )
    return {name: [_atom(name, one) for one in _listed_values(value)] for name, value in given.items()}


def _listed_values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _atom(name: str, value: Any) -> Any:
    if isinstance(value, (bool, int, float, str, Decimal)):
        return value
    if isinstance(value, datetime.datetime):
        return cast(value.isoformat(), "dateTime")
    if isinstance(value, datetime.date):
        return cast(value.isoformat(), "date")
    raise PlanError(
        f"variable ${name} is given a {type(value).__name__}; allowed: str, int, float, bool, Decimal, date, datetime "
        "and lists of them.",
        argument="variables",
    )


def hadoop_paths(spark: SparkSession, pattern: str) -> list[tuple[str, int]]:
    """URI and size of the XML files of a directory or glob on a file system that Hadoop knows, sorted by name."""
    if is_remote(pattern) and not {*WILD, "{"} & set(pattern):
        return _store_paths(spark, pattern)
    require_classic(
        spark, f"listing {pattern!r}", "give a local path, or a directory at s3a: or hdfs:, or use a classic session"
    )
    gateway: Any = spark
    path = gateway._jvm.org.apache.hadoop.fs.Path(pattern)
    try:
        system = path.getFileSystem(gateway._jsc.hadoopConfiguration())
        found = system.globStatus(path) or []
        listed = [file for status in found for file in _files(system, status)]
    except Exception as error:
        raise PlanError(
            f"{pattern!r} cannot be listed: {str(error).splitlines()[0]}", argument="collections"
        ) from error
    return sorted((str(file.getPath().toString()), int(file.getLen())) for file in listed)


def _store_paths(spark: SparkSession, address: str) -> list[tuple[str, int]]:
    """The same of a directory or file of a store, without Hadoop."""
    place = place_of(spark, address)
    assert isinstance(place, Remote)  # noqa: S101  (asked only for addresses of a store)
    try:
        found = [place.system.get_file_info(place.path)]
        if found[0].type != fs.FileType.File:
            found = place.system.get_file_info(fs.FileSelector(place.path, allow_not_found=True, recursive=True))
            found = [one for one in found if one.type == fs.FileType.File and one.base_name.endswith(ENDINGS)]
    except (OSError, pa.ArrowException) as error:
        raise PlanError(f"{address!r} cannot be listed: {error}", argument="collections") from error
    start = f"{address.partition('://')[0]}://{place.host if place.is_hdfs else ''}"
    return sorted((f"{start}{one.path}", one.size) for one in found)


def _files(system: Any, status: Any) -> list[Any]:
    if not status.isDirectory():
        return [status]
    below, found = system.listFiles(status.getPath(), True), []
    while below.hasNext():
        file = below.next()
        if file.getPath().getName().endswith(ENDINGS):
            found.append(file)
    return found


# --- columns of the result


def in_columns(plan: DistributeResult) -> tuple[DistributeResult, Row]:
    """The plan with one tuple a row, and the columns of its rows. PlanError if it gives no atoms."""
    facts = Facts(plan)
    found = _returned(plan, facts)
    if found is None:
        raise PlanError(
            "output='columns' needs a query that ends in a return of atoms, such as (data($r/date), 1); write "
            "data(...) for the text of a node.",
            argument="output",
        )
    atoms, below = found
    first = next_number(plan)
    names = _names(atoms, facts)
    columns = []
    for number, (expression, name) in enumerate(zip(atoms, names, strict=True)):
        kind = facts.of(expression)
        if not kind.atomic or kind.type in ("atomic", "numeric"):
            raise PlanError(
                f"output='columns': the type of column {name!r} does not follow from the query ({kind.type}); write "
                "data(...) for the text of a node, or a constructor such as xs:decimal(...).",
                argument="output",
            )
        variable = Variable(first + number)
        below = Assign(variable, expression, below)
        columns.append(Typed(name, kind.type, variable))
    return DistributeResult(columns[-1].variable, below), Row(tuple(columns))


def _returned(plan: DistributeResult, facts: Facts) -> tuple[tuple[Expression, ...], Operator] | None:
    match plan.input:
        case Unnest(variable, Call("iterate", (value,)), below, None) if variable == plan.variable:
            written = facts.inlined(value)
            atoms = written.arguments if isinstance(written, Call) and written.name == SEQUENCE else (value,)
            return tuple(atoms), below
    return None


def _names(atoms: tuple[Expression, ...], facts: Facts) -> list[str]:
    """The last name of a path, where each column has one of its own; c1, c2 ... otherwise."""
    found = [_last_name(facts.inlined(atom), facts) for atom in atoms]
    return [
        name if name is not None and found.count(name) == 1 else f"c{number}" for number, name in enumerate(found, 1)
    ]


def _last_name(expression: Expression, facts: Facts) -> str | None:
    match expression:
        case Call("child" | "attribute", (_, Constant(str() as name))):
            return None if "*" in name else name.rpartition("}")[2]
        case Call(name, (inner,)) if name == "data" or name.startswith("xs:"):
            return _last_name(facts.inlined(inner), facts)
    return None
