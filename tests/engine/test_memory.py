"""The memory budget: exact bytes, named parts, and refusals that say what to do."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.engine.memory import MemoryBudget, format_bytes, parse_bytes
from dovetail.errors import BudgetExceeded, PlanError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (np.int64(7), 7),
        ("17", 17),
        ("17b", 17),
        ("2k", 2048),
        ("64MB", 64 * 2**20),
        ("64m", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        (" 1.5g ", 3 * 2**29),
        ("0.5 KB", 512),
        ("2TB", 2**41),
        ("1PiB", 2**50),
    ],
)
def test_sizes_follow_spark(value: int | str, expected: int) -> None:
    assert parse_bytes(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "MB",
        "12 parsecs",
        "-1",
        "-5MB",
        "1e3",
        "0",
        "0MB",
        "0.1b",
        "5ib",
        "1,5GB",
        "nan",
        "9999999 PB",
        "9" * 5000,
        0,
        -3,
        True,
        1.5,
        None,
        2**63,
    ],
)
def test_nonsense_is_a_plan_error(value: object) -> None:
    with pytest.raises(PlanError, match="memory="):
        parse_bytes(value)  # type: ignore[arg-type]  # wrong types are what is tested


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (3 * 2**40, "3 TiB")]
)
def test_sizes_for_people(n: int, text: str) -> None:
    assert format_bytes(n) == text


def test_components_keep_current_and_peak() -> None:
    budget = MemoryBudget(100)
    queue, table = budget.reserve("queue"), budget.reserve("table")
    queue.grow(60)
    table.grow(40)
    queue.shrink(50)
    assert budget.components() == {"queue": (10, 60), "table": (40, 40)}
    assert (budget.used, budget.peak, budget.available) == (50, 100, 50)
    queue.close()
    queue.close()
    assert budget.components()["queue"] == (0, 60)


def test_reservations_of_one_name_add_up() -> None:
    budget = MemoryBudget(100)
    with budget.reserve("pages") as first, budget.reserve("pages") as second:
        first.grow(30)
        second.grow(20)
        assert budget.components() == {"pages": (50, 50)}
        assert (first.used, second.used) == (30, 20)
    assert budget.components() == {"pages": (0, 50)}
    assert budget.used == 0


def test_refusal_names_component_amounts_and_remedy_and_changes_nothing() -> None:
    budget = MemoryBudget("1KB", name="join memory")
    cache = budget.reserve("cache")
    cache.grow(1000)
    with pytest.raises(BudgetExceeded) as refusal:
        cache.grow(100)
    message = str(refusal.value)
    for part in ("'cache'", "100 bytes", "'join memory'", "24 bytes", "1 KiB", 'memory="2KB"'):
        assert part in message
    assert isinstance(refusal.value, MemoryError)
    assert (cache.used, budget.used, budget.peak) == (1000, 1000, 1000)
    assert not cache.try_grow(25)
    assert cache.try_grow(24)


def test_child_is_bound_by_its_own_limit_and_by_its_parents() -> None:
    root = MemoryBudget(100, "root")
    child = root.child("child", 40)
    grandchild = child.child("grandchild")
    inside, beside = grandchild.reserve("x"), root.reserve("y")
    inside.grow(40)
    assert not inside.try_grow(1)
    assert (root.used, child.used, grandchild.used) == (40, 40, 40)
    beside.grow(60)
    inside.shrink(10)
    beside.grow(10)
    assert not inside.try_grow(1)
    assert child.available == 0
    assert root.components() == {"y": (70, 70), "child/grandchild/x": (30, 40)}
    assert child.components() == {"grandchild/x": (30, 40)}


def test_children_made_again_and_again_share_one_line_of_the_report() -> None:
    root = MemoryBudget(100)
    for size in (10, 30, 20):
        with root.child("batch").reserve("cache") as cache:
            cache.grow(size)
    assert root.components() == {"batch/cache": (0, 30)}


def test_child_larger_than_parent_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match="at most that"):
        MemoryBudget(10).child("too big", 11)


def test_misuse_is_refused() -> None:
    part = MemoryBudget(10).reserve("x")
    part.grow(5)
    for wrong in (lambda: part.grow(-1), lambda: part.shrink(6), lambda: part.resize(-1)):
        with pytest.raises(ValueError, match="bytes"):
            wrong()
    assert part.used == 5


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60))), st.integers(1, 100))
def test_totals_agree_with_a_plain_model(steps: list[tuple[int, int]], limit: int) -> None:
    budget = MemoryBudget(limit)
    parts = [budget.reserve(str(i)) for i in range(3)]
    model, peak = [0, 0, 0], 0
    for i, size in steps:
        if sum(model) - model[i] + size <= limit:
            parts[i].resize(size)
            model[i] = size
        else:
            with pytest.raises(BudgetExceeded):
                parts[i].resize(size)
        peak = max(peak, sum(model))
        assert [p.used for p in parts] == model
        assert (budget.used, budget.peak) == (sum(model), peak)
        assert budget.peak <= limit


def test_threads_never_take_more_than_there_is() -> None:
    budget = MemoryBudget(1000)
    won: list[int] = []

    def work() -> None:
        part = budget.reserve("shared")
        won.append(sum(part.try_grow(1) for _ in range(500)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(won) == budget.used == budget.peak == 1000
    assert budget.components() == {"shared": (1000, 1000)}


def test_components_at_the_peak_add_up_to_it() -> None:
    """What the smaller later moments look like does not matter, nor which budget is asked."""
    budget = MemoryBudget(1000)
    inner = budget.child("inner", 600)
    rows, keys = inner.reserve("rows"), budget.reserve("keys")
    rows.grow(500)
    keys.grow(300)
    assert budget.at_peak() == {"inner/rows": 500, "keys": 300}
    rows.shrink(450)
    keys.grow(400)
    assert budget.at_peak() == {"inner/rows": 500, "keys": 300}
    assert inner.at_peak() == {"rows": 500}
    rows.grow(60)
    assert budget.at_peak() == {"inner/rows": 110, "keys": 700}
    rows.close()
    keys.close()
    assert sum(budget.at_peak().values()) == budget.peak == 810


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-40, 40)), max_size=60))
def test_components_at_the_peak_add_up_for_any_moves(moves: list[tuple[str, int]]) -> None:
    """Through grants, refusals and returns."""
    budget = MemoryBudget(100)
    held = {name: budget.reserve(name) for name in "abc"}
    for name, amount in moves:
        if amount >= 0:
            held[name].try_grow(amount)
        else:
            held[name].shrink(min(-amount, held[name].used))
        assert sum(budget.at_peak().values()) == budget.peak
