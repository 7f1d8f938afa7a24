"""Outer, semi and anti joins of a bucket as Spark runs it, without a JVM: every row answered once, whatever happens."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.online.frame.test_online_long import BUCKET, HEADER, Kept
from tests.oracle import bag, online_join

from dovetail.engine.rows.layout import How
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.interval.relation import Relation
from dovetail.joins.online.answers import PHASE_COLUMN
from dovetail.joins.online.bucket_join import BucketJoin, Pair
from dovetail.joins.online.bucket_state import Span
from dovetail.joins.online.graph import SIDES, Band, Predicate, pair_graph
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.lateness import Lateness, lateness_of
from dovetail.joins.online.plan.batch_task import join_buckets
from dovetail.joins.online.plan.buckets import OnlineBuckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import Algorithm, Terms
from dovetail.joins.online.unmatched import ChunkFile, RowBits
from dovetail.spark.hosts.exchange import Packet
from dovetail.spark.hosts.resident import client
from dovetail.spark.hosts.stateful import Buckets

OUTER = tuple(how for how in get_args(How) if how != "inner")
ALGORITHMS = tuple(name for name in get_args(Algorithm) if name != "auto")
SCHEMAS = [pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), (name, pa.int64())]) for name in "ab"]
BAND = Band("at", "at", timedelta(seconds=-3), timedelta(seconds=5))
Row = dict[str, Any]


def at(seconds: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def ms(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1000)


def bucket_join(
    how: str, algorithm: str = "diner", memory: int = 1 << 20, within: Band | None = None, with_phase: bool = False
) -> BucketJoin:
    pair = Pair(("k",), within, how=how)  # type: ignore[arg-type]  # one of them
    return BucketJoin(algorithm, pair, memory, with_phase, tuple(zip(SIDES, SCHEMAS, strict=True)))


def least_memory(how: str, algorithm: str, within: Band | None = None) -> int:
    """The smallest legal budget."""
    with pytest.raises(PlanError, match="the smallest for this join is") as error:
        bucket_join(how, algorithm, 1, within).open()
    return int(str(error.value).split("the smallest for this join is ")[1].split()[0])


def output_of(join: BucketJoin) -> pa.Schema:
    """The columns of the answer: k, at, a, and right's, if there are any."""
    spec = join.spec()
    fields = list(spec.answer(join.schemas).schema)[: None if join.pair.how not in ("left_semi", "left_anti") else 3]
    if join.with_phase and fields[-1].name != PHASE_COLUMN:
        fields.append(pa.field(PHASE_COLUMN, pa.string()))
    return pa.schema([f.with_nullable(True) for f in fields])


def task_of(join: BucketJoin, owed: str, retain_ms: int | None, lateness: Lateness | None, name: str) -> OnlineTask:
    terms = Terms(join.algorithm, join.memory, 1, 25, owed, retain_ms, False)  # type: ignore[arg-type]  # one of two
    answers, output = join.spec().answer(join.stored).schema, output_of(join)
    return OnlineTask(name, join, terms, 1, False, answers, output, Kept(), lateness)  # type: ignore[arg-type]  # `task` is all it needs


def expected(left: list[Row], right: list[Row], how: str, within: Band | None = None) -> Counter[Any]:
    """(k, a, b) of the join of all rows; (k, a) of a semi or anti join."""
    band = None if within is None else (within.left, within.right, within.lo, within.hi)
    pairs = online_join(left, right, [("k", "k")], band, how)
    if how in ("left_semi", "left_anti"):
        return bag((a["k"], a["a"]) for a, _ in pairs if a is not None)
    return bag(((a or b or {})["k"], None if a is None else a["a"], None if b is None else b["b"]) for a, b in pairs)


def found(answers: list[Row]) -> Counter[Any]:
    return bag(tuple(row[name] for name in ("k", "a", "b") if name in row) for row in answers)


def rows_of(
    rng: np.random.Generator, side: int, n: int, first: int, keys: int, times: tuple[float, float], nulls: float = 0.05
) -> list[Row]:
    """Rows with skewed keys, some of them null, numbered from `first` on."""
    numbers = rng.integers(0, keys, n) if side else rng.zipf(1.6, n) % keys
    return [
        {
            "k": None if rng.random() < nulls else int(k),
            "at": None if rng.random() < nulls else at(float(rng.uniform(*times))),
            "ab"[side]: first + number,
        }
        for number, k in enumerate(numbers)
    ]


