"""An online join of two streams killed at random moments of its phases, and what must hold in the end.

`python -m tests.online.frame.kills 20` runs it with that many kills; the tests run it with one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.online.frame.cases import Feed, answers, bag

_SCRIPT = Path(__file__).with_name("killed_query.py")


def run_killed(place: Path, kills: int, owed: str = "idle", seed: int = 0, longest_s: float = 5.0) -> Counter[str]:
    """Start, kill and start again until it may finish; for each kill the phases that had given answers.

    Files come while the query runs, so that there are pauses between them. A kill comes some time after the start, or
    after the first micro-batch since the start. One kill more comes soon after the last file, in the clean-up; a query
    that is faster than that has ended before it.
    """
    feed, rng = Feed(place, rows=250), random.Random(seed)  # noqa: S311  (moments, not secrets)
    whole, killed, hit = _planned(place), 0, Counter[str]()
    feed.add()
    while True:
        (place / "started").unlink(missing_ok=True)
        done, early = _commits(place), rng.random() < 0.25
        query = _started(place, owed, whole)
        end, fed = None, time.monotonic()
        while query.poll() is None:
            time.sleep(0.1)
            if (place / "started").exists():
                if end is None and killed < kills and (early or _commits(place) > done):
                    end = time.monotonic() + rng.uniform(0.0, longest_s)
                if _may_feed(feed.files, killed, kills) and time.monotonic() - fed > 2.0:
                    fed = time.monotonic()
                    feed.add(last=feed.files == _FILES - 1)
                    end = fed + rng.uniform(0.0, 3.0) if feed.files == _FILES else end
            if end is not None and time.monotonic() > end:
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                killed += 1
                hit.update({row["_phase"] for row in answers(place)} or {"none yet"})
                break
        else:
            if query.returncode:
                raise AssertionError((place / "log").read_text()[-3000:])
            break
    assert bag(answers(place)) == feed.expected
    assert killed >= kills
    return hit


def _may_feed(files: int, killed: int, kills: int) -> bool:
    """Files are spread over the kills, the last one comes after all of them."""
    return files < _FILES and killed * (_FILES - 1) >= files * kills


def _commits(place: Path) -> int:
    commits = place / "checkpoint" / "commits"
    return len(list(commits.iterdir())) if commits.exists() else 0


_FILES = 5


def _planned(place: Path) -> int:
    """How many rows the whole answer has."""
    with tempfile.TemporaryDirectory(dir=place) as aside:
        feed = Feed(Path(aside), rows=250)
        for _ in range(_FILES):
            feed.add()
        return feed.expected.total()


def _started(place: Path, owed: str, whole: int) -> subprocess.Popen[bytes]:
    with (place / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(place), owed, str(whole)],
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        chosen = sys.argv[2] if len(sys.argv) > 2 else "idle"
        began = time.monotonic()
        found = run_killed(Path(directory), int(sys.argv[1]), chosen, seed=int(time.time()))
        print(f"{sys.argv[1]} kills, owed={chosen}, {time.monotonic() - began:.0f} s: every pair once; phases: {found}")
