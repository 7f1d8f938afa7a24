"""A pipeline under more load than it can bear, and what must hold: nothing is lost, memory stays where it is.

`python -m tests.pipeline.load 10 [DIRECTORY]` finds the rate that this machine begins with, runs ten minutes of bursts
at four times that rate, which must turn out to be twice what it sustains once it is warm, ends the inputs, and compares
the sinks with DuckDB's joins over the rows that were taken. `load.json` and `load.svg` in the directory hold the
figures.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import psutil  # type: ignore[import-untyped]  # ships no type information
import pyarrow.parquet as parquet
from bench.chart import draw
from bench.experiment import Chart
from bench.machine import tree_memory
from tests.pipeline.kills import copied

from dovetail.pipeline.record.watch import Watch
from dovetail.workloads.retail import orders, products, shipments

PIPELINE = Path(__file__).with_name("overload.toml")
STREAMS = ("orders", "shipments")
ROWS, PRODUCTS, SEED = 1_000_000_000, 500_000, 3
_BURST = 255  # rows of a step of a bursty source of eight levels, on average
_PAUSED = dict.fromkeys(STREAMS, "poisson(1000000000000)")
_FACTOR, _PATIENCE_S = 4.0, 900.0


def bursts(rate: float) -> str:
    """The pace of bursts that bring `rate` rows a second on average."""
    return f"bursty({round(_BURST * 1e6 / rate)}, 8)"


@contextmanager
def running(file: Path, paces: Mapping[str, str], *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline as a process of its own, stopped by Ctrl-C in the end."""
    words = [*(f"--set=source.{name}.options.pace={pace}" for name, pace in paces.items()), *more]
    command = [sys.executable, "-c", "from dovetail.cli.main import run; run()", "run", str(file), *words]
    with (file.parent / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0, (file.parent / "log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.kill()


class Memory:
    """Bytes that a process and its children hold, once a second."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[float, int]] = []
        self._process, self._over = psutil.Process(pid), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        began = time.monotonic()
        while not self._over.wait(1.0) and self._process.is_running():
            self.samples.append((time.monotonic() - began, tree_memory(self._process.pid)))

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()
        self._thread.join()


def run_for(file: Path, paces: Mapping[str, str], seconds: float) -> tuple[Watch, list[tuple[float, int]]]:
    """The record of a run of `seconds` seconds from its first micro-batch on, and its memory."""
    before = committed(file)
    with running(file, paces) as process:
        memory = Memory(process.pid)
        while committed(file) == before:
            assert process.poll() is None, (file.parent / "log").read_text()[-3000:]
            time.sleep(0.2)
        time.sleep(seconds)
        memory.stop()
    return Watch.load(file.parent / "checkpoint" / "watch.json"), memory.samples


def committed(file: Path) -> int:
    """Micro-batches that all queries have committed."""
    return len(list((file.parent / "checkpoint").glob("*/commits/[0-9]*")))


def taken(file: Path, sink: str) -> list[int]:
    """Rows of each source that the committed micro-batches of a query have taken."""
    return _offset(file, sink, "commits")


def _offset(file: Path, sink: str, which: str) -> list[int]:
    """Rows of each source at the end of the last micro-batch that was begun (offsets) or committed (commits)."""
    place = file.parent / "checkpoint" / sink
    last = max(int(one.name) for one in (place / which).glob("[0-9]*"))
    lines = (place / "offsets" / str(last)).read_text().splitlines()
    found = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    return [int(offset["row"]) for offset in found if "row" in offset]


def started(file: Path, seconds: float) -> dict[str, float]:
    """Rows a second of each source when rows are always there; Java is still compiling, so they become more."""
    watch, _ = run_for(file, dict.fromkeys(STREAMS, ""), seconds)
    return {name: _rate(watch, name) for name in STREAMS}


def _rate(watch: Watch, name: str) -> float:
    """Rows over time of the later half of the samples, when everything is warm."""
    samples = watch.samples(name)
    first, last = samples[len(samples) // 2], samples[-1]
    return (last.values["rows_in"] - first.values["rows_in"]) / max(1e-3, last.at - first.at)


def settle(file: Path) -> float:
    """Seconds until the online join, whose inputs end with the next row of each, has given all pairs."""
    began, (left, right) = time.monotonic(), _offset(file, "orders_delivered", "offsets")
    ends = f'{{ left = "order_id = {left + 1}", right = "order_id = {right + 1}" }}'
    with running(file, _PAUSED, f"--set=join.delivered.end_of_input={ends}") as process:
        while written(file.parent / "orders_delivered") < pairs_due(*taken(file, "orders_delivered")):
            assert process.poll() is None, (file.parent / "log").read_text()[-3000:]
            assert time.monotonic() < began + _PATIENCE_S, "the online join does not come to an end"
            time.sleep(1.0)
    return time.monotonic() - began


def written(place: Path) -> int:
    """Rows in the files of a sink."""
    return sum(int(parquet.read_metadata(one).num_rows) for one in place.glob("*.parquet"))


@cache
def pairs_due(left: int, right: int) -> int:
    """The number of the first `right` shipments whose order is among the first `left` orders."""
    table = shipments(rows=ROWS, products=PRODUCTS, seed=SEED).table(0, right)
    return int((table["order_id"].to_numpy() <= left).sum())


def verified(file: Path) -> dict[str, int]:
    """Rows of each sink, all equal to DuckDB's join over the rows that were taken."""
    (enriched,), (left, right) = taken(file, "orders_enriched"), taken(file, "orders_delivered")
    database = duckdb.connect()
    database.execute("set memory_limit='6GB'")
    some = {"products": PRODUCTS, "seed": SEED}
    database.register("catalogue", products(**some).table())
    for name, workload, rows in (("o", orders, max(enriched, left)), ("s", shipments, right)):
        database.register(f"{name}_", workload(rows=ROWS, **some).table(0, rows))
    definitions = {
        "orders_enriched": f"select * from o_ join catalogue using (product_id) where order_id <= {enriched}",
        "orders_delivered": f"select o_.*, s_.* exclude (order_id, product_id), s_.product_id as product_id_right "
        f"from o_ join s_ using (order_id) where order_id <= {left}",
    }
    return {sink: _equal(database, file.parent / sink, definition) for sink, definition in definitions.items()}


def _equal(database: duckdb.DuckDBPyConnection, place: Path, definition: str) -> int:
    found = f"select * from read_parquet('{place}/*.parquet')"
    columns = [row[0] for row in database.execute(f"describe {found}").fetchall()]
    chosen = ", ".join(f'"{column}"' for column in columns)
    sides = [f"select {chosen} from ({text})" for text in (found, definition)]
    counts = [database.execute(f"select count(*) from ({side})").fetchall()[0][0] for side in sides]
    extra = database.execute(f"({sides[0]}) except all ({sides[1]}) limit 3").fetchall()
    assert counts[0] == counts[1], f"{place.name} has {counts[0]:,} rows, {counts[1]:,} are due"
    assert not extra, f"{place.name} has rows that are not due: {extra}"
    return int(counts[0])


def figures(watch: Watch, memory: list[tuple[float, int]], rates: Mapping[str, float], rows: Any) -> dict[str, Any]:
    """What the page of the docs tells."""
    joins = {name: watch.latest(name) for name in ("enriched", "delivered")}
    warm = [held for at, held in memory if at > memory[-1][0] / 4]
    half = len(warm) // 2
    sustained = {name: _rate(watch, name) for name in STREAMS}
    offered = {name: _FACTOR * rate for name, rate in rates.items()}
    assert all(offered[name] >= 2 * sustained[name] for name in STREAMS), f"{offered} is not twice {sustained}"
    return {
        "seconds": watch.seconds,
        "offered_rows_per_s": offered,
        "sustained_rows_per_s": sustained,
        "backlog_rows": {name: watch.latest(name)["backlog_rows"] for name in STREAMS},
        "peak_of_budget": {n: v["memory_peak"] / v["memory_budget"] for n, v in joins.items() if "memory_peak" in v},
        "spilled_bytes": {name: values.get("spilled_bytes", 0.0) for name, values in joins.items()},
        "resident_mib": {
            "second_quarter_median": sorted(warm[:half])[half // 2] / 2**20,
            "end_median": sorted(warm[half:])[half // 2] / 2**20,
            "largest": max(warm) / 2**20,
        },
        "rows_equal": rows,
    }


def picture(watch: Watch, memory: list[tuple[float, int]]) -> Chart:
    """Backlog in the source, and memory, over time."""
    backlog = {
        f"{name}: backlog, thousand rows": [(s.at, s.values["backlog_rows"] / 1e3) for s in _thin(watch.samples(name))]
        for name in STREAMS
    }
    held = {"memory of all processes, MiB": [(at, bytes_ / 2**20) for at, bytes_ in _thin(memory)]}
    return Chart("More load than the machine can bear", "seconds", "", {**backlog, **held})


def _thin(points: list[Any], most: int = 60) -> list[Any]:
    return points[:: max(1, len(points) // most)]


def main(minutes: float, place: Path) -> dict[str, Any]:
    """Everything; the figures."""
    rates = started(copied(PIPELINE, place / "started"), min(45.0, minutes * 60))
    print("to begin with", rates, flush=True)
    file = copied(PIPELINE, place / "overload")
    watch, memory = run_for(file, {name: bursts(_FACTOR * rate) for name, rate in rates.items()}, minutes * 60)
    print(
        "overload over; taken",
        {sink: taken(file, sink) for sink in ("orders_enriched", "orders_delivered")},
        flush=True,
    )
    settled_s = settle(file)
    found = figures(watch, memory, rates, verified(file)) | {"settled_s": settled_s}
    (place / "load.json").write_text(json.dumps(found, indent=1))
    (place / "load.svg").write_text(draw(picture(watch, memory)))
    return found


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.mkdtemp(prefix="dovetail-load-"))
    print(json.dumps(main(float(sys.argv[1]), where), indent=1))