@dataclass
class Query:
    """One bucket of a query: micro-batches are tried, lost and tried again; the sink takes the answers of each once."""

    join: BucketJoin
    owed: str
    retain_ms: int | None = None
    lateness: Lateness | None = None
    stored: dict[Any, Any] = field(default_factory=dict)
    answers: list[Row] = field(default_factory=list)
    came: tuple[list[Row], list[Row]] = ([], [])
    most: int = 0
    watermark_ms: int = 0

    def __post_init__(self) -> None:
        self.came = ([], [])

    def tester(self, number: int) -> tuple[TwsTester, Any]:
        task = task_of(self.join, self.owed, self.retain_ms, self.lateness, f"outer {number}")
        mode = "EventTime" if task.wakes == "by watermark" else "ProcessingTime"
        never_late = (lambda _: 1 << 62) if mode == "EventTime" else None  # rows are packed: Spark sees no time
        processor = Buckets(OnlineBuckets(task))
        buckets = TwsTester(processor, timeMode=mode, outputMode="Append", eventTimeExtractor=never_late)
        if self.stored:
            buckets.updateMapState("events", BUCKET, dict(self.stored))
            timer = json.loads(self.stored[HEADER][0])["timer"]
            if timer is not None:
                buckets.handle._timers.registerTimer(BUCKET, timer)
        if mode == "EventTime":
            buckets._currentWatermarkMs = self.watermark_ms
            buckets.handle.setWatermark(self.watermark_ms)
        return buckets, task

    def batch(
        self, number: int, rows: list[tuple[int, list[Row]]], now_ms: int, tries: int = 1, ends: bool = False
    ) -> None:
        """A micro-batch of chunks of rows; of several attempts the sink has the first, and the last is committed."""
        for side, some in rows:
            self.came[side].extend(some)
        lines = [
            {"side": side, "part": 0, "number": at, "n": len(some), "ends": False,
             "rows": pa.RecordBatch.from_pylist(some, self.join.inputs[side][1]).serialize().to_pybytes()}
            for at, (side, some) in enumerate(rows) if some
        ]  # fmt: skip
        lines += [{"side": s, "part": 0, "number": 99, "n": 0, "ends": ends, "rows": None} for s in (0, 1)]
        frame = pd.DataFrame(lines).assign(dropped=0, now_ms=now_ms, rule='{"buckets": 1}')
        self._tried(number, lambda buckets: buckets.testInPandas(BUCKET, frame), tries)

    def fire(self, number: int, now_ms: int) -> list[Row]:
        """A micro-batch without rows in which timers fire."""

        def fire(buckets: TwsTester) -> Any:
            if buckets._timeMode == "eventtime":
                return buckets._handleExpiredTimers()
            return buckets.setProcessingTime(now_ms)

        before = len(self.answers)
        self._tried(number, fire, 1)
        return self.answers[before:]

    def _tried(self, number: int, call: Any, tries: int) -> None:
        for attempt in range(tries):
            buckets, task = self.tester(number)
            if attempt:
                client._POOL.close()
            out = call(buckets)
            frames = out if isinstance(out, list) else [out] if len(out) else []
            if attempt == 0:
                for data in (some for frame in frames for some in frame["rows"]):
                    self.answers += pa.ipc.read_record_batch(pa.py_buffer(data), task.output).to_pylist()
            stored = buckets.peekMapState("events", BUCKET)
            self.most = max(self.most, self.join.memory)  # a former budget holds until nothing is owed
            assert task.sink.metrics.value("memory_peak") <= self.most
        self.stored = stored

    def check(self, within: Band | None = None) -> None:
        """Exactly the join of all rows that came."""
        wanted, got = expected(*self.came, self.join.pair.how, within), found(self.answers)
        assert got == wanted, (f"missing {wanted - got}", f"extra {got - wanted}")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("how", OUTER)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_all_rows_once_under_restarts_other_budgets_and_lost_attempts(how: str, algorithm: str, owed: str) -> None:
    """Micro-batches of any size; budgets from the smallest legal one on; attempts are lost and repeated."""
    least = least_memory(how, algorithm)
    for seed in range(2):
        rng = np.random.default_rng([seed, OUTER.index(how), ALGORITHMS.index(algorithm)])
        memory = (1 << 20) if algorithm == "shj" else int(least * rng.choice([3, 6, 16]))
        query, counts = Query(bucket_join(how, algorithm, memory), owed), [0, 0]
        for number in range(8):
            if rng.random() < 0.3 and algorithm != "shj":
                query.join = replace(query.join, memory=int(least * rng.choice([3, 6, 16])))
            rows = []
            for side in rng.permutation([0, 1, 0, 1]).tolist():
                some = rows_of(rng, side, int(rng.choice([1, 2, 7, 50])), counts[side], 30, (0, 9))
                counts[side] += len(some)
                rows.append((side, some))
            query.batch(number, rows, 1000 * number, tries=int(rng.choice([1, 2])))
            if rng.random() < 0.4:
                query.fire(number, 1000 * number + 500)
        query.batch(9, [], 9000, tries=2, ends=True)
        query.check()


