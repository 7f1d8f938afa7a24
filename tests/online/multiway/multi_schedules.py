"""Random inputs, trees and interleavings for multiway joins, a driver for them, and what the answer must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from tests.online.restarts import Restartable
from tests.online.schedules import by_phase

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import Sizes

BUDGET = 1 << 18
TREES: dict[str, tuple[tuple[str, str], ...]] = {
    "pair": (("a.x", "b.x"),),
    "chain3": (("a.x", "b.x"), ("b.y", "c.y")),
    "chain4": (("a.x", "b.x"), ("b.y", "c.y"), ("c.x", "d.x")),
    "sstar3": (("a.x", "b.x"), ("a.x", "c.x")),
    "sstar4": (("a.x", "b.x"), ("c.x", "b.x"), ("c.x", "d.x")),
    "star4": (("a.x", "b.x"), ("a.y", "c.x"), ("a.z", "d.x")),
    "snowflake6": (("a.x", "b.x"), ("a.y", "c.x"), ("a.z", "d.x"), ("d.y", "e.x"), ("d.y", "f.y")),
}
Open = Callable[[MultiJoin, MemoryBudget, dict[str, pa.Schema]], OnlineOperator]


@dataclass(frozen=True)
class MultiCase:
    """Tables by input, a specification, and the order in which pieces of the tables arrive."""

    tables: dict[str, pa.Table]
    spec: MultiJoin
    pieces: tuple[tuple[str, int, int], ...]

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {name: table.schema for name, table in self.tables.items()}

    def batch(self, piece: tuple[str, int, int]) -> pa.RecordBatch:
        name, start, rows = piece
        return self.tables[name].slice(start, rows).combine_chunks().to_batches()[0]

    def expected(self) -> Counter[Any]:
        """Nested loops over rows, input by input, with every predicate asked as soon as both inputs are there."""
        names, found = list(self.tables), [()]
        rows = {name: table.to_pylist() for name, table in self.tables.items()}
        for at, name in enumerate(names):
            tests = [_test(term, names, at) for term in self.spec.on]
            tests = [test for test in tests if test is not None]
            found = [(*c, row) for c in found for row in rows[name] if all(test(c, row) for test in tests)]
        return Counter(tuple(row["id"] for row in combination) for combination in found)


def _test(term: tuple[Any, ...], names: list[str], at: int) -> Callable[[tuple[Any, ...], Any], bool] | None:
    (r, x), (q, y) = ((names.index(n), c) for n, c in (end.split(".") for end in term[:2]))
    if max(r, q) != at:
        return None
    low, high = term[2:] if len(term) == 4 else (0, 0)

    def test(before: tuple[Any, ...], row: Any) -> bool:
        a, b = (row if i == at else before[i] for i in (r, q))
        return a[x] is not None and b[y] is not None and low <= b[y] - a[x] <= high

    return test


def random_column(rng: np.random.Generator, n: int, domain: int) -> pa.Array:
    kind = rng.integers(5)
    if kind <= 1:
        keys = rng.integers(0, domain, n)
    elif kind == 2:
        weights = 1.0 / np.arange(1, domain + 1) ** rng.uniform(0.0, 5.0)
        keys = rng.choice(domain, n, p=weights / weights.sum())
    else:
        keys = np.sort(rng.integers(0, domain, n))[:: 1 if kind == 3 else -1]
    missing = rng.random(n) < (0.1 if rng.random() < 0.25 else 0.0)
    return pa.array(keys, pa.int64(), mask=missing)


def random_table(rng: np.random.Generator, n: int, domain: int) -> pa.Table:
    columns = {name: random_column(rng, n, domain) for name in "xyz"}
    text = pa.array(["t" * int(rng.integers(0, 9)) for _ in range(n)], pa.string())
    doubles = pa.array(rng.integers(0, 4 * domain, n) / 4, pa.float64(), mask=rng.random(n) < 0.05)
    return pa.table({"id": pa.array(np.arange(n)), **columns, "f": doubles, "text": text})


def random_pieces(rng: np.random.Generator, sizes: dict[str, int]) -> tuple[tuple[str, int, int], ...]:
    """Any interleaving: mixed, or with inputs that come late or end early, in pieces of 1 to 12 rows."""
    weights = {name: float(rng.choice([1.0, 1.0, 0.05, 20.0])) for name in sizes}
    at, pieces, most = dict.fromkeys(sizes, 0), [], int(rng.integers(1, 13))
    while left := [name for name, n in sizes.items() if at[name] < n]:
        chances = np.array([weights[name] for name in left])
        name = left[int(rng.choice(len(left), p=chances / chances.sum()))]
        rows = min(int(rng.integers(1, most + 1)), sizes[name] - at[name])
        pieces.append((name, at[name], rows))
        at[name] += rows
    return tuple(pieces)


def random_multi(algorithm: str, tree: str, seed: int, rows: float = 1.0) -> MultiCase:
    """A small case for one algorithm and tree, with bands now and then."""
    rng = np.random.default_rng([seed, len(tree), len(algorithm)])
    on: list[tuple[Any, ...]] = list(TREES[tree])
    names = sorted({end.split(".")[0] for term in TREES[tree] for end in term})
    domain = int(rng.integers(1, 12 if len(names) < 6 else 4))
    most = int(rows * {2: 40, 3: 25, 4: 16, 6: 7}[len(names)])
    sizes = {name: 0 if rng.random() < 0.02 else int(rng.integers(1, most)) for name in names}
    if rng.random() < 0.25:
        at, low, kind = int(rng.integers(len(on))), int(rng.integers(-3, 3)), int(rng.integers(4))
        band = (low, low + int(rng.integers(0, 3)))
        ends = [end.split(".")[0] for end in on[at]]
        if kind == 0:  # besides equal columns
            on.append((f"{ends[0]}.z", f"{ends[1]}.z", *band))
        elif kind == 1:  # of doubles
            on[at] = (f"{ends[0]}.f", f"{ends[1]}.f", band[0] / 4 - 0.1, band[1] / 4)
        else:
            on[at] = (*on[at], *band)
    spec = MULTIWAY[algorithm](inputs=tuple(names), on=tuple(on), with_phase=True, seed=int(rng.integers(1000)))
    limits = Sizes(
        memory_rows=int(rng.choice([2, 3, 5, 8, 13, 21, 34, 60, 200])),
        block_rows=int(rng.integers(1, 7)),
        partitions=int(rng.integers(1, 5)),
        outer_blocks=int(rng.integers(1, 6)),
    )
    options = {"flush": str(rng.choice(["largest", "smallest"]))} if algorithm == "mjoin" else {}
    tables = {name: random_table(rng, n, domain) for name, n in sizes.items()}
    return MultiCase(tables, replace(spec, sizes=limits, **options), random_pieces(rng, sizes))


def opened(spec: MultiJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> OnlineOperator:
    return spec.open(budget, schemas)


def drive(
    case: MultiCase, seed: int, idle: float = 0.3, restart: float = 0.04, drain: float = 0.01, opens: Open = opened
) -> tuple[Counter[Any], dict[str, int]]:
    """Combinations and results by phase of a run with pauses, restarts and drains at random moments."""
    rng = np.random.default_rng([seed, 7])
    memory = MemoryBudget(BUDGET)
    join = Restartable(lambda: opens(case.spec, memory, case.schemas))
    out: list[pa.RecordBatch] = []
    for piece in case.pieces:
        out += join.push(piece[0], case.batch(piece))
        if rng.random() < idle:
            out += join.idle(int(rng.integers(1, 12)))
        if rng.random() < drain:
            out += join.drain()
        if rng.random() < restart:
            join.restart()
    out += join.finish()
    assert memory.used == 0, memory.components()
    assert memory.peak <= memory.limit
    return combinations_of(out, case), by_phase(out)


def combinations_of(batches: list[pa.RecordBatch], case: MultiCase) -> Counter[Any]:
    names = [f"{name}_id" for name in case.spec.inputs]
    found: Counter[Any] = Counter()
    for batch in batches:
        found.update(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
    return found


def wrong(got: Counter[Any], case: MultiCase) -> tuple[int, int]:
    """How many combinations were lost, and how many came too often or should not have come."""
    want = case.expected()
    return (want - got).total(), (got - want).total()
