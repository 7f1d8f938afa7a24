"""Two streams joined with each other through Spark, from their first row to their last."""

from __future__ import annotations

from bench.case import Bound, Case, Params, Rival
from bench.online_streams import BATCHES, dovetail, joined_streams, matches, stream_stream

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_IN_JAVA = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_ASIDE = "spark's join, state in RocksDB, changes only"
OURS, THEIRS, IN_JAVA = "dovetail", "spark's stream-stream join", "spark's join, state in Java's memory"


LARGE = (100_000, 250_000)


def _fits_in_java(params: Params) -> str | None:
    rows = 2 * BATCHES * int(params["batch_rows"])
    return f"{rows:,} rows are more than a heap of 1 GiB holds, Spark's own default" if rows > 1_200_000 else None


def _points(*batch_rows: int, memory: str) -> list[Params]:
    return [{"batch_rows": rows, "memory": memory} for rows in batch_rows]


def _thrice(rows: int, against: str) -> Bound:
    """Smaller micro-batches are mostly what Spark needs for any of them; the page of figures tells what is left."""
    return Bound("three times Spark's rate", OURS, 1 / 3, against=against, where={"batch_rows": rows}, scale="full")


CASE = Case(
    name="online",
    question="How many rows a second of two streams are joined with each other, end to end?",
    varies=("batch_rows", "memory"),
    points={
        "small": _points(4_000, 8_000, 16_000, memory="2MB"),
        "full": _points(50_000, 100_000, 250_000, memory="32MB"),
    },
    rivals=(
        Rival(OURS, joined_streams(dovetail)),
        Rival(THEIRS, joined_streams(stream_stream, {_CHANGELOG: "false"})),  # as Spark sets it up
        Rival(_ASIDE, joined_streams(stream_stream, {_CHANGELOG: "true"})),  # as our session does
        Rival(IN_JAVA, joined_streams(stream_stream, {_PROVIDER: _IN_JAVA}), sits_out=_fits_in_java),
    ),
    expected=matches,
    baseline=OURS,
    bounds=(
        *(_thrice(rows, against) for rows in LARGE for against in (THEIRS, _ASIDE)),
        Bound("first results in the first micro-batch", OURS, 0.0, figure="none_in_first_batch"),
        Bound("inside the budget", OURS, 1.0, figure="peak_of_budget"),
    ),
    answer="pairs",
    measures=("engine", "joins/online", "spark"),
    patience_s=45.0,
    small_rounds=1,
    rounds=5,  # Java goes on compiling for some rounds, more so for us, who take less time
)