SPAN_SCHEMAS = [schema.append(pa.field("end", pa.timestamp("us", "UTC"))) for schema in SCHEMAS]


def spans_query(how: Any, timed: str, relation: str = "equals") -> Query:
    """A query of intervals, with a watermark on one of their bounds."""
    pair = Pair(("k",), Intervals((("at", "end"), ("at", "end")), Relation.parse(relation)), how=how)
    join = BucketJoin("diner", pair, 1 << 20, False, tuple(zip(SIDES, SPAN_SCHEMAS, strict=True)))
    return Query(join, "batch", lateness=lateness_of(pair_graph(pair.predicate), 2 * [{timed: 0}]))


def test_intervals_without_an_end_come_alone_at_once_also_if_no_other_row_came() -> None:
    query = spans_query("left", "at", "overlapping")
    query.batch(0, [(0, [{"k": 1, "at": at(5), "end": None, "a": 1}])], 0)
    query.batch(1, [(1, [{"k": 1, "at": at(5), "end": at(9), "b": 1}])], 1000)
    assert found(query.answers) == Counter({(1, 1, None): 1})


def test_rows_that_match_nothing_keep_no_others_in_the_state() -> None:
    query = spans_query("left", "at")
    lines = [{"k": 1, "at": at(5), "end": at(9), "a": 1}, {"k": None, "at": at(10**6), "end": at(10**7), "a": 2}]
    query.batch(0, [(0, lines)], 0)
    (span,) = json.loads(query.stored[HEADER][0])["spans"]
    assert Span(*span).expiry == 1000 * ms(5)  # equal intervals start then
    assert found(query.answers) == Counter({(None, 2, None): 1})


def test_watermarks_stay_on_the_bounds_that_the_checkpoint_has() -> None:
    """A row with an early start and a late end would leave by the new watermark before its partner comes."""
    for how in ("inner", "left"):
        query = spans_query(how, "at")
        query.batch(0, [(side, [{"k": side, "at": at(10), "end": at(100), "ab"[side]: 1}]) for side in (0, 1)], 0)
        query.lateness = spans_query(how, "end").lateness
        with pytest.raises(
            ConfigError, match=r"watermarks on \['at', 'at'\].*this query on \['end', 'end'\].*as before"
        ):
            query.batch(1, [(1, [{"k": 1, "at": at(10), "end": at(100), "b": 2}])], 1000)


def test_watermarks_stay_on_their_bounds_after_a_run_without_any() -> None:
    query = spans_query("left", "at")
    rows: list[Any] = [(side, [{"k": side, "at": at(10), "end": at(100), "ab"[side]: 1}]) for side in (0, 1)]
    query.batch(0, rows, 0)
    query.lateness = None
    query.batch(1, rows, 1000)
    query.lateness = spans_query("left", "end").lateness
    with pytest.raises(ConfigError, match=r"watermarks on \['at', 'at'\].*this query on \['end', 'end'\].*as before"):
        query.batch(2, [], 2000)
    query.lateness = spans_query("left", "at").lateness
    query.batch(2, rows, 2000)


