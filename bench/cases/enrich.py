"""Enrichment of a skewed stream from master data in files and in a server, beside every way that people do it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from bench.case import Outcome, Params, Prepare, Run
from bench.context import BenchContext
from bench.rivals import enrichment, lookups
from bench.rivals.enrichment import (
    MEMORY,
    WARM_ROWS,
    Joined,
    batches,
    dovetail,
    kept,
    master_store,
    matched,
    streamed,
)
from bench.rivals.lookups import Answer, LookupTask, looked_up
from bench.rivals.object_store import ObjectStore
from bench.rivals.postgres import master_table
from dovetail.engine.memory import parse_bytes
from dovetail.joins.semistream.master.page_file.writer import REMOTE_PAGE, write_pages
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.frames import map_in_arrow
from dovetail.workloads import Master

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SERVER = "PostgreSQL"
_FILLING = 10  # micro-batches that fill a cache


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
    """A join of `bench.rivals.enrichment` on a stream that fills nothing first."""
    return streamed(getattr(enrichment, join), warm_rows=0)


def by_hand(name: str, warm_rows: int = WARM_ROWS) -> Prepare:
    """A rival whose workers look keys up in that database themselves, as a function of `bench.rivals.lookups` does."""
    answer: Answer = getattr(lookups, name)

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        table = master_table(bench, params["master_rows"])
        task = LookupTask(uuid.uuid4().hex, table.url, table.name, parse_bytes(MEMORY), answer)
        with streamed(lambda *_: partial(_joined, task), warm_rows)(bench, params) as run:
            yield run

    return prepare


@lru_cache(maxsize=1)
def _object_store() -> ObjectStore:
    """An object store that lives as long as this process, and answers every request 20 ms later."""
    return ObjectStore(latency_s=0.02).__enter__()


def remote_store(bench: BenchContext, params: Params) -> MasterStore:
    """The page file of a point in an object store, with pages of the size that these have there."""
    server = _object_store()
    for name, value in server.settings.items():
        bench.spark.conf.set(name.removeprefix("spark.hadoop."), value)
    rows, width = params["master_rows"], params["width"]
    name = f"remote-pages-{rows}-{width}-{bench.seed}"
    if not any(key.startswith(f"{name}/") for key in server.objects):
        data = Master(rows, width, seed=bench.seed)
        write = partial(write_pages, rows=data.table(0, rows), key="key", unique=True, page=REMOTE_PAGE)
        local = kept(bench, name, write)
        for file in (found for found in local.rglob("*") if found.is_file()):
            server.put(f"{name}/{file.relative_to(local)}", file.read_bytes())
    return MasterStore.open(f"s3a://{server.bucket}/{name}")


def remote(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    """Ours with the master data in an object store; its cache has seen ten micro-batches."""
    warm = partial(dovetail, remote_store, warm_rows=_FILLING * params["batch_rows"], again=_FILLING)
    return _counted(warm, bench, params)


def remote_quarter(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    """Ours with a quarter of the master data."""
    return remote(bench, {**params, "master_rows": params["master_rows"] // 4})


@contextmanager
def _counted(make: Callable[..., Prepare], bench: BenchContext, params: Params) -> Iterator[Run]:
    """The rival that `make` gives, with what it asked the object store for in each timed micro-batch."""
    server, n = _object_store(), 1 + batches(bench, params)

    def reset() -> None:
        server.requests.clear()
        server.sent = server.most_at_once = 0

    with make(ready=reset)(bench, params) as run:

        def turn() -> Outcome:
            given = run()
            found = given if isinstance(given, Outcome) else Outcome(given)
            asked = {
                "requests_a_batch": server.requests.total() / n,
                "mb_a_batch": server.sent / n / 1e6,
                "most_at_once": float(server.most_at_once),
            }
            return Outcome(found.answer, found.seconds, {**found.figures, **asked})

        yield turn


def request_per_key(at_once: int) -> Prepare:
    """Workers that ask the object store for the page of each key, `at_once` at a time, and keep nothing."""

    def join(bench: BenchContext, params: Params) -> Joined:
        store = remote_store(bench, params)
        return partial(_asked, store, at_once)

    return partial(_counted, partial(streamed, join, warm_rows=0))


def _asked(store: MasterStore, at_once: int, frame: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, float]]]:
    schema = T.StructType([*frame.schema.fields])
    schema = schema.add("checksum", T.LongType()).add("payload", T.StringType())
    return map_in_arrow(frame, partial(_key_by_key, store, at_once), schema), dict


def _key_by_key(store: MasterStore, at_once: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The answers of each batch, by a request for each of its rows, as a loop or a pool of threads makes them."""
    with closing(store.at()) as pages, ThreadPoolExecutor(at_once) as pool:

        def found(row: dict[str, Any], page: int) -> list[dict[str, Any]]:
            rows = pages.read(page, 1) if page >= 0 else pa.RecordBatch.from_pylist([], pages.schema)
            match = rows.filter(pc.equal(rows.column("key"), row["key"])).to_pylist()
            return [{**row, "checksum": one["checksum"], "payload": one["payload"]} for one in match]

        for batch in batches:
            homes = pages.home([batch.column("key")]).tolist()
            answers = (map if at_once == 1 else pool.map)(found, batch.to_pylist(), homes)
            fields = [*batch.schema, pa.field("checksum", pa.int64()), pa.field("payload", pa.string())]
            yield pa.RecordBatch.from_pylist([row for some in answers for row in some], pa.schema(fields))


def _joined(task: LookupTask, frame: DataFrame) -> tuple[DataFrame, Callable[[], dict[str, float]]]:
    schema = T.StructType([*frame.schema.fields])
    schema = schema.add("checksum", T.LongType()).add("payload", T.StringType())
    return map_in_arrow(frame, partial(looked_up, task), schema), dict
