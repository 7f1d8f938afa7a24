"""Sets of intervals beside bioframe, polars-bio and pyranges on random rows, and beside what bedtools documents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import bioframe
import pandas as pd
import pytest
from tests.sets.rival_answers import ANSWERS, SEEDS, genes, in_order, sides

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ["chrom", "start", "end"]
SCHEMA = "chrom string, start bigint, end bigint"
BIO_NAMES = {  # there rows touch if their gap is below min_dist, so that 0 keeps touching ones apart
    f"{what} {theirs}": f"{what} {ours}" for what in ("merge", "cluster") for theirs, ours in ((0, None), (3, 2))
}
RANGES_NAMES = {
    "coverage": "fractions", "subtract": "subtract", "setdiff": "setdiff", "merge 0": "merge 0", "merge 3": "merge 3",
    "nearest": "nearest 1 True", "nearest apart": "nearest 1 False",
}  # fmt: skip
VIEW = [("a", 0, 70), ("b", 5, 60), ("c", 0, 50)]


def both(spark: SparkSession, rows: list[tuple[str, int, int]]) -> tuple[pd.DataFrame, DataFrame]:
    return pd.DataFrame(rows, columns=NAMES), spark.createDataFrame(rows, SCHEMA)


def bag(rows: Any) -> list[tuple[Any, ...]]:
    """Rows of either library in one order."""
    found = rows.itertuples(index=False) if isinstance(rows, pd.DataFrame) else rows.collect()
    return sorted((tuple(map(plain, row)) for row in found), key=repr)


def plain(value: Any) -> Any:
    return None if pd.isna(value) else value.item() if hasattr(value, "item") else value


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_set_beside_bioframe(spark: SparkSession, seed: int) -> None:
    theirs, ours = both(spark, genes(seed, 25))
    for gap in (None, 0, 3):
        merged = bioframe.merge(theirs, min_dist=gap)[[*NAMES, "n_intervals"]]
        assert bag(dovetail.interval_merge(ours, on="chrom", gap=gap)) == bag(merged)
        clusters = bioframe.cluster(theirs, min_dist=gap)[[*NAMES, "cluster_start", "cluster_end"]]
        assert bag(dovetail.interval_cluster(ours, on="chrom", gap=gap).drop("cluster")) == bag(clusters)
    view = pd.DataFrame([(*row, row[0]) for row in VIEW], columns=[*NAMES, "name"])
    gaps = bioframe.complement(theirs, view_df=view)[NAMES]
    limits = spark.createDataFrame(VIEW, SCHEMA)
    assert bag(dovetail.interval_complement(ours, on="chrom", limits=limits)) == bag(gaps)
    start, end = dovetail.intervals.expand("start", "end", by=2)
    assert bag(ours.select("chrom", start, end)) == bag(bioframe.expand(theirs, pad=2)[NAMES])
    inside = bioframe.trim(theirs, view.assign(start=20, end=40))[NAMES].dropna().astype({"start": int, "end": int})
    start, end = dovetail.intervals.trim("start", "end", low=20, high=40)
    found = ours.select("chrom", start.alias("start"), end.alias("end")).where("start < end")
    assert bag(found) == bag(inside[inside.start < inside.end])


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_two_sets_beside_bioframe(spark: SparkSession, seed: int) -> None:
    (left, mine), (right, others) = both(spark, genes(seed, 20)), both(spark, genes(seed + 10, 15, "ab"))
    covered = bioframe.coverage(left, right)[[*NAMES, "coverage"]]
    assert bag(dovetail.interval_coverage(mine, others, on="chrom").select(*NAMES, "covered")) == bag(covered)
    pieces = bioframe.subtract(left, right)[NAMES]
    assert bag(dovetail.interval_subtract(mine, others, on="chrom")) == bag(pieces)
    assert bag(dovetail.interval_setdiff(mine, others, on="chrom")) == bag(bioframe.setdiff(left, right)[NAMES])


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"k": 3}, {"k": 3}),
        ({"ignore_overlaps": True, "k": 2}, {"ignore_overlaps": True, "k": 2}),
        ({"ignore_overlaps": True, "direction": "upstream"}, {"ignore_overlaps": True, "ignore_downstream": True}),
        ({"ignore_overlaps": True, "direction": "downstream"}, {"ignore_overlaps": True, "ignore_upstream": True}),
    ],
)
def test_nearest_rows_beside_bioframe(spark: SparkSession, options: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Of equally near rows the libraries take different ones: distances are compared."""
    rows = list(dict.fromkeys(genes(7, 20)))
    (left, mine), (right, others) = both(spark, rows), both(spark, genes(17, 15, "ab"))
    near = bioframe.closest(left, right, **theirs)[[*NAMES, "distance"]]
    found = dovetail.interval_nearest(mine, others, on="chrom", how="left", **options)
    assert bag(found.select(*NAMES, "distance")) == bag(near)


