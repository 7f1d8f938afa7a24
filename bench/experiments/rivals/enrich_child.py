"""A stream enriched with master data by a process that may have only so much memory.

Run as a module with WAY MIB DIRECTORY ROWS URL TABLE, and with $DOVETAIL_BENCH_DATA where master files and page file
lie, it prints how many stream rows were answered. The limit is Java's heap for Spark. Look-ups by hand need no Spark:
theirs is the operating system's, half of it for the cache.
"""

from __future__ import annotations

from pathlib import Path

from bench.case import Outcome, Params, Prepare
from bench.context import BenchContext
from bench.enrichment import (
    dovetail,
    master_broadcast,
    page_file,
    stream_rows,
    stream_static,
    streamed,
)
from bench.experiments.rivals.limited import Answer, limit, main, session
from bench.lookups import Answer as ByHand
from bench.lookups import LookupTask, batch_by_batch, full_read, looked_up, row_by_row

BATCH, TIMED = 5_000, 2
"""Rows of a micro-batch, and micro-batches whose answers count."""


def _spark(prepare: Prepare) -> Answer:
    def answer(mib: int, place: Path, words: list[str]) -> int:
        session(mib)
        params: Params = {"master_rows": int(words[0]), "batch_rows": BATCH}
        with BenchContext("small") as bench, prepare(bench, params) as turn:
            found = turn()
        return found.answer if isinstance(found, Outcome) else int(found)

    return answer


def _by_hand(how: ByHand) -> Answer:
    def answer(mib: int, place: Path, words: list[str]) -> int:
        master_rows, url, table = int(words[0]), *words[1:]
        task = LookupTask("short memory", url, table, mib * 2**19, how)
        with BenchContext("small") as bench:
            rows = stream_rows(bench, master_rows, 0, BATCH * TIMED)
            limit(mib)
            return sum(int(batch.num_rows) for batch in looked_up(task, iter(rows.to_batches(BATCH))))

    return answer


WAYS = {
    "dovetail": _spark(dovetail(lambda bench, params: page_file(bench, params["master_rows"]))),
    "spark's stream-static join": _spark(streamed(stream_static, warm_rows=0)),
    "spark's join, master broadcast": _spark(streamed(master_broadcast, warm_rows=0)),
    "full read per batch": _by_hand(full_read),
    "look-up per row, LRU cache": _by_hand(row_by_row),
    "look-up per batch, LRU cache": _by_hand(batch_by_batch),
}

if __name__ == "__main__":
    main(WAYS)
