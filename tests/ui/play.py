"""A synthetic run to look at: `python -m tests.ui.play [seconds]` serves it and says where.

A retail pipeline: orders enriched with products, joined with shipments, matched with promotions. The figures follow
from the time alone, so that pictures of it are the same every time.
"""

from __future__ import annotations

import math
import sys
import threading
import time

from dovetail.pipeline.record.watch import Node, Sample, Watch

MB = 2**20
NODES = [
    Node("orders", "source", "workload", "orders of the shop, bursty and skewed"),
    Node("shipments", "source", "workload", "shipments, late and with pauses"),
    Node("promotions", "source", "parquet", "periods of promotions"),
    Node("price_lists", "source", "json", "suppliers' lists"),
    Node("products", "master", "pages", "2,000,000 products in a page file"),
    Node("enriched", "join", "enrich", "orders with products, key product_id, 50 MB"),
    Node("delivered", "join", "online_join", "orders with shipments, key order_id, 32 MB"),
    Node("promoted", "join", "interval_join", "shipments in transit with promotion periods, 64 MB"),
    Node("prices", "sql", "sql", "select * from price_lists"),
    Node("warehouse", "sink", "parquet", "one directory a day"),
    Node("late", "sink", "console"),
]
EDGES = [
    ("orders", "enriched"), ("products", "enriched"), ("enriched", "delivered"), ("shipments", "delivered"),
    ("delivered", "promoted"), ("promotions", "promoted"), ("price_lists", "prices"), ("prices", "promoted"),
    ("promoted", "warehouse"), ("delivered", "late"),
]  # fmt: skip
RATE = 24_000.0


def new_watch(name: str = "retail-warehouse") -> Watch:
    """A run that has begun and has predictions, but no sample."""
    watch = Watch(name, NODES, EDGES)
    watch.predict("enriched", [("algorithm", "cache join"), ("service rate", "31,000 rows/s"), ("cache", "38 MiB"),
                               ("cache hits", "81 %"), ("page loads", "410 pages/s")])  # fmt: skip
    watch.predict("delivered", [("algorithm", "adaptive bucket join"), ("state", "28 MiB"), ("spills", "none")])
    watch.run()
    return watch


def step(watch: Watch, second: float) -> None:
    """One sample of every step as of this second of the synthetic run."""
    arrival = RATE * (1 + 0.35 * math.sin(second / 7) + (1.1 if 18 < second % 45 < 26 else 0))
    served = min(arrival * 0.97 + 900, 31_000 + 900 * math.sin(second / 3))
    rows = RATE * second
    backlog = max(0.0, 60_000 * math.sin((second % 45 - 18) / 22 * math.pi)) if second % 45 > 18 else 0.0
    batch = {"batch": second // 2, "batch_s": 1.1 + 0.5 * math.sin(second / 5) + backlog / 60_000}
    watch.add("orders", {"arrival_rows_per_s": arrival, "rows_out": rows})
    watch.add("shipments", {"arrival_rows_per_s": arrival * 0.4, "rows_out": rows * 0.4})
    watch.add("enriched", {**_enriched(second, rows, backlog), **batch, "arrival_rows_per_s": arrival,
                           "service_rows_per_s": served})  # fmt: skip
    watch.add("delivered", {**_delivered(second, rows), **batch, "arrival_rows_per_s": served * 1.4,
                            "service_rows_per_s": served * 1.38})  # fmt: skip
    watch.add("promoted", {"rows_in": rows * 0.4, "rows_out": rows * 0.11, "service_rows_per_s": served * 0.4, **batch,
                           "memory_peak": 21 * MB, "memory_budget": 64 * MB, "spilled_bytes": 0})  # fmt: skip
    watch.add("warehouse", {"rows_in": rows * 0.11})
    watch.measured("enriched", {"service rate": f"{served:,.0f} rows/s", "cache hits": "78 %"})


def _enriched(second: float, rows: float, backlog: float) -> dict[str, float]:
    filled = 1 - math.exp(-second / 12)
    hits = rows * 0.8 * (1 - 0.9 * (1 - math.exp(-second / 8)) / max(second, 1) * 4)
    return {
        "rows_in": rows,
        "rows_out": rows * 0.995,
        "backlog_rows": backlog,
        "memory.cache rows": 29 * MB * filled,
        "memory.cache keys": 5 * MB * filled,
        "memory.stream buffer": 4 * MB + backlog * 20,
        "memory.waiting rows": 3 * MB + backlog * 60,
        "memory.disk buffer": 2 * MB,
        "memory_peak": (9 + 34 * filled) * MB + 60_000 * 60,
        "memory_budget": 50 * MB,
        "cache_hits": max(0.0, hits),
        "cache_misses": rows - max(0.0, hits),
        "page_loads": 410 * second + 60 * math.sin(second / 4),
        "latency_p50_s": 0.18 + backlog / 500_000,
        "latency_p95_s": 0.41 + backlog / 130_000,
        "latency_p99_s": 0.66 + backlog / 80_000,
    }


def _delivered(second: float, rows: float) -> dict[str, float]:
    spilled = max(0.0, second - 20)
    return {
        "rows_in": rows * 1.4,
        "rows_out": rows * 0.37,
        "memory.hash table": min(20.0, second) * MB,
        "memory.index": min(6.0, second * 0.3) * MB,
        "memory.output": 2 * MB,
        "memory_peak": min(28.0, 2 + second * 1.3) * MB,
        "memory_budget": 32 * MB,
        "spilled_bytes": spilled * 2.5 * MB,
        "results.arriving": rows * 0.3,
        "results.reactive": rows * 0.06 * (1 - math.exp(-spilled / 10)),
        "results.cleanup": 0.0,
        "latency_p50_s": 0.3,
        "latency_p95_s": 0.9,
        "latency_p99_s": 1.8,
    }


def recorded(seconds: int) -> Watch:
    """A run of this length that is already over, made in an instant."""
    watch = running(seconds)
    watch.end("ended")
    return watch


def running(seconds: int) -> Watch:
    """A run that goes on and began `seconds` seconds ago."""
    watch = new_watch()
    for second in range(1, seconds + 1):
        step(watch, float(second))
    for node in NODES:
        spaced = [Sample(float(at), one.values) for at, one in enumerate(watch.samples(node.name), start=1)]
        watch._samples[node.name] = spaced
    watch._began -= seconds
    watch.started_at -= seconds
    return watch


class Feed(threading.Thread):
    """Feeds a watch from a thread, from the synthetic second `start`, until it is stopped; then the run has ended."""

    def __init__(self, watch: Watch, start: float = 0.0, every_s: float = 0.1) -> None:
        super().__init__(name="synthetic run", daemon=True)
        self._watch, self._start, self._every_s = watch, start, every_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Sample until told to stop."""
        began = time.monotonic()
        while not self._stopped.wait(self._every_s):
            step(self._watch, self._start + time.monotonic() - began)

    def stop(self) -> None:
        """End the run."""
        self._stopped.set()
        self.join()
        self._watch.end("ended")


def main(seconds: float) -> None:
    """Serve a run of the given length, then its final page until interrupted."""
    from dovetail.page import serve

    watch = new_watch()
    feed = Feed(watch, every_s=0.5)
    feed.start()
    with serve(watch) as page:
        print(f"{page.url} (the run lasts {seconds:g} s; Ctrl-C ends the page)")
        try:
            time.sleep(seconds)
            feed.stop()
            threading.Event().wait()
        except KeyboardInterrupt:
            print("closed")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
