"""MINER over inputs that pause, in simulated time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pyarrow as pa

from dovetail.bench.experiments.online.many_counting import CHAIN, DOMAIN, ROWS, keys_of, total
from dovetail.bench.experiments.online.pausing import BUDGET, Paused, Setting, Simulation, ended, in_order
from dovetail.engine.memory import MemoryBudget
from dovetail.kernels.arrays import int64s
from dovetail.kernels.online_multi_rows import EMIT, RESULTS
from dovetail.online.multiway.miner import Miner
from dovetail.online.sizes import Sizes
from dovetail.workloads.arrivals import Poisson
from dovetail.workloads.relation_sets import chain_relations


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
