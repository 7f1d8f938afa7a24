"""MINER over inputs that pause, in simulated time; and joins of many inputs to their end, which must be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pyarrow as pa

from bench.experiments.online.many_counting import CHAIN, DOMAIN, ROWS, TURN, keys_of, total
from bench.experiments.online.pausing import BUDGET, Paused, Setting, Simulation, ended, in_order
from dovetail.engine.kernels.arrays import int64s
from dovetail.engine.memory import MemoryBudget
from dovetail.errors import DataError
from dovetail.joins.online.kernels.multi_rows import EMIT, RESULTS
from dovetail.joins.online.multiway.miner import Miner
from dovetail.joins.online.multiway.mjoin import MJoin
from dovetail.joins.online.multiway.spec import MultiJoin
from dovetail.joins.online.sizes import Sizes
from dovetail.workloads.arrivals import Poisson
from dovetail.workloads.relation_sets import chain_relations, star_relations


@cache
def miner_paused(inputs: int, rows: int, pause: int, setting: Setting, to_the_end: bool = False) -> Paused:
    """The chain of two to four inputs, each in ten fragments with pauses of so many percent of a fragment's time.

    `to_the_end`: everything owed is asked for too, and DataError if there are not as many combinations as must be.
    """
    pausing = Poisson(1000.0, 10, pause / 100.0)
    relations = chain_relations(inputs, rows, DOMAIN * rows // ROWS, 1)
    tables = {name: replace(relation, arrivals=pausing).table() for name, relation in relations.items()}
    ats = [int64s(table.column("at").cast(pa.int64()).to_numpy()) for table in tables.values()]
    batches = {name: table.drop_columns(["at"]).combine_chunks().to_batches()[0] for name, table in tables.items()}
    sizes = Sizes(memory_rows=setting.memory, block_rows=setting.block, outer_blocks=setting.outer_blocks)
    spec = Miner(inputs=tuple(tables), on=tuple(CHAIN[i] for i in range(1, inputs)), sizes=sizes)
    whole = total({name: keys_of(table) for name, table in tables.items()})
    with spec.open(MemoryBudget(BUDGET), {name: batch.schema for name, batch in batches.items()}) as operator:
        simulation = Simulation(operator, setting, *in_order(ats), batches, RESULTS, EMIT)
        return ended(simulation, whole, to_the_end)


def star_proved(rows: int = 400) -> int:
    """Combinations of a small star that MINER and both kinds of MJoin gave, to the end; DataError if not all."""
    domain = DOMAIN * rows // ROWS
    batches = {
        name: relation.table().drop_columns(["at"]).combine_chunks().to_batches()[0]
        for name, relation in star_relations(4, rows, domain, 1).items()
    }
    on = tuple(("R1.key", f"{name}.key") for name in ("R2", "R3", "R4"))
    sizes = Sizes(memory_rows=rows // 5, block_rows=5, partitions=8)
    whole = total({name: keys_of(pa.table(batch)) for name, batch in batches.items()})
    specs: tuple[MultiJoin, ...] = (
        Miner(inputs=tuple(batches), on=on, sizes=sizes),
        MJoin(inputs=tuple(batches), on=on, sizes=sizes, flush="largest"),
        MJoin(inputs=tuple(batches), on=on, sizes=sizes, flush="smallest"),
    )
    for spec in specs:
        if (found := _to_the_end(spec, batches)) != whole:
            raise DataError(f"{spec.explain()} gave {found} combinations of {whole}.")
    return whole


def _to_the_end(spec: MultiJoin, batches: Mapping[str, pa.RecordBatch]) -> int:
    found = 0
    with spec.open(MemoryBudget(BUDGET), {name: batch.schema for name, batch in batches.items()}) as operator:
        for start in range(0, max(batch.num_rows for batch in batches.values()), TURN):
            for name, batch in batches.items():
                found += sum(part.num_rows for part in operator.push(name, batch.slice(start, TURN)))
        found += sum(part.num_rows for part in operator.finish())
    return int(found)
