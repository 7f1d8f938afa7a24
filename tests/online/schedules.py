"""Random inputs and interleavings for online joins, a driver for them, and what the answer must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import tests.oracle as oracle
from bench.experiments.online.counting import BASELINES
from tests.online.restarts import Restartable

from dovetail.engine.memory import MemoryBudget
from dovetail.joins.online.answers import PHASE_COLUMN, PHASES
from dovetail.joins.online.operators import ALGORITHMS
from dovetail.joins.online.operators.base import OnlineOperator
from dovetail.joins.online.operators.spec import OnlineJoin
from dovetail.joins.online.sizes import Sizes

EVERY = ALGORITHMS | BASELINES
BUDGET = 1 << 17
Open = Callable[[OnlineJoin, MemoryBudget, dict[str, pa.Schema]], OnlineOperator]


@dataclass(frozen=True)
class Case:
    """Two tables, a specification, and the order in which pieces of the tables arrive."""

    left: pa.Table
    right: pa.Table
    spec: OnlineJoin
    pieces: tuple[tuple[str, int, int], ...]

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        return {"left": self.left.schema, "right": self.right.schema}

    def batch(self, piece: tuple[str, int, int]) -> pa.RecordBatch:
        side, start, rows = piece
        table = self.left if side == "left" else self.right
        return table.slice(start, rows).combine_chunks().to_batches()[0]

    def expected(self) -> Counter[Any]:
        predicate = self.spec.predicate
        band = predicate.within
        within = None if band is None else (band.left, band.right, band.lo, band.hi)
        pairs = oracle.online_join(self.left.to_pylist(), self.right.to_pylist(), predicate.pairs, within)
        return oracle.bag((a["a"], b["b"]) for a, b in pairs if a and b)


def random_keys(rng: np.random.Generator, n: int, domain: int) -> list[int | None]:
    """Uniform, skewed (Zipf 0 to 5), a single value, ascending or descending; sometimes with nulls."""
    kind = rng.integers(6)
    if kind == 0:
        keys = rng.integers(0, domain, n)
    elif kind in (1, 2):
        weights = 1.0 / np.arange(1, domain + 1) ** rng.uniform(0.0, 5.0)
        keys = rng.choice(domain, n, p=weights / weights.sum())
    elif kind == 3:
        keys = np.full(n, int(rng.integers(domain)))
    else:
        keys = np.sort(rng.integers(0, domain, n))[:: 1 if kind == 4 else -1]
    missing = rng.random(n) < (0.1 if rng.random() < 0.25 else 0.0)
    return [None if gone else int(key) for key, gone in zip(keys, missing, strict=True)]


def random_pieces(rng: np.random.Generator, sizes: tuple[int, int]) -> tuple[tuple[str, int, int], ...]:
    """Any interleaving: mixed, or one side before the other, in pieces of 1 to 12 rows."""
    chance = float(rng.choice([0.5, 0.5, 0.2, 0.9, 0.0, 1.0]))
    most, at, pieces = int(rng.integers(1, 13)), [0, 0], []
    while at[0] < sizes[0] or at[1] < sizes[1]:
        side = 0 if rng.random() < chance else 1
        side = side if at[side] < sizes[side] else 1 - side
        rows = min(int(rng.integers(1, most + 1)), sizes[side] - at[side])
        pieces.append((("left", "right")[side], at[side], rows))
        at[side] += rows
    return tuple(pieces)


def random_case(name: str, seed: int, most_rows: int = 45) -> Case:
    """A small case for one algorithm; with bands where it has them."""
    rng = np.random.default_rng([seed, len(name), ord(name[0])])
    sizes = (int(rng.integers(0, most_rows)), int(rng.integers(0, most_rows)))
    domain = int(rng.integers(1, 25))
    tables = []
    for n, column in zip(sizes, "ab", strict=True):
        text = pa.array([f"{column}{i}" * int(rng.integers(1, 4)) for i in range(n)], pa.string())
        keys = pa.array(random_keys(rng, n, domain), pa.int64())
        groups = pa.array(rng.integers(0, 2, n), pa.int8())
        tables.append(pa.table({"k": keys, "g": groups, column: pa.array(np.arange(n)), f"{column}_text": text}))
    return Case(tables[0], tables[1], random_spec(name, rng), random_pieces(rng, sizes))


def random_spec(name: str, rng: np.random.Generator) -> OnlineJoin:
    """Any sizes; equality, and where the algorithm allows it bands with and without equality."""
    cls = EVERY[name]
    on: tuple[str, ...] = ("k",)
    within: tuple[Any, ...] | None = None
    if rng.random() < (0.5 if cls.bands else 0.15):
        low = int(rng.integers(-5, 4))
        within = ("k", "k", low, low + int(rng.integers(0, 6)))
        on = ("g",) if not cls.bands or rng.random() < 0.4 else ()
    sizes = Sizes(
        memory_rows=None if name == "shj" else int(rng.choice([2, 3, 5, 8, 13, 21, 34, 60, 200])),
        block_rows=int(rng.integers(1, 9)),
        partitions=int(rng.integers(1, 6)),
        outer_blocks=int(rng.integers(1, 8)),
        fan_in=int(rng.integers(2, 8)),
    )
    spec = cls(on=on, within=within, with_phase=True, sizes=sizes, seed=int(rng.integers(1000)))
    return replace(spec, **random_options(name, rng))


def random_options(name: str, rng: np.random.Generator) -> dict[str, Any]:
    if name == "hmj":
        return {"flush": str(rng.choice(["largest", "smallest"]))}
    if name == "rpj":
        return {"ageing": float(rng.choice([0.0, 0.9, 1.0]))}
    return {}


def opened(spec: OnlineJoin, budget: MemoryBudget, schemas: dict[str, pa.Schema]) -> OnlineOperator:
    return spec.open(budget, schemas)


def drive(
    case: Case,
    seed: int,
    idle: float = 0.25,
    restart: float = 0.08,
    drain: float = 0.0,
    budget: int = BUDGET,
    opens: Open = opened,
) -> tuple[Counter[Any], dict[str, int]]:
    """Pairs and results by phase of a run with pauses, restarts and drains at random moments."""
    rng = np.random.default_rng([seed, 7])
    memory = MemoryBudget(budget)
    join = Restartable(lambda: opens(case.spec, memory, case.schemas))
    out: list[pa.RecordBatch] = []
    for piece in case.pieces:
        out += join.push(piece[0], case.batch(piece))
        if rng.random() < idle:
            out += join.idle(int(rng.integers(1, 12)))
        if drain and rng.random() < drain:
            out += join.drain()
        if rng.random() < restart:
            join.restart()
    out += join.finish()
    assert memory.used == 0, memory.components()
    assert memory.peak <= memory.limit
    return pairs_of(out), by_phase(out)


def by_phase(batches: list[pa.RecordBatch]) -> dict[str, int]:
    """How many results came in each phase."""
    found = Counter(phase for batch in batches for phase in batch.column(PHASE_COLUMN).to_pylist())
    return {phase: found[phase] for phase in PHASES}


def pairs_of(batches: list[pa.RecordBatch]) -> Counter[Any]:
    return oracle.bag(row for batch in batches for row in _ids(batch))


def _ids(batch: pa.RecordBatch) -> Iterator[tuple[Any, Any]]:
    return zip(batch.column("a").to_pylist(), batch.column("b").to_pylist(), strict=True)


def wrong(got: Counter[Any], case: Case) -> tuple[int, int]:
    """How many pairs were lost, and how many came too often or should not have come."""
    want = case.expected()
    return (want - got).total(), (got - want).total()