def answers(spark: SparkSession, seed: int) -> dict[str, DataFrame]:
    """Ours under the names that the kept answers have, in their columns."""
    left, right = sides(seed)
    (_, mine), (_, others) = both(spark, left), both(spark, right)
    count = "cast(n_overlaps as bigint) count"
    covered = dovetail.interval_coverage(mine, others, on="chrom")
    found = {
        "coverage": covered.select(*NAMES, "covered"),
        "fractions": covered.select(*NAMES, "n_overlaps", "covered_fraction"),
        "subtract": dovetail.interval_subtract(mine, others, on="chrom"),
        "setdiff": dovetail.interval_setdiff(mine, others, on="chrom"),
        "counts": dovetail.count_overlaps(mine, others, on="chrom").selectExpr(*NAMES, count),
    }
    for gap in (None, 0, 2, 3):
        found[f"merge {gap}"] = dovetail.interval_merge(mine, on="chrom", gap=gap)
        found[f"cluster {gap}"] = dovetail.interval_cluster(mine, on="chrom", gap=gap).drop("cluster")
    for k in (1, 3):
        for overlap in (True, False):
            near = dovetail.interval_nearest(mine, others, on="chrom", k=k, ignore_overlaps=not overlap, how="left")
            found[f"nearest {k} {overlap}"] = near.select(*NAMES, "distance")
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_kept_answers_of_polars_bio_and_pyranges(spark: SparkSession, seed: int) -> None:
    kept, ours = json.loads(ANSWERS.read_text()), answers(spark, seed)
    for name, rows in kept[f"polars-bio {seed}"].items():
        assert in_order(ours[BIO_NAMES.get(name, name)].collect()) == rows, name
    theirs = kept[f"pyranges {seed}"]
    for name, same in RANGES_NAMES.items():
        found, wanted = in_order(ours[same].collect()), theirs[name]
        if "nearest" in name:  # left rows without a right one are left out, and a gap counts one more
            wanted = in_order([*row[:3], max(0, row[3] - 1)] for row in wanted)
            found = [row for row in found if row[3] is not None]
        assert found == wanted, name


def test_what_bedtools_documents(spark: SparkSession) -> None:
    """bedtools has half-open positions, too; each line is one of its commands and the call that does the same."""
    _, a = both(spark, [("1", 10, 20), ("1", 20, 25), ("1", 27, 30), ("2", 5, 8)])
    _, b = both(spark, [("1", 12, 14), ("1", 13, 16), ("1", 24, 28)])
    genome = spark.createDataFrame([("1", 0, 40), ("2", 0, 10), ("3", 0, 4)], SCHEMA)
    told: list[tuple[DataFrame, list[tuple[Any, ...]]]] = [
        # merge: rows that touch are one; -d 2: also those up to two positions apart; -d -1: one position in common
        (dovetail.interval_merge(a, on="chrom"), [("1", 10, 25, 2), ("1", 27, 30, 1), ("2", 5, 8, 1)]),
        (dovetail.interval_merge(a, on="chrom", gap=2), [("1", 10, 30, 3), ("2", 5, 8, 1)]),
        (dovetail.interval_merge(a, on="chrom", gap=None).select("end"), [(8,), (20,), (25,), (30,)]),
        # merge -c 2 -o min,count
        (
            dovetail.interval_merge(a, on="chrom", gap=2, aggregates={"least": "min(start)"}).select("least"),
            [(10,), (5,)],
        ),
        # cluster: all rows, with a number for each group
        (dovetail.interval_cluster(a, on="chrom").select("start", "cluster"), [(10, 0), (20, 0), (27, 1), (5, 0)]),
        # subtract, and subtract -A, which removes rows that overlap anything
        (
            dovetail.interval_subtract(a, b, on="chrom"),
            [("1", 10, 12), ("1", 16, 20), ("1", 20, 24), ("1", 28, 30), ("2", 5, 8)],
        ),
        (dovetail.interval_setdiff(a, b, on="chrom"), [("2", 5, 8)]),
        # complement -g genome: a chromosome without rows is a gap
        (
            dovetail.interval_complement(a, on="chrom", limits=genome),
            [("1", 0, 10), ("1", 25, 27), ("1", 30, 40), ("2", 0, 5), ("2", 8, 10), ("3", 0, 4)],
        ),
        # genomecov -bg: the depth where it is above zero
        (
            dovetail.interval_depth(b, on="chrom"),
            [("1", 12, 13, 1), ("1", 13, 14, 2), ("1", 14, 16, 1), ("1", 24, 28, 1)],
        ),
        # coverage: count, covered positions, and their share of the row
        (
            dovetail.interval_coverage(a, b, on="chrom").select("start", "n_overlaps", "covered", "covered_fraction"),
            [(10, 2, 4, 0.4), (20, 1, 1, 0.2), (27, 1, 1, 1 / 3), (5, 0, 0, 0.0)],
        ),
        # closest -io -iu: after the row only, without those that overlap
        (
            dovetail.interval_nearest(a, b, on="chrom", ignore_overlaps=True, direction="downstream").select(
                "start", "start_right"
            ),
            [(10, 24)],
        ),
        # closest -k 2 -t all counts ties beyond the k-th
        (
            dovetail.interval_nearest(a, b, on="chrom", k=1, ties="all").where("start = 10").select("end_right"),
            [(14,), (16,)],
        ),
    ]
    for found, wanted in told:
        assert bag(found) == sorted(wanted, key=repr)
