"""Slots, slot partitions, their sorted file, and the overlap-partition join that is built on them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interval.operators.operator_cases import (
    MORE_RELATIONS,
    RELATIONS,
    cut,
    expected,
    random_side,
    run,
    schemas,
    side,
    steady,
    tuples,
)

from dovetail.engine.kernels.arrays import readonly
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import PlanError
from dovetail.joins.interval.kernels.partitions import slots_may_match
from dovetail.joins.interval.kernels.sweep import holds
from dovetail.joins.interval.operators import Frames, OverlapPartitionJoin
from dovetail.joins.interval.operators.partitioned import Storage
from dovetail.joins.interval.operators.slot_store import Slots, SlotStore
from dovetail.joins.interval.operators.spec import ROW, pair_rule, slot_tests
from dovetail.joins.interval.relation import Relation

OVERLAPPING = Relation.parse("overlapping")


def _decoded(slots: Slots, part: int) -> tuple[int, int]:
    return slots.base - 1 - part % slots.base, part // slots.base


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


def test_slots_are_of_equal_width_and_two_are_for_what_lies_outside() -> None:
    slots = Slots(4, 100, 139)  # 39 instants: slots of 10, the last one shorter
    assert slots.width == 10
    starts = _ints(0, 99, 100, 109, 110, 138, 139)
    parts = slots.parts(starts, starts + 1)
    assert [_decoded(slots, int(p)) for p in parts] == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (4, 4), (5, 5)]
    reaching = slots.parts(_ints(90, 105, 90, 110), _ints(115, 300, 300, 120))
    assert [_decoded(slots, int(p)) for p in reaching] == [(0, 2), (1, 5), (0, 5), (2, 2)]  # 120 is not in [110, 120)


def test_slots_of_the_widest_codes() -> None:
    low, high = -(2**63), 2**63 - 1
    slots = Slots(8, low, high)
    parts = slots.parts(_ints(low, 0, high - 1, low), _ints(low + 1, 1, high, high))
    assert [_decoded(slots, int(p)) for p in parts] == [(1, 1), (5, 5), (8, 8), (1, 8)]


def test_half_steps_of_one_instant_share_a_slot() -> None:
    slots = Slots(2, 0, 8, halves=1)  # instants 0 to 3
    parts = slots.parts(_ints(0, 2, 3, 4), _ints(4, 4, 5, 8))
    assert [_decoded(slots, int(p)) for p in parts] == [(1, 1), (1, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("wrong", [(0, 0, 10), (3, 5, 5), (-1, 0, 10), (2**31, 0, 10)])
def test_slots_that_cannot_be_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(PlanError, match=r"slots=|empty"):
        Slots(*wrong)
    with pytest.raises(PlanError, match="compare_cost"):
        OverlapPartitionJoin(relation=OVERLAPPING, compare_cost=0)


@pytest.mark.parametrize("relation", [*RELATIONS, *MORE_RELATIONS])
@pytest.mark.parametrize(("shift", "closed"), [(0, "left"), (1, "both")])
def test_no_answer_is_lost_between_partitions_that_are_not_compared(relation: Any, shift: int, closed: str) -> None:
    meaning = Relation.parse(relation, closed=closed)
    rule, tests = pair_rule(meaning, 0, shift, None, False), slot_tests(meaning, 0, shift, False)
    intervals = [(s, e) for s in range(9) for e in range(s + 1, 10)]
    refused = 0
    for count in (1, 2, 3, 5, 9):
        slots = Slots(count, 1, 8)  # some reach outside
        parts = [int(slots.parts(_ints(s), _ints(e))[0]) for s, e in intervals]
        for (i, r), (j, s) in itertools.product(enumerate(intervals), repeat=2):
            may = slots_may_match(parts[i], parts[j], slots.base, tests)
            refused += not may
            assert may or not holds(rule, *r, *s), (r, s, count)
    assert refused > 0


def test_pairs_of_partitions_of_slot_groups_are_counted_as_in_equation_4_51() -> None:
    slots, none = Slots(6, 0, 6), readonly(np.zeros(4, np.bool_), np.bool_)

    def group(length: int) -> list[int]:
        starts = np.arange(0, 6 - length + 1)
        return [int(p) for p in slots.parts(starts, starts + length)]

    found = sum(slots_may_match(r, s, slots.base, none) for r in group(3) for s in group(2))
    assert found == 14


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("spill_every", [2, 3, 1000])
def test_the_file_is_in_partition_order_however_many_runs_were_merged(keyed: bool, spill_every: int) -> None:
    rows = random_side(np.random.default_rng(5), 200, 100, 30, 3 if keyed else 1)
    rows = rows.append_column(ROW, pa.array(np.arange(200)))
    slots, memory = Slots(5, 10, 90), MemoryBudget("1MB")
    store = SlotStore(Storage("left", rows.schema, keyed, False, 1, 7, 1 << 20, memory, None), slots)
    for number, piece in enumerate(cut(rows, 5)):
        store.add(piece)
        if number % spill_every == spill_every - 1:
            store.spill()
    store.finish()
    loads = list(store.loads(3000))
    keys = [int(k) for load in loads for k in (load.key if keyed else np.zeros(load.part.size, np.int64))]
    order = [(key, int(part)) for key, part in zip(keys, (p for load in loads for p in load.part), strict=True)]
    assert order == sorted(order)
    assert sorted(int(i) for load in loads for i in load.ordinals) == list(range(200))
    for load in loads:
        assert np.repeat(load.part, np.diff(load.first)).tolist() == slots.of(load.batch).tolist()
    assert store.partitions() == len(set(order))
    assert (store.sorted_rows > 0) == (spill_every < 1000)
    store.close()
    assert memory.used == 0


@pytest.mark.parametrize("relation", ["overlapping", "overlaps", "covered_by", "equals"])
@pytest.mark.parametrize("memory", [None, 3, 40])
def test_slots_by_hand_and_special_slots_change_no_answer(relation: str, memory: int | None) -> None:
    rng = np.random.default_rng(8)
    left, right = random_side(rng, 60, 80, 30, 2, "l"), random_side(rng, 60, 80, 30, 2, "r")
    meaning, seen = Relation.parse(relation), set()
    for slots, time_range in ((1, None), (4, (20, 60)), (17, (0, 200)), (None, (30, 40)), (1000, None)):
        spec = OverlapPartitionJoin(
            relation=meaning, slots=slots, time_range=time_range, frames=memory and tuples(memory), keyed=True
        )
        found, metrics = run(spec, left, right, 7)
        assert found == expected(meaning, left, right, keyed=True)
        seen.add(metrics.value("slots"))
        assert slots is None or metrics.value("slots") == slots
    assert len(seen) >= 4


def test_comparisons_are_the_products_of_partitions_that_can_match() -> None:
    rows, slots = steady(1000, 1, 13), Slots(40, 0, 1012)
    spec = OverlapPartitionJoin(relation=OVERLAPPING, slots=40, time_range=(0, 1012), emit="count")
    metrics = run(spec, rows, rows, 100)[1]
    parts, sizes = np.unique(slots.of(rows), return_counts=True)
    none = readonly(np.zeros(4, np.bool_), np.bool_)
    compared = sum(
        int(n) * int(m)
        for (r, n), (s, m) in itertools.product(zip(parts, sizes, strict=True), repeat=2)
        if slots_may_match(int(r), int(s), slots.base, none)
    )
    assert metrics.value("comparisons_productive") + metrics.value("comparisons_unproductive") == compared
    assert metrics.value("pairs") == 1000 * 25 - 12 * 13
    assert metrics.value("partitions", "left") == metrics.value("partitions", "right") == parts.size


def test_blocked_mode_reads_the_inner_input_once_and_the_outer_one_where_it_can_match() -> None:
    rows, frames = steady(1000, 10, 10), Frames(256, 8192, 2296)
    spec = OverlapPartitionJoin(relation=OVERLAPPING, frames=frames, emit="count", slots=50, time_range=(0, 1009))
    metrics = run(spec, rows, rows, 1000, "64MB")[1]
    assert metrics.value("pairs") == 1_891_000
    assert metrics.value("inner_batches") == -(-10_000 // (768 - 6))
    assert metrics.value("rows_written", "left") == metrics.value("rows_written", "right") == 10_000
    assert metrics.value("rows_read", "right") == 10_000
    assert 10_000 <= metrics.value("rows_read", "left") < 14 * 10_000


def test_formula_for_slots_follows_the_data() -> None:
    def slots_of(duration: int) -> int:
        rows = steady(2000, 3, duration)
        spec = OverlapPartitionJoin(relation=OVERLAPPING, emit="count", frames=Frames(256, 8192, 74))
        return run(spec, rows, rows, 1000, "64MB")[1].value("slots")

    assert slots_of(10) > slots_of(500) >= 1


def test_explain_names_the_slots() -> None:
    spec = OverlapPartitionJoin(relation=OVERLAPPING, slots=7, time_range=(0, 50))
    assert spec.explain() == (
        "OverlapPartitionJoin: relation=overlapping, outer=left, any order, emit=rows, slots=7 over [0, 50)"
    )
    assert OverlapPartitionJoin(relation=OVERLAPPING).explain().endswith("slots=by formula")


def test_the_survey_of_a_big_input_goes_to_disk() -> None:
    left, right = side(range(300), range(5, 305), name="l"), side(range(300), range(5, 305), name="r")
    memory = MemoryBudget(40_000)
    with OverlapPartitionJoin(relation=OVERLAPPING).open(memory, schemas(left, right)) as operator:
        found = sum(batch.num_rows for batch in operator.join(cut(left, 20), cut(right, 20)))
        assert operator.metrics.value("rows_surveyed_on_disk") > 0
    assert found == 300 * 9 - 2 * 10
