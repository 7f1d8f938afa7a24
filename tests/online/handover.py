"""Table 3 of the sources at a tenth of their scale: how many rows wait when control goes back to arriving rows."""

from __future__ import annotations

from bench.experiments.online.pausing import Paused, Setting, paused
from bench.experiments.online.streams import PAUSES

ROWS, SETTING = 10_000, Setting(memory=1_000, block=10, max_new=100)


def simulate(name: str, pause: int) -> Paused:
    """One run of a join with pauses of `pause` percent of a fragment's time."""
    return paused(name, "zipf", ROWS, pause, SETTING)


def handover_table(names: tuple[str, ...] = ("DINER", "HMJ", "RPJ 0.9", "XJoin")) -> str:
    """Largest and average number of waiting rows at hand-over, by pause."""
    lines = [f"{'rows waiting at hand-over (max_new_arrivals 100)':50}" + "".join(f"{p:>9} %" for p in PAUSES)]
    for name in names:
        found = [simulate(name, pause) for pause in PAUSES]
        lines.append(f"{name + ' max':50}" + "".join(f"{each.most:>11}" for each in found))
        lines.append(f"{name + ' avg':50}" + "".join(f"{each.average:>11}" for each in found))
    return "\n".join(lines)
