"""Parts of the cluster fail at random moments of a stream or a join; the answer is the same afterwards.

A run prints its seed: `CLUSTER_SEED=7 make cluster` has the faults at the same moments after each start. With
`CLUSTER_MOMENTS=20` there are as many of each fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests import oracle
from tests.cluster.faults import (
    CHANCE,
    MOMENTS,
    SEED,
    Failing,
    Fault,
    by_hand,
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
from dovetail.engine.remote import Remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[["SparkSession", Remote], Any]


def online(spark: SparkSession, place: Remote) -> Any:
    """Two streams, their state and checkpoint, and the files that Spark writes."""
    left, right = stream(spark, place / "left", LEFT), stream(spark, place / "right", RIGHT)
    return bag(drain(dovetail.online_join(left, right, on=ON, memory="4MB", retain="1 hour", owed="batch"), place))


def enriched(spark: SparkSession, place: Remote) -> Any:
    """A page file is built, and a stream keeps the log of its versions."""
    store = dovetail.MasterStore.build(frame(spark, MASTER), str(place / "m.pages"), key="k")
    rows = stream(spark, place / "in", ORDERS)
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.__name__) for fault in FAULTS],
)
def test_the_answer_is_the_same(
    spark: SparkSession, shared: Remote, capsys: pytest.CaptureFixture[str], fault: Fault, moment: int
) -> None:
    told = meet(spark, shared, fault, CHANCE.choice(FAULTS[fault]))
    with capsys.disabled():
        print(f"\nCLUSTER_SEED={SEED}, moment {moment}: {told}")


def meet(spark: SparkSession, shared: Remote, fault: Fault, run: Run) -> str:
    """Run until the fault meets it, and compare its answers; what happened."""
    answer, within_s = RUNS[run]
    for attempt in range(5):  # a run may be over before its moment
        with Failing(fault, within_s / 2**attempt) as failing:
            found = run(spark, shared / str(attempt))
        assert found == answer, (run.__name__, failing.happened)
        if failing.happened:
            return f"{run.__name__}: {failing.happened[0]}"
    pytest.fail(f"{fault.__name__} did not meet {run.__name__} in 5 runs")


@pytest.fixture
def speculation(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """Second attempts of tasks that run for a second; gives the number of those that there were."""
    context: Any = spark.sparkContext._jsc
    conf, scheduler, stages = context.sc().conf(), context.sc().dagScheduler(), context.sc().statusStore()
    first, usual = int(scheduler.nextStageId()), conf.get(MIN_RUNTIME)
    conf.set(MIN_RUNTIME, "1s")

    def seen() -> int:
        found = [stages.speculationSummary(at, 0) for at in range(first, int(scheduler.nextStageId()))]
        return sum(one.get().numTasks() for one in found if one.isDefined())

    yield seen
    conf.set(MIN_RUNTIME, usual)


MIN_RUNTIME = "spark.speculation.minTaskRuntime"


@by_hand
@pytest.mark.timeout(300)
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_both_attempts_of_a_speculated_task_write(
    spark: SparkSession,
    shared: Remote,
    speculation: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
    moment: int,
) -> None:
    """A task stands still, its second attempt runs elsewhere, then the first goes on: nothing is doubled."""
    told = []
    for attempt in range(4):
        told.append(meet(spark, shared / f"s{attempt}", slow_worker, CHANCE.choice((lettered, enriched, written))))
        if speculation():
            break
    assert speculation(), f"no task was speculated: {told}"
    with capsys.disabled():
        print(f"\nCLUSTER_SEED={SEED}, moment {moment}: {'; '.join(told)}; {speculation()} speculated")
