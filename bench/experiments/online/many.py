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
from bench.experiment import Cell, Chart, Grid
from bench.experiments.online.counting import arriving
from bench.experiments.online.pausing import Setting, miner_paused
from bench.experiments.online.shares import everything
from bench.experiments.online.streams import (
    CHAIN,
    DOMAIN,
    MEMORY,
    PAUSES,
    PRINTED,
    ROWS,
    chain_relations,
    inputs_of,
    star_relations,
    total,
)
from bench.judge import Figures
from dovetail.errors import DataError
from dovetail.joins.online.kernels.areas import RANDOM
from dovetail.joins.online.kernels.rows import KEY_BYTES
from dovetail.joins.online.kernels.tree import LINK_BYTES
from dovetail.joins.online.keys import JoinKeys
from dovetail.joins.online.operators.miner import Miner, MJoin, TreeIndex
from dovetail.joins.online.operators.spec import MultiJoin
from dovetail.joins.online.sizes import FITTED, Fitted, Sizes

BLOCK = 50
SCALES = {"small": (10_000, 10), "full": (100_000, 50)}
CHAINS = tuple(f"chain of {n}, {how}" for n in (2, 3, 4) for how in ("MINER", "random", "oldest"))
STARS = tuple(f"star of 4, {how}" for how in ("MINER", "MJoin largest", "MJoin smallest", "oldest"))
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
        if line in PRINTED["many"]:
            rows.append([f"{_label(line)}, reference count", *PRINTED["many"][line]])
    return Grid(title, ["percent online", *(f"{percent} % memory" for percent in MEMORY)], rows)


def _chart(title: str, found: Found) -> Chart:
    lines = {
        _label(line): [(percent, each) for percent, each in zip(MEMORY, shares, strict=True)]
        for line, shares in found.items()
    }
    return Chart(title, "memory, % of all rows", "% of the result while rows arrive", lines)


def slot_percents(spec: Miner) -> dict[str, float]:
    """What MINER keeps of a row beside its columns, in percent of a row of 200 bytes with its slot.

    Two `links` an attribute are the layout of the source's index; `keys` beside the row and the `rest` are ours. Of the
    inputs the one with the most attributes counts, since a slot takes rows of any of them.
    """
    slot, most = spec.footprint().slot, spec.most_attributes
    parts = {"links": LINK_BYTES * most, "keys": KEY_BYTES * most}
    parts["rest"] = slot - sum(parts.values())
    return {name: 100.0 * size / (TUPLE_BYTES + slot) for name, size in parts.items()}


def chains(bench: BenchContext) -> Figures:
    """Figure 20."""
    rows, block = SCALES[bench.scale]
    found = _shares(CHAINS, rows, block)
    title = f"Chains of two to four inputs, {rows:,} rows in the large ones"
    miner = {line: shares for line, shares in found.items() if not line.endswith("random")}
    few = Setting(memory=50, block=5, max_new=20, outer_blocks=9)
    checked = sum(miner_paused(n, 500, PAUSES[0], few, to_the_end=True).total for n in (2, 3, 4))
    named = _named(found) | {"rows": rows, "block": block}
    named |= slot_percents(Miner(inputs=tuple(f"R{n}" for n in range(1, 5)), on=CHAIN))
    return Figures(named, [_chart("Chains", miner), _grid(title, found)], checked)


def star(bench: BenchContext) -> Figures:
    """Figure 22."""
    rows, block = SCALES[bench.scale]
    found = _shares(STARS, rows, block)
    grid = _grid(f"A star of four inputs, {rows:,} rows in the large ones", found)
    shown: list[Chart | Grid] = [_chart("A star of four inputs", found), grid]
    return Figures(_named(found) | {"rows": rows, "block": block}, shown, star_proved())


def _named(found: Found) -> dict[str, Any]:
    """Shares as arrays over memory."""
    return {"found": {line: np.array(shares) for line, shares in found.items()}}
