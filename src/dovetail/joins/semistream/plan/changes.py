"""Applies changes to a page file with Spark: each task writes the pages that its changes touch, the driver commits.

Of a stream every micro-batch makes one version, which names the query and the micro-batch that it comes from: one that
runs again makes no second version.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dovetail.engine.storage.files import access_of
from dovetail.engine.storage.remote import Remote
from dovetail.errors import ConfigError, PlanError, UnsupportedError
from dovetail.joins.semistream.master.page_file.change_writer import ChangePlan, commit_changes, write_changes
from dovetail.joins.semistream.master.page_file.changes import OPERATION, PAGE, ChangeForm
from dovetail.joins.semistream.master.page_file.generation import (
    Applied,
    Generation,
    building,
    load_version,
)
from dovetail.joins.semistream.master.page_file.holds import prune
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.build import REPORT, collected, reported
from dovetail.joins.semistream.versions import VersionLog, default_log
from dovetail.request import items_of, one_of, parse_count
from dovetail.spark.frames import arrow_type, column_of, parallelism
from dovetail.spark.hosts.batch import exchange_by_id, mapped_frame
from dovetail.spark.inputs import refuse_collated
from dovetail.spark.places import place_of, require_shared_directory

Operation = Literal["upsert", "delete", "ignore"]
OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(("c", "r", "u", "insert", "update", "update_postimage", "I", "U", "+I", "+U"), "upsert"),
    **dict.fromkeys(("d", "delete", "D", "-D"), "delete"),
    **dict.fromkeys(("update_preimage", "-U"), "ignore"),
}
"""The operations of Debezium, Delta Lake, Flink and others, and what they do here."""
_COLUMNS = ("op", "_change_type")  # in which change feeds have the operation
_TASK = "dovetail_task"
_TASK_PAGES, _TASKS = 256, 32  # the least pages for a task, and the most tasks
_QUERIES: dict[str, str] = {}  # by start of a stream of changes


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a page file, checked: their columns and what they mean."""

    store: MasterStore
    path: str
    form: ChangeForm
    operation: str

    @classmethod
    def of(
        cls,
        store: MasterStore,
        changes: DataFrame,
        sequence: str | Sequence[str],
        operation: str | None,
        operations: Mapping[str, Operation] | None,
        history: tuple[str, str] | None,
    ) -> Changes:
        """The changes that a call describes; a `PlanError` before any job if they do not suit the store."""
        path = _changeable(store, history)
        column, meanings = _operation(changes, operation), {**OPERATIONS, **_meanings(operations)}
        order = _order(sequence)
        _check_columns(store, changes, order, history)
        kinds = tuple(arrow_type(changes.schema[name].dataType) for name in order)
        form = ChangeForm(store.schema, store.key, order, kinds, tuple(meanings.items()), history)
        _ = form.order  # which refuses types without an order
        for name in (*store.key, *order):
            refuse_collated(changes.schema[name], "key" if name in store.key else "sequence")
        return cls(store, path, form, column)

    def merge(
        self, changes: DataFrame, applied: Applied | None = None, base: Generation | None = None
    ) -> Generation | None:
        """A new version with these changes to `base`, or to the newest version; None if no row is another."""
        path = Path(self.path)
        require_shared_directory(changes.sparkSession, path, "the page file")
        base = base or load_version(path)
        self._check_unchanged(base)
        with building(path) as work:
            plan = ChangePlan(self.path, base.version, str(work), self.form)
            tasks = max(1, min(parallelism(changes.sparkSession), base.n_pages // _TASK_PAGES, _TASKS))
            reports = collected(mapped_frame(self._sorted(changes, plan, tasks), partial(_write_task, plan), REPORT))
            return commit_changes(plan, reports, applied)

    def _check_unchanged(self, base: Generation) -> None:
        """Refuse a file that was rebuilt with another shape since the changes were planned."""
        as_built = (base.key, base.schema.names, base.schema.types, base.order, base.unique, base.ranged)
        form = self.form
        planned = (form.key, form.schema.names, form.schema.types, "key", form.history is None, None)
        if as_built != planned:
            raise ConfigError(
                f"{self.path} was rebuilt with another key, other columns or another unique= since these changes "
                f"were planned; open it again with MasterStore.open, and apply the changes to that store."
            )

    def _sorted(self, changes: DataFrame, plan: ChangePlan, tasks: int) -> DataFrame:
        """The changes in the tasks of their pages, by page, key and their own order."""
        ignored = [value for value, what in self.form.operations if what == "ignore"]
        named = column_of(self.operation).cast("string")
        given = changes.filter(F.coalesce(~named.isin(ignored), F.lit(True)))
        columns = self.form.columns.names[2:]
        given = given.select(named.alias(OPERATION), *map(column_of, columns))
        numbers = [T.StructField(_TASK, T.IntegerType()), T.StructField(PAGE, T.IntegerType())]
        placed = mapped_frame(given, partial(_place, plan, tasks), [*numbers, *given.schema.fields])
        order = [F.col(PAGE), *map(column_of, self.form.key), *map(column_of, self.form.sequence)]
        return exchange_by_id(placed, tasks, F.col(_TASK), order).drop(_TASK)


def _changeable(store: MasterStore, history: tuple[str, str] | None) -> str:
    """The path of the store's page file, if changes can be applied to it."""
    if not isinstance(store.source, PageFileSource) or store.source.part:
        raise UnsupportedError(
            f"{store.source} cannot take changes; build a page file with MasterStore.build, and open it by its whole "
            f"key.",
            argument="store",
        )
    if isinstance(store.source.place, Remote):
        raise UnsupportedError(
            f"{store.source} is in an object store, where changes are not applied to a page file; build its next "
            f"version with MasterStore.build, or keep it in a directory that all hosts mount.",
            argument="store",
        )
    found = load_version(Path(store.source.path))
    if found.ranged is not None or found.order != "key":
        was = f"bounds={list(found.ranged.bounds)}" if found.ranged else f"order={found.order!r}"
        raise UnsupportedError(
            f"{store.source} was built with {was}, in which changes would move all rows; build it with a key alone, "
            f"and for rows that are valid for some time give apply_changes history=.",
            argument="history",
        )
    if history is None and not found.unique:
        raise PlanError(
            f"{store.source} may have several rows of a key, so that a change does not name the row; build it with "
            f"unique=True, or give history= to keep all versions of a row.",
            argument="history",
        )
    if history is not None and found.unique:
        raise PlanError(
            f"{store.source} was built with unique=True; with history= a key has a row for each period. Build it "
            f"without.",
            argument="history",
        )
    return store.source.path


def _meanings(operations: Any) -> Mapping[str, Operation]:
    given = {} if operations is None else operations
    if not isinstance(given, Mapping) or not all(value in get_args(Operation) for value in map(str, given.values())):
        raise PlanError(
            f"operations={operations!r} must be a mapping of values to 'upsert', 'delete' or 'ignore'.",
            argument="operations",
        )
    return given


def _order(sequence: Any) -> tuple[str, ...]:
    order = (sequence,) if isinstance(sequence, str) else tuple(items_of(sequence) or ())
    if not order or not all(isinstance(name, str) for name in order):
        raise PlanError(
            f"sequence={sequence!r} must be a column of the changes, or a list of them: what orders the changes of a "
            "key.",
            argument="sequence",
        )
    return order


def _operation(changes: DataFrame, given: str | None) -> str:
    found = [given] if given is not None else [name for name in _COLUMNS if name in changes.columns]
    if len(found) == 1 and found[0] in changes.columns:
        return found[0]
    raise PlanError(
        f"operation={given!r}: the changes have the columns {changes.columns}; name the one that says what a change "
        f"does ({' or '.join(map(repr, _COLUMNS))} unless you say otherwise).",
        argument="operation",
    )


def _check_columns(
    store: MasterStore, changes: DataFrame, sequence: tuple[str, ...], history: tuple[str, str] | None
) -> None:
    names = store.columns
    is_pair = isinstance(history, (list, tuple)) and len(history) == 2
    if history is not None and not (is_pair and all(name in names and name not in store.key for name in history)):
        raise PlanError(
            f"history={history!r}: name two columns of {names} beside the key: the first time and the end of validity.",
            argument="history",
        )
    unknown = [name for name in sequence[1:] if name not in names]
    if history is not None and unknown:
        raise PlanError(
            f"sequence={sequence!r}: the store has no column {', '.join(map(repr, unknown))}, so a later call would "
            f"not know which of two changes of one time is the later one; build the store with these columns, or give "
            f"sequence={sequence[0]!r} if no two changes of a key have one time.",
            argument="sequence",
        )
    wanted = {name: "the store has it" for name in names if name not in (history or ())}
    wanted |= dict.fromkeys(sequence, "sequence names it")
    missing = [f"{name!r} ({why})" for name, why in wanted.items() if name not in changes.columns]
    if missing:
        raise PlanError(
            f"the changes have no column {', '.join(missing)}; they have {changes.columns}. Every change brings the "
            f"whole row and its place in the order.",
            argument="sequence" if missing[0].endswith("names it)") else "changes",
        )
    kinds = {name: store.schema.field(name).type for name in wanted if name in names}
    if history is not None:
        kinds |= {sequence[0]: store.schema.field(history[0]).type, history[1]: store.schema.field(history[0]).type}
    for name, kind in kinds.items():
        schema = store.schema.field(name).type if name == (history or ("", ""))[1] else None
        given = schema or arrow_type(changes.schema[name].dataType)
        if given != kind:
            raise PlanError(
                f"column {name!r} is {given}, where the store needs {kind}; cast it to that type.", argument="changes"
            )


def _place(plan: ChangePlan, tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The changes with their task and page in front; those without a key go to the first task, which refuses them."""
    pages = plan.opened()
    types = [pages.schema.field(name).type for name in pages.key]
    try:
        for batch in batches:
            key = [batch.column(name).cast(kind) for name, kind in zip(pages.key, types, strict=True)]
            page = pages.insertion(key)
            task = np.maximum(page, 0) * tasks // max(1, pages.generation.n_pages)
            numbers = [pa.array(column.astype(np.int32)) for column in (task, page)]
            yield pa.RecordBatch.from_arrays([*numbers, *batch.columns], names=[_TASK, PAGE, *batch.schema.names])
    finally:
        pages.close()


def _write_task(plan: ChangePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pages that a task writes."""
    return reported(Path(plan.work), lambda number: write_changes(plan, number, batches))


def start_changes(
    found: Changes,
    changes: DataFrame,
    checkpoint: str | Path,
    keep: int,
    takeover: str | None,
    trigger: Mapping[str, Any] | None,
    name: str | None,
) -> StreamingQuery:
    """The started query that applies a stream of changes, a version for each micro-batch."""
    if not changes.isStreaming:
        raise PlanError(
            "the changes are a batch DataFrame; apply them with merge_changes, or read them with readStream.",
            argument="changes",
        )
    parse_count("keep", keep)
    _check_trigger(trigger)
    if not isinstance(checkpoint, (str, Path)) or not str(checkpoint).strip():
        raise PlanError(
            f"checkpoint={checkpoint!r} must be the path of a directory; the query goes on from it after a stop.",
            argument="checkpoint",
        )
    for argument, text in (("takeover", takeover), ("name", name)):
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise PlanError(f"{argument}={text!r} must be a text; give one, or leave it out.", argument=argument)
    start = uuid.uuid4().hex
    writer = changes.writeStream.foreachBatch(partial(_apply, found, str(checkpoint), start, keep, takeover))
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(**trigger) if trigger else writer
    return (writer.queryName(name) if name else writer).start()


def _check_trigger(trigger: Any) -> None:
    if trigger is None:
        return
    if not isinstance(trigger, Mapping) or len(trigger) != 1:
        raise PlanError(
            f'trigger={trigger!r} must be an argument of DataStreamWriter.trigger, such as {{"availableNow": True}} or '
            '{"processingTime": "10 seconds"}.',
            argument="trigger",
        )
    one_of("trigger", next(iter(trigger)), list(signature(DataStreamWriter.trigger).parameters)[1:])


def _apply(
    found: Changes, checkpoint: str, start: str, keep: int, takeover: str | None, batch: DataFrame, number: int
) -> None:
    """One micro-batch, unless the page file has it."""
    if start not in _QUERIES:
        _QUERIES[start] = _query_of(batch.sparkSession, checkpoint)
    digest = _offsets_digest(batch.sparkSession, checkpoint, number)
    applied, path = Applied(_QUERIES[start], number, digest), Path(found.path)
    base = load_version(path)
    known = base.applied
    if known is not None and known.query == applied.query and known.batch >= number:
        if known.batch > number or known.offsets not in ("", digest):  # Spark repeats the last one only, as it was
            raise ConfigError(
                f"the checkpoint {checkpoint} is older than {path}: it is at micro-batch {number}, and the page file "
                f"has {known.batch} of this query, perhaps of other rows. Start the changes with a new checkpoint, "
                f"from where they can be applied again, and takeover={known.query!r}."
            )
        return
    if known is not None and known.query not in (applied.query, takeover):
        raise ConfigError(
            f"{path} is kept up to date by the streaming query {known.query}, whose last micro-batch was "
            f"{known.batch}; changes of query {applied.query} would mix with its changes in no certain order. Stop "
            f"that one, and to go on with this one start it with takeover={known.query!r}."
        )
    found.merge(batch, applied, base)
    try:
        spared = _needed(batch.sparkSession, found.store)
    except ConfigError:  # a log that cannot be read now: a later micro-batch prunes
        return
    prune(path, keep, spared=spared)


def _needed(spark: SparkSession, store: MasterStore) -> set[str]:
    """Versions that streams may replay, by the log of the page file and by those that streams were given."""
    own = default_log(store)
    places = [place_of(spark, path) for path in own.others()]
    logs = [own, *(VersionLog(str(place), access=access_of(place)) for place in places)]
    return {version for log in logs for version in log.needed()}


def _query_of(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query with this checkpoint, which stays the same when it is started again."""
    named = re.sub(r"([][{}*?\\])", r"\\\1", checkpoint)  # Spark reads these as patterns
    return str(json.loads(spark.read.text(f"{named}/metadata").collect()[0][0])["id"])


def _offsets_digest(spark: SparkSession, checkpoint: str, number: int) -> str:
    """A digest of what Spark logged of a micro-batch before it ran: a repeated one has the same, time included.

    A checkpoint that was restored from an earlier copy has a micro-batch of this number again, perhaps of other rows.
    """
    place = place_of(spark, checkpoint)
    local = place / "offsets" / str(number) if isinstance(place, Path) else None
    if local is not None and local.exists():
        data = local.read_bytes()
    else:  # at an address, or seen by the server of Spark Connect alone
        named = re.sub(r"([][{}*?\\])", r"\\\1", checkpoint)  # Spark reads these as patterns
        data = str(spark.read.text(f"{named}/offsets/{number}", wholetext=True).collect()[0][0]).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()
