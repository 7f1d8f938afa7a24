"""Buckets whose budget, algorithm or version changes between runs, without a JVM: every pair once all the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs among our dependencies
import pyarrow as pa
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.online.frame.test_online_long import BUCKET, HEADER, SCHEMAS, Kept, answers_of, micro_batch
from tests.oracle import equi_join

from dovetail.errors import BudgetExceeded, ConfigError, PlanError
from dovetail.joins.online import bucket_state
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Tree
from dovetail.joins.online.bucket_state import EPOCH
from dovetail.joins.online.plan import buckets
from dovetail.joins.online.plan.buckets import OnlineBuckets
from dovetail.joins.online.plan.task import OnlineTask
from dovetail.joins.online.request import Terms
from dovetail.spark.hosts.stateful import Buckets

KB = 1 << 10


def two(algorithm: str, memory: int) -> BucketJoin:
    return BucketJoin(algorithm, Pair(("k",)), memory, False, (("left", SCHEMAS[0]), ("right", SCHEMAS[1])))


def three(algorithm: str, memory: int) -> BucketJoin:
    inputs = tuple(zip("abc", SCHEMAS, strict=True))
    return BucketJoin(algorithm, Tree((("a.k", "b.k"), ("b.k", "c.k"))), memory, False, inputs)


def batches_of(step: int, inputs: int, rows: int, keys: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng([step, inputs])
    return [
        pa.RecordBatch.from_arrays(
            [pa.array(rng.integers(0, keys, rows)), pa.array(np.arange(rows) + 1000 * step)], schema=SCHEMAS[side]
        )
        for side in range(inputs)
    ]


class Query:
    """One bucket of a streaming query: micro-batches are tried, lost and tried again, and the sink takes each once."""

    def __init__(self) -> None:
        self.stored: dict[Any, Any] = {}
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.came: list[list[dict[str, Any]]] = []
        self.rebuilt = 0

    def attempt(
        self, join: BucketJoin, owed: str, number: int, rows: Any, stays: bool = True, retain_ms: int | None = None
    ) -> None:
        """A micro-batch in a new run; if it does not stay, the sink may have its answers, but its state is lost."""
        terms, kept = Terms("diner", join.memory, 1, 25, owed, retain_ms, False), Kept()
        schema = answers_of(join)
        task = OnlineTask(f"plan {number}", join, terms, 1, False, schema, schema, kept)  # type: ignore[arg-type]  # `task` is all it needs
        buckets = TwsTester(Buckets(OnlineBuckets(task)), timeMode="ProcessingTime", outputMode="Append")
        if self.stored:
            buckets.updateMapState("events", BUCKET, dict(self.stored))
            timer = self.header["timer"]
            if timer is not None:
                buckets.handle._timers.registerTimer(BUCKET, timer)
        out = buckets.setProcessingTime(1000 * number) if rows is None else buckets.testInPandas(BUCKET, rows)
        self.sink.setdefault(number, self._answers(join, out))
        if stays:
            self.stored = buckets.peekMapState("events", BUCKET)
            self.rebuilt += kept.metrics.value("joins_rebuilt")

    @property
    def header(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stored[HEADER][0])
        return found

    def _answers(self, join: BucketJoin, out: Any) -> list[dict[str, Any]]:
        schema = answers_of(join)
        frames = out if isinstance(out, list) else [out] if len(out) else []  # a list from a tester without rows
        data = [some for frame in frames for some in frame["rows"]]
        return [row for some in data for row in pa.ipc.read_record_batch(pa.py_buffer(some), schema).to_pylist()]

    def rows(self, number: int, inputs: int, n: int = 100, keys: int = 50) -> Any:
        """The rows of a micro-batch, noted as those that came."""
        batches = batches_of(number, inputs, n, keys)
        self.came = self.came or [[] for _ in batches]
        for side, batch in enumerate(batches):
            self.came[side] += batch.to_pylist()
        return micro_batch(batches, 1000 * number)

    def end(self, number: int) -> Any:
        rows = micro_batch([batch.slice(0, 0) for batch in batches_of(0, len(self.came), 1, 1)], 1000 * number)
        rows["rows"], rows["ends"] = None, True
        return rows

    def check(self, together: Sequence[Sequence[int]] | None = None) -> None:
        """Every pair, or combination, once; of rows of micro-batches that were in the state together, if some left."""
        found = Counter(
            tuple(row[name] for name in "abc" if name in row) for answers in self.sink.values() for row in answers
        )
        wanted = [((row["a"],), row["k"]) for row in self.came[0]]
        for side, name in enumerate("bc"[: len(self.came) - 1], start=1):
            left = [{"k": key, "ids": ids} for ids, key in wanted]
            pairs = equi_join(left, self.came[side], [("k", "k")])
            wanted = [((*a["ids"], b[name]), b["k"]) for a, b in pairs if a is not None and b is not None]
        runs = None if together is None else [set(run) for run in together]
        assert found == Counter(
            ids for ids, _ in wanted if runs is None or any({n // 1000 for n in ids} <= run for run in runs)
        )


CHOICES: dict[Any, list[BucketJoin]] = {
    two: [
        two("diner", 32 * KB),
        two("diner", 64 * KB),
        two("hmj", 40 * KB),
        two("pmj", 32 * KB),
        two("diner", KB * KB),
    ],
    three: [three("miner", 96 * KB), three("miner", 400 * KB), three("mjoin", 96 * KB)],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("owed", [["idle"], ["batch"], ["idle", "batch"]])
@pytest.mark.parametrize("make", [two, three])
@pytest.mark.sampled(6)
def test_each_pair_comes_once_whatever_changes_and_whatever_is_repeated(
    monkeypatch: pytest.MonkeyPatch, make: Any, owed: Sequence[str], seed: int
) -> None:
    """Any run may have another join, and a micro-batch may be in the sink although its state is lost."""
    if seed % 2:
        monkeypatch.setattr(bucket_state, "_SHORT_TAIL", 4 << 10)  # so that it is settled from time to time
    rng, query = np.random.default_rng(seed), Query()
    inputs, n, keys = (2, 100, 50) if make is two else (3, 90, 150)

    def chosen() -> tuple[BucketJoin, str]:
        return CHOICES[make][rng.integers(len(CHOICES[make]))], owed[rng.integers(len(owed))]

    number, running = 1, chosen()
    for kind in [*rng.permutation(["rows"] * 6 + ["pause"] * 3), "end"]:
        rows = query.rows(number, inputs, n, keys) if kind == "rows" else None if kind == "pause" else query.end(number)
        if rows is None and not query.stored:
            continue
        while rng.random() < 0.4:
            query.attempt(*running, number, rows, stays=False)
            running = chosen()
        query.attempt(*running, number, rows)
        running = chosen() if rng.random() < 0.3 else running
        number += 1
    query.check()


ORDERS: list[tuple[Any, str, int, bool]] = [
    (two, "diner", 48 * KB, True),
    (two, "hmj", 64 * KB, True),
    (two, "pmj", 48 * KB, True),
    (two, "xjoin", 64 * KB, True),
    (three, "miner", 96 * KB, False),
    (three, "mjoin", 96 * KB, False),
]


@pytest.mark.parametrize(("make", "algorithm", "memory", "reverses"), ORDERS, ids=[name for _, name, *_ in ORDERS])
def test_a_repeated_micro_batch_may_have_its_rows_in_other_partitions(
    make: Any, algorithm: str, memory: int, reverses: bool
) -> None:
    """Other cores, other splits of files or a shuffle before the join: the sink has what the first attempt gave."""
    query, join, inputs = Query(), make(algorithm, memory), 2 if make is two else 3
    for number in range(1, 7):
        rows = query.rows(number, inputs, 150 if inputs == 2 else 90)
        if number in (3, 5):
            query.attempt(join, "idle", number, rows, stays=False)
            rows = in_parts(rows, join, 4, reverses)
        query.attempt(join, "idle", number, rows)
    assert not query.header["settled"]
    query.attempt(join, "idle", 7, query.end(7))
    query.check()


def in_parts(rows: Any, join: BucketJoin, parts: int, reverses: bool) -> Any:
    """The rows of a micro-batch from `parts` partitions of each input."""
    found = []
    for line, schema in zip(rows.to_dict("records"), join.schemas.values(), strict=True):
        batch = pa.ipc.read_record_batch(pa.py_buffer(line["rows"]), schema)
        edges = [n * batch.num_rows // parts for n in range(parts + 1)]
        some = [batch.slice(a, b - a) for a, b in pairwise(edges)]
        for part in reversed(some) if reverses else some:
            data = {"rows": part.serialize().to_pybytes(), "n": part.num_rows, "part": len(found)}
            found.append(line | data)
    return pd.DataFrame(found)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("owed", ["idle", "batch"])
def test_a_budget_that_was_too_small_can_be_raised(owed: str) -> None:
    query = Query()
    query.attempt(two("shj", 48 * KB), owed, 1, query.rows(1, 2))
    more = query.rows(2, 2, 600)
    for memory in (48 * KB, 50 * KB):
        with pytest.raises(BudgetExceeded, match="memory"):
            query.attempt(two("shj", memory), owed, 2, more)
    query.attempt(two("shj", KB * KB), owed, 2, more, stays=False)
    query.attempt(two("diner", 64 * KB), owed, 2, more)  # and may be another one if its end was lost
    query.attempt(two("diner", 64 * KB), owed, 3, query.rows(3, 2))
    query.attempt(two("diner", 32 * KB), owed, 4, query.rows(4, 2))
    query.attempt(two("diner", 32 * KB), owed, 5, query.end(5))
    query.check()


@pytest.mark.parametrize("make", [two, three])
def test_rows_too_wide_for_the_budget_are_taken_with_more(make: Any) -> None:
    """Half of the pairs are still owed when a row comes that fits in no block."""
    algorithm, small = ("diner", 40 * KB) if make is two else ("miner", 128 * KB)
    query, inputs = Query(), 2 if make is two else 3
    wide = [pa.schema([*schema, ("text", pa.string())]) for schema in SCHEMAS[:inputs]]

    def join(memory: int) -> BucketJoin:
        found = make(algorithm, memory)
        schemas = [*(schema.remove(2) for schema in wide[:-1]), wide[-1]]
        return replace(found, inputs=tuple(zip(found.names, schemas, strict=True)))

    def rows(number: int, text: str) -> Any:
        frame = query.rows(number, inputs, 90, 40)
        batches = batches_of(number, inputs, 90, 40)
        batches[-1] = pa.RecordBatch.from_arrays([*batches[-1].columns, pa.array([text] + [""] * 89)], schema=wide[-1])
        frame["rows"] = [batch.serialize().to_pybytes() for batch in batches]
        return frame

    for number in (1, 2, 3):
        query.attempt(join(small), "idle", number, rows(number, ""))
    assert not query.header["settled"]
    broad = rows(4, "x" * 150 * KB)
    with pytest.raises(BudgetExceeded, match="memory"):
        query.attempt(join(small), "idle", 4, broad)
    query.attempt(join(64 * KB * KB), "idle", 4, broad)
    query.attempt(join(48 * KB * KB), "idle", 5, rows(5, ""))
    query.attempt(join(48 * KB * KB), "idle", 6, rows(6, ""))
    query.attempt(join(48 * KB * KB), "idle", 7, query.end(7))
    query.check()


@pytest.mark.parametrize("make", [two, three])
def test_wide_rows_that_stay_where_narrow_ones_leave_are_taken_with_more(make: Any) -> None:
    """The budget was split for narrow rows, which came first; from those that stay it cannot be split."""
    algorithm, small = ("diner", 64 * KB) if make is two else ("miner", 160 * KB)
    query, inputs = Query(), 2 if make is two else 3
    wide = pa.schema([*SCHEMAS[0], ("text", pa.string())])

    def join(memory: int) -> BucketJoin:
        found = make(algorithm, memory)
        return replace(found, inputs=((found.names[0], wide), *found.inputs[1:]))

    def rows(number: int, n: int, text: str) -> Any:
        first, *others = batches_of(number, inputs, n, 40)
        first = pa.RecordBatch.from_arrays([*first.columns, pa.array([text] * n)], schema=wide)
        query.came = query.came or [[] for _ in range(inputs)]
        for side, batch in enumerate((first, *others)):
            query.came[side] += batch.to_pylist()
        return micro_batch([first, *others], 1000 * number)

    for number in (1, 2, 3):
        query.attempt(join(small), "idle", number, rows(number, 60, ""), retain_ms=5000)
    query.attempt(join(small), "idle", 5, rows(5, 4, "x" * (small // 10)), retain_ms=5000)
    assert not query.header["settled"]
    later = rows(9, 60, "")
    with pytest.raises(PlanError, match=r"too small for .*rows of some"):
        query.attempt(join(small), "idle", 9, later, retain_ms=5000)
    query.attempt(join(64 * KB * KB), "idle", 9, later, retain_ms=5000)
    assert query.header["first"] == 3
    query.attempt(join(64 * KB * KB), "idle", 10, query.end(10), retain_ms=5000)
    query.check(together=[(1, 2, 3, 5), (5, 9)])


@pytest.mark.parametrize(
    ("retains", "together"), [((None, 10_000), [(1, 2, 3, 4, 5), (5, 6)]), ((10_000, None), [(1, 2, 3, 4), (5, 6)])]
)
def test_a_repeated_micro_batch_keeps_the_rows_that_its_first_attempt_kept(
    retains: tuple[int | None, int | None], together: Any
) -> None:
    """Where rows leave, what is owed is given first: an attempt without that would give it again, or never."""
    query, join = Query(), two("diner", 48 * KB)
    for number in (1, 2, 3, 4):
        query.attempt(join, "idle", number, query.rows(number, 2, 150), retain_ms=retains[0])
    assert not query.header["settled"]
    rows = query.rows(5, 2, 150).assign(now_ms=100_000)
    query.attempt(join, "idle", 5, rows, stays=False, retain_ms=retains[0])
    query.attempt(join, "idle", 5, rows, retain_ms=retains[1])
    query.attempt(join, "idle", 6, query.rows(6, 2, 150).assign(now_ms=100_001), retain_ms=retains[1])
    query.attempt(join, "idle", 7, query.end(7), retain_ms=retains[1])
    query.check(together)


def test_a_change_waits_for_the_next_micro_batch_unless_nothing_is_owed() -> None:
    """What is owed was decided by the old budget, and the sink may have the answers of an attempt that was lost."""
    small, large = two("diner", 32 * KB), two("diner", 64 * KB)
    for owed, expected in (("idle", [small, small, small, large]), ("batch", [small, small, large, large])):
        query = Query()
        for number, join in enumerate([small, small, large, large], start=1):
            query.attempt(join, owed, number, query.rows(number, 2))
            assert query.header["how"][1] == expected[number - 1].memory
        assert query.rebuilt == (5 if owed == "idle" else 4)  # each run is a new one, and rebuilds its join
        assert query.header["coming"] is None


def test_state_of_a_version_with_another_order_of_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken up where nothing is owed, and refused where only that version knows what is."""
    for owed in ("idle", "batch"):
        query = Query()
        for number in (1, 2):
            query.attempt(two("diner", 32 * KB), owed, number, query.rows(number, 2))
        with monkeypatch.context() as patch:
            for module in (bucket_state, buckets):
                patch.setattr(module, "EPOCH", EPOCH + 1)
            if owed == "idle":
                with pytest.raises(ConfigError, match=f"epoch {EPOCH}, this version has {EPOCH + 1}.* owed"):
                    query.attempt(two("diner", 32 * KB), owed, 3, query.rows(3, 2))
            else:
                query.attempt(two("diner", 32 * KB), owed, 3, query.rows(3, 2))
                query.attempt(two("diner", 32 * KB), owed, 4, query.end(4))
                assert query.header["epoch"] == EPOCH + 1
                query.check()


def test_rows_in_other_buckets_are_refused() -> None:
    query = Query()
    query.attempt(two("diner", 32 * KB), "batch", 1, query.rows(1, 2))
    rows = query.rows(2, 2)
    rows["rule"] = '{"buckets": 3}'
    with pytest.raises(ConfigError, match=r"buckets: 1 there, 3 here.* give partitions=1"):
        query.attempt(two("diner", 32 * KB), "batch", 2, rows)
