"""Parts of the cluster fail at random moments of a stream or a join; the answer is the same afterwards.

A run prints its seed: `CLUSTER_SEED=7 make cluster` has the faults at the same moments after each start. With
`CLUSTER_MOMENTS=20` there are as many of each fault.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pytest
from tests.cluster.hosts import WORKERS, in_switch
from tests.cluster.test_families import (
    BOUNDS,
    ENRICHED,
    LEFT,
    MASTER,
    ON,
    ONLINE,
    ORDERS,
    PAIRS,
    RIGHT,
    bag,
    drain,
    expected,
    frame,
    stream,
)

import dovetail
from dovetail.engine.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = int(os.environ.get("CLUSTER_SEED") or random.SystemRandom().randrange(10_000))
CHANCE = random.Random(SEED)
_CUT_S = 3.0
_FRESH_S = 0.5

Fault = Callable[[], str | None]
Run = Callable[["SparkSession", Remote], Any]


def processes(*words: str) -> list[psutil.Process]:
    """Processes of all hosts whose command has these words; the driver's own do not count."""
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if process.pid not in own and all(word in line for word in words):
            found.append(process)
    return sorted(found, key=lambda process: process.pid)


def kill_one(found: list[psutil.Process]) -> str | None:
    if not found:
        return None
    one = CHANCE.choice(found)
    try:
        one.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return None
    return f"process {one.pid} was killed"


def executor() -> str | None:
    """An executor is killed: the worker starts another, shuffle files and state of the first are gone."""
    return kill_one(processes("CoarseGrainedExecutorBackend"))


def python_worker() -> str | None:
    """A Python worker is killed in a task, or between tasks."""
    daemons = {process.pid for process in processes("dovetail.spark.daemon") if _parent(process) == "java"}
    children = [one for one in processes("dovetail.spark.daemon") if one.ppid() in daemons and not _is_leader(one)]
    return kill_one(children)


def resident_process() -> str | None:
    """The process that keeps running joins is killed."""
    daemons = {process.pid for process in processes("dovetail.spark.daemon") if _parent(process) == "java"}
    children = [one for one in processes("dovetail") if one.ppid() in daemons and _is_leader(one)]
    return kill_one(children)


def host_cut_off() -> str | None:
    """A worker host has no network for some seconds."""
    host = CHANCE.choice(WORKERS)
    in_switch("ip", "link", "set", "dev", host.name, "down")
    time.sleep(_CUT_S)
    in_switch("ip", "link", "set", "dev", host.name, "up")
    return f"{host.name} was cut off"


def shuffle_blocks() -> str | None:
    """Shuffle files that were just written are lost: tasks that fetch them fail, and the stage before runs again."""
    roots = [Path(f"/proc/{one.pid}/root/tmp") for one in processes("CoarseGrainedExecutorBackend")]
    written = [file for root in roots for file in root.glob("spark-*/executor-*/blockmgr-*/*/shuffle_*.data")]
    fresh = [file for file in written if file.exists() and time.time() - file.stat().st_mtime < _FRESH_S]
    for file in fresh:
        file.unlink(missing_ok=True)
    return f"{len(fresh)} shuffle files were deleted" if fresh else None


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
    """Has a fault happen at a random moment after the block has begun; `happened` says what did."""

    def __init__(self, fault: Fault, within_s: float) -> None:
        self.happened: list[str] = []
        self._over, self._fault, self._delay_s = threading.Event(), fault, CHANCE.uniform(0.0, within_s)
        self._thread = threading.Thread(target=self._wait_and_fail)

    def _wait_and_fail(self) -> None:
        self._over.wait(self._delay_s)
        while not self.happened and not self._over.wait(0.02):
            self.happened.extend(filter(None, [self._fault()]))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def online(spark: SparkSession, place: Remote) -> Any:
    left, right = stream(spark, place / "left", LEFT), stream(spark, place / "right", RIGHT)
    return drain(dovetail.online_join(left, right, on=ON, memory="4MB", retain="1 hour", owed="batch"), place)


def enriched(spark: SparkSession, place: Remote) -> Any:
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(place / "m.pages"), key="k")
    return drain(dovetail.enrich(stream(spark, place / "in", ORDERS), store, on="k", how="left", memory="4MB"), place)


def joined(spark: SparkSession, _: Remote) -> Any:
    left, right = frame(spark, LEFT), frame(spark, RIGHT)
    return dovetail.interval_join(left, right, on=ON, memory="4MB", algorithm="dip", **BOUNDS)


RUNS: dict[Run, tuple[Any, float]] = {online: (ONLINE, 6.0), enriched: (ENRICHED, 2.0), joined: (expected(PAIRS), 0.5)}
"""Each with its answer, and the seconds in which a fault surely meets it."""
FAULTS: dict[Fault, tuple[Run, ...]] = {
    executor: (online, enriched, joined),
    python_worker: (online, enriched, joined),
    resident_process: (online,),  # others have nothing there
    host_cut_off: (online, enriched, joined),
    shuffle_blocks: (online, joined),
}


@pytest.mark.parametrize("moment", range(int(os.environ.get("CLUSTER_MOMENTS", "1"))))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_answer_is_the_same(
    spark: SparkSession, shared: Remote, capsys: pytest.CaptureFixture[str], fault: Fault, moment: int
) -> None:
    run = CHANCE.choice(FAULTS[fault])
    answer, within_s = RUNS[run]
    for attempt in range(5):  # a run may be over before its moment
        place = shared / str(attempt)
        with Failing(fault, within_s / 2**attempt) as failing:
            found = bag(run(spark, place))
        assert found == answer
        if failing.happened:
            break
    with capsys.disabled():
        print(f"\nCLUSTER_SEED={SEED}, {run.__name__}, moment {moment}: {failing.happened[0]}")
