"""The linked queue against a list of (slot, value)."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.kernels.queue import LinkedQueue

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def agrees(queue: LinkedQueue, model: list[tuple[int, int]]) -> None:
    assert len(queue) == len(model)
    assert queue.slots().tolist() == [slot for slot, _ in model]
    assert queue.values().tolist() == [value for _, value in model]
    assert queue.at(np.arange(len(model))).tolist() == [slot for slot, _ in model]
    assert queue.position_of(np.array([slot for slot, _ in model], np.int64)).tolist() == list(range(len(model)))


def step(queue: LinkedQueue, model: list[tuple[int, int]], rng: np.random.Generator, growth: float) -> None:
    kind = "append" if rng.random() < growth else rng.choice(["delete", "delete", "pop", "at", "window", "position"])
    some = int(rng.integers(0, 5))
    if kind == "append":
        values = rng.integers(LOW, HIGH, some)
        model += zip(queue.append(values).tolist(), values.tolist(), strict=True)
    elif kind == "pop":
        slots, values = queue.pop_front(some)
        assert list(zip(slots.tolist(), values.tolist(), strict=True)) == model[:some]
        del model[:some]
    elif kind == "delete":
        slots = rng.integers(0, len(queue._links.values), some)
        for slot, gone in zip(slots.tolist(), queue.delete(slots).tolist(), strict=True):
            before = len(model)
            model[:] = [element for element in model if element[0] != slot]
            assert gone == (len(model) < before)
    elif kind == "at" and model:
        positions = rng.integers(0, len(model), some)
        assert queue.values_of(queue.at(positions)).tolist() == [model[at][1] for at in positions]
    elif kind == "window":
        start = int(rng.integers(0, len(model) + 2))
        assert queue.window(start, some).tolist() == [slot for slot, _ in model[start : start + some]]
    else:
        slots = rng.integers(0, len(queue._links.values), some)
        known = {slot: at for at, (slot, _) in enumerate(model)}
        assert queue.position_of(slots).tolist() == [known.get(slot, -1) for slot in slots.tolist()]


@pytest.mark.parametrize("growth", [0.2, 0.35, 0.6], ids=["near empty", "steady", "growing"])
def test_twelve_thousand_operations_agree_with_a_list(growth):
    rng = np.random.default_rng(int(growth * 100))
    queue, model = LinkedQueue(1), []
    for n in range(4_000):
        step(queue, model, rng, growth)
        if n % 50 == 0:
            agrees(queue, model)
    agrees(queue, model)


def test_positions_in_a_large_queue_with_holes():
    rng = np.random.default_rng(3)
    queue = LinkedQueue()
    slots = np.concatenate([queue.append(np.arange(at, at + 1_000)) for at in range(0, 100_000, 1_000)])
    gone = rng.permutation(100_000)[:70_000]
    assert queue.delete(slots[gone]).all()
    left = np.setdiff1d(np.arange(100_000), gone)
    assert np.array_equal(queue.values(), left)
    positions = rng.integers(0, len(left), 5_000)
    assert np.array_equal(queue.values_of(queue.at(positions)), left[positions])
    assert np.array_equal(queue.position_of(slots[left]), np.arange(len(left)))
    assert not queue.delete(slots[gone[:10]]).any()


def test_a_steady_queue_does_not_grow():
    queue = LinkedQueue()
    queue.append(np.arange(1_000))
    most = queue.nbytes_after(0)
    for _ in range(200):
        queue.pop_front(500)
        queue.append(np.arange(500))
        assert queue.nbytes <= most
    assert len(queue) == 1_000


def test_empty_queue_and_empty_batches():
    queue, none = LinkedQueue(), np.empty(0, np.int64)
    assert queue.append(none).tolist() == queue.slots().tolist() == queue.at(none).tolist() == []
    assert [len(part) for part in queue.pop_front(5)] == [0, 0]
    assert queue.position_of(np.array([0])).tolist() == [-1]
    assert queue.delete(np.array([0])).tolist() == [False]
    assert queue.window(0, 3).tolist() == queue.window(9, 3).tolist() == []


def test_memory_is_exact_and_foretold():
    queue = LinkedQueue()
    for size in (0, 1, 63, 64, 65, 1_000, 20_000, 7):
        foretold = queue.nbytes_after(size)
        queue.append(np.arange(size))
        assert queue.nbytes == sum(array.nbytes for array in queue._links) <= foretold
        queue.pop_front(size // 3)
    full = queue.nbytes
    queue.clear()
    assert len(queue) == 0
    assert queue.nbytes < full / 10


def test_wrong_input_is_refused():
    queue = LinkedQueue()
    queue.append(np.arange(3))
    with pytest.raises(IndexError, match="positions from 0 to 3; the queue holds 3"):
        queue.at(np.array([0, 3]))
    with pytest.raises(IndexError, match="positions from -1"):
        queue.window(-1, 2)
    with pytest.raises(IndexError, match="slots from 64"):
        queue.delete(np.array([64]))
    with pytest.raises(OverflowError, match="at most"):
        queue.nbytes_after(2**30)
