"""Figures 20 and 22: combinations that joins of two to four inputs give while rows arrive.

One of these results has some 170 million rows. All inputs come at one rate, so the small ones have come after a tenth
of the time. Reference: Bornea 2010, 5.5; docs/algorithms/online.md, 6.2 and 6.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bench.context import BenchContext
from bench.experiment import Cell, Chart, Findings, Grid, Part, judged
from bench.experiments.online.counting import arriving
from bench.experiments.online.pausing import Setting, miner_paused
from bench.experiments.online.shares import everything
from bench.experiments.online.streams import (
    CHAIN,
    DOMAIN,
    MEMORY,
    PAUSES,
    ROWS,
    SPECIFIED_MANY,
    chain_relations,
    inputs_of,
    star_relations,
    total,
)
from dovetail.errors import DataError
from dovetail.joins.online.kernels.areas import RANDOM
from dovetail.joins.online.kernels.rows import KEY_BYTES
from dovetail.joins.online.kernels.tree import empty_trees
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.miner import Miner, MJoin, TreeIndex
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import FITTED, Fitted, Sizes

BLOCK = 50
SCALES = {"small": (10_000, 10), "full": (100_000, 50)}
CHAINS = tuple(f"chain of {n}, {how}" for n in (2, 3, 4) for how in ("MINER", "random", "oldest"))
STARS = tuple(f"star of 4, {how}" for how in ("MINER", "MJoin largest", "MJoin smallest", "oldest"))
PRINTED_FOUR, PRINTED_FACTOR, MODEST = (55.0, 80.0), 60.0, 10.0
TUPLE_BYTES = 200
SHOWN = {"oldest": "oldest first", "random": "random rows leave"}
Found = Mapping[str, Sequence[float]]
Inputs = Mapping[str, pa.RecordBatch]


def joined(shape: str, rows: int) -> tuple[Inputs, tuple[tuple[str, str], ...]]:
    """The inputs of "chain of 3", "star of 4" and the like, and their predicates."""
    domain = DOMAIN * rows // ROWS
    if shape.startswith("star"):
        return inputs_of(star_relations(4, rows, domain, 1)), tuple(("R1.key", f"R{n}.key") for n in (2, 3, 4))
    n = int(shape[-1])
    return inputs_of(chain_relations(n, rows, domain, 1)), CHAIN[: n - 1]


def specification(how: str, inputs: Inputs, on: tuple[tuple[str, str], ...], sizes: Sizes = FITTED) -> MultiJoin:
    """An MJoin that evicts its largest or smallest bucket; else MINER, also where other rows leave than it chooses."""
    told: dict[str, Any] = {"inputs": tuple(inputs), "on": on, "sizes": sizes, "seed": 1}
    return MJoin(**told | {"flush": how.split()[1]}) if how.startswith("MJoin") else Miner(**told)


def _random(fitted: Fitted, keys: JoinKeys) -> TreeIndex:
    """MINER's indexes, but rows leave by chance."""
    return TreeIndex(fitted, keys, 1, RANDOM)


def share(line: str, percent: int, rows: int = ROWS, block: int = BLOCK) -> float:
    """Percent of the result while rows arrive, for "chain of 3, MINER" and the like and a memory in percent."""
    shape, how = line.split(", ")
    inputs, on = joined(shape, rows)
    memory = sum(batch.num_rows for batch in inputs.values()) * percent // 100
    spec, make = specification(how, inputs, on), _random if how == "random" else None
    found = arriving(spec, inputs, memory, block, oldest=how == "oldest", make=make)
    return 100.0 * found.found / total(inputs)


