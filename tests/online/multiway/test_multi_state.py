"""MINER's state in memory against plain recounts: ordered indexes, regions, the order of probes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.online.multiway.multi_schedules import BUDGET, opened, random_multi

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.kernels.areas import area_of
from dovetail.joins.online.kernels.indexed import O_RELATION, edges_of, order_probes, update_sigma
from dovetail.joins.online.kernels.ranges import reach
from dovetail.joins.online.kernels.tree import (
    FIRST,
    LAST,
    LINK_BYTES,
    Order,
    Trees,
    empty_trees,
    first_from,
    insert_node,
    last_before,
    next_node,
    remove_node,
)
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.block_loop import Odometer
from dovetail.joins.online.operators.miner import TreeIndex


def test_indexes_are_as_sorted_lists_whatever_comes_and_goes() -> None:
    rng = np.random.default_rng(1)
    trees, order = empty_trees(2, 1, 300), Order(*(np.zeros(300, np.int64) for _ in range(3)))
    model: list[tuple[int, int, int, int]] = []
    free = list(range(300))
    for tick in range(4000):
        if free and (rng.random() < 0.55 or not model):
            slot = free.pop(int(rng.integers(len(free))))
            row = int(rng.integers(-9, 9)), int(rng.integers(-3, 3)), tick
            order.key[slot], order.near[slot], order.ats[slot] = row
            insert_node(trees, order, 1, 0, slot)
            model.append((*row, slot))
        else:
            slot = model.pop(int(rng.integers(len(model))))[3]
            remove_node(trees, order, 1, 0, slot)
            free.append(slot)
        model.sort()
        if tick % 50 == 0:
            assert walked(trees, 0, int(trees.ends[1, 0, FIRST])) == [row[3] for row in model]
            assert trees.ends[1, 0, LAST] == (model[-1][3] if model else -1)
            for place in ((-30, 0, 0), (-3, -1, 5), (4, 2, tick // 2), (4, 9, 0), (30, 0, 0)):
                wanted = next((row[3] for row in model if row[:3] >= place), -1)
                assert first_from(trees, order, 1, 0, *place) == wanted
                wanted = next((row[3] for row in reversed(model) if row[:3] < place), -1)
                assert last_before(trees, order, 1, 0, *place) == wanted
    assert trees.ends[0, 0, FIRST] == -1


def walked(trees: Trees, attribute: int, node: int) -> list[int]:
    found = []
    while node >= 0:
        found.append(node)
        node = next_node(trees, attribute, node)
    return found


def test_an_index_takes_two_links_of_four_bytes_a_row() -> None:
    trees = empty_trees(4, 2, 1000)
    assert trees.child.nbytes == 2 * LINK_BYTES * 1000 == 16_000
    assert trees.ends.nbytes < 100


@pytest.mark.parametrize("tree", ["chain4", "star4"])
def test_rows_of_regions_are_those_of_a_recount(tree: str) -> None:
    for seed in range(15):
        case = random_multi("miner", tree, 9000 + seed)
        operator = opened(case.spec, MemoryBudget(BUDGET), case.schemas)
        for piece in case.pieces:
            list(operator.push(piece[0], case.batch(piece)))
            check_regions(operator)
        operator.close()


def check_regions(operator: OnlineOperator) -> None:
    index = operator.index
    assert isinstance(index, TreeIndex)
    areas, trees = index.areas, index.trees
    for r in range(len(index.keys.counts)):
        slots = np.sort(operator.pages[r].slots())
        for a in range(int(index.keys.counts[r])):
            regions = [area_of(areas, r, a, index.rows.keys[a, slot]) for slot in slots]
            assert areas.held[r, a].tolist() == np.bincount(regions, minlength=3).tolist()
            assert areas.low[r, a] < areas.up[r, a]
            assert sorted(walked(trees, a, int(trees.ends[r, a, FIRST]))) == slots.tolist()


def test_probes_go_along_the_tree_least_sigma_first() -> None:
    """The example of the source: sigma23 <= sigma12 <= sigma34."""
    ends = np.array([[0, 1], [1, 2], [2, 3]])
    edges = edges_of(ends, np.zeros_like(ends))
    edges.sigma[:] = 0.2, 0.1, 0.3
    order_probes(edges)
    assert edges.order[1, 1:, O_RELATION].tolist() == [2, 0, 3]
    assert edges.order[0, 1:, O_RELATION].tolist() == [1, 2, 3]


def test_sigma_is_kept_until_enough_probes_were_made() -> None:
    ends = np.array([[0, 1]])
    edges = edges_of(ends, np.zeros_like(ends))
    edges.sigma[0] = 0.5
    edges.counts[0] = 10, 990, 99
    update_sigma(edges)
    assert edges.sigma[0] == 0.5
    edges.counts[0] = 10, 1000, 100
    update_sigma(edges)
    assert edges.sigma[0] == 0.01
    assert edges.counts[0].tolist() == [0, 0, 0]


def test_ranges_end_where_numbers_end() -> None:
    top, bottom = 2**63 - 1, -(2**63)
    assert reach(5, -2, 3) == (3, 8)
    assert reach(top, -1, 1) == (top - 1, top)
    assert reach(bottom, -1, 1) == (bottom, bottom + 1)
    for low, high in (reach(top, 1, 2), reach(bottom, -2, -1)):
        assert low > high


def test_the_odometer_visits_every_combination_of_blocks_once() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        n = int(rng.integers(2, 5))
        sizes = rng.integers(0, 4, n).tolist()
        odometer, seen = Odometer([0] * n), []
        for _ in range(3):
            most = int(rng.integers(1, 4))
            while odometer.ready(sizes, lambda r, most=most: most, lambda r, n=n: [q for q in range(n) if q != r]):
                for outer in odometer.batch:
                    at = dict(zip(odometer.digits, odometer.current, strict=True)) | {odometer.outer: outer}
                    seen.append(tuple(at[r] for r in range(n)))
                odometer.advance(n - 2)
            assert sorted(seen) == sorted(np.ndindex(*sizes))
            sizes = [size + int(rng.integers(0, 3)) for size in sizes]
