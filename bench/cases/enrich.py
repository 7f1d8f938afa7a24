"""Enrichment of a skewed stream from master data in files and in a server, beside every way that people do it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812  (the name every PySpark user knows)

from bench.case import Bound, Case, Params, Prepare, Rival, Run
from bench.context import BenchContext
from bench.enrichment import (
    MEMORY,
    WARM_ROWS,
    batches,
    dovetail,
    master_broadcast,
    master_store,
    matched,
    stream_broadcast,
    stream_static,
    streamed,
)
from bench.lookups import Answer, LookupTask, batch_by_batch, full_read, looked_up, row_by_row, without_cache
from bench.postgres import NEEDED, master_table
from dovetail.engine.memory import parse_bytes
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.spark.frames import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES, SERVER = "files", "PostgreSQL"
SMALL, LARGE = 10_000, 2_000_000


def _expected(bench: BenchContext, params: Params) -> int:
    return matched(batches(bench, params) * int(params["batch_rows"]))


@contextmanager
def on_server(bench: BenchContext, params: Params) -> Iterator[Run]:
    """Ours with the master data in a database."""
    table = master_table(bench, params["master_rows"])
    store = MasterStore.postgres(table.url, table.name, "key")
    with dovetail(lambda *_: store)(bench, params) as run:
        yield run


def _dovetail(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    return (on_server if params["store"] == SERVER else dovetail(master_store))(bench, params)


def _quarter(bench: BenchContext, params: Params) -> AbstractContextManager[Run]:
    return _dovetail(bench, {**params, "master_rows": params["master_rows"] // 4})


def by_hand(answer: Answer, warm_rows: int = WARM_ROWS) -> Prepare:
    """A rival whose workers look keys up in that database themselves."""

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


def _only_files(params: Params) -> str | None:
    if params["store"] != FILES:
        return "joins files"
    return None if params["batch_rows"] == SMALL else "is compared on small micro-batches"


def _only_larger(params: Params) -> str | None:
    sizes = {point["master_rows"] for scale in ENRICH.points.values() for point in scale}
    return None if params["master_rows"] // 4 in sizes else "is compared at four times the master data"


def _only_server(params: Params) -> str | None:
    return None if params["store"] == SERVER else "asks a server"


def _points(master_rows: int, large: int) -> list[Params]:
    def point(rows: int, batch_rows: int, store: str) -> Params:
        return {"master_rows": rows, "batch_rows": batch_rows, "store": store}

    small = [point(rows, SMALL, FILES) for rows in (master_rows, 4 * master_rows)]
    return [*small, point(master_rows, large, FILES), point(master_rows, SMALL, SERVER)]


def _small(name: str, at_most: float, against: str, rows: int, store: str = FILES) -> Bound:
    where = {"master_rows": rows, "batch_rows": SMALL, "store": store}
    return Bound(name, "dovetail", at_most, against=against, where=where, scale="full")


ENRICH = Case(
    name="enrich",
    question="How many stream rows a second get the master rows of their key, with 50 MB a task?",
    varies=("master_rows", "batch_rows", "store"),
    points={"small": _points(50_000, 100_000), "full": _points(2_000_000, LARGE)},
    rivals=(
        Rival("dovetail", _dovetail),
        Rival("dovetail, a quarter", _quarter, sits_out=_only_larger),
        Rival("spark's stream-static join", streamed(stream_static, warm_rows=0), sits_out=_only_files),
        Rival("spark's join, stream broadcast", streamed(stream_broadcast, warm_rows=0), sits_out=_only_files),
        Rival("look-up per row", by_hand(row_by_row), requires=NEEDED, sits_out=_only_server),
        Rival("look-up per batch", by_hand(batch_by_batch), requires=NEEDED, sits_out=_only_server),
    ),
    expected=_expected,
    baseline="dovetail",
    bounds=(
        _small("five times Spark's rate", 1 / 5, "spark's stream-static join", 2_000_000),
        _small("fifteen times Spark's rate", 1 / 15, "spark's stream-static join", 8_000_000),
        _small("falls by less than 30 % with four times the master data", 1 / 0.7, "dovetail, a quarter", 8_000_000),
        Bound(
            "half a million rows a second",
            "dovetail",
            2.0,
            where={"batch_rows": LARGE},
            figure="us_per_row",
            scale="full",
        ),
        _small("three times a look-up per row", 1 / 3, "look-up per row", 2_000_000, SERVER),
        _small("no slower than a look-up per batch", 1.0, "look-up per batch", 2_000_000, SERVER),
        Bound("inside the budget", "dovetail", 1.0, figure="peak_of_budget"),
    ),
    answer="rows answered",
    rounds=3,
    warms_up=False,
    measures=("engine", "joins/semistream", "spark"),
)
ON_SERVER = "dovetail on PostgreSQL"


def _growing_points(batch_rows: int, *sizes: int) -> list[Params]:
    return [{"master_rows": rows, "batch_rows": batch_rows} for rows in sizes]


RIVALS = Case(
    name="enrich-rivals",
    question="How does each way to enrich a stream, in small micro-batches, grow with the master data?",
    varies=("master_rows", "batch_rows"),
    points={
        "small": _growing_points(2_500, 20_000, 80_000, 320_000),
        "full": _growing_points(5_000, 200_000, 800_000, 3_200_000),
    },
    rivals=(
        Rival("dovetail", dovetail(master_store)),
        Rival(ON_SERVER, on_server, requires=NEEDED),
        Rival("spark's stream-static join", streamed(stream_static, warm_rows=0)),
        Rival(
            "spark's join, master broadcast",
            streamed(master_broadcast, warm_rows=0),
            may_fail="Spark refuses to broadcast what does not fit the driver",
        ),
        Rival("full read per batch", by_hand(full_read, warm_rows=0), requires=NEEDED),
        Rival("look-up per row", by_hand(without_cache, warm_rows=0), requires=NEEDED),
        Rival("look-up per row, LRU cache", by_hand(row_by_row), requires=NEEDED),
        Rival("look-up per batch, LRU cache", by_hand(batch_by_batch), requires=NEEDED),
    ),
    expected=_expected,
    baseline="dovetail",
    bounds=(Bound("faster than Spark's join", "dovetail", 1.0, against="spark's stream-static join", scale="full"),),
    answer="rows answered",
    measures=("engine", "joins/semistream", "spark"),
    rounds=2,
    small_rounds=1,
    warms_up=False,
    patience_s=40.0,
)
CASES = (ENRICH, RIVALS)