def star_proved(rows: int = 400) -> int:
    """Combinations of a small star that MINER and both kinds of MJoin gave, to the end; DataError if not all."""
    inputs, on = joined("star of 4", rows)
    whole, sizes = total(inputs), Sizes(memory_rows=rows // 5, block_rows=5, partitions=8)
    for how in ("MINER", "MJoin largest", "MJoin smallest"):
        spec = specification(how, inputs, on, sizes)
        if (found := sum(batch.num_rows for batch in everything(spec, inputs))) != whole:
            raise DataError(f"{spec.explain()} gave {found} combinations of {whole}.")
    return whole


def _shares(lines: Sequence[str], rows: int, block: int) -> dict[str, tuple[float, ...]]:
    found = {line: tuple(share(line, percent, rows, block) for percent in MEMORY) for line in lines}
    for line, shares in found.items():
        if not all(0.0 <= each <= 100.0 for each in shares):
            raise DataError(f"{line} gave {shares} percent of the result.")
    return found


def _label(line: str) -> str:
    shape, how = line.split(", ")
    return f"{shape}, {SHOWN.get(how, how)}"


def _grid(title: str, found: Found) -> Grid:
    rows: list[list[Cell]] = []
    for line, shares in found.items():
        rows.append([_label(line), *shares])
        if line in SPECIFIED_MANY:
            rows.append([f"{_label(line)}, reference count", *SPECIFIED_MANY[line]])
    return Grid(title, ["percent online", *(f"{percent} % memory" for percent in MEMORY)], rows)


def _chart(title: str, found: Found) -> Chart:
    lines = {
        _label(line): [(percent, each) for percent, each in zip(MEMORY, shares, strict=True)]
        for line, shares in found.items()
    }
    return Chart(title, "memory, % of all rows", "% of the result while rows arrive", lines)


def chain_parts(found: Found) -> list[Part]:
    """What the source claims of chains, by these shares."""
    two, four = found["chain of 2, MINER"], found["chain of 4, MINER"]
    loss = [a - b for a, b in zip(two, four, strict=True)]
    low, high = PRINTED_FOUR
    return [
        (f"4 inputs give {low:g} % at 5 % memory (found {four[0]:.1f}; asked at least 50)", four[0] >= 50),
        (f"4 inputs give more than {high:g} % at 20 % memory (found {four[-1]:.1f})", four[-1] > high),
        (
            f"from 2 to 4 inputs little is lost ({loss[0]:.1f} points at 5 % memory, {loss[-1]:.1f} at 20 %; asked at "
            f"most {MODEST:g})",
            max(loss) <= MODEST,
        ),
    ]


def star_parts(found: Found) -> list[Part]:
    """What the source claims of stars, by these shares; "up to 60 times" asks for that at some memory."""
    miner = found["star of 4, MINER"]
    parts = []
    for which in ("largest", "smallest"):
        factors = [m / max(j, 1e-9) for m, j in zip(miner, found[f"star of 4, MJoin {which}"], strict=True)]
        text = ", ".join(f"{each:,.1f}" for each in factors)
        says = f"up to {PRINTED_FACTOR:g} times an MJoin that evicts its {which} bucket (found {text} by memory)"
        parts.append((says, max(factors) >= PRINTED_FACTOR))
    return parts


def _index_part(memory: int) -> Part:
    trees = empty_trees(4, 2, memory)
    size = sum(np.asarray(array).nbytes for array in trees) + 2 * KEY_BYTES * memory
    percent = 100.0 * size / (memory * TUPLE_BYTES)
    return (f"indexes take less than 2 % of memory (found {percent:.1f} % of rows of {TUPLE_BYTES} bytes)", percent < 2)


def chains(bench: BenchContext) -> Findings:
    """Figure 20."""
    rows, block = SCALES[bench.scale]
    found = _shares(CHAINS, rows, block)
    parts = [*chain_parts(found), _index_part(int(0.2 * 2.2 * rows))]
    gains = [m / max(o, 1e-9) for m, o in zip(found["chain of 4, MINER"], found["chain of 4, oldest"], strict=True)]
    note = (
        f"MINER of 4 inputs gives {min(gains):.1f} to {max(gains):.1f} times what comes if rows leave oldest first. "
        f"{rows:,} rows in the large inputs, blocks of {block}."
    )
    title = f"Chains of two to four inputs, {rows:,} rows in the large ones"
    miner = {line: shares for line, shares in found.items() if not line.endswith("random")}
    few = Setting(memory=50, block=5, max_new=20, outer_blocks=9)
    checked = sum(miner_paused(n, 500, PAUSES[0], few, to_the_end=True).total for n in (2, 3, 4))
    return judged(parts, note, _chart("Chains", miner), _grid(title, found), rows=checked)


def star(bench: BenchContext) -> Findings:
    """Figure 22."""
    rows, block = SCALES[bench.scale]
    found = _shares(STARS, rows, block)
    gains = [m / max(o, 1e-9) for m, o in zip(found["star of 4, MINER"], found["star of 4, oldest"], strict=True)]
    note = (
        f"Over rows that leave oldest first MINER gives {min(gains):.1f} to {max(gains):.1f} times as much. "
        f"{rows:,} rows in the large inputs, blocks of {block}."
    )
    grid = _grid(f"A star of four inputs, {rows:,} rows in the large ones", found)
    return judged(star_parts(found), note, _chart("A star of four inputs", found), grid, rows=star_proved())
