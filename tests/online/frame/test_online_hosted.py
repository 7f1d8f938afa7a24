"""Joins that live on between micro-batches, without Spark: replays, the host process, buckets, state, requests."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from tests.online.frame.cases import Bag, bag, expected, side_table

from dovetail.errors import BudgetExceeded, ConfigError, DataError, PlanError, UnsupportedError
from dovetail.joins.online.bucket_join import BucketJoin, Pair, Running, Work
from dovetail.joins.online.bucket_rule import BucketRule, hot_as_text
from dovetail.joins.online.bucket_state import Header, How, Span
from dovetail.joins.online.events import Event, Piece, joined_pauses, pack_events, unpack_events
from dovetail.joins.online.graph import Band, Predicate, pair_graph
from dovetail.joins.online.lateness import Lateness, lateness_of
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.joins.online.request import OnlineJoinOptions
from dovetail.spark.hosts.pool import Pool
from dovetail.spark.hosts.resident import client
from dovetail.spark.hosts.resident.client import run_call
from dovetail.spark.hosts.resident.process import ADDRESS
from dovetail.spark.hosts.resident.service import Answers, Log, ResidentCall, receive, run_in, send, serve

ROWS = 400
LEFT, RIGHT = side_table("a", ROWS, 30, seed=2), side_table("b", ROWS, 30, seed=3)
PAIRS = expected(LEFT, RIGHT)
HOW = How("diner", 1 << 20, "batch")


def join_of(algorithm: str, memory: int = 32 << 10) -> BucketJoin:
    memory = 1 << 20 if algorithm == "shj" else memory
    return BucketJoin(algorithm, Pair(("k",)), memory, False, (("left", LEFT.schema), ("right", RIGHT.schema)))


def call_of(
    name: str, before: str, after: str, join: BucketJoin, events: Sequence[Event], leaving: int = 0
) -> ResidentCall:
    return ResidentCall(name, before, after, partial(Running, join), Work(events, leaving))


class Joins(Pool[Any]):
    """Running joins of this process."""

    def call(
        self,
        name: str,
        before: str,
        after: str,
        join: BucketJoin,
        events: Sequence[Event],
        log: Log,
        leaving: int = 0,
    ) -> Answers:
        return run_in(self, call_of(name, before, after, join, events, leaving), log)


def asked(
    name: str, before: str, after: str, join: BucketJoin, events: Sequence[Event], log: Log, in_order: bool = True
) -> Answers:
    """The answers of a call in the resident process."""
    return run_call(call_of(name, before, after, join, events), log, in_order)


def calls(seed: int) -> Iterator[list[Event]]:
    """Micro-batches: rows of both sides, pauses, settlements, and the end."""
    rng, at = np.random.default_rng(seed), [0, 0]
    while at[0] < ROWS or at[1] < ROWS:
        events = []
        for side, table in enumerate((LEFT, RIGHT)):
            n = int(rng.integers(0, 160))
            batch = table.slice(at[side], n).combine_chunks().to_batches()
            events += [Event("push", side, rows=b.serialize()) for b in batch]
            at[side] += n
        if rng.random() < 0.3:
            events.append(Event("settle"))
        yield events
        yield [Event("idle", units=3, times=int(rng.integers(1, 3)))]
    yield [Event("finish")]


def played(pool: Any, join: BucketJoin, seed: int, forgetful: bool) -> tuple[list[list[bytes]], list[dict[str, Any]]]:
    """The answers and the reports of every call; if forgetful, each call begins with a replay of all before it."""
    log: list[Piece] = []
    given, reports, nonce = [], [], ""
    for number, events in enumerate(calls(seed)):
        call = pool(f"{seed}", "" if forgetful else nonce, f"n{number}", join, events, lambda: iter(log))
        answers, report = drained(call)
        given.append(answers)
        reports.append(report)
        log.append(Piece(pack_events(events), settled=False))
        nonce = f"n{number}"
    return given, reports


def drained(call: Any) -> tuple[list[bytes], dict[str, Any]]:
    answers = []
    while True:
        try:
            answers.append(bytes(next(call)))
        except StopIteration as end:
            return answers, end.value


def rows_of(join: BucketJoin, given: list[list[bytes]]) -> Bag:
    schema = join.spec().layout(join.schemas).schema
    batches = [pa.ipc.read_record_batch(pa.py_buffer(data), schema) for call in given for data in call]
    return bag([row for batch in batches for row in batch.to_pylist()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_join_rebuilt_from_its_events_goes_on_as_before(algorithm: str) -> None:
    join = join_of(algorithm)
    lasting, reports = played(Joins().call, join, 1, forgetful=False)
    again, others = played(Joins().call, join, 1, forgetful=True)
    assert lasting == again
    assert rows_of(join, lasting) == PAIRS
    assert [report["replayed"] for report in reports] == [True] + [False] * (len(reports) - 1)
    assert [report["counts"] for report in reports] == [report["counts"] for report in others]
    results = sum(n for r in reports for name, n in r["counts"].items() if name.startswith("results"))
    assert results == PAIRS.total()


@pytest.mark.parametrize("algorithm", ["diner", "shj"])
def test_a_bucket_that_moves_to_another_executor_reads_its_live_rows_once_and_joins_none_again(algorithm: str) -> None:
    join, n = join_of(algorithm, 1 << 20), 50
    batches = [
        [Event("push", side, rows=table.slice(at, n).combine_chunks().to_batches()[0].serialize())]
        for at in range(0, ROWS - n, n)
        for side, table in enumerate((LEFT, RIGHT))
    ]
    pieces = [Piece(pack_events(events), settled=True) for events in batches]
    here, there = Running(join), Running(join)
    for events in batches:
        drained(here.work(Work([*events, Event("settle")], 0), False))
    there.take_up(pieces[4:])  # the first four have left by their retention
    assert sum(rows for rows, _ in there._rows) == ROWS * 2 - 2 * n - 4 * n
    done = there.totals()
    assert done["comparisons"] == sum(n for name, n in done.items() if name.startswith("results")) == 0
    here.retire(4 * n)
    rest = [Event("push", side, rows=table.slice(ROWS - n).combine_chunks().to_batches()[0].serialize())
            for side, table in enumerate((LEFT, RIGHT))]  # fmt: skip
    answers = [rows_of(join, [drained(one.work(Work([*rest, Event("settle")], 0), False))[0]]) for one in (here, there)]
    assert answers[0] == answers[1]
    assert answers[0].total()
    for one in (here, there):
        assert 0 < one.operator.budget.used <= 1 << 20
        one.close()


def played_within(most: int, memory: int) -> Counter[str]:
    """Rebuilds of three joins in a pool whose values may hold `most` bytes; their answers are right."""
    pool, join = Joins(), join_of("diner", memory)
    logs: dict[str, list[Piece]] = {name: [] for name in "abc"}
    given: dict[str, list[list[bytes]]] = {name: [] for name in "abc"}
    rebuilt = Counter[str]()
    for number, events in enumerate(calls(5)):
        for name, log in logs.items():
            stamps = f"n{number - 1}" if number else "", f"n{number}"
            call = call_of(name, *stamps, join, events)._replace(most=most)
            answers, report = drained(run_in(pool, call, lambda log=log: iter(log)))  # type: ignore[misc]  # bound
            given[name].append(answers)
            rebuilt[name] += report["replayed"]
            log.append(Piece(pack_events(events), settled=False))
    assert all(rows_of(join, calls) == PAIRS for calls in given.values())
    return rebuilt


def test_joins_that_hold_more_than_an_executor_has_are_closed_and_rebuilt_from_the_stored_state() -> None:
    assert min(played_within(-(1 << 40), 1 << 20).values()) > 1  # there is room for the one in use only


def test_joins_with_few_rows_stay_where_an_executor_has_room_for_one_budget() -> None:
    """They have reserved most of their budgets and hold little of it."""
    assert played_within(64 << 20, 64 << 20) == Counter(dict.fromkeys("abc", 1))


def test_what_was_not_stored_is_not_taken_up() -> None:
    pool, join = Joins(), join_of("diner")
    rows = [Event("push", 0, rows=LEFT.combine_chunks().to_batches()[0].serialize())]
    mates = [Event("push", 1, rows=RIGHT.combine_chunks().to_batches()[0].serialize())]
    drained(pool.call("b", "", "one", join, rows, lambda: []))
    _, lost = drained(pool.call("b", "one", "lost", join, mates, lambda: []))
    answers, report = drained(pool.call("b", "one", "two", join, mates, lambda: [Piece(pack_events(rows), False)]))
    assert not lost["replayed"]
    assert report["replayed"]
    assert report["counts"] == lost["counts"]
    abandoned = pool.call("b", "two", "three", join, [Event("finish")], lambda: [])
    next(abandoned)
    abandoned.close()
    log = [Piece(pack_events(events), False) for events in (rows, mates)]
    rest, report = drained(pool.call("b", "two", "three", join, [Event("finish")], lambda: log))
    assert report["replayed"]
    assert rows_of(join, [answers, rest]) == PAIRS


@pytest.mark.sampled(3)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
@pytest.mark.parametrize("memory", [32 << 10, 4 << 20])
def test_rows_leave_a_join_that_lives_on_as_they_leave_its_state(algorithm: str, memory: int) -> None:
    """One join lives on, the other is rebuilt from the pieces that stay; comparisons are those of new rows."""
    pool, join, pieces = Joins(), join_of(algorithm, memory), list[tuple[Piece, int]]()
    nonce, step = "", 40
    for number, start in enumerate(range(0, ROWS, step)):
        leaving = 0
        while sum(rows for _, rows in pieces) > 6 * step:
            leaving += pieces.pop(0)[1]
        parts = [t.slice(start, step).combine_chunks().to_batches()[0] for t in (LEFT, RIGHT)]
        events = [*(Event("push", side, rows=part.serialize()) for side, part in enumerate(parts)), Event("settle")]
        log = [piece for piece, _ in pieces]
        living = pool.call("on", nonce, f"n{number}", join, events, lambda log=log: log, leaving)
        rebuilt = pool.call("rebuilt", "", "", join, events, lambda log=log: log)
        (given, report), (other, _) = drained(living), drained(rebuilt)
        assert report["replayed"] == (number == 0)
        assert rows_of(join, [given]) == rows_of(join, [other]), number
        pieces.append((Piece(pack_events(events[:2]), settled=True), sum(part.num_rows for part in parts)))
        nonce = f"n{number}"
    pool.close()


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_join_rebuilt_from_settled_rows_compares_none_of_them(algorithm: str) -> None:
    join, running = join_of(algorithm), Running(join_of(algorithm))
    tables = [table.combine_chunks().to_batches()[0] for table in (LEFT, RIGHT)]
    rows = [Event("push", side, rows=table.serialize()) for side, table in enumerate(tables)]
    running.take_up([Piece(pack_events(rows), settled=True)])
    assert running.operator.metrics.value("comparisons") == 0
    assert not running.owed
    given = [batch for event in (Event("settle"), Event("finish")) for batch in running.apply(event)]
    assert sum(batch.num_rows for batch in given) == 0, join
    running.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A host in a thread, which ends when the event is set."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "host"))
    listener.listen()
    over = threading.Event()
    thread = threading.Thread(target=serve, args=(listener, lambda: not over.is_set()))
    thread.start()
    monkeypatch.setenv(ADDRESS, str(tmp_path / "host"))
    yield over
    over.set()
    thread.join()
    listener.close()
    client._disconnect(str(tmp_path / "host"))


@pytest.mark.usefixtures("host")
def test_the_host_gives_what_a_pool_gives() -> None:
    join = join_of("diner")
    here, _ = played(Joins().call, join, 2, forgetful=False)
    there, reports = played(asked, join, 2, forgetful=False)
    assert here == there
    assert sum(report["replayed"] for report in reports) == 1


@pytest.mark.usefixtures("host")
def test_errors_of_the_host_are_raised_here() -> None:
    join, rows = join_of("diner"), [Event("push", 0, rows=b"no rows")]
    with pytest.raises(DataError, match="should be rows of columns"):
        drained(asked("x", "", "one", join, rows, lambda: []))
    small = replace(join_of("shj"), memory=24 << 10)
    push = [Event("push", 0, rows=LEFT.combine_chunks().to_batches()[0].serialize())]
    with pytest.raises(BudgetExceeded, match="symmetric hash join"):
        drained(asked("x", "", "one", small, push, lambda: []))


@pytest.mark.usefixtures("host")
def test_a_disk_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "taken"))
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    push = [Event("push", 0, rows=LEFT.combine_chunks().to_batches()[0].serialize())]
    with pytest.raises(ConfigError, match="taken"):
        drained(asked("x", "", "one", join_of("diner"), push, lambda: []))


def test_a_host_that_dies_in_a_call_is_replaced_without_repeated_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "host"))
    listener.listen()
    join = join_of("diner")
    events = [event for call in calls(3) for event in call]

    def die_early() -> None:
        with listener.accept()[0] as sock:
            receive(sock)
            call = Joins().call("x", "", "one", join, events, lambda: [])
            for _ in range(2):
                send(sock, ("answer", next(call)))
            call.close()

    thread = threading.Thread(target=die_early)
    thread.start()
    monkeypatch.setenv(ADDRESS, str(tmp_path / "host"))
    answers, _ = drained(asked("x", "", "one", join, events, lambda: []))
    thread.join()
    listener.close()
    assert len(answers) > 2
    assert rows_of(join, [answers]) == PAIRS


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_answers_of_a_join_that_lives_on_come_once_though_another_gives_them_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """They are held back until the call is complete: in memory, or on disk if there are many."""
    monkeypatch.setattr(client, "_HELD_BYTES", held)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "host"))
    listener.listen()
    join, events = join_of("diner"), [event for call in calls(3) for event in call]

    def die_early() -> None:
        with listener.accept()[0] as sock:
            receive(sock)
            answers = list(Joins().call("x", "", "one", join, events, lambda: []))
            for answer in answers[-3:]:
                send(sock, ("answer", answer))

    thread = threading.Thread(target=die_early)
    thread.start()
    monkeypatch.setenv(ADDRESS, str(tmp_path / "host"))
    given, report = drained(asked("x", "", "one", join, events, lambda: [], in_order=False))
    thread.join()
    listener.close()
    assert rows_of(join, [given]) == PAIRS
    assert report["replayed"]


@pytest.mark.usefixtures("host")
def test_answers_that_are_held_back_on_disk_are_all_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_HELD_BYTES", 1000)
    join, events = join_of("diner"), [event for call in calls(3) for event in call]
    given, _ = drained(asked("x", "", "one", join, events, lambda: [], in_order=False))
    assert sum(map(len, given)) > 2000
    assert rows_of(join, [given]) == PAIRS


START_HOST = """
import sys
from dovetail.spark.hosts.resident.process import start
print(start(), flush=True)
sys.stdin.read()
"""


def test_the_host_process_ends_with_its_parent(tmp_path: Path) -> None:
    env = os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", START_HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert parent.stdout is not None
    address = Path(parent.stdout.readline().strip())
    assert address.parent.stat().st_mode & 0o777 == 0o700
    join = join_of("diner")
    events = next(calls(1))
    os.environ[ADDRESS] = str(address)
    try:
        _, report = drained(asked("y", "", "one", join, events, lambda: []))
        _, later = drained(asked("y", "one", "two", join, events, lambda: []))
    finally:
        del os.environ[ADDRESS]
        client._disconnect(str(address))
    assert report["replayed"]
    assert not later["replayed"]
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 30
    while any(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(3)
def test_a_host_that_dies_is_started_again_once_for_all_workers(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path.cwd() / "src"), str(Path.cwd())])
    env = os.environ | {"TMPDIR": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path), "PYTHONPATH": path}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.online.frame.revived_host"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
    ) as starter:  # fmt: skip
        assert starter.stdout is not None
        try:
            found = [json.loads(starter.stdout.readline()) for _ in range(2)]
        finally:
            starter.kill()
    for calls_of_one in found:
        assert [rebuilt for rebuilt, _ in calls_of_one] == [True, False, True, False, False, False]
        assert len({host for _, host in calls_of_one[2:]}) == 1
    assert found[0][-1] == found[1][-1]
    assert found[0][0][1] != found[0][-1][1]


def test_events_come_back_from_bytes() -> None:
    rows = LEFT.combine_chunks().to_batches()[0].serialize()
    events = [
        Event("push", 1, rows=rows),
        Event("idle", units=5, times=2),
        Event("push", 0, rows=rows),
        Event("settle"),
    ]
    found = list(unpack_events(pack_events(events)))
    assert [event[:4] for event in found] == [event[:4] for event in events]
    assert found[0].batch(LEFT.schema).equals(LEFT.combine_chunks().to_batches()[0])
    with pytest.raises(DataError, match="cannot be read"):
        list(unpack_events(b"\x05\0\0\0nonsense"))


@pytest.mark.parametrize("bound", [1, 0.5, Decimal("1.25"), timedelta(minutes=5)])
def test_a_bucket_join_says_what_its_state_means(bound: Any) -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    pair, inputs = Pair((("k", "k"),), Band("x", "x", -bound, bound)), (("left", schema), ("right", schema))
    join = BucketJoin("diner", pair, 1 << 20, True, inputs)
    assert pickle.loads(pickle.dumps(join)) == join  # noqa: S301  (our own)
    assert join.meaning() == replace(join, algorithm="pmj", memory=1, with_phase=False).meaning()
    assert join.meaning() != replace(join, what=Pair(pair.on, Band("x", "x", -bound, 2 * bound))).meaning()
    other = pa.schema([("k", pa.int64()), ("x", pa.float64())][::-1])
    assert join.meaning() != replace(join, inputs=(("left", other), inputs[1])).meaning()


CASES: list[tuple[Any, Any, pa.DataType]] = [
    (-3, 5, pa.int64()),
    (0, 0, pa.int64()),
    (-0.75, 2.5, pa.float64()),
    (0.0, 0.0, pa.float64()),
    (timedelta(seconds=-2), timedelta(seconds=7), pa.timestamp("us", "UTC")),
]


def test_a_band_that_is_lost_in_rounding_is_in_every_bucket() -> None:
    """Less small numbers, a large one stays as it is: it matches numbers of more cells than can be counted."""
    schema, far = pa.schema([("x", pa.float64())]), 1e300
    spread = BucketRule(Predicate((), Band("x", "x", far, far)), {"left": schema, "right": schema}, 7)
    homes = spread.homes(1, pa.RecordBatch.from_pydict({"x": [far, 5.0]}, schema))
    found = Counter(zip(homes.rows.tolist(), homes.buckets.tolist(), strict=True))
    assert {bucket: n for (row, bucket), n in found.items() if row == 0} == dict.fromkeys(range(7), 1)
    assert sum(row == 1 for row, _ in found) == 1


@pytest.mark.parametrize(("lo", "hi", "kind"), CASES)
@pytest.mark.parametrize("buckets", [1, 2, 7])
def test_every_pair_of_a_band_meets_in_one_bucket(lo: Any, hi: Any, kind: pa.DataType, buckets: int) -> None:
    rng = np.random.default_rng(5)
    plain = pa.float64() if pa.types.is_floating(kind) else pa.int64()
    scale = 1_000_000 if pa.types.is_timestamp(kind) else 1
    numbers = [rng.integers(-60, 60, 150) * scale / (4 if pa.types.is_floating(kind) else 1) for _ in (0, 1)]
    columns = [pa.array([None, *some.tolist()], pa.float64()).cast(plain).cast(kind) for some in numbers]
    schema = pa.schema([("x", kind)])
    batches = [pa.RecordBatch.from_arrays([column], schema=schema) for column in columns]
    spread = BucketRule(Predicate((), Band("x", "x", lo, hi)), {"left": schema, "right": schema}, buckets)
    homes = [spread.homes(side, batch) for side, batch in enumerate(batches)]
    assert [home.dropped for home in homes] == [1, 1]
    assert sorted(homes[0].rows.tolist()) == list(range(1, 151))
    met = Counter[tuple[int, int]]()
    values = [column.to_pylist() for column in columns]
    for bucket in range(buckets):
        left, right = (home.rows[home.buckets == bucket].tolist() for home in homes)
        met.update((a, b) for a in left for b in right if lo <= values[1][b] - values[0][a] <= hi)
    wanted = [(a, b) for a in range(1, 151) for b in range(1, 151) if lo <= values[1][b] - values[0][a] <= hi]
    assert met == Counter(wanted)


@pytest.mark.parametrize("hot", [[0, 3], [("a", 1)], ["b"]])
def test_pairs_of_hot_keys_meet_in_one_bucket_and_their_rows_are_in_all(hot: list[Any]) -> None:
    rng = np.random.default_rng(6)
    on = ("s", "k") if isinstance(hot[0], tuple) else ("s",) if isinstance(hot[0], str) else ("k",)
    batches = [
        pa.record_batch(
            {
                "s": pa.array(list("abc")).take(pa.array(rng.integers(0, 3, 90))),
                "k": rng.integers(0, 5, 90),
                "n": range(90),
            }
        )
        for _ in (0, 1)
    ]
    schema = batches[0].schema
    text = hot_as_text(hot, on, schema)
    inputs = (("left", schema), ("right", schema))
    join = BucketJoin("diner", Pair(on, None, text), 1 << 20, False, inputs)
    assert join.bucket_rule(4).rule not in (replace(join, what=Pair(on)).bucket_rule(4).rule, join.bucket_rule(3).rule)
    spread = join.bucket_rule(4)
    homes = [spread.homes(side, batch) for side, batch in enumerate(batches)]
    keys = [list(zip(*(batch[name].to_pylist() for name in on), strict=True)) for batch in batches]
    met = Counter[tuple[int, int]]()
    for bucket in range(4):
        left, right = (home.rows[home.buckets == bucket].tolist() for home in homes)
        met.update((a, b) for a in left for b in right if keys[0][a] == keys[1][b])
    assert met == Counter((a, b) for a in range(90) for b in range(90) if keys[0][a] == keys[1][b])
    wanted = {value if isinstance(value, tuple) else (value,) for value in hot}
    dealt = Counter(int(b) for r, b in zip(homes[0].rows, homes[0].buckets, strict=True) if keys[0][r] in wanted)
    assert len(dealt) >= 3
    assert max(dealt.values()) <= dealt.total() / 2
    where = dict(zip(homes[0].rows.tolist(), homes[0].buckets.tolist(), strict=True))
    again = spread.homes(0, batches[0].slice(40).take(pa.array(range(50))[::-1]))  # of another task, in another order
    assert {
        89 - row: bucket for row, bucket in zip(again.rows.tolist(), again.buckets.tolist(), strict=True)
    }.items() <= where.items()


@pytest.mark.parametrize(
    ("hot", "on"),
    [([None], ("k",)), (["x"], ("k",)), ([1], ()), ([1], ("k", "a")), ("k", ("k",)), (7, ("k",)), ([1.5], ("k",))],
)
def test_hot_keys_that_cannot_be_are_refused(hot: Any, on: tuple[str, ...]) -> None:
    with pytest.raises(PlanError, match="hot="):
        hot_as_text(hot, on, LEFT.schema)


def test_equal_keys_share_a_bucket() -> None:
    spread = BucketRule(Predicate(("k",)), {"left": LEFT.schema, "right": RIGHT.schema}, 5)
    where: dict[int, set[int]] = {}
    for side, table in enumerate((LEFT, RIGHT)):
        batch = table.combine_chunks().to_batches()[0]
        homes = spread.homes(side, batch)
        assert homes.dropped == table["k"].null_count
        for row, bucket in zip(homes.rows.tolist(), homes.buckets.tolist(), strict=True):
            where.setdefault(batch["k"][row].as_py(), set()).add(bucket)
    assert all(len(buckets) == 1 for buckets in where.values())
    assert len({bucket for buckets in where.values() for bucket in buckets}) == 5


def header_of() -> Header:
    return Header.new({"on": [["k", "k"]]}, HOW, 2)


def test_rows_that_were_retained_for_long_enough_leave() -> None:
    header = header_of()
    for now in range(0, 1000, 50):
        header.add_pieces([10], 5, now, None, goes_on=False)
    assert Header.load(json.loads(json.dumps(header.as_json())), header.meaning, HOW, 2) == header
    assert header.leaving(449, 400, None) == 0
    assert header.leaving(450, 400, None) == 2  # an eighth late, and so the next one with it
    assert header.leaving(1000, 400, None) == 13
    assert header.rows_before(13) == 65
    header.drop_before(13)
    assert (header.first, header.spans[0].since, header.bytes, header.rows_before(header.next)) == (13, 650, 70, 35)
    assert header.leaving(1099, 400, None) == 13
    assert header.leaving(10**6, 400, None) == header.next  # nothing came for long: they are as old all the same


def test_state_of_another_join_or_in_other_buckets_is_refused() -> None:
    header = header_of()
    header.check_spread(BucketRule(Predicate(("k",)), {"left": LEFT.schema, "right": RIGHT.schema}, 5).rule)
    with pytest.raises(ConfigError, match=r"another online join: on: \[\['k', 'k'\]\] there, \[\['l', 'k'\]\] here"):
        Header.load(json.loads(json.dumps(header.as_json())), {"on": [["l", "k"]]}, HOW, 2)
    with pytest.raises(ConfigError, match=r"buckets: 5 there, 7 here.* give partitions=5"):
        header.check_spread(BucketRule(Predicate(("k",)), {"left": LEFT.schema, "right": RIGHT.schema}, 7).rule)


def test_rows_leave_when_none_that_may_come_can_match_them() -> None:
    band = Band("x", "x", timedelta(seconds=-2), timedelta(seconds=3))
    lateness = lateness_of(pair_graph(Predicate((), band)), [{"x": 1000}, {"x": 4000}])
    assert lateness is not None
    assert lateness.watermark([None, 5]) is None
    assert lateness.watermark([9_000_000, 10_000_000]) == 6_000_000
    assert list(lateness.reach) == [3_000_000, 2_000_000]
    header = header_of()
    for now, expiry in enumerate((30, 10, 50, 70)):
        header.add_pieces([1 << 20], 5, now, expiry, goes_on=False)
    assert [header.leaving(9, None, at) for at in (None, 30, 31, 51, 71)] == [0, 0, 2, 3, 4]
    header.drop_before(2)
    assert header.leaving(9, None, 31) == 2
    header.add_pieces([1 << 20], 5, 9, None, goes_on=False)  # when these expire is not known
    assert header.leaving(9, None, 10**9) == 4


class Rows(NamedTuple):
    """What a test knows of the rows of one piece."""

    came: int
    expiry: int


@hypothesis.given(
    st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(-50, 300),
            st.integers(1, 3),
            st.sampled_from([100, 70 << 10]),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=400,
    ),
    st.sampled_from([None, 1000, 20_000]),
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_piece_leaves_before_all_of_its_rows_may(
    batches: list[tuple[int, int, int, int, bool, bool]], retain_ms: int | None
) -> None:
    """Bursts of several pieces, small tails that take more, pieces without rows, and lists that are cut short."""
    header, rows, now = header_of(), dict[int, list[Rows]](), 0
    for later, ahead, pieces, size, pauses, settles in batches:
        now += later
        watermark = now - 100
        keep = header.leaving(now, retain_ms, watermark)
        for number in range(header.first, keep):
            for row in rows.pop(number):
                assert row.expiry < watermark or (retain_ms is not None and row.came <= now - retain_ms)
        if keep > header.first:
            header.settle()
            header.drop_before(keep)
        expiry = now + ahead
        goes_on = header.takes_more(now, retain_ms, settles)
        tail = rows.pop(header.drop_last()) if goes_on else []
        for number in range(header.next, header.next + pieces):
            rows[number] = [*tail, Rows(now, expiry)]
            tail = []
        header.add_pieces([size] * pieces, 1, now, expiry, goes_on)
        if settles:
            header.settle()
        elif pauses:
            rows[header.next] = []
            header.add_pieces_without_rows([50], now)
        assert sorted(rows) == list(range(header.first, header.next))
        assert len(header.spans) <= 128
        assert header.first <= header.base <= header.next
        assert (header.tail == 0) == (header.base == header.next)
        oldest = min((row.came for some in rows.values() for row in some), default=now)
        assert retain_ms is None or oldest > now - retain_ms * 5 // 4  # they do leave
    assert header.leaving(now, None, now + 1000) == header.next


def test_many_small_pieces_of_the_state_become_larger_ones() -> None:
    header = header_of()
    for now in range(32):
        assert not header.takes_more(now, None, settled=False)
        header.add_pieces([1000], 10, now, now, goes_on=False)
    assert header.tail == 32_000
    assert header.takes_more(32, None, settled=False)
    assert not header.takes_more(32, None, settled=True)  # what came before is not
    assert not header.takes_more(32, 64, settled=False)  # what came before leaves alone
    assert header.drop_last() == 31
    header.add_pieces([2000], 10, 32, 5, goes_on=True)
    last = Span(32, 2000, 31, 32, 31, 20)
    assert (header.first, header.next, header.bytes, header.tail, header.spans[-1]) == (0, 32, 33_000, 33_000, last)
    header.add_pieces([100 << 10], 1, 33, 5, goes_on=False)
    assert not header.takes_more(33, None, settled=False)  # it is large
    header.add_pieces([10], 1, 34, 5, goes_on=False)
    assert header.takes_more(34, None, settled=False)
    header.settle()
    assert not header.takes_more(34, None, settled=False)  # of what is settled only rows count
    assert header.takes_more(34, None, settled=True)
    assert header.drop_last() == 33
    header.add_pieces([20], 1, 34, 5, goes_on=True)
    header.settle()
    assert (header.base, header.next, header.tail) == (34, 34, 0)
    header.clear()
    assert (header.bytes, header.tail, header.first, header.base, header.next) == (0, 0, 34, 34, 34)
    pauses = [Event("idle", units=4), Event("idle", units=4, times=2), Event("settle"), Event("idle", units=4)]
    assert [event.times for event in joined_pauses(pauses)] == [3, 1, 1]


def test_a_tail_is_long_once_it_is_half_of_a_state_that_is_not_small() -> None:
    header = header_of()
    header.add_pieces([1 << 20], 1, 0, None, goes_on=False)
    assert not header.has_long_tail
    header.add_pieces([9 << 20], 1, 0, None, goes_on=False)
    assert header.has_long_tail
    header.settle()
    header.add_pieces([9 << 20], 1, 0, None, goes_on=False)
    assert not header.has_long_tail
    header.add_pieces([2 << 20], 1, 0, None, goes_on=False)
    assert header.has_long_tail


def test_late_rows_are_those_before_the_watermark() -> None:
    lateness = Lateness(("at", "at"), (0, 0), (0, 0))
    batch = pa.RecordBatch.from_arrays([pa.array([5, 7, 6], pa.timestamp("us", "UTC"))], ["at"])
    assert lateness.on_time(0, batch, None) is batch
    assert lateness.on_time(0, batch, 5) is batch
    assert lateness.times(1, lateness.on_time(1, batch, 6)).tolist() == [7, 6]


def request(**given: Any) -> Any:
    return OnlineJoinOptions(**({"on": "k"} | given)).request()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"algorithm": "dinner"}, "did you mean 'diner'"),
        ({"owed": "later"}, "owed='later' is not known"),
        ({"how": "otter"}, "how='otter' is not known"),
        ({"on": None}, "a join needs keys"),
        ({"on": [("a", "b", "c")]}, "each key is a column name"),
        ({"partitions": 0}, "partitions=0 is not possible"),
        ({"wait": "soon"}, "wait='soon' is not a length of time"),
        ({"retain": -1}, "retain=-1 is not a length of time"),
        ({"closed": "left"}, "closed='left' is about the bounds of a band"),
        ({"closed": "open", "within": ("x", 1)}, "closed='open'"),
        ({"how": "cross"}, "how='cross'"),
        ({"memory": "none"}, "none"),
    ],
)
def test_requests_that_cannot_be_right(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        request(**given)


def test_requests_that_are_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="a band or a relation alone cannot be found"):
        request(on=None, within=("x", 1), algorithm="xjoin")
