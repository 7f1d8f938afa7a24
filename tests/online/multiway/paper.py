"""Online shares of MINER and MJoin at the scale of the sources, with the reference counts and a verdict.

Run it to see the tables: `python -m tests.online.multiway.paper`. The shares are those of the experiments
`online-chains` and `online-star`, which count combinations and write none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from bench.catalogue import Called, load_experiments
from bench.experiment import Statement
from bench.experiments.online.many import BLOCK, share
from bench.experiments.online.streams import MEMORY, PRINTED, ROWS
from bench.judge import Figures
from tests.online.multiway.multi_schedules import drive, random_multi, wrong

from dovetail.joins.online.answers import PHASES


def verdicts(found: Mapping[str, Sequence[float]]) -> list[Statement]:
    """What the source claims of chains and of stars, by these shares; indexes take next to nothing."""
    arrays = {line: np.array(shares) for line, shares in found.items()}
    arrays |= {f"{shape} of 4, oldest": np.ones(len(MEMORY)) for shape in ("chain", "star")}
    parts: list[Statement] = []
    for name in ("online-chains", "online-star"):
        run = load_experiments()[name].run
        assert isinstance(run, Called)
        parts += run.judge.statements(
            run.judge.names(
                Figures(
                    {"found": arrays, "indexes": 0.0, "rows": ROWS, "block": BLOCK}
                    | dict.fromkeys(("links", "keys", "rest"), 0.0)
                )
            )
        )
    return parts


def multi_lines(rows: int = ROWS, block: int = BLOCK) -> Iterator[str]:
    """Measured shares with the reference counts beside them, line by line as they are found; the verdicts."""
    yield f"{'percent online':28}" + "".join(f"{f'{percent} % memory':>20}" for percent in MEMORY)
    found = {}
    for line, printed in PRINTED["many"].items():
        found[line] = tuple(share(line, percent, rows, block) for percent in MEMORY)
        cells = [f"{mine:8.2f} ({theirs:5.2f})" for mine, theirs in zip(found[line], printed, strict=True)]
        yield f"{line:28}" + "".join(f"{cell:>20}" for cell in cells)
    for one in verdicts(found):
        yield f"{one.says}: {one.verdict}"


TRIALS = {"pair": 1000, "chain3": 2000, "chain4": 500, "sstar4": 500, "snowflake6": 250}
"""Trees of docs/algorithms/online.md, 4.5, and its numbers of trials."""


def evidence_table(part: float = 1.0) -> str:
    """Results by phase, and what was lost or came too often, over random schedules of MINER."""
    lines = [f"{'tree':12}{'trials':>8}{'arriving':>12}{'reactive':>12}{'cleanup':>12}{'lost':>6}{'too many':>10}"]
    for tree, trials in TRIALS.items():
        phases, lost, extra = Counter[str](), 0, 0
        for seed in range(max(1, int(trials * part))):
            case = random_multi("miner", tree, 100_000 + seed)
            got, results = drive(case, seed)
            phases.update(results)
            less, more = wrong(got, case)
            lost, extra = lost + less, extra + more
        counts = "".join(f"{phases[phase]:12,}" for phase in PHASES)
        lines.append(f"{tree:12}{max(1, int(trials * part)):8,}{counts}{lost:6}{extra:10}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(evidence_table())
    for shown in multi_lines(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS):
        print(shown, flush=True)
