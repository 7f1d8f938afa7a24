"""Parts of the cluster fail at random moments of a stream or a join; the answer is the same afterwards.

A run prints its seed, which `CLUSTER_SEED` sets. With `CLUSTER_MOMENTS=20` there are as many of each fault: joins and
streams run in turn until all have happened, several in each, and every answer is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle
from tests.cluster.faults import (
    CHANCE,
    MOMENTS,
    SEED,
    Failing,
    Fault,
    executor,
    host_cut_off,
    python_worker,
    resident_process,
    shuffle_blocks,
    slow_worker,
    store_refuses,
)
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
from dovetail.engine.storage.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[["SparkSession", Remote], Any]
PARTS = 2 if MOMENTS == 1 else 6
"""Micro-batches of a stream."""
MOST = 4
"""Moments in one run, so that many moments meet every kind of run."""


def online(spark: SparkSession, place: Remote) -> Any:
    """Two streams, their state and checkpoint, and the files that Spark writes."""
    left, right = (stream(spark, place / name, rows, PARTS) for name, rows in (("left", LEFT), ("right", RIGHT)))
    return bag(drain(dovetail.online_join(left, right, on=ON, memory="4MB", retain="1 hour", owed="batch"), place))


def enriched(spark: SparkSession, place: Remote) -> Any:
    """A page file is built, and a stream keeps the log of its versions."""
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(place / "m.pages"), key="k")
    rows = stream(spark, place / "in", ORDERS, PARTS)
    return bag(drain(dovetail.enrich(rows, store, on="k", how="left", memory="4MB"), place))


def lettered(spark: SparkSession, place: Remote) -> Any:
    """A page file is built; rows without a match are dead letters, which tasks write."""
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(place / "m.pages"), key="k")
    misses = dovetail.dead_letter(str(place / "letters"))
    found = dovetail.enrich(frame(spark, ORDERS), store, on="k", memory="4MB", on_miss=misses)
    return bag(found), bag(spark.read.parquet(str(place / "letters")).select("order", "k"))


def joined(spark: SparkSession, _: Remote) -> Any:
    """A batch with exchanges of both sides."""
    left, right = frame(spark, LEFT), frame(spark, RIGHT)
    return bag(dovetail.interval_join(left, right, on=ON, memory="4MB", algorithm="dip", **BOUNDS))


def written(spark: SparkSession, place: Remote) -> Any:
    """Tasks write the files of an answer themselves."""
    plan = dovetail.plan_interval_join(frame(spark, LEFT), frame(spark, RIGHT), on=ON, **BOUNDS)
    plan.write_parquet(str(place / "out"))
    return bag(spark.read.parquet(str(place / "out")))


KNOWN = {row["k"] for row in MASTER}
LETTERS = oracle.bag(tuple(row.values()) for row in ORDERS if row["k"] not in KNOWN)
MATCHED = oracle.bag((row["order"], row["k"], row["k"] * 7) for row in ORDERS if row["k"] in KNOWN)
RUNS: dict[Run, tuple[Any, float]] = {
    online: (ONLINE, 6.0),
    enriched: (ENRICHED, 2.0),
    lettered: ((MATCHED, LETTERS), 2.0),
    joined: (expected(PAIRS), 0.5),
    written: (expected(PAIRS), 0.5),
}
"""Each with its answer, and the seconds in which a fault surely meets it."""
FAULTS: dict[Fault, tuple[Run, ...]] = {
    executor: tuple(RUNS),
    python_worker: tuple(RUNS),
    resident_process: (online,),  # others have nothing there
    host_cut_off: tuple(RUNS),
    shuffle_blocks: (online, joined),
    store_refuses: (online, enriched, lettered, written),
}


@pytest.mark.timeout(240 + 60 * MOMENTS)
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.__name__) for fault in FAULTS])
def test_the_answer_is_the_same(
    spark: SparkSession, shared: Remote, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    meet(spark, shared, fault, FAULTS[fault], capsys)


def meet(
    spark: SparkSession, shared: Remote, fault: Fault, runs: tuple[Run, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Have all moments of a fault meet the runs in turn, and compare every answer."""
    first, lacking, missed = CHANCE.randrange(len(runs)), MOMENTS, 0
    for at in count():
        run = runs[(first + at) % len(runs)]
        answer, within_s = RUNS[run]
        with Failing(spark, fault, min(MOST, lacking), within_s / 2**missed) as failing:
            found = run(spark, shared / str(at))
        assert found == answer, (run.__name__, failing.happened)
        lacking, missed = lacking - len(failing.happened), 0 if failing.happened else missed + 1
        with capsys.disabled():
            print(f"\nCLUSTER_SEED={SEED}, {lacking} to go, {run.__name__}: {'; '.join(failing.happened)}", flush=True)
        if not lacking:
            return
        assert missed < 2 * len(runs), "the fault met none of the runs"


SPECULATION = {"spark.speculation.multiplier": "1.1", "spark.speculation.task.duration.threshold": "1s"}
"""Every stage reads these again; the second is for stages of one task."""


@pytest.fixture
def speculation(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Second attempts of tasks that run for a second; gives the number of those that there were."""
    context: Any = spark.sparkContext._jsc
    conf, scheduler, stages = context.sc().conf(), context.sc().dagScheduler(), context.sc().statusStore()
    counted, usual = {int(scheduler.nextStageId()): 0}, {key: conf.get(key, "1h") for key in SPECULATION}
    for key, value in SPECULATION.items():
        conf.set(key, value)

    def seen() -> int:
        for at in range(max(counted) - 5, int(scheduler.nextStageId())):  # older stages are over
            found = stages.speculationSummary(at, 0)
            counted[at] = found.get().numTasks() if found.isDefined() else 0
        return sum(counted.values())

    yield seen
    for key, value in usual.items():
        conf.set(key, value)


@pytest.mark.timeout(240 + 60 * MOMENTS)
def test_both_attempts_of_a_speculated_task_run(
    spark: SparkSession, shared: Remote, speculation: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A task stands still until its second attempt runs elsewhere, then goes on beside it: nothing is doubled."""
    meet(spark, shared, partial(slow_worker, speculation), tuple(RUNS), capsys)
