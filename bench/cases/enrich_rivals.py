"""Enrichment beside every way that people do it by hand or with Spark, at three sizes of master data."""

from __future__ import annotations

from bench.case import Bound, Case, Params, Rival
from bench.cases.enrich import NEEDED, by_hand, on_server, pages
from bench.context import BenchContext
from bench.enrichment import batches, dovetail, master_broadcast, matched, stream_static, streamed
from bench.lookups import batch_by_batch, full_read, row_by_row, without_cache

ON_SERVER = "dovetail on PostgreSQL"


def _expected(bench: BenchContext, params: Params) -> int:
    return matched(batches(bench, params) * int(params["batch_rows"]))


def _points(batch_rows: int, *sizes: int) -> list[Params]:
    return [{"master_rows": rows, "batch_rows": batch_rows} for rows in sizes]


CASE = Case(
    name="enrich-rivals",
    question="How does each way to enrich a stream, in small micro-batches, grow with the master data?",
    varies=("master_rows", "batch_rows"),
    points={"small": _points(2_500, 20_000, 80_000, 320_000), "full": _points(5_000, 200_000, 800_000, 3_200_000)},
    rivals=(
        Rival("dovetail", dovetail(pages)),
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
