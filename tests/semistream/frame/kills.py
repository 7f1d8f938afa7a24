"""The query killed at random moments while its master data changes, and what must hold in the end.

`python -m tests.semistream.frame.kills 20` runs it with that many kills; the tests run it with few.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from tests.semistream.frame.cases import drop_file, page_store

FILES, ROWS, KEYS = 6, 200, 90
_SCRIPT = Path(__file__).with_name("killed_query.py")


def prepare(place: Path) -> None:
    """Input files, and the first generation of the master data."""
    build(place, 0)
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        drop_file(place / "in", pa.table({"id": list(rows), "k": [n * 13 % (KEYS + 10) for n in rows]}), number)


def build(place: Path, generation: int) -> None:
    """A generation in which every row tells its number."""
    page_store(place / "m.pages", pa.table({"k": list(range(KEYS)), "made": [generation] * KEYS}))


def run_killed(place: Path, kills: int, mode: str, seed: int = 0, longest_s: float = 5.0) -> int:
    """Start, kill and start again, master data changing all the while, until it may finish; kills that were made."""
    prepare(place)
    rng, generation, killed = random.Random(seed), 0, 0  # noqa: S311  (moments, not secrets)
    while True:
        (place / "started").unlink(missing_ok=True)
        query = _started(place, mode)
        end = None
        while query.poll() is None:
            generation += 1
            build(place, generation)
            time.sleep(0.15)
            if end is None and (place / "started").exists() and killed < kills:
                end = time.monotonic() + rng.uniform(0.0, longest_s)
            if end is not None and time.monotonic() > end:
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                killed += 1
                break
        else:
            if query.returncode:
                raise AssertionError((place / "log").read_text()[-3000:])
            return killed


def _started(place: Path, mode: str) -> subprocess.Popen[bytes]:
    with (place / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(place), mode],
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip


def check(place: Path) -> int:
    """Every row is there once, and those of one micro-batch by its logged version; how many versions there were."""
    log = next(iter((place / "versions").iterdir()))
    logged = {f.name.split(".")[0]: int(json.loads(f.read_text())["version"].split("-")[0]) - 1 for f in log.iterdir()}
    files = _committed(place)
    found = pa.concat_tables([parquet.read_table(file) for file in files])
    ids = Counter(found["id"].to_pylist())
    assert ids == Counter(range(FILES * ROWS))
    per_batch: dict[int, set[int]] = {}
    for row in found.to_pylist():
        expected_match = row["k"] < KEYS
        assert (row["made"] is not None) == expected_match, row
        if expected_match:
            per_batch.setdefault(row["id"] // ROWS, set()).add(row["made"])
    assert all(made <= set(logged.values()) for made in per_batch.values())
    assert sorted(per_batch) == list(range(FILES))
    if not (place / "checkpoint" / "state").exists():
        assert per_batch == {int(batch): {made} for batch, made in logged.items()}
    return len(set(logged.values()))


def _committed(place: Path) -> list[str]:
    """Files that Spark's sink counts; a killed attempt leaves others."""
    listed: set[str] = set()
    for entry in (place / "out" / "_spark_metadata").iterdir():
        if not entry.name.startswith("."):
            lines = entry.read_text().splitlines()[1:]
            listed |= {json.loads(line)["path"].removeprefix("file://") for line in lines}
    return sorted(listed)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        chosen = sys.argv[2] if len(sys.argv) > 2 else "per_batch"
        killed = run_killed(Path(directory), int(sys.argv[1]), chosen, seed=int(time.time()))
        print(f"{killed} kills in mode {chosen}: every row once; {check(Path(directory))} versions were used")
