"""Streams joined with master data: what the enrichment benchmarks share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from bench.case import Outcome, Params, Prepare, Run
from bench.context import BenchContext
from dovetail.engine.memory import parse_bytes
from dovetail.joins.semistream.api import plan_enrich
from dovetail.joins.semistream.master.store import MasterStore
from dovetail.joins.semistream.plan.plan import EnrichPlan
from dovetail.workloads import Master, ZipfStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEMORY = "50MB"
UNMATCHED = 100  # one stream row in this many has a key that the master data lacks
SMALL_BATCH = 10_000
LEAST_BATCH = 1_000
WARM_ROWS = 300_000
_SMALL_WARM = 40_000  # at small scale, at most
_ENDLESS = 10**9
_ROW_GROUP = 50_000  # so that Spark can split the file of a large micro-batch
_EARLY = 1_000_000
DATA = "DOVETAIL_BENCH_DATA"
Store: TypeAlias = Callable[[BenchContext, Params], MasterStore]
Joined: TypeAlias = Callable[["DataFrame"], "tuple[DataFrame, Callable[[], dict[str, float]]]"]


def kept(bench: BenchContext, name: str, make: Callable[[Path], object]) -> Path:
    """A file or directory that `make` writes, once in a run; in $DOVETAIL_BENCH_DATA, if set, once and for all."""
    base = Path(os.environ.get(DATA) or bench.scratch)
    place, done = base / name, base / f".{name}.done"
    if not done.exists():
        base.mkdir(parents=True, exist_ok=True)
        make(place)
        done.touch()
    return place


def master_files(bench: BenchContext, rows: int, width: int = 120) -> Path:
    """Master rows of `width` bytes in the order of their key, as eight Parquet files."""

    def make(place: Path) -> None:
        place.mkdir(exist_ok=True)
        data, each = Master(rows, width, seed=bench.seed), -(-rows // 8)
        for number, start in enumerate(range(0, rows, each)):
            pq.write_table(data.table(start, min(rows, start + each)), place / f"{number}.parquet")

    return kept(bench, f"master-{rows}-{width}-{bench.seed}", make)


def page_file(bench: BenchContext, rows: int, width: int = 120) -> MasterStore:
    """The same rows as a page file that Spark wrote."""

    def make(place: Path) -> None:
        frame = bench.spark.read.parquet(str(master_files(bench, rows, width)))
        MasterStore.build(frame, place, key="key", unique=True)

    return MasterStore.open(kept(bench, f"pages-{rows}-{width}-{bench.seed}", make))


def master_store(bench: BenchContext, params: Params) -> MasterStore:
    """The page file of a point, whose rows may be as wide as it says."""
    return page_file(bench, params["master_rows"], params.get("width", 120))


def stream_rows(bench: BenchContext, master_rows: int, start: int, stop: int) -> pa.Table:
    """Rows of an endless stream with keys by Zipf's law, popular ones spread over the master data."""
    table = ZipfStream(_ENDLESS, master_rows, 1.0, bench.seed, scattered=True).table(start, stop)
    keys = table["key"].to_numpy().copy()
    keys[np.asarray(table["id"]) % UNMATCHED == UNMATCHED - 1] *= -1
    return table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys))


def matched(rows: int) -> int:
    """The number of stream rows with a master row, of `rows` consecutive ones."""
    return rows - rows // UNMATCHED


