"""Random streams and master data, and a run of any operator over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import tests.oracle as oracle
from tests.semistream.operators.memory_pages import MemoryPages

from dovetail.engine.memory import MemoryBudget
from dovetail.engine.metrics import Metrics
from dovetail.errors import PlanError
from dovetail.joins.semistream.operators.operator import SemiStreamJoin

HOWS = ("inner", "left", "left_semi", "left_anti")

KEYS = ("int", "string", "composite", "float", "decimal")

_NUMBERS = [float("nan"), 0.0, -0.0, float("inf"), *(n / 2 for n in range(1, 60))]


def key_values(kind: str, numbers: Any, nulls: Any) -> dict[str, pa.Array]:
    """Key columns in which equal numbers are equal keys."""
    n = [None if null else int(x) for x, null in zip(numbers, nulls, strict=True)]
    if kind == "int":
        return {"k": pa.array(n, pa.int64())}
    if kind == "string":
        return {"k": pa.array([None if x is None else f"key-{x}" * (x % 3 + 1) for x in n], pa.string())}
    if kind == "float":
        return {"k": pa.array([None if x is None else _NUMBERS[x % len(_NUMBERS)] for x in n], pa.float64())}
    if kind == "decimal":
        wide = [None if x is None else Decimal(x) * 10**20 for x in n]
        return {"k": pa.array(wide, pa.decimal128(30, 2))}
    parts = [None if x is None else x // 5 for x in n], [None if x is None else str(x % 5) for x in n]
    return {"k": pa.array(parts[0], pa.int32()), "l": pa.array(parts[1], pa.string())}


@dataclass(frozen=True)
class Case:
    """A stream in batches and master data, with the answer by the definition."""

    stream: pa.Table
    pages: MemoryPages
    master: pa.Table
    on: tuple[str, ...]
    batch_rows: int

    def batches(self) -> list[pa.RecordBatch]:
        return self.stream.combine_chunks().to_batches(max_chunksize=self.batch_rows)

    def expected(self, how: str) -> Any:
        on = [(name, name) for name in self.on]
        pairs = oracle.enrich(self.stream.to_pylist(), self.master.to_pylist(), on, how)
        return oracle.bag(
            oracle.flat(pairs, self.stream.schema.names, ["r", "text"] if how in ("inner", "left") else [])
        )


def random_case(seed: int, kind: str = "int", unique: bool = False) -> Case:
    """A small random case: misses, nulls, duplicates on either side, any page size and index."""
    rng = np.random.default_rng(seed)
    n_master, n_stream = int(rng.integers(0, 60)), int(rng.integers(0, 130))
    domain = int(rng.integers(1, 80))
    keys = rng.permutation(domain)[:n_master] if unique else rng.integers(0, domain, n_master)
    if rng.random() < 0.5:
        keys = np.sort(keys)
    texts = ["m" * int(x) if x % 4 else None for x in rng.integers(0, 9, len(keys))]
    columns = key_values(kind, keys, rng.random(len(keys)) < (0 if unique else 0.1))
    master = pa.table({**columns, "r": pa.array(np.arange(len(keys))), "text": pa.array(texts, pa.string())})
    wanted = rng.zipf(1.3, n_stream) % (domain + 5)
    columns = key_values(kind, wanted, rng.random(n_stream) < 0.1)
    stream = pa.table(
        {"id": pa.array(np.arange(n_stream)), **columns, "word": pa.array(["w" * (i % 4) for i in wanted])}
    )
    on = ("k", "l") if kind == "composite" else ("k",)
    pages = MemoryPages(master, on, int(rng.integers(1, 12)), total=bool(rng.integers(2)))
    return Case(stream, pages, master, on, int(rng.choice([1, 2, 7, 50, 1000])))


def answers(batches: Iterator[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@dataclass
class Run:
    """What a run gave: rows in order, the final metrics, the budget."""

    rows: list[tuple[Any, ...]]
    metrics: Metrics
    budget: MemoryBudget

    @property
    def bag(self) -> Any:
        return oracle.bag(self.rows)


def run(spec: Any, case: Case, memory: int | str = "8MB", pauses: int = 0) -> Run:
    """All answers over the case; with `pauses` the operator idles for a few steps after some batches."""
    budget = MemoryBudget(memory)
    rng = np.random.default_rng(pauses)
    out: list[tuple[Any, ...]] = []
    with spec.open(budget, {"stream": case.stream.schema}) as operator:
        for batch in case.batches():
            out += answers(operator.push("stream", batch))
            if pauses and rng.random() < 0.3:
                left = [int(rng.integers(0, 6))]

                def until(left: list[int] = left) -> bool:
                    left[0] -= 1
                    return left[0] < 0

                out += answers(operator.idle(until))
        out += answers(operator.finish())
    assert budget.used == 0
    assert budget.peak <= budget.limit
    return Run(out, operator.metrics, budget)


def smallest_budget(spec: SemiStreamJoin, case: Case) -> int:
    """The least memory with which the join says that it can run."""
    low, high = 1, 1 << 24
    while low < high:
        middle = (low + high) // 2
        try:
            spec.fit(middle, case.stream.schema)
            high = middle
        except PlanError:
            low = middle + 1
    return low


def order_kept(rows: list[tuple[Any, ...]], names: list[str], on: tuple[str, ...]) -> bool:
    """Whether the answers of every key appear in the order of the stream's ids."""
    last: dict[Any, int] = {}
    where, place = [names.index(name) for name in on], names.index("id")
    for row in rows:
        key = oracle._frozen(tuple(row[at] for at in where))
        if last.get(key, -1) > row[place]:
            return False
        last[key] = row[place]
    return True


def wait_percentiles(metrics: Metrics, name: str, shares: tuple[float, ...] = (0.5, 0.95, 0.99)) -> dict[float, float]:
    """For each share the seconds within which that share of all rows was served, an upper bound within a factor two."""
    prefix = f"{name}.lt_2^"
    found = sorted((int(e.name[len(prefix) :].split("_")[0]), e.value) for e in metrics.entries() if prefix in e.name)
    total, out = sum(n for _, n in found), {}
    for share in shares:
        reached, seconds = 0, 0.0
        for bits, n in found:
            if reached < share * total:
                reached, seconds = reached + n, 2.0**bits / 1e9
        out[share] = seconds
    return out
