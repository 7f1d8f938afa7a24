"""Keeps what polars-bio and pyranges answer on random rows, with which test_rivals compares ours.

The tests do not install them: polars-bio holds Polars and Arrow at versions of its own, and pyranges brings a package
`tests`, which hides this one. With both installed elsewhere, this file run as a program writes their answers again.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

ANSWERS = Path(__file__).with_suffix(".json")
NAMES = ["chrom", "start", "end"]
SEEDS = (21, 22, 23)
Gene = tuple[str, int, int]
Found = dict[str, list[list[Any]]]


def genes(seed: int, n: int, chroms: str = "abc") -> list[Gene]:
    """Rows with a length, which all rivals treat alike; some of them equal, some touching."""
    rng = Random(seed)  # noqa: S311  (repeatable, no secrets)
    starts = [rng.randrange(10, 50) for _ in range(n)]
    return [(rng.choice(chroms), start, start + rng.randrange(1, 8)) for start in starts]


def sides(seed: int) -> tuple[list[Gene], list[Gene]]:
    """The rows of both sides for a seed."""
    return genes(seed, 20), genes(seed + 10, 15, "ab")


def of_polars_bio(left: list[Gene], right: list[Gene]) -> Found:
    """What each function of polars-bio gives; of nearest rows the distances, as several may be equally near."""
    import polars as pl
    import polars_bio as rival

    rival.set_option("datafusion.bio.coordinate_system_zero_based", "true")  # ends are exclusive
    mine, theirs = (pl.DataFrame(rows, schema=NAMES, orient="row") for rows in (left, right))
    kind: dict[str, Any] = {"output_type": "polars.DataFrame"}
    found: dict[str, Any] = {
        "coverage": rival.coverage(mine, theirs, **kind).select(*NAMES, "coverage"),
        "subtract": rival.subtract(mine, theirs, **kind).select(*NAMES),
        "counts": rival.count_overlaps(mine, theirs, **kind).select(*NAMES, "count"),
    }
    for gap in (0, 3):
        found[f"merge {gap}"] = rival.merge(mine, min_dist=gap, **kind).select(*NAMES, "n_intervals")
        clusters = rival.cluster(mine, min_dist=gap, **kind)
        found[f"cluster {gap}"] = clusters.select(*NAMES, "cluster_start", "cluster_end")
    for k in (1, 3):
        for overlap in (True, False):
            near = rival.nearest(mine, theirs, k=k, overlap=overlap, **kind)
            found[f"nearest {k} {overlap}"] = near.select(*(f"{name}_1" for name in NAMES), "distance")
    return {name: in_order(frame.iter_rows()) for name, frame in found.items()}


def of_pyranges(left: list[Gene], right: list[Gene]) -> Found:
    """What functions of pyranges give; its distance is one more than the gap."""
    import pandas as pd
    import pyranges

    places = ["Chromosome", "Start", "End"]
    mine, theirs = (pyranges.PyRanges(pd.DataFrame(rows, columns=places)) for rows in (left, right))
    found = {
        "coverage": mine.coverage(theirs).df[[*places, "NumberOverlaps", "FractionOverlaps"]],
        "subtract": mine.subtract(theirs).df[places],
        "setdiff": mine.overlap(theirs, invert=True).df[places],
        "nearest": mine.nearest(theirs).df[[*places, "Distance"]],
        "nearest apart": mine.nearest(theirs, overlap=False).df[[*places, "Distance"]],
    }
    for slack in (0, 3):
        found[f"merge {slack}"] = mine.merge(count=True, slack=slack).df[[*places, "Count"]]
    return {name: in_order(frame.astype(object).itertuples(index=False)) for name, frame in found.items()}


def in_order(rows: Any) -> list[list[Any]]:
    """Rows as lists, in one order."""
    return sorted((list(row) for row in rows), key=repr)


def main() -> None:
    """Write the answers of both, a line for each seed."""
    warnings.simplefilter("ignore")
    whole = [
        f'"{name} {seed}": {json.dumps(answers(*sides(seed)), separators=(",", ":"))}'
        for name, answers in (("polars-bio", of_polars_bio), ("pyranges", of_pyranges))
        for seed in SEEDS
    ]
    ANSWERS.write_text("{" + ",\n".join(whole) + "}\n")


if __name__ == "__main__":
    main()
