"""A task of mode "per_batch": the session that this worker keeps for the plan, fed with rows until all are answered.

Sessions stay in the worker between tasks and micro-batches, for the sake of their caches only: one that is lost, with
its worker or after a failure, is opened again and answers alike.
"""

from __future__ import annotations

import atexit
from contextlib import closing, nullcontext
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from dovetail.errors import BudgetExceeded, PlanError
from dovetail.joins.semistream.dead_letters import DeadLetters
from dovetail.joins.semistream.keys import KeyCodes, key_columns
from dovetail.joins.semistream.master.pages import Pages, Resting
from dovetail.joins.semistream.plan.session import Session
from dovetail.joins.semistream.plan.task import (
    EnrichTask,
    Where,
    matched,
    open_dead_letters,
    open_version,
    wanted_version,
)
from dovetail.spark.arrow import Batches
from dovetail.spark.hosts.exchange import Homes
from dovetail.spark.hosts.resident import Pool

_PEEKED = 4  # batches that are looked at before a stream's first rows decide
SESSIONS: Pool[Session] = Pool(most=4)
"""What this worker keeps between tasks: each session has the budget of a task."""
atexit.register(SESSIONS.close)


def enrich_rows(task: EnrichTask, batches: Batches) -> Batches:
    """The answers of all rows of a task, from one version of the master data; every row is answered when it ends.

    Where rows without a match are kept, the last column is the number of the partition that rows come from.
    """
    given = (batch for batch in batches if batch.num_rows)
    first = next(given, None)
    if first is None:
        return
    rows = map(task.stream_rows, chain([first], given))
    where, part = Where.here(), str(first.column(first.num_columns - 1)[0])
    session, head = _taken(task, where, [next(rows)], rows)
    session.task = task  # this attempt's, which has the sink for its report
    try:
        yield from _answers(session, chain(head, rows), open_dead_letters(task, where, part))
    except BaseException:
        session.close()  # half way through a batch: never used again
        raise
    _keep(task.plan, session)


def _answers(session: Session, rows: Batches, dead: DeadLetters | None) -> Batches:
    n_rows, price = 0, session.decision.price
    with dead or nullcontext():
        for batch in rows:
            last, n_rows = batch, n_rows + batch.num_rows
            yield from matched(session.task, session.push(batch), dead)
        yield from matched(session.task, session.drain(), dead)
        if dead is not None:
            dead.commit(n_rows)
    yield from matched(session.task, session.resplit(last, n_rows), None)  # none, as nothing waits
    report = session.report()
    if price is not None and price.rate > 0:
        report.add_ns("serving_predicted", round(n_rows / price.rate * 1e9))
    if dead is not None:
        report.add("dead_letters", dead.rows)
    session.task.sink.task(report)


def _taken(
    task: EnrichTask, where: Where, head: list[pa.RecordBatch], rows: Batches
) -> tuple[Session, list[pa.RecordBatch]]:
    """The session of this plan on the version that the task must read, and the rows that were looked at."""
    session = SESSIONS.take(task.plan)
    try:
        version = wanted_version(task, where)
        if session is not None and session.stream.equals(head[0].schema):
            if (version or task.store.version()) == session.pages.version:
                return session, head
            if _adopted(session, open_version(task, where, version)):
                return session, head
            session = None
        elif session is not None:
            session.close()
            session = None
        pages = open_version(task, where, version)
        if task.learns or task.request.tune == "measure":
            head = [*head, *islice(rows, _PEEKED - 1)]
        n_rows = sum(batch.num_rows for batch in head) if len(head) < _PEEKED else None
        return Session.first(task, pages, head[0].schema, head, n_rows), head
    except BaseException:
        if session is not None:
            session.close()
        raise


def _adopted(session: Session, pages: Pages) -> bool:
    """Whether the session took up the new version; if its parts no longer fit the budget, it is closed instead."""
    try:
        for _ in session.adopt(pages):
            pass
    except (BudgetExceeded, PlanError):
        session.close()
        pages.close()
        return False
    return True


def _keep(plan: str, session: Session) -> None:
    """Keep the session for the next task, unless that needs another one."""
    if session.is_spent:
        session.close()
        return
    if isinstance(session.pages, Resting):
        session.pages.rest()
    SESSIONS.keep(plan, session)


def owned_rows(task: EnrichTask, owners: int, batches: Batches) -> Batches:
    """Rows with, in front, the number of the owner of their home page."""
    with closing(Owners(task, owners)) as found:
        for batch in batches:
            owner = found.of(task.stream_rows(batch))
            yield pa.RecordBatch.from_arrays([pa.array(owner), *batch.columns], names=["owner", *batch.schema.names])


class Owners:
    """The owner of each stream row: pages are dealt to owners in equal runs, keys that no page has by their hash.

    Rows with a null in their key match nothing and never wait. They go to the owner of this task's number: the same
    one when Spark runs the task again with its rows in another order. Rows may go to other owners from one version of
    the master data to the next, as any owner can answer them.
    """

    rule = ""

    def __init__(self, task: EnrichTask, count: int) -> None:
        self.task, self.count, self._where = task, count, Where.here()
        self._pages: Pages | None = None

    def of(self, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """The owner of each row."""
        task, where, owners = self.task, self._where, self.count
        if self._pages is None:
            self._pages = open_version(task, where, wanted_version(task, where))
        pages = self._pages
        types = [pages.schema.field(name).type for name in pages.key]
        key = key_columns(rows, task.wiring.on, types)
        home = pages.home(key)
        found = home * owners // max(1, len(pages.starts) - 1)
        if (home < 0).any():
            codes, valid = KeyCodes(types, null_safe=task.request.null_safe).encode(key)
            found = np.where(home >= 0, found, np.where(valid, codes % owners, where.partition % owners))
        return found.astype(np.int32)

    def homes(self, side: int, rows: pa.RecordBatch) -> Homes:
        """The rows by owner."""
        owner = self.of(rows)
        order = np.argsort(owner, kind="stable")
        return order, owner[order].astype(np.int64), 0

    def close(self) -> None:
        """Close the master data."""
        if self._pages is not None:
            self._pages.close()