@pytest.mark.parametrize("how", OUTER)
@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_rows_come_alone_when_the_watermark_has_passed_them_and_not_before(how: str, owed: str) -> None:
    lateness = lateness_of(pair_graph(Predicate(("k",), BAND)), 2 * [{"at": 1000}])
    for seed in range(3):
        rng = np.random.default_rng([seed, OUTER.index(how), 77])
        memory = int(least_memory(how, "diner", BAND) * rng.choice([3, 6, 16]))
        query, counts = Query(bucket_join(how, "diner", memory, BAND), owed, lateness=lateness), [0, 0]
        for number in range(12):
            rows = []
            for side in (0, 1, 0):
                some = rows_of(rng, side, int(rng.integers(1, 20)), counts[side], 12, (4.0 * number, 4.0 * number + 6))
                counts[side] += len(some)
                rows.append((side, some))
            before = len(query.answers)
            query.batch(number, rows, 1000 * number, tries=int(rng.choice([1, 2])))
            query.watermark_ms = max(query.watermark_ms, ms(4.0 * number))
            if rng.random() < 0.5:
                query.fire(number, 1000 * number)
            for row in query.answers[before:]:
                assert_had_its_chance(row, query.watermark_ms)
        query.watermark_ms = ms(1000)
        query.fire(100, 10**6)
        query.check(BAND)
        assert not [number for (number,) in query.stored if number >= 0], "all pieces have left"


def assert_had_its_chance(row: Row, watermark_ms: int) -> None:
    """A row that comes alone has no key, or the watermark is past all times that it matches."""
    is_alone = row.get("a") is None or ("b" in row and row["b"] is None)
    time = row["at"] or row.get("at of right")
    if is_alone and row["k"] is not None and time is not None:
        assert time + (BAND.hi if row["a"] is not None else -BAND.lo) < datetime.fromtimestamp(watermark_ms / 1e3, UTC)  # type: ignore[operator]  # timedeltas


@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_a_late_row_is_dropped_and_not_given_alone(owed: str) -> None:
    lateness = lateness_of(pair_graph(Predicate(("k",), BAND)), 2 * [{"at": 1000}])
    query = Query(bucket_join("full", within=BAND), owed, lateness=lateness)
    query.batch(0, [(0, [{"k": 1, "at": at(100), "a": 1}]), (1, [{"k": 2, "at": at(100), "b": 1}])], 0)
    query.watermark_ms = ms(99)
    query.batch(1, [(0, [{"k": 1, "at": at(101), "a": 2}])], 1000)  # from now on 99 s is the watermark
    late = [{"k": 1, "at": at(50), "a": 3}, {"k": None, "at": at(50), "a": 4}, {"k": 5, "at": None, "a": 5}]
    query.batch(2, [(0, late)], 2000)
    query.watermark_ms = ms(1000)
    query.fire(3, 3000)
    assert found(query.answers) == Counter([(1, 1, None), (2, None, 1), (1, 2, None), (5, 5, None)])


