"""Hot keys of online joins, from samples of rows: shares beside plain counts, which keys are hot, and what is said."""

from __future__ import annotations

from collections import Counter
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dovetail.engine.metrics import Metrics
from dovetail.joins.online.bucket_join import Pair
from dovetail.joins.online.hot_keys import KEYS, HotKey, KeyCounter, count_keys, hot_keys, sampled
from dovetail.joins.online.plan.plan import _spreading


def batch_of(keys: Any, kind: pa.DataType) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys, kind), pa.array(range(len(keys)))], names=["k", "n"])


@pytest.mark.parametrize("rows", [1, 7, 64, 65, 500, 5_000, 40_000])
def test_a_sample_is_small_and_spread_evenly(rows: int) -> None:
    found = sampled(rows)
    assert ((found >= 0) & (found < rows)).all()
    assert len(found) == rows if rows <= 64 else len(found) == 64 + rows // 64
    if rows > 64:
        for period in (2, 3, 7, 10, 64):  # rows that come in turns are all sampled
            counts = np.bincount(found % period, minlength=period) / len(found)
            assert abs(counts - 1 / period).max() < 0.1
        assert np.histogram(found, 4, (0, rows))[0].min() > len(found) / 5


@pytest.mark.parametrize("size", [30, 1_000, 30_000])
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_near_those_of_all_rows(seed: int, size: int) -> None:
    """Packets of both sizes in turn: those that are counted stand for those that are not."""
    rng, true = np.random.default_rng(seed), Counter[Any]()
    counter = KeyCounter([("left", batch_of([1], pa.int64()).schema)], [("k",)])
    keys = np.where(rng.random(60_000) < 0.3, 5, rng.integers(0, 10_000, 60_000)).tolist()
    edges = [0]
    while edges[-1] < len(keys):
        edges.append(edges[-1] + size // (1 + 2 * (len(edges) % 2)))
    for some in (keys[a:b] for a, b in pairwise(edges)):
        true.update(some)
        counter.take(0, len(some), batch_of(some, pa.int64()).serialize())
    metrics = counter.metrics
    items = metrics.frequent(KEYS, "left")
    assert true.total() - 16_384 <= items.total <= true.total()
    assert abs(items.share("5") - true[5] / true.total()) < 0.05
    assert all(share < 0.02 for key, n in items.counts.items() if key != "5" and (share := n / items.total))
    (hot,) = hot_keys(metrics, ["left", "right"], 8)
    assert (hot.key, hot.by_side[1]) == ("5", ("right", 0.0))


@pytest.mark.parametrize(
    ("kind", "hot", "other", "text"),
    [
        (pa.string(), "a b", "c", "'a b'"),
        (pa.date32(), date(2026, 1, 2), date(2026, 1, 3), "datetime.date(2026, 1, 2)"),
        (pa.bool_(), True, False, "True"),
        (pa.binary(), b"x", b"y", "b'x'"),
        (pa.string(), "x" * 300, "c", repr("x" * 300)),
        (pa.float64(), float("nan"), 1.5, "float('nan')"),
        (pa.float64(), -0.0, 1.5, "0.0"),
    ],
)
def test_keys_are_named_as_python_writes_them(kind: pa.DataType, hot: Any, other: Any, text: str) -> None:
    metrics = Metrics()
    count_keys(metrics, "left", batch_of([hot] * 90 + [other, None] * 5, kind), ["k"], 100)
    items = metrics.frequent(KEYS, "left")
    assert next(iter(sorted(items.counts, key=lambda key: -items.counts[key]))) == text
    assert items.share(text) == pytest.approx(0.9, abs=0.05)
    assert set(items.counts) == {text, repr(other)}


def test_several_columns_are_one_key() -> None:
    rows = [(1, "x")] * 30 + [(1, "y")] * 5 + [(None, "x")] * 5 + [(2, "x")] * 10
    batch = pa.RecordBatch.from_pydict({"k": [k for k, _ in rows], "l": [text for _, text in rows]})
    metrics = Metrics()
    count_keys(metrics, "left", batch, ["k", "l"], 50)
    items = metrics.frequent(KEYS, "left")
    assert items.counts == {"(1, 'x')": 30, "(1, 'y')": 5, "(2, 'x')": 10}
    assert items.total == 50


def test_a_key_is_hot_by_what_it_does_to_its_partition() -> None:
    metrics = Metrics()
    metrics.count_items(KEYS, {"7": 300, "8": 60, "9": 10}, 600, "left")
    assert hot_keys(metrics, ["left"], 200)[0].by_side == (("left", 0.5),)
    metrics.count_items(KEYS, {"7": 100, "9": 10}, 400, "right")
    found = {n: [key.key for key in hot_keys(metrics, ["left", "right"], n)] for n in (1, 2, 3)}
    assert found == {1: [], 2: [], 3: ["7"]}
    (first, *others) = hot_keys(metrics, ["left", "right"], 200)
    assert str(first) == "7 has 50.0% of left's and 25.0% of right's rows"
    assert [(key.key, key.share) for key in others] == [("8", 0.06), ("9", 0.02)]


def test_few_rows_have_no_hot_key() -> None:
    metrics = Metrics()
    metrics.count_items(KEYS, {"7": 400}, 499, "left")
    assert hot_keys(metrics, ["left", "right"], 200) == []
    assert hot_keys(Metrics(), ["left", "right"], 200) == []


def test_only_inputs_of_an_inner_join_are_to_be_exchanged() -> None:
    hot = [HotKey("7", 0.5, (("left", 0.1), ("right", 0.9)))]
    assert _spreading(Pair(("k",)), [], hot).endswith("right has more of them, so exchange the inputs first")
    for how in ("left", "left_semi", "left_anti", "right"):
        assert _spreading(Pair(("k",), how=how), [], hot).endswith("from a new checkpoint")  # type: ignore[arg-type]  # one of them
