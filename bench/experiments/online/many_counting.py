"""Combinations that joins of several inputs give while rows arrive: counted by the kernels of the operators.

One of these results has some 170 million rows. All inputs come at one rate, so the small ones have come after a tenth
of the time. Reference: Bornea 2010, 5.5; docs/algorithms/online.md, 6.2 and 6.4.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.engine.kernels.compile import kernel
from dovetail.joins.online.graph import JoinGraph, join_graph
from dovetail.joins.online.kernels.areas import BENEFIT, RANDOM, empty_areas
from dovetail.joins.online.kernels.flush import MJOIN, MJOIN_SMALLEST
from dovetail.joins.online.kernels.hashed import arrive_hashed, empty_search
from dovetail.joins.online.kernels.indexed import arrive_multi, edges_of, empty_stack
from dovetail.joins.online.kernels.rows import (
    DONE,
    GONE,
    HEADS,
    RESULTS,
    Outcome,
    Rows,
    arrivals,
    empty_outcome,
    empty_rows,
    release,
)
from dovetail.joins.online.kernels.table import empty_table
from dovetail.joins.online.kernels.tree import empty_trees
from dovetail.workloads.relation_sets import chain_relations, star_relations

ROWS, DOMAIN, BLOCK, BUCKETS, TURN = 100_000, 10_000, 50, 50, 20
CHAIN = {1: ("R2.a2", "R3.a2"), 2: ("R1.a1", "R2.a1"), 3: ("R3.a3", "R4.a3")}
"""Predicates of the chain, in the order in which inputs are added."""
Columns = Mapping[str, Mapping[str, I64]]


def chain(inputs: int, rows: int, domain: int, seed: int = 1) -> tuple[JoinGraph, Columns]:
    """R1.a1 = R2.a1, R2.a2 = R3.a2, R3.a3 = R4.a3 of the first inputs, and their keys in order of arrival."""
    relations = chain_relations(inputs, rows, domain, seed)
    graph = join_graph(list(relations), [CHAIN[i] for i in range(1, inputs)])
    return graph, {name: keys_of(relation.table()) for name, relation in relations.items()}


def star(rows: int, domain: int, seed: int = 1) -> tuple[JoinGraph, Columns]:
    """Four inputs with one common attribute."""
    relations = star_relations(4, rows, domain, seed)
    names = list(relations)
    graph = join_graph(names, [(f"{names[0]}.key", f"{name}.key") for name in names[1:]])
    return graph, {name: keys_of(relation.table()) for name, relation in relations.items()}


def keys_of(table: pa.Table) -> dict[str, I64]:
    """The join attributes of an input."""
    names = [name for name in table.schema.names if name.startswith(("a", "key")) and name != "at"]
    return {name: int64s(table.column(name).to_numpy()) for name in names}


def total(columns: Columns) -> int:
    """Combinations in all: the unique inputs have each key once, so the two large ones decide."""
    large = [columns["R2"], columns["R3"]]
    name = "a2" if "a2" in large[0] else "key"
    counts = [np.bincount(each[name], minlength=1) for each in large]
    n = min(map(len, counts))
    return int(counts[0][:n] @ counts[1][:n])


def online(algorithm: str, graph: JoinGraph, columns: Columns, memory: int, block: int = BLOCK) -> int:
    """Combinations that come while rows arrive, with this many rows in memory.

    "MINER", "MJoin largest" and "MJoin smallest" (of one common attribute), "random" (MINER's indexes, but rows leave
    by chance), "oldest" (the oldest block of the largest input leaves).
    """
    if algorithm == "oldest":
        return _oldest(columns, memory, block)
    n, slots = len(graph.names), memory + max(64, block)
    attributes = [graph.attributes(r) for r in range(n)]
    counts = np.array([len(some) for some in attributes])
    most = int(counts.max())
    rows = empty_rows(slots, memory, 2**62, n, most, emit=False)
    out, stack = empty_outcome(1, slots, 64, n), empty_stack(n)
    flush = MJOIN_SMALLEST if algorithm == "MJoin smallest" else MJOIN
    table, search, knobs = empty_table(slots, BUCKETS, flush, block, 1, sides=n), empty_search(n), np.zeros(3)
    policy = RANDOM if algorithm == "random" else BENEFIT
    trees, areas = empty_trees(n, most, slots), empty_areas(counts, block, 1, policy, slots)
    ends = np.array([[end.relation for end in edge.ends] for edge in graph.edges])
    at = np.array([[attributes[end.relation].index(end) for end in edge.ends] for edge in graph.edges])
    edges = edges_of(ends, at)
    keys = [np.stack([columns[name][a.columns[0]] for a in attributes[r]]) for r, name in enumerate(graph.names)]
    for r, key in turns(keys):
        size, slots_of = np.ones(key.shape[1], np.int64), np.full(key.shape[1], -1, np.int32)
        new = arrivals(r, 0, key, size, slots_of)
        status = -1
        while status != DONE:
            if algorithm.startswith("MJoin"):
                status = arrive_hashed(rows, table, search, new, out, knobs)
            else:
                status = arrive_multi(rows, areas, trees, edges, new, stack, out)
            _free(rows, out)
    return int(rows.meta[RESULTS])


def turns(keys: list[I64]) -> list[tuple[int, I64]]:
    """All inputs in turn, at one rate."""
    longest = max(key.shape[1] for key in keys)
    parts = ((r, key[:, start : start + TURN]) for start in range(0, longest, TURN) for r, key in enumerate(keys))
    return [(r, part) for r, part in parts if part.shape[1]]


def _free(rows: Rows, out: Outcome) -> None:
    release(rows, out.gone[: out.n[GONE]])
    out.n[GONE] = out.n[HEADS] = 0


def share(line: str, percent: int, rows: int = ROWS, block: int = BLOCK) -> float:
    """Percent of the result while rows arrive, for "chain of 3, MINER" and the like and a memory in percent."""
    shape, algorithm = line.split(", ")
    domain = DOMAIN * rows // ROWS
    graph, columns = star(rows, domain) if shape.startswith("star") else chain(int(shape[-1]), rows, domain)
    inputs = sum(len(next(iter(each.values()))) for each in columns.values())
    return 100.0 * online(algorithm, graph, columns, inputs * percent // 100, block) / total(columns)


def _oldest(columns: Columns, memory: int, block: int) -> int:
    """Which rows are in memory does not depend on keys, so combinations are those of windows over the inputs."""
    names = sorted(columns)
    sizes = [len(next(iter(columns[name].values()))) for name in names]
    came = int64s(np.array([r for r, _ in _single(sizes)], np.int64))
    common = "key" in columns[names[0]]
    first = [columns[name]["key"] if common else _towards_r2(columns, name) for name in names]
    second = [columns[name].get("a3", first[at]) for at, name in enumerate(names)]
    places = int64s(np.array([["R1", "R2", "R3", "R4"].index(name) for name in names], np.int64))
    pad = max(sizes)
    keys = np.full((2, 4, pad), -1, np.int64)
    for at, place in enumerate(places.tolist()):
        keys[0, place, : sizes[at]] = first[at]
        keys[1, place, : sizes[at]] = second[at]
    if not common:
        keys[1, 1, : len(columns["R2"]["a1"])] = columns["R2"]["a1"]
    domain = int(keys.max()) + 1
    has = np.array([place in places for place in range(4)])
    count = _count_common if common else _count_chain
    return int(count(keys, has, int64s(places[came]), memory, block, domain))


def _towards_r2(columns: Columns, name: str) -> I64:
    """The attribute by which an input is reached: R2 and R3 meet on a2, R1 and R4 have one."""
    return columns[name]["a2"] if name in ("R2", "R3") else next(iter(columns[name].values()))


def _single(sizes: list[int]) -> list[tuple[int, int]]:
    keys = [int64s(np.arange(size)[None, :]) for size in sizes]
    return [(r, at) for r, part in turns(keys) for at in part[0].tolist()]


@kernel
def _make_room(first: I64, end: I64, memory: int, block: int) -> int:
    """The input whose oldest block must leave, or -1."""
    if (end - first).sum() < memory:
        return -1
    return int(np.argmax(end - first))


@kernel
def _count_common(keys: I64, has: I64, came: I64, memory: int, block: int, domain: int) -> int:
    """Combinations of inputs that all have one attribute: products of how often a key is in memory."""
    first, end, total = np.zeros(4, np.int64), np.zeros(4, np.int64), np.int64(0)
    held = np.zeros((4, domain), np.int64)
    for r in came:
        larger = _make_room(first, end, memory, block)
        if larger >= 0:
            for _ in range(min(block, end[larger] - first[larger])):
                held[larger, keys[0, larger, first[larger]]] -= 1
                first[larger] += 1
        key, found = keys[0, r, end[r]], np.int64(1)
        for other in range(4):
            if other != r and has[other]:
                found *= held[other, key]
        total += found
        held[r, key] += 1
        end[r] += 1
    return int(total)


@kernel
def _partners(keys: I64, held: I64, low: int, high: int, r: int, key: int, ends: bool) -> int:
    """Rows of R2 or R3 in memory with this a2 whose own neighbour, if there is one, is in memory too."""
    found = np.int64(0)
    outer = 0 if r == 1 else 3
    for row in range(low, high):
        if keys[0, r, row] == key:
            found += held[outer, keys[1, r, row]] if ends else 1
    return int(found)


@kernel
def _count_chain(keys: I64, has: I64, came: I64, memory: int, block: int, domain: int) -> int:
    """Combinations of the chain: a row of R2 meets rows of R3 by a2; R1 and R4, with unique keys, hang on these."""
    first, end, total = np.zeros(4, np.int64), np.zeros(4, np.int64), np.int64(0)
    held = np.zeros((4, domain), np.int64)  # how often a key of R1 and R4 is in memory
    for r in came:
        larger = _make_room(first, end, memory, block)
        if larger >= 0:
            for _ in range(min(block, end[larger] - first[larger])):
                if larger in (0, 3):
                    held[larger, keys[0, larger, first[larger]]] -= 1
                first[larger] += 1
        at = end[r]
        if r in (1, 2):
            outer, other = (0, 2) if r == 1 else (3, 1)
            mine = held[outer, keys[1, r, at]] if has[outer] else 1
            if mine:
                ends = bool(has[3 if other == 2 else 0])
                total += mine * _partners(keys, held, first[other], end[other], other, keys[0, r, at], ends)
        else:
            near, far = (1, 2) if r == 0 else (2, 1)
            ends = bool(has[3 if far == 2 else 0])
            for row in range(first[near], end[near]):
                if keys[1, near, row] == keys[0, r, at]:
                    total += _partners(keys, held, first[far], end[far], far, keys[0, near, row], ends)
            held[r, keys[0, r, at]] += 1
        end[r] += 1
    return int(total)
