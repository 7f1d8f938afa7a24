"""Many random schedules of online joins: budgets from 1 to 200 percent of the input, skew 0 to 5, every algorithm.

`python -m tests.online.sweep two 3000` for joins of two inputs, `... many 2000` for chains, stars and snowflakes; a
third number says where to begin. Each schedule has pauses, restarts and drains at random moments, and is compared with
the definition of the join. The tests run a few.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import islice, product

import numpy as np
from tests.online import schedules
from tests.online.multiway import multi_schedules

_TREES = list(product(["miner", "mjoin"], multi_schedules.TREES))


def swept(kind: str, n: int, seed: int = 0) -> Counter[str]:
    """How many schedules were run and what came in which phase; `AssertionError` names one that went wrong."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + n):
        results = _two(number) if kind == "two" else _many(number)
        found.update(results)
        found["schedules"] += 1
    return found


def _two(number: int) -> dict[str, int]:
    name = list(schedules.EVERY)[number % len(schedules.EVERY)]
    rng = np.random.default_rng([number, 77])
    case = schedules.random_case(name, 1_000_000 + number, most_rows=int(rng.choice([12, 45, 45, 140])))
    if name != "shj":
        rows = _share(rng, case.left.num_rows + case.right.num_rows)
        case = replace(case, spec=replace(case.spec, sizes=replace(case.spec.sizes, memory_rows=rows)))
    drain = float(rng.choice([0.0, 0.0, 0.03, 0.3]))
    got, results = schedules.drive(case, number, float(rng.uniform(0, 0.6)), float(rng.uniform(0, 0.1)), drain)
    assert schedules.wrong(got, case) == (0, 0), (name, number, case.spec.explain())
    return results


def _many(number: int) -> dict[str, int]:
    algorithm, tree = next(islice(_TREES, number % len(_TREES), None))
    rng = np.random.default_rng([number, 78])
    case = multi_schedules.random_multi(
        algorithm, tree, 1_000_000 + number, rows=float(rng.choice([0.6, 1.0, 1.0, 1.6]))
    )
    rows = _share(rng, sum(table.num_rows for table in case.tables.values()))
    case = replace(case, spec=replace(case.spec, sizes=replace(case.spec.sizes, memory_rows=rows)))
    drain = float(rng.choice([0.0, 0.0, 0.02, 0.2]))
    got, results = multi_schedules.drive(case, number, float(rng.uniform(0, 0.6)), float(rng.uniform(0, 0.06)), drain)
    assert multi_schedules.wrong(got, case) == (0, 0), (algorithm, tree, number, case.spec.explain())
    return results


def _share(rng: np.random.Generator, rows: int) -> int:
    """Rows in memory: from 1 to 200 percent of all, small shares as often as large ones."""
    return max(2, int(rows * 2.0 ** rng.uniform(np.log2(0.01), 1.0)))


if __name__ == "__main__":
    kind, began = sys.argv[1], time.monotonic()
    total = swept(kind, int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    phases = {phase: total[phase] for phase in ("arriving", "reactive", "cleanup")}
    print(
        f"{total['schedules']} schedules of {kind}, {time.monotonic() - began:.0f} s: nothing lost or twice; {phases}"
    )
