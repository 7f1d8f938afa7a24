"""Enrichment of a skewed stream from master data in files and in a server, beside every way that people do it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from bench import enrichment, lookups
from bench.case import Params, Prepare, Run
from bench.context import BenchContext
from bench.enrichment import (
    MEMORY,
    WARM_ROWS,
    batches,
    dovetail,
    master_store,
    matched,
    streamed,
)
from bench.lookups import Answer, LookupTask, looked_up
from bench.postgres import master_table
from dovetail.engine.memory import parse_bytes
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.frames import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SERVER = "PostgreSQL"


def expected(bench: BenchContext, params: Params) -> int:
    """Rows of the timed micro-batches that have a master row."""
    return matched(batches(bench, params) * int(params["batch_rows"]))


@contextmanager
def on_server(bench: BenchContext, params: Params) -> Iterator[Run]:
    """Ours with the master data in a database."""
    table = master_table(bench, params["master_rows"])
    store = MasterStore.postgres(table.url, table.name, "key")
    with dovetail(lambda *_: store)(bench, params) as run:
        yield run


def ours(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    """Ours with the master data where the point says."""
    return (on_server if params.get("store") == SERVER else dovetail(master_store))(bench, params)


def quarter(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    """Ours with a quarter of the master data."""
    return ours(bench, {**params, "master_rows": params["master_rows"] // 4})


def on_stream(join: str) -> Prepare:
    """A join of `bench.enrichment` on a stream that fills nothing first."""
    return streamed(getattr(enrichment, join), warm_rows=0)


def by_hand(name: str, warm_rows: int = WARM_ROWS) -> Prepare:
    """A rival whose workers look keys up in that database themselves, as a function of `bench.lookups` does."""
    answer: Answer = getattr(lookups, name)

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        table = master_table(bench, params["master_rows"])
        task = LookupTask(uuid.uuid4().hex, table.url, table.name, parse_bytes(MEMORY), answer)
        with streamed(lambda *_: partial(_joined, task), warm_rows)(bench, params) as run:
            yield run

    return prepare


def _joined(task: LookupTask, frame: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, float]]]:
    schema = T.StructType([*frame.schema.fields])
    schema = schema.add("checksum", T.LongType()).add("payload", T.StringType())
    return map_in_arrow(frame, partial(looked_up, task), schema), dict
