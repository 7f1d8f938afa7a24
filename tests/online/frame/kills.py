"""Online joins of two and of three streams killed at random moments of each phase, and what must hold in the end.

`python -m tests.online.frame.kills 20` runs until each phase was hit by that many kills, or for as many seconds as a
second number says; names of phases after that choose some. Several queries run in one process, each at a step of its
own, so that a kill hits more than one; every third one joins three inputs. Every start has other cores, partitions and
budgets. The tests run it with one kill.
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
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.busy_machine import TooBusyError, clear_unbegun, raise_failure
from tests.online.frame.cases import Feed, answers, bag

_SCRIPT = Path(__file__).with_name("killed_query.py")
_STEPS = ("arriving", "reactive", "arriving", "reactive", "cleanup")
PHASES = ("arriving", "reactive", "cleanup")
_LONGEST_S = 300.0


class Life:
    """One query: the files that it is given step by step, until it has ended and its answer is right."""

    def __init__(self, place: Path, number: int, phases: Sequence[str]) -> None:
        self.place = place / f"life-{number}"
        self.place.mkdir(parents=True)
        self.feed, self.has_all, self.acted = Feed(self.place, rows=250), False, False
        if number % 3 == 2:
            self.feed.add_keys()
        self.step = _STEPS.index(phases[0]) if len(phases) == 1 else number % 2
        self.feed.add()
        self.feed.add()

    def act(self) -> None:
        """Give a file if this step is about one that arrives, and the last one if it is about the end."""
        self.acted = True
        phase = _STEPS[min(self.step, len(_STEPS) - 1)]
        if phase == "cleanup" and not self.has_all:
            self.feed.add(last=True)
            self.has_all = True
        elif phase == "arriving":
            self.feed.add()

    def logged(self, what: str) -> int:
        """Micro-batches that were begun (offsets) or finished (commits)."""
        log = self.place / "checkpoint" / what
        numbers = [int(entry.name) for entry in log.iterdir() if entry.name.isdigit()] if log.exists() else []
        return max(numbers, default=-1) + 1

    def hit(self) -> str | None:
        """What a micro-batch that was begun and not finished was about: new rows, none, or the last ones."""
        number = self.logged("offsets") - 1
        if number < self.logged("commits"):
            return None
        files, before = self._files(number), self._files(number - 1)
        if files == before:
            return "reactive"
        return "cleanup" if self.has_all and files == self.feed.files else "arriving"

    def _files(self, number: int) -> int:
        """How many files of both sides a micro-batch and those before it have read, the fewer of the two."""
        log = self.place / "checkpoint" / "offsets" / str(number)
        if number < 0 or not log.exists():
            return 0
        lines = [json.loads(line) if line.startswith("{") else {} for line in log.read_text().splitlines()[2:]]
        return min(int(line.get("logOffset", -1)) + 1 for line in lines[:2])  # a third input has one file

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
    """Kill and start again until `kills` kills have hit each of the phases, then let all end; kills by phase."""
    end = time.monotonic() + longest_s
    rng, hit, made = random.Random(seed), Counter[str](), lives  # noqa: S311  (moments, not secrets)
    alive = [Life(place, number, phases) for number in range(lives)]
    while any(hit[phase] < kills for phase in phases) and time.monotonic() < end:
        with contextlib.suppress(TooBusyError):
            hit.update(_killed_once(place, alive, owed, rng))
        print(f"so far: {dict(hit)}", file=sys.stderr)
        for at, life in enumerate(alive):
            life.step += life.acted
            life.acted = False
            if life.is_done:
                alive[at], made = Life(place, made, phases), made + 1
    while True:
        with contextlib.suppress(TooBusyError):
            _let_end(place, alive, owed, rng)
            return hit


def _killed_once(place: Path, alive: Sequence[Life], owed: str, rng: random.Random) -> Counter[str]:
    """The phases in which a kill has hit a micro-batch."""
    before = [life.logged("commits") for life in alive]
    query = _started(place, alive, owed, rng)
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
    return Counter(phase for life in alive if (phase := life.hit()) is not None)


def _let_end(place: Path, alive: Sequence[Life], owed: str, rng: random.Random) -> None:
    query = _started(place, alive, owed, rng)
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
            raise_failure(place / "log")
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _started(place: Path, alive: Sequence[Life], owed: str, rng: random.Random) -> subprocess.Popen[bytes]:
    changed = [str(rng.choice(some)) for some in ((1, 2, 3), (2, 3, 5), (1, 2, 20))]  # cores, partitions, memory
    (place / "started").unlink(missing_ok=True)
    for life in alive:
        clear_unbegun(life.place / "checkpoint")
    with (place / "log").open("ab") as log:
        query = subprocess.Popen(
            [sys.executable, str(_SCRIPT), str(place), owed, *changed, *(str(life.place) for life in alive)],
            stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])},
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
        chosen = sys.argv[3:] or PHASES
        found = run_killed(Path(directory), int(sys.argv[1]), chosen, seed=int(time.time()), longest_s=longest)
        print(f"kills by phase: {dict(found)}, {time.monotonic() - began:.0f} s: every pair once in every query")
