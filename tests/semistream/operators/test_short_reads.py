"""Low rates: a load for few rows reads the pages that these need, answers alike, and keeps up where segments do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bench.simulation import SimulatedPages
from tests.semistream.operators.stream_cases import HOWS, KEYS, answers, random_case, run
from tests.semistream.operators.test_answers import random_spec

from dovetail.engine.clock import VirtualClock
from dovetail.engine.memory import MemoryBudget
from dovetail.joins.semistream.operators import ALGORITHMS, HybridJoin
from dovetail.joins.semistream.sizes import Sizes

INDEXED = [name for name in ALGORITHMS if "mesh" not in name and name != "inlj"]
SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])


@pytest.mark.parametrize("name", INDEXED)
def test_answers_are_those_of_the_definition(name: str) -> None:
    for seed, how in enumerate(HOWS):
        case, rng = random_case(700 + seed, KEYS[seed % len(KEYS)]), np.random.default_rng(seed)
        for together in (1, 3):
            spec = random_spec(rng, name, case, how, short_reads=True)
            sizes = Sizes(waiting=9, per_segment=4, cached=3, pinned=2, resident=1, together=together)
            spec = replace(spec, sizes=sizes)
            assert run(spec, case, pauses=seed % 3).bag == case.expected(how), spec


def low_rate(per_second: float, short: bool, rows: int = 900) -> tuple[int, float, Any]:
    """Rows that wait at the end, bytes of an average load, and the operator, at this rate of even keys.

    Pages of 34 rows take 4.4 ms, segments of 15 of them 10 ms: 227 of the former a second, and 100 of the latter.
    """
    pages = SimulatedPages(102_000, 34, 120)
    clock, rng = pages.device.clock, np.random.default_rng(1)
    assert isinstance(clock, VirtualClock)
    spec = HybridJoin(pages=pages, on=("key",), sizes=Sizes(waiting=5_000, per_segment=15), short_reads=short)
    with spec.open(MemoryBudget("1GB"), {"stream": SCHEMA}) as operator:
        for n, key in enumerate(rng.integers(0, 102_000, rows).tolist()):
            due = int(n / per_second * 1e9)
            answers(operator.idle(lambda due=due: clock.now_ns() >= due))  # type: ignore[misc]
            clock.advance(max(0, due - clock.now_ns()) / 1e9)
            answers(operator.push("stream", pa.record_batch([pa.array([key])], schema=SCHEMA)))
        waiting, loads = operator.waiting_rows, operator.counts["loads"]
    return waiting, pages.device.bytes_read / loads, operator


def test_single_pages_are_read_at_low_rates_and_keep_up_where_segments_do_not() -> None:
    page, segment = 34 * 120, 15 * 34 * 120
    waiting, read, _ = low_rate(60, short=True)
    assert (waiting, read) == (1, page)
    waiting, read, _ = low_rate(160, short=True)
    assert waiting < 10
    assert read < 1.1 * page
    waiting, read, _ = low_rate(160, short=False)
    assert waiting > 60
    assert read == segment


def test_segments_for_which_many_wait_are_read_whole() -> None:
    pages = SimulatedPages(1_020, 34, 120)
    spec = HybridJoin(pages=pages, on=("key",), sizes=Sizes(waiting=500, per_segment=15), short_reads=True)
    with spec.open(MemoryBudget("1GB"), {"stream": SCHEMA}) as operator:
        keys = np.random.default_rng(2).integers(0, 1_020, 5_000)
        answers(operator.push("stream", pa.record_batch([pa.array(keys)], schema=SCHEMA)))
        assert pages.device.bytes_read == operator.counts["loads"] * 15 * 34 * 120
