"""Queries killed at random moments while their master data changes, and what must hold in the end.

Every start has other cores, partitions and memory than the one before.

`python -m tests.semistream.frame.kills 20 carry` runs one mode with that many kills; the tests run both with three.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from tests.busy_machine import TooBusyError, clear_unbegun, raise_failure
from tests.semistream.frame.cases import drop_file, page_store

from dovetail.joins.semistream.master.page_file.generation import versions
from dovetail.joins.semistream.master.page_file.reader import PageFileSource
from dovetail.joins.semistream.master.page_file.writer import write_pages

FILES, ROWS, KEYS = 5, 120, 90
MEMORIES = ("512KB", "36KB", "2MB", "48KB", "100KB")
MODES = ("per_batch", "carry")
_SCRIPT, _CHANGES = (Path(__file__).with_name(name) for name in ("killed_query.py", "killed_changes.py"))


def prepare(place: Path, files: int) -> None:
    """Input files, and the first generation of the master data."""
    build(place, 0)
    for number in range(files):
        rows = range(number * ROWS, (number + 1) * ROWS)
        drop_file(place / "in", pa.table({"id": list(rows), "k": [n * 13 % (KEYS + 10) for n in rows]}), number)


def build(place: Path, generation: int) -> None:
    """A generation in which every row tells its number."""
    page_store(place / "m.pages", pa.table({"k": list(range(KEYS)), "made": [generation] * KEYS}))


def run_killed(
    place: Path, kills: int, modes: Sequence[str] = MODES, seed: int = 0, longest_s: float = 3.0, files: int = FILES
) -> int:
    """Start, kill and start again, master data changing all the while, until it may finish; kills that were made.

    A kill comes some seconds, `longest_s` at most, after the queries have started or committed another micro-batch, so
    that they get on however slow the machine is.
    """
    prepare(place, files)
    rng, generation, killed = random.Random(seed), 0, 0  # noqa: S311  (moments, not secrets)
    while True:
        (place / "started").unlink(missing_ok=True)
        for mode in modes:
            clear_unbegun(place / mode / "checkpoint")
        query = _started(place, modes, killed)
        end, wanted = None, _commits(place, modes) + rng.randrange(2)
        while query.poll() is None:
            generation += 1
            build(place, generation)
            time.sleep(0.15)
            if end is None and killed < kills and (place / "started").exists() and _commits(place, modes) >= wanted:
                end = time.monotonic() + rng.uniform(0.0, longest_s)
            if end is not None and time.monotonic() > end:
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                killed += 1
                break
        else:
            if not query.returncode:
                return killed
            with contextlib.suppress(TooBusyError):  # it goes on with the next start
                raise_failure(place / "log")


def _commits(place: Path, modes: Sequence[str]) -> int:
    """Micro-batches that the queries have committed, each counted."""
    found = [(place / mode / "checkpoint" / "commits").glob("[0-9]*") for mode in modes]
    return sum(len(list(files)) for files in found)


def prepare_changes(place: Path, files: int) -> list[dict[int, int]]:
    """Input files, a page file and files of changes; the master rows after each of these."""
    prepare(place, files)
    rng = random.Random(7)  # noqa: S311  (cases, not secrets)
    rows = dict.fromkeys(range(KEYS), 0)
    write_pages(place / "m.pages", pa.table({"k": list(rows), "made": list(rows.values())}), "k", page=128, unique=True)
    found = [dict(rows)]
    for number in range(files):
        changes = [(rng.randrange(KEYS + 10), 100 * number + at, rng.choice("cud")) for at in range(20)]
        for key, made, op in changes:
            rows.pop(key, None)
            rows |= {} if op == "d" else {key: made}
        names = ("k", "made", "op", "lsn")
        columns = zip(*((key, made, op, made) for key, made, op in rng.sample(changes, 20)), strict=True)
        drop_file(place / "feed", pa.table(dict(zip(names, map(list, columns), strict=True))), number)
        found.append(dict(rows))
    return found


def run_killed_changes(place: Path, kills: int, seed: int, files: int) -> list[dict[int, int]]:
    """Start, kill and start again a stream of changes and streams that are enriched, until they have read all files."""
    found, modes = prepare_changes(place, files), ("changes", *MODES)
    rng, killed = random.Random(seed), 0  # noqa: S311  (moments, not secrets)
    while True:
        (place / "started").unlink(missing_ok=True)
        for mode in modes:
            clear_unbegun(place / mode / "checkpoint")
        query = _started(place, (), killed, _CHANGES)
        end, wanted = None, _commits(place, modes) + rng.randrange(3)
        while query.poll() is None:
            time.sleep(0.1)
            if end is None and killed < kills and (place / "started").exists() and _commits(place, modes) >= wanted:
                end = time.monotonic() + rng.uniform(0.0, 2.0)
            if end is not None and time.monotonic() > end:
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                killed += 1
                break
        else:
            if not query.returncode:
                return found
            with contextlib.suppress(TooBusyError):  # it goes on with the next start
                raise_failure(place / "log")


def check_changes(place: Path, found: list[dict[int, int]], files: int) -> None:
    """Each micro-batch made one version; every row is there once, by the version logged for its micro-batch."""
    assert stored_rows(place / "m.pages", None) == found[-1]
    by_version = {version: stored_rows(place / "m.pages", version) for version in versions(place / "m.pages")}
    assert all(rows in found for rows in by_version.values())
    for mode in MODES:
        logged = {
            int(file.name.split(".")[0]): json.loads(file.read_text())["version"]
            for file in (place / mode / "versions").glob("*/*/[0-9]*.json")
        }
        ids = Counter[int]()
        for kept in (place / mode / "out").glob("*.parquet"):
            for row in parquet.read_table(kept).to_pylist():
                ids[row["id"]] += 1
                assert row["made"] == by_version[logged[int(kept.stem)]].get(row["k"]), (mode, kept.stem, row)
        assert ids == Counter(range(files * ROWS))


def stored_rows(path: Path, version: str | None) -> dict[int, int]:
    """All rows of a version."""
    pages = PageFileSource(str(path)).open(version)
    rows = [row for page in range(len(pages.starts) - 1) for row in pages.read(page, 1).to_pylist()]
    pages.close()
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: row["made"] for row in rows}


def _started(place: Path, modes: Sequence[str], start: int, script: Path = _SCRIPT) -> subprocess.Popen[bytes]:
    cores, partitions, memory = 1 + start % 3, (2, 1, 5, 3)[start % 4], MEMORIES[start % len(MEMORIES)]
    settings = json.dumps({"cores": cores, "partitions": partitions, "memory": memory})
    with (place / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(script), str(place), settings, *modes],
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip


def check(place: Path, mode: str, files: int = FILES) -> int:
    """Every row is there once, by the version logged for its micro-batch; how many versions there were."""
    entries = (place / mode / "versions").glob("*/*/[0-9]*.json")  # by store, query and micro-batch
    logged = {int(file.name.split(".")[0]): _generation(file) for file in entries}
    ids, used = Counter[int](), set[int]()
    for kept in (place / mode / "out").glob("*.parquet"):
        number = int(kept.stem)
        for row in parquet.read_table(kept).to_pylist():
            ids[row["id"]] += 1
            expected = logged[number] if row["k"] < KEYS else None
            assert row["made"] == expected, (mode, number, row, logged)
            used.add(logged[number])
    assert ids == Counter(range(files * ROWS))
    return len(used)


def repeated(place: Path, mode: str) -> int:
    """Micro-batches that Spark ran again after the sink had them."""
    return len(list((place / mode / "out").glob("*.again")))


def _generation(entry: Path) -> int:
    return int(json.loads(entry.read_text())["version"].split("-")[0]) - 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        chosen, files = sys.argv[2:] or list(MODES), FILES + 2 * int(sys.argv[1])
        killed = run_killed(Path(directory), int(sys.argv[1]), chosen, seed=int(time.time()), files=files)
        for mode in chosen:
            used = check(Path(directory), mode, files)
            again = repeated(Path(directory), mode)
            print(
                f"{killed} kills in mode {mode}: every row once, by its version; {used} versions were used, {again} "
                f"micro-batches ran again that the sink had"
            )
