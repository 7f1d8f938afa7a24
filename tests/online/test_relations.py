"""Online joins by a relation of intervals, in every join: batches of any size, from the least budget up."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tests.oracle as oracle
from tests.online.restarts import steps
from tests.online.schedules import EVERY
from tests.online.test_keyed_bands import driven, with_least

from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError, UnsupportedError
from dovetail.joins.interval.relation import RELATIONS, Relation
from dovetail.joins.online.bucket_join import Pair
from dovetail.joins.online.intervals import Intervals
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.request import OnlineJoinOptions
from dovetail.joins.online.sizes import Sizes
from dovetail.request import CLOSED

ROWS = 40
NOON = dt.datetime(2026, 3, 1, 12)
Value = Callable[[int], Any]
BOUNDS: dict[str, tuple[pa.DataType, Value, tuple[Any, Any]]] = {
    "int": (pa.int64(), int, (-(2**63), 2**63 - 1)),
    "decimal": (pa.decimal128(9, 2), lambda x: Decimal(x) / 4, (Decimal("-9999999.99"), Decimal("9999999.99"))),
    "double": (pa.float64(), lambda x: x / 4 - 3, (float("-inf"), float("inf"))),
    "float": (pa.float32(), lambda x: x / 4 - 3, (float("-inf"), float("nan"))),
    "date": (pa.date32(), lambda x: NOON.date() + dt.timedelta(x), (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
    "time of day": (pa.time64("ns"), lambda x: dt.time(1, x % 60), (dt.time.min, dt.time.max)),
    "time": (pa.timestamp("us"), lambda x: NOON + dt.timedelta(seconds=x), (dt.datetime(1, 1, 1), dt.datetime.max)),
}


def table(column: str, kind: str, rng: np.random.Generator, rows: int = ROWS) -> pa.Table:
    """Short intervals and points, some long, endless, inverted, empty or null ones; few keys."""
    arrow, value, (least, most) = BOUNDS[kind]
    start = rng.integers(0, 60, rows)
    length = rng.choice([0, 1, 2, 4, 25, -1], rows, p=[0.2, 0.3, 0.3, 0.1, 0.05, 0.05])
    starts, ends = [value(int(x)) for x in start], [value(int(x)) for x in start + length]
    for values, other in ((starts, least), (ends, most)):
        for at in np.flatnonzero(rng.random(rows) < 0.05):
            values[at] = other
        for at in np.flatnonzero(rng.random(rows) < 0.04):
            values[at] = None
    keys = pa.array(rng.integers(0, 3, rows), pa.int64(), mask=rng.random(rows) < 0.06)
    bounds = {"start": pa.array(starts, arrow), "end": pa.array(ends, arrow)}
    return pa.table({"k": keys, **bounds, column: pa.array(np.arange(rows))})


def intervals(names: Any, strict: bool = False, closed: Any = "left") -> Intervals:
    return Intervals((("start", "end"), ("start", "end")), Relation.parse(names, strict, closed))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("on", [("k",), ()], ids=["key", "alone"])
@pytest.mark.parametrize("kind", list(BOUNDS))
@pytest.mark.parametrize("name", list(EVERY))
def test_pairs_in_a_relation_are_those_of_the_oracle(name: str, kind: str, on: tuple[str, ...]) -> None:
    rng = np.random.default_rng([len(name), len(kind), len(on)])
    if not on and not EVERY[name].bands:
        with pytest.raises(UnsupportedError, match=r"a relation alone cannot be found; give equal columns.*Diner"):
            EVERY[name](within=intervals("overlapping"))
        return
    left, right = table("a", kind, rng), table("b", kind, rng)
    sets = [["overlapping"], [*rng.choice(RELATIONS, 2, replace=False)], [str(rng.choice(RELATIONS))]]
    for names in sets:
        strict, closed = bool(rng.integers(2)), (str(rng.choice(CLOSED)), str(rng.choice(CLOSED)))
        given = {"relation": names, "strict": strict, "closed": closed}
        pairs = oracle.online_join(left.to_pylist(), right.to_pylist(), [(c, c) for c in on], **given)  # type: ignore[arg-type]
        want = oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)
        sizes = Sizes() if name == "shj" or rng.random() < 0.5 else Sizes(memory_rows=11, block_rows=3, partitions=3)
        spec = EVERY[name](on=on, within=intervals(names, strict, closed), sizes=sizes)
        tables, ids = {"left": left, "right": right}, ["a", "b"]
        assert name == "shj" or all(with_least(spec, tables, step, ids) == want for step in (1, 7)), given
        for step, limit in ((2, 1 << 15), (50, 1 << 17), (1, 1 << 17)):
            assert driven(spec, tables, step, limit, ids) == want, (given, step, limit)


def test_the_range_of_starts_has_every_match() -> None:
    """By brute force over small intervals: whatever the lengths, no pair in the relation is outside of the band."""
    spans = list(itertools.combinations_with_replacement(range(5), 2))
    for name, strict in itertools.product(RELATIONS, (False, True)):
        relation = Relation.parse(name, strict, "both")
        for a, b in itertools.product(spans, repeat=2):
            if not relation.holds(*(0 if x < y else 1 if x == y else 2 for x in a for y in b)):
                continue
            lengths = a[1] - a[0], b[1] - b[0]
            rows = {side: pa.table({"start": [s], "end": [e]}) for side, (s, e) in zip(("left", "right"), (a, b))}  # noqa: B905  (two of each)
            keys = JoinKeys(
                Pair((), intervals(name)).spec("diner", (), False).graph, {s: t.schema for s, t in rows.items()}
            )
            keys.around = np.array([intervals(name, strict).around(lengths, floating=False)])
            for side, (mine, theirs) in enumerate(((a, b), (b, a))):
                low, high = keys.ranges(side, np.array([mine[0]]))
                assert low[0] <= theirs[0] <= high[0], (name, a, b, side)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("near", ["relation", "band", "alone"])
@pytest.mark.parametrize("on", [("k",), ("s",), ("k", "s")], ids=["number", "text", "two"])
@pytest.mark.parametrize("name", list(EVERY))
def test_null_keys_equal_each_other_if_asked_for(name: str, on: tuple[str, ...], near: str) -> None:
    rng = np.random.default_rng([len(name), len(on), len(near)])
    tables = {}
    for side, column in (("left", "a"), ("right", "b")):
        text = pa.array(np.array(["", "a"], object)[rng.integers(0, 2, ROWS)], mask=rng.random(ROWS) < 0.3)
        keys = pa.array(rng.integers(0, 3, ROWS), mask=rng.random(ROWS) < 0.4)
        tables[side] = table(column, "int", rng).append_column("s", text).set_column(0, "k", keys)
    within: Any = {"relation": intervals("overlapping"), "band": ("start", "start", -9, 9), "alone": None}[near]
    given: dict[str, Any] = {"closed": "left", "relation": "overlapping"} if near == "relation" else {}
    given |= {"within": within} if near == "band" else {}
    pairs = oracle.online_join(*(t.to_pylist() for t in tables.values()), [(c, c) for c in on], null_safe=True, **given)
    want = oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)
    assert any(a and a[on[0]] is None for a, _ in pairs)
    spec = EVERY[name](on=on, within=within, null_safe=True, hash_bits=3 if len(on) == 2 else 64)
    assert " <=> " in spec.explain()
    for step, limit in ((1, 1 << 17), (7, 1 << 16), (50, 1 << 17)):
        assert driven(spec, tables, step, limit, ["a", "b"]) == want, (step, limit)


SECONDS, SHORT = 100_000, 40


def sessions(column: str, rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, SECONDS, rows))
    return pa.table({"start": start, "end": start + rng.integers(1, SHORT, rows), column: np.arange(rows)})


@pytest.mark.parametrize("memory", [20_000, 900])
@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].bands])
def test_short_intervals_without_a_key_cost_what_they_match(name: str, memory: int) -> None:
    """Of 64 million pairs some 25 thousand overlap; twice as many start within the longest interval of each other."""
    tables = {"left": sessions("a", 8000, 1), "right": sessions("b", 8000, 2)}
    (ls, le), (rs, re) = ((t["start"].to_numpy(), t["end"].to_numpy()) for t in tables.values())
    found = int(sum(((rs < e) & (re > s)).sum() for s, e in zip(ls, le, strict=True)))
    spec = EVERY[name](within=intervals("overlapping"), sizes=Sizes(memory_rows=memory, block_rows=100))
    budget, given = MemoryBudget("4MB"), 0
    with spec.open(budget, {side: t.schema for side, t in tables.items()}) as operator:
        for start in range(0, 8000, 400):
            for side, t in tables.items():
                piece = t.slice(start, 400).combine_chunks().to_batches()[0]
                given += sum(batch.num_rows for batch in operator.push(side, piece))
            given += sum(batch.num_rows for batch in operator.idle(steps(3)))
        given += sum(batch.num_rows for batch in operator.finish())
    assert given == found
    read = 100 * operator.metrics.value("blocks_read")
    assert operator.metrics.value("comparisons") <= 4 * found + 2 * (16_000 + read)
    assert budget.peak <= budget.limit


def test_the_longest_interval_so_far_is_the_width_of_the_band() -> None:
    schema = pa.schema([("start", pa.int64()), ("end", pa.int64())])
    keys = JoinKeys(
        Pair((), intervals("overlapping")).spec("diner", (), False).graph, {"left": schema, "right": schema}
    )
    rows = pa.record_batch([[0, 5, 9], [3, 50, 1]], schema=schema)  # the last one is inverted
    keys.keyed(0, rows)
    keys.keyed(1, rows.slice(0, 1))
    assert keys.growth == 2
    assert keys.reach[:, :2].tolist() == [[-3, 45], [-45, 3]]
    keys.keyed(1, rows.slice(0, 1))
    assert keys.growth == 2


@pytest.mark.parametrize(
    ("relation", "left", "right", "until"),
    [
        ("overlapping", "start", "start", ("end", "end")),
        ("covers", "start", "start", ("end", "start")),
        ("covers", "start", "end", ("end", "start")),
        ("during", "end", "start", ("start", "end")),
        ("meets", "start", "start", ("end", "start")),
        ("equals", "end", "end", ("end", "end")),
        ("starts", "start", "start", ("start", "start")),
        ("overlapping", "end", "end", None),  # a row that ends late may have started early
        ("overlapping", "start", "end", None),
        ("before", "start", "start", None),  # every later row matches
        (("after", "overlapping"), "start", "start", None),
    ],
)
def test_rows_may_leave_when_no_later_interval_can_match(relation: Any, left: str, right: str, until: Any) -> None:
    found = intervals(relation).last_times(({left: 0}, {right: 0}))
    assert found == (None if until is None else [(left, until[0]), (right, until[1])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relation": "overlapping", "within": ("t", 3)}, "relation='overlapping' and within=.*give one of them"),
        ({"relation": "over", "on": "k"}, "relation='over'"),
        ({"relation": "overlapping", "algorithm": "xjoin"}, "XJoin hashes its keys.*a relation alone"),
        ({"relation": "overlapping", "left_interval": ("a", "b", "c")}, "left_interval=.*pair of column names"),
        ({"on": "k", "left_interval": ("a", "b")}, "left_interval=.*there is none; give relation='overlapping'"),
        ({"on": "k", "strict": True}, "strict=True is about a relation"),
        ({"on": "k", "closed": "left"}, "closed='left' is about the bounds of a band or of intervals"),
        ({"on": "k", "within": ("t", 3), "closed": ("left", "both")}, "closed="),
        ({"relation": "overlapping", "closed": "shut"}, "closed='shut'"),
        ({"within": ("t", 3), "null_safe": True}, "null_safe=True is about equal columns"),
        ({}, "give on=..., within=... or relation=..."),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_right(options: Any, message: str) -> None:
    with pytest.raises((PlanError, UnsupportedError), match=message):
        OnlineJoinOptions(**options).request()


def test_bounds_must_be_of_one_type_that_has_lengths() -> None:
    def check(**types: pa.DataType) -> None:
        given = {name: types.get(name, pa.int64()) for name in ("ls", "le", "rs", "re")}
        sides = [pa.schema([(name, given[name]) for name in names]) for names in (("ls", "le"), ("rs", "re"))]
        Intervals((("ls", "le"), ("rs", "re")), Relation.parse("overlapping")).check(*sides)

    check()
    with pytest.raises(PlanError, match=r"left.ls \(int64\), left.le \(int64\), right.rs \(int64\), right.re \(date32"):
        check(re=pa.date32())
    for kind in (pa.string(), pa.decimal128(30, 2), pa.bool_()):
        with pytest.raises(PlanError, match=r"must be numbers \(decimals of at most 18 digits\), dates or times"):
            check(ls=kind, le=kind, rs=kind, re=kind)
    with pytest.raises(PlanError, match="zz") as refused:
        Intervals((("ls", "zz"), ("rs", "re")), Relation.parse("overlapping")).check(
            pa.schema([("ls", pa.int64())]), pa.schema([("rs", pa.int64()), ("re", pa.int64())])
        )
    assert refused.value.argument == "left_interval"