class Feed:
    """The stream of one rival: every run brings new rows, one file a micro-batch, to the same query.

    Checkpoint and DataFrame stay, so that whatever a rival keeps between micro-batches lives on, as in a service.
    """

    def __init__(self, bench: BenchContext, master_rows: int) -> None:
        self._bench, self._master_rows = bench, master_rows
        self._place = Path(tempfile.mkdtemp(dir=bench.scratch))
        (self._place / "in").mkdir()
        self._files = self._rows = 0

    def frame(self) -> DataFrame:
        """The stream."""
        spark = self._bench.spark
        schema = from_arrow_schema(stream_rows(self._bench, self._master_rows, 0, 1).schema)
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(self._place / "in"))

    def add(self, rows: int) -> None:
        """Rows for one micro-batch, in a file that appears whole, after those before it."""
        table = stream_rows(self._bench, self._master_rows, self._rows, self._rows + rows)
        staged = self._place / "staged.parquet"
        pq.write_table(table, staged, row_group_size=_ROW_GROUP)
        os.utime(staged, (_EARLY + self._files, _EARLY + self._files))
        staged.rename(self._place / "in" / f"{self._files:06d}.parquet")
        self._files, self._rows = self._files + 1, self._rows + rows

    def run(self, joined: DataFrame) -> Outcome:
        """Everything that is there, to the no-op sink: rows that the sink counted, seconds of the micro-batches.

        The first one is not timed: it starts the query. Spark's own clock says how long each of the others took.
        """
        writer = joined.writeStream.format("noop").option("checkpointLocation", str(self._place / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        done = [progress for progress in query.recentProgress if progress["numInputRows"]][1:]
        answered = sum(int(progress["sink"]["numOutputRows"]) for progress in done)
        seconds = sum(float(progress["durationMs"]["triggerExecution"]) for progress in done) / 1e3
        rows = sum(int(progress["numInputRows"]) for progress in done)
        figures = {
            "rows_per_s": rows / seconds,
            "us_per_row": 1e6 * seconds / rows,
            "batch_ms": 1e3 * seconds / len(done),
        }
        # Without what Spark does for any stream: finding files, writing offsets and commits.
        joining = sum(float(progress["durationMs"]["addBatch"]) for progress in done) / 1e3
        return Outcome(answered, seconds, {**figures, "joining_s": joining})


def batches(bench: BenchContext, params: Params) -> int:
    """Timed micro-batches of a run: few of them, so that a run of the slowest rival takes less than a minute."""
    if params["batch_rows"] < LEAST_BATCH:  # those of a store that takes seconds for one
        return 2
    return 4 if bench.scale == "full" and params["batch_rows"] <= SMALL_BATCH else 2


def streamed(
    join: Callable[[BenchContext, Params], Joined],
    warm_rows: int = WARM_ROWS,
    again: int = 0,
    ready: Callable[[], object] = lambda: None,
) -> Prepare:
    """A rival on a stream of its own, whose first rows fill what it keeps and are not timed.

    So do `again` micro-batches before every run: Spark ends workers that had nothing to do for a minute, while another
    rival ran, and with them their caches. `ready` is called before the timed ones.
    """

    @contextmanager
    def prepare(bench: BenchContext, params: Params) -> Iterator[Run]:
        feed = Feed(bench, params["master_rows"])
        joined, further = join(bench, params)(feed.frame())
        most = _SMALL_WARM if bench.scale == "small" else warm_rows
        for _ in range(2 + min(warm_rows, params["master_rows"], most) // params["batch_rows"]):
            feed.add(params["batch_rows"])
        feed.run(joined)

        def turn() -> Outcome:
            if again:
                for _ in range(again):
                    feed.add(params["batch_rows"])
                feed.run(joined)
            ready()
            for _ in range(1 + batches(bench, params)):
                feed.add(params["batch_rows"])
            found = feed.run(joined)
            return Outcome(found.answer, found.seconds, {**found.figures, **further()})

        yield turn

    return prepare


def dovetail(
    store: Store, warm_rows: int = WARM_ROWS, again: int = 0, ready: Callable[[], object] = lambda: None, **options: Any
) -> Prepare:
    """`enrich` on a store, with the tracked peak of its tasks as a share of their budget."""

    def join(bench: BenchContext, params: Params) -> Joined:
        master = store(bench, params)
        return lambda frame: _planned(plan_enrich(frame, master, on="key", memory=MEMORY, **options))

    return streamed(join, warm_rows, again, ready)


def _planned(plan: EnrichPlan) -> tuple[DataFrame, Callable[[], dict[str, float]]]:
    def further() -> dict[str, float]:
        found = plan.metrics()
        return {
            "peak_of_budget": found.value("memory_peak") / parse_bytes(MEMORY),
            "loads": float(found.value("loads")),
            "from_cache": found.value("answered_by_cache") / max(1, found.value("rows")),
        }

    return plan.frame(), further


def _static(bench: BenchContext, params: Params) -> DataFrame:
    return bench.spark.read.parquet(str(master_files(bench, params["master_rows"], params.get("width", 120))))


def no_join(bench: BenchContext, params: Params) -> Joined:
    """No join at all: the rows that have a key, which a micro-batch costs anyway."""
    return lambda frame: (frame.where("key > 0"), dict)


def stream_static(bench: BenchContext, params: Params) -> Joined:
    """Spark's own join of a stream with a table, read again in every micro-batch, as it plans it for most streams.

    Of Kafka and any other source but files Spark does not know how much a micro-batch brings, so it shuffles and sorts
    both sides. Here files play the stream, of which it does know: the hint gives the plan that the others get.
    """
    static = _static(bench, params)
    return lambda frame: (frame.join(static.hint("merge"), "key"), dict)


def stream_broadcast(bench: BenchContext, params: Params) -> Joined:
    """The same join where Spark knows that a micro-batch is small: its rows go to every scan of the table."""
    static = _static(bench, params)
    return lambda frame: (frame.hint("broadcast").join(static, "key"), dict)


def master_broadcast(bench: BenchContext, params: Params) -> Joined:
    """The same join with the whole table sent to every task, where it fits."""
    static = _static(bench, params)
    return lambda frame: (frame.join(static.hint("broadcast"), "key"), dict)
