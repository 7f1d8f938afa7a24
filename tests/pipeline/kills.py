"""Pipelines killed at random moments, and what must hold in the end: the tables of a run that was left alone.

`python -m tests.pipeline.kills 20 [pipeline.toml | demo]` kills that many times; the tests kill twice. Every start has
other cores, shuffle partitions and memory of joins than the one before. A pipeline runs to the end of its input
(`dovetail run --once`). Its Parquet, CSV and PostgreSQL sinks are compared, all columns but the phase in which an
online join found a pair, which is a matter of time. Relative paths in the file keep its runs apart, and
`${DOVETAIL_KILLS_URI}` is a database of each run. "demo" is the pipeline of `dovetail demo`, whose rows arrive in real
time, as there; it is stopped when it has answered all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information
from pyarrow import csv, dataset, parquet
from tests.busy_machine import TooBusyError, raise_failure
from tests.semistream.master.server import Server

from dovetail.cli.demo_retail import STREAMED, Shop
from dovetail.pipeline.file.declared import Pipeline
from dovetail.pipeline.file.read import read_pipeline

PIPELINE = Path(__file__).with_name("killed.toml")
SECRET = "DOVETAIL_KILLS_URI"  # noqa: S105  (the name of a variable)
DEMO_ROWS = 60_000
CORES, PARTITIONS, MEMORIES = (2, 1, 3), (1, 4, 2, 3), ("2MB", "8MB", "3MB")
_LONGEST_S = 4.0
_PATIENCE_S = 600.0


class Killer:
    """Starts a pipeline again and again, and kills it, until it has been killed often enough and may finish."""

    def __init__(
        self,
        file: Path,
        uri: str,
        overrides: Sequence[str] = (),
        seed: int = 0,
        is_done: Callable[[Path], bool] | None = None,
    ) -> None:
        self.file, self.uri, self.overrides, self._is_done = file, uri, list(overrides), is_done
        self._random = random.Random(seed)  # noqa: S311  (moments, not secrets)
        self.killed = self.starts = 0
        self.moments: list[str] = []

    def run(self, kills: int) -> None:
        """To the end of input, with `kills` kills on the way."""
        end = time.monotonic() + _PATIENCE_S * (kills + 1)
        while not self._one(kills):
            assert time.monotonic() < end, "the pipeline does not get on"

    def _one(self, kills: int) -> bool:
        """One start; whether it came to its end."""
        process = self._started()
        began, moment, seen = time.monotonic(), None, 0
        wanted = self._commits() + self._random.randrange(3)
        if self._random.random() < 0.2:
            moment = began + self._random.uniform(0.0, 12.0)  # before or while it starts, too
        while process.poll() is None:
            time.sleep(0.05)
            if moment is None and self._commits() >= wanted and self._is_running(began):
                moment = time.monotonic() + self._random.uniform(0.0, _LONGEST_S)
            if self.killed < kills and moment is not None and time.monotonic() > moment:
                self._kill(process, began)
                return False
            if self._is_done is not None and self._commits() > seen:
                seen = self._commits()
                if self._is_done(self.file):
                    process.send_signal(signal.SIGINT)
                    process.wait(_PATIENCE_S)
        with contextlib.suppress(TooBusyError):
            if process.returncode:
                raise_failure(self.file.parent / "log")
            return True
        return False

    def _kill(self, process: subprocess.Popen[bytes], began: float) -> None:
        """The whole group, or Python alone, whose JVM then dies by itself a moment later."""
        alone = self._random.random() < 0.3
        if alone:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.killed += 1
        self.moments.append(
            f"{time.monotonic() - began:.1f} s, {self._commits()} commits{', Python alone' if alone else ''}"
        )

    def _is_running(self, began: float) -> bool:
        return any(one.stat().st_mtime > time.time() - (time.monotonic() - began) for one in self._offsets())

    def _offsets(self) -> list[Path]:
        return self._kept("offsets")

    def _commits(self) -> int:
        """Micro-batches that all queries have committed; Spark keeps the files of the last hundred of each."""
        last: dict[Path, int] = {}
        for one in self._kept("commits"):
            last[one.parent] = max(last.get(one.parent, 0), 1 + int(one.name))
        return sum(last.values())

    def _kept(self, what: str) -> list[Path]:
        """Files of the checkpoints, wherever the pipeline has them."""
        places = (self.file.parent / "checkpoint", self.file.parent / "work" / "checkpoint")
        return [one for place in places for one in place.glob(f"*/{what}/[0-9]*")]

    def _settings(self) -> list[str]:
        """Other cores, shuffle partitions and memory at each start."""
        declared = tomllib.loads(self.file.read_text())
        cores, partitions, memory = (one[self.starts % len(one)] for one in (CORES, PARTITIONS, MEMORIES))
        spark = declared["pipeline"].get("spark", {}) | {
            "spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": partitions,
        }  # fmt: skip
        words = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in spark.items())
        joins = [name for name, join in declared["join"].items() if "memory" in join]
        return [f"pipeline.spark={{ {words} }}", *(f"join.{name}.memory={memory}" for name in joins)]

    def _started(self) -> subprocess.Popen[bytes]:
        arguments = [word for one in (*self.overrides, *self._settings()) for word in ("--set", one)]
        self.starts += 1
        with (self.file.parent / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", "from dovetail.cli.main import run; run()", "run", str(self.file),
                 *(["--once"] if self._is_done is None else []), *arguments],
                stdout=log, stderr=log, start_new_session=True, env=os.environ | {SECRET: self.uri},
            )  # fmt: skip


def copied(file: Path, place: Path) -> Path:
    """The file in a directory of its own."""
    place.mkdir(parents=True)
    return Path(shutil.copy(file, place / file.name))


def demonstration(place: Path) -> Path:
    """The pipeline of `dovetail demo` in a directory of its own, with its price lists."""
    shop = Shop(place, rows=DEMO_ROWS, products=200_000, seconds=60)
    shop.write()
    return shop.file


def demonstrated(file: Path) -> bool:
    """Whether both streams of the demonstration are answered to their last row."""
    found = {sink: list((file.parent / "warehouse" / sink).glob("*.parquet")) for sink in STREAMED}
    return all(sum(parquet.read_metadata(one).num_rows for one in files) >= DEMO_ROWS for files in found.values())


def tables(file: Path, uri: str) -> dict[str, Counter[str]]:
    """The rows of every sink, each as text, with how often it is there."""
    pipeline = read_pipeline(file, environment=os.environ | {SECRET: uri})
    return {sink.name: _rows(pipeline, sink.name) for sink in pipeline.of("sink")}


def _rows(pipeline: Pipeline, name: str) -> Counter[str]:
    sink = pipeline.steps[name]
    if sink.type == "postgres":
        with dbapi.connect(sink.values["uri"]) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {sink.values['table']}")
            found = cursor.fetch_arrow_table()
    elif sink.type == "csv":
        files = sorted(Path(sink.values["path"]).glob("*.csv"))
        return Counter(str(row) for file in files for row in csv.read_csv(file).to_pylist())
    else:
        found = dataset.dataset(sink.values["path"], format="parquet").to_table()
    names = sorted(set(found.column_names) - {"_phase"})
    return Counter(str(sorted(row.items())) for row in found.select(names).to_pylist())


def compare(expected: dict[str, Counter[str]], found: dict[str, Counter[str]]) -> list[str]:
    """A line for each sink; AssertionError with some rows where they differ."""
    lines = []
    for name, rows in expected.items():
        missing, extra = rows - found[name], found[name] - rows
        assert not missing, f"{name} lacks {sum(missing.values())} rows, such as {list(missing)[:2]}"
        assert not extra, f"{name} has {sum(extra.values())} rows too many, such as {list(extra)[:2]}"
        lines.append(f"{name}: {sum(rows.values()):,} rows equal")
    return lines


def main(kills: int, make: Callable[[Path], Path], is_done: Callable[[Path], bool] | None, seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory, Server() as server:
        server.execute("CREATE DATABASE alone", "CREATE DATABASE killed")
        alone, killed = (server.url.removesuffix("/postgres") + f"/{name}" for name in ("alone", "killed"))
        first, second = make(Path(directory) / "alone"), make(Path(directory) / "killed")
        Killer(first, alone, is_done=is_done).run(0)
        killer = Killer(second, killed, seed=seed, is_done=is_done)
        killer.run(kills)
        print(f"seed {seed}: {killer.killed} kills, after {'; '.join(killer.moments)}")
        print("\n".join(compare(tables(first, alone), tables(second, killed))))


if __name__ == "__main__":
    chosen = sys.argv[2] if len(sys.argv) > 2 else str(PIPELINE)
    making, over = (demonstration, demonstrated) if chosen == "demo" else (partial(copied, Path(chosen)), None)
    main(int(sys.argv[1]), making, over, int(time.time()))
