"""Online shares and hand-over at the scale of the sources: 100,000 rows a side, memory for 10,000, blocks of 50.

Run it to see all tables: `python -m tests.online.paper`. The figures are those of the experiments `online-...`, which
count pairs and write none.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.online.counting import COLUMNS, share
from bench.experiments.online.recorded import band_shares
from bench.experiments.online.streams import BANDS, PRINTED, SOURCE_ROWS, SPECIFIED, synthetic
from tests.online.handover import handover_table

ROWS, MEMORY, BLOCK = 100_000, 10_000, 50
SETS = [("zipf", x) for x in (1, 2, 5)] + [("moving_mean", x) for x in (0, 2, 5, 10, 20)]


def shares_of_bands(name: str) -> tuple[float, ...]:
    """Percent online of a band join: DINER at 5 and 20 % memory, then PMJ."""
    streams = synthetic(name, None, SOURCE_ROWS[name]).within(BANDS[name])
    found = [band_shares(streams, percent) for percent in (5, 20)]
    return tuple(shares[join] for join in ("DINER", "PMJ") for shares in found)


def bands_table() -> str:
    """Measured shares of band joins with the reference counts beside them (docs/algorithms/online.md, 6.4)."""
    lines = [f"{'percent online':18}" + "".join(f"{c:>16}" for c in ("DINER 5 %", "DINER 20 %", "PMJ 5 %", "PMJ 20 %"))]
    for name, printed in PRINTED["bands"].items():
        cells = [f"{found:7.1f} ({wanted:4.1f})" for found, wanted in zip(shares_of_bands(name), printed, strict=True)]
        lines.append(f"{name:18}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def shares_table(columns: Sequence[str] = COLUMNS, rows: int = ROWS) -> str:
    """Measured shares with the reference counts beside them (docs/algorithms/online.md, 6.4)."""
    lines = [f"{'percent online':18}" + "".join(f"{column:>16}" for column in columns)]
    for name, x in SETS:
        streams, printed = synthetic(name, x, rows), dict(zip(COLUMNS, SPECIFIED[name, x], strict=True))
        cells = []
        for column in columns:
            wanted = "   -" if printed[column] is None else f"{printed[column]:4.1f}"
            cells.append(f"{share(column, streams, rows // 10, BLOCK):7.1f} ({wanted})")
        lines.append(f"{name + ' ' + format(x, 'g'):18}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    print(shares_table())
    print(bands_table())
    print(handover_table())
