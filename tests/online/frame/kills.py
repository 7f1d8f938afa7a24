"""Online joins of two streams killed at random moments of each phase, and what must hold in the end.

`python -m tests.online.frame.kills 20` runs until each phase was hit by that many kills, or for as many seconds as a
second number says. Several queries run in one process, each in a phase of its own, so that a kill hits more
than one. The tests run it with one kill.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.online.frame.cases import Feed, answers, bag

_SCRIPT = Path(__file__).with_name("killed_query.py")
_STEPS = ("arriving", "reactive", "arriving", "reactive", "cleanup")
PHASES = ("arriving", "reactive", "cleanup")
_LONGEST_S = 90.0


class Life:
    """One query: the files that it is given step by step, until it has ended and its answer is right."""

    def __init__(self, place: Path, number: int) -> None:
        self.place = place / f"life-{number}"
        self.place.mkdir(parents=True)
        self.feed, self.step, self.acted = Feed(self.place, rows=250), number % 2, False
        self.feed.add()

    @property
    def phase(self) -> str:
        """What this step is about."""
        return _STEPS[min(self.step, len(_STEPS) - 1)]

    @property
    def has_all(self) -> bool:
        """Whether the last file was given."""
        return self.feed.files > _STEPS.count("arriving") + 1

    def act(self) -> None:
        """Give a file if this step is about one that arrives, and the last one if it is about the end."""
        self.acted = True
        if self.phase == "arriving":
            self.feed.add()
        elif self.phase == "cleanup" and not self.has_all:
            while self.feed.files <= _STEPS.count("arriving"):
                self.feed.add()
            self.feed.add(last=True)

    def logged(self, what: str) -> int:
        """Micro-batches that were begun (offsets) or finished (commits)."""
        log = self.place / "checkpoint" / what
        return sum(entry.name.isdigit() for entry in log.iterdir()) if log.exists() else 0

    @property
    def is_busy(self) -> bool:
        """Whether a micro-batch is under way."""
        return self.logged("offsets") > self.logged("commits")

    @property
    def is_done(self) -> bool:
        """Whether everything is there; an error if there is more or something else."""
        if not self.has_all:
            return False
        found, wanted = bag(answers(self.place)), self.feed.expected
        assert not found - wanted, f"{(found - wanted).total()} pairs too many in {self.place}"
        return found == wanted


def run_killed(
    place: Path,
    kills: int,
    phases: Sequence[str] = PHASES,
    owed: str = "idle",
    lives: int = 3,
    seed: int = 0,
    longest_s: float = 3600.0,
) -> Counter[str]:
    """Kill and start again until each of the phases was hit by so many kills, then let all end; kills by phase."""
    end = time.monotonic() + longest_s
    rng, hit, made = random.Random(seed), Counter[str](), lives  # noqa: S311  (moments, not secrets)
    alive = [Life(place, number) for number in range(lives)]
    while any(hit[phase] < kills for phase in phases) and time.monotonic() < end:
        hit.update(_killed_once(place, alive, owed, rng))
        print(f"so far: {dict(hit)}", file=sys.stderr)
        for at, life in enumerate(alive):
            life.step += life.acted
            life.acted = False
            if life.is_done:
                alive[at], made = Life(place, made), made + 1
    _let_end(place, alive, owed)
    return hit


def _killed_once(place: Path, alive: Sequence[Life], owed: str, rng: random.Random) -> Counter[str]:
    """The phases in which a kill has hit a micro-batch."""
    before = [life.logged("commits") for life in alive]
    query = _started(place, alive, owed)
    try:
        if rng.random() < 0.2:  # while what the last kill has hit is done again
            time.sleep(rng.uniform(0.0, 8.0))
        else:
            _wait(lambda: all(life.logged("commits") > n for life, n in zip(alive, before, strict=True)), query, place)
            begun = [life.logged("offsets") for life in alive]
            for life in alive:
                life.act()
            target = rng.randrange(len(alive))
            _wait(lambda: alive[target].logged("offsets") > begun[target], query, place, 15.0)
            time.sleep(rng.uniform(0.0, 1.0))
    finally:
        _kill(query)
    return Counter(life.phase for life in alive if life.is_busy)


def _let_end(place: Path, alive: Sequence[Life], owed: str) -> None:
    query = _started(place, alive, owed)
    try:
        for life in alive:
            life.step = len(_STEPS)
            life.act()
        done = _wait(lambda: all(life.is_done for life in alive), query, place)
        assert done, [(str(life.place), len(answers(life.place)), life.feed.expected.total()) for life in alive]
    finally:
        _kill(query)


def _kill(query: subprocess.Popen[bytes]) -> None:
    """The process and all that it has started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(query.pid, signal.SIGKILL)
    query.wait()


def _wait(
    until: Callable[[], bool], query: subprocess.Popen[bytes], place: Path, longest_s: float = _LONGEST_S
) -> bool:
    """Whether it has come to that in time; an error if the process has ended by itself."""
    end = time.monotonic() + longest_s
    while not until():
        if query.poll() is not None:
            raise AssertionError((place / "log").read_text()[-3000:])
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _started(place: Path, alive: Sequence[Life], owed: str) -> subprocess.Popen[bytes]:
    (place / "started").unlink(missing_ok=True)
    with (place / "log").open("ab") as log:
        query = subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(place), owed, *(str(life.place) for life in alive)],
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        )  # fmt: skip
    try:
        assert _wait((place / "started").exists, query, place)
    except BaseException:
        _kill(query)
        raise
    return query


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        longest, began = float(sys.argv[2]) if len(sys.argv) > 2 else 3600.0, time.monotonic()
        found = run_killed(Path(directory), int(sys.argv[1]), seed=int(time.time()), longest_s=longest)
        print(f"kills by phase: {dict(found)}, {time.monotonic() - began:.0f} s: every pair once in every query")