@pytest.mark.parametrize("how", OUTER)
@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_retention_gives_each_row_alone_or_in_pairs_but_never_both(how: str, owed: str) -> None:
    """Which pairs come depends on when rows leave; a row comes alone exactly if none of its pairs came."""
    inner = [a_row for a_row in ("left_semi", "left_anti") if a_row == how]
    for seed in range(3):
        rng = np.random.default_rng([seed, OUTER.index(how), 5])
        memory = int(least_memory(how, "diner") * rng.choice([3, 6, 16]))
        query, counts, came_at = Query(bucket_join(how, memory=memory), owed, retain_ms=8000), [0, 0], ({}, {})
        for number in range(40):
            rows = []
            for side in (1, 0):
                some = rows_of(rng, side, int(rng.integers(0, 9)), counts[side], 25, (0, 9))
                came_at[side].update({row["ab"[side]]: number for row in some})
                counts[side] += len(some)
                rows.append((side, some))
            query.batch(number, rows, 1000 * number, tries=int(rng.choice([1, 2])))
        query.batch(40, [], 40_000, ends=True)
        left, right = query.came
        near = [(a, b) for a in left for b in right if a["k"] is not None and a["k"] == b["k"]
                and abs(came_at[0][a["a"]] - came_at[1][b["b"]]) < 8]  # fmt: skip
        got = found(query.answers)
        assert max(got.values()) == 1
        if inner:
            must = {a["a"] for a, _ in near}
            may = {a["a"] for a in left for b in right if a["k"] == b["k"]
                   and abs(came_at[0][a["a"]] - came_at[1][b["b"]]) <= 10}  # fmt: skip
            given = {a for _, a in got}
            assert must <= given if how == "left_semi" else not must & given
            assert given <= may if how == "left_semi" else {a["a"] for a in left} - may <= given
            continue
        pairs = {(a, b) for _, a, b in got if a is not None and b is not None}
        assert {(a["a"], b["b"]) for a, b in near} <= pairs
        for side, alone in enumerate(({a for _, a, b in got if b is None}, {b for _, a, b in got if a is None})):
            everything = {row["ab"[side]] for row in query.came[side]} if side in query.join.what.preserved else set()
            assert alone == everything - {pair[side] for pair in pairs} if everything else not alone


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", OUTER)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_batch_partitions_equal_the_definition_inside_the_smallest_budget(how: str, algorithm: str) -> None:
    rng = np.random.default_rng([OUTER.index(how), ALGORITHMS.index(algorithm)])
    least = least_memory(how, algorithm)
    for memory, n in ((least, 5), (2 * least, 300), (1 << 20, 300)):
        if algorithm == "shj" and n > 5:
            memory = 1 << 20
        task = task_of(replace(bucket_join(how, algorithm, memory), with_phase=True), "idle", None, None, "batch")
        left, right = (rows_of(rng, side, n, 0, 40, (0, 9), 0.05 if n > 5 else 0.0) for side in (0, 1))
        packets = []
        for number in range(0, n, 37):
            for side, rows in enumerate((left, right)):
                some = pa.RecordBatch.from_pylist(rows[number : number + 37], SCHEMAS[side])
                packets.append((0, Packet(number, 0, side, some.num_rows, 0, False, "", some.serialize())))
        answers = [row for batch in join_buckets(task, iter(packets)) for row in batch.to_pylist()]
        assert found(answers) == expected(left, right, how)
        assert task.sink.metrics.value("memory_peak") <= memory  # type: ignore[attr-defined]  # a Kept
        alone = sum(row[PHASE_COLUMN] == "unmatched" for row in answers)
        assert alone == task.sink.metrics.value("unmatched")  # type: ignore[attr-defined]  # a Kept


def test_bits_of_many_rows_stay_inside_their_room() -> None:
    rng, marked = np.random.default_rng(4), np.zeros(1 << 20, np.bool_)
    file = ChunkFile()
    bits = RowBits(file, 3 * 4096)
    for _ in range(20):
        numbers = rng.integers(0, 1 << 20, 5000)
        fresh = bits.mark(numbers)
        assert fresh.sum() == len(set(numbers[~marked[numbers]].tolist()))
        assert not marked[numbers[fresh]].any()
        marked[numbers] = True
        assert len(bits._held) <= 3
    assert (bits.unmarked(np.arange(1 << 20)) == ~marked).all()
    file.close()


@pytest.mark.parametrize("owed", ["batch", "idle"])
def test_a_repeated_micro_batch_lets_the_same_rows_leave_though_retain_has_changed(owed: str) -> None:
    """The sink has the answers of the first attempt, and the state is that of the second, in another run."""
    query = Query(bucket_join("left"), owed, retain_ms=8000)
    for number in range(12):
        query.batch(number, [(0, [{"k": number, "at": None, "a": number}])], 1000 * number)
    stored, before = query.stored, len(query.answers)
    last = [(1, [{"k": 11, "at": None, "b": 0}])]
    query.batch(12, last, 13_000)
    given = query.answers[before:]
    query.stored, query.retain_ms = stored, 80_000
    query.batch(12, last, 13_000)
    assert found(query.answers[before + len(given) :]) == found(given)
    del query.answers[before + len(given) :]
    query.batch(13, [], 20_000, ends=True)
    assert found(query.answers) == Counter([*((n, n, None) for n in range(11)), (11, 11, 0)])
    assert before + len(given) > 3, "some had left before the end"


def test_another_how_is_another_join() -> None:
    query = Query(bucket_join("left"), "batch")
    query.batch(0, [(0, [{"k": 1, "at": None, "a": 1}])], 0)
    for how in ("inner", "full"):
        query.join = bucket_join(how)
        with pytest.raises(ConfigError, match="how: left there"):
            query.batch(1, [(0, [{"k": 1, "at": None, "a": 2}])], 1000)
