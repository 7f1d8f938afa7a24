"""Parts of the cluster fail at random moments: processes killed or stopped, hosts cut off, files and stores gone."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil
from pyspark.sql import SparkSession
from tests.cluster import store
from tests.cluster.hosts import WORKERS, in_switch

SEED = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(10_000))
CHANCE = random.Random(SEED)
MOMENTS = int(os.environ.get("CLUSTER_MOMENTS", "1"))
"""Of each fault."""
REFUSED_S = float(os.environ.get("CLUSTER_REFUSED_S", "30"))
CUT_S = float(os.environ.get("CLUSTERCUT_S", "3"))
_STOPPED_S, _FRESH_S = 15.0, 0.5

Fault = Callable[[], str | None]
"""Has something fail, and says what; None if there is nothing to fail at this moment."""


def executor() -> str | None:
    """An executor is killed: the worker starts another, shuffle files and state of the first are gone."""
    return _signalled(_processes("CoarseGrainedExecutorBackend"), signal.SIGKILL)


def python_worker() -> str | None:
    """A Python worker is killed in a task, or between tasks."""
    return _signalled(_python_workers(), signal.SIGKILL)


def resident_process() -> str | None:
    """The process that keeps running joins is killed."""
    daemons = _daemons()
    children = [one for one in _processes("dovetail") if one.ppid() in daemons and _is_leader(one)]
    return _signalled(children, signal.SIGKILL)


def slow_worker(speculated: Callable[[], int]) -> str | None:
    """A Python worker stands still until its task has a second attempt elsewhere, and then goes on beside that."""
    found, before, end = _python_workers(), speculated(), time.monotonic() + _STOPPED_S
    one = CHANCE.choice(found) if found else None
    if one is None or _signalled([one], signal.SIGSTOP) is None:
        return None
    while speculated() == before and time.monotonic() < end:
        time.sleep(0.02)
    n = speculated() - before
    _signalled([one], signal.SIGCONT)
    if n == 0:
        time.sleep(1.0)  # its task gets on
        return None
    return f"process {one.pid} stood still, and {n} tasks were speculated"


def host_cut_off() -> str | None:
    """A worker host has no network for some seconds."""
    host = CHANCE.choice(WORKERS)
    in_switch("ip", "link", "set", "dev", host.name, "down")
    time.sleep(CUT_S)
    in_switch("ip", "link", "set", "dev", host.name, "up")
    return f"{host.name} was cut off for {CUT_S:.0f} s"


def shuffle_blocks() -> str | None:
    """Shuffle files that were just written are lost: tasks that fetch them fail, and the stage before runs again."""
    roots = [Path(f"/proc/{one.pid}/root/tmp") for one in _processes("CoarseGrainedExecutorBackend")]
    written = [file for root in roots for file in root.glob("spark-*/executor-*/blockmgr-*/*/shuffle_*.data")]
    fresh = [file for file in written if file.exists() and time.time() - file.stat().st_mtime < _FRESH_S]
    for file in fresh:
        file.unlink(missing_ok=True)
    return f"{len(fresh)} shuffle files were deleted" if fresh else None


def store_refuses() -> str | None:
    """The object store answers nothing but 503 for a while."""
    store.refuse(REFUSED_S)
    return f"the store refused for {REFUSED_S:.0f} s"


def _processes(*words: str) -> list[psutil.Process]:
    """Processes of all hosts whose command has these words; the driver's own do not count."""
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.pid not in own and all(word in line for word in words):
            found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _python_workers() -> list[psutil.Process]:
    daemons = _daemons()
    return [one for one in _processes("dovetail.spark.daemon") if one.ppid() in daemons and not _is_leader(one)]


def _daemons() -> set[int]:
    return {process.pid for process in _processes("dovetail.spark.daemon") if _parent(process) == "java"}


def _signalled(found: list[psutil.Process], number: signal.Signals) -> str | None:
    if not found:
        return None
    one = CHANCE.choice(found)
    try:
        one.send_signal(number)
    except psutil.NoSuchProcess:
        return None
    return f"process {one.pid} got {number.name}"


def _parent(process: psutil.Process) -> str:
    try:
        return str(process.parent().name()) if process.parent() else ""
    except psutil.NoSuchProcess:
        return ""


def _is_leader(process: psutil.Process) -> bool:
    """Whether a process has a session of its own, as the resident process has."""
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False


class Failing:
    """Has a fault happen at random moments while queries of the block run; `happened` says what did, and when.

    Pauses between moments are at most `within_s` seconds. A moment counts only if a stream or a stage was running.
    """

    def __init__(self, spark: SparkSession, fault: Fault, moments: int, within_s: float) -> None:
        self.happened: list[str] = []
        self._spark, self._fault, self._moments, self._within_s = spark, fault, moments, within_s
        self._over, self._thread = threading.Event(), threading.Thread(target=self._fail_at_moments)

    def _fail_at_moments(self) -> None:
        begun, pause_s = time.monotonic(), CHANCE.uniform(0.0, self._within_s)
        while len(self.happened) < self._moments and not self._over.wait(pause_s):
            at, told = time.monotonic() - begun, self._fault() if self._is_working() else None
            if told is not None:
                self.happened.append(f"after {at:.1f} s {told}")
            pause_s = 0.02 if told is None else CHANCE.uniform(0.0, self._within_s)

    def _is_working(self) -> bool:
        return bool(self._spark.streams.active) or bool(self._spark.sparkContext.statusTracker().getActiveStageIds())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
