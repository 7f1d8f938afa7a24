"""Facts that the tests of bioframe and bedtools state, in our words: small inputs, and what comes of them.

Each case is a group of rows of its own: its name is part of the key, so that one query answers many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[Any, ...]]
KEYS = ["name", "chrom"]


def frame(spark: SparkSession, cases: dict[str, Rows]) -> DataFrame:
    rows = [(name, *row) for name, case in cases.items() for row in case]
    return spark.createDataFrame(rows, "name string, chrom string, start bigint, end bigint")


def by_case(found: DataFrame, *columns: str) -> dict[str, Rows]:
    """The rows of each case, in order."""
    answers: dict[str, Rows] = {}
    for row in found.select("name", *columns).collect():
        answers.setdefault(row[0], []).append(tuple(row)[1:])
    return {name: sorted(rows, key=repr) for name, rows in answers.items()}


def ordered(cases: dict[str, Rows]) -> dict[str, Rows]:
    return {name: sorted(rows, key=repr) for name, rows in cases.items() if rows}


FOUR = [("1", 1, 5), ("1", 3, 8), ("1", 8, 10), ("1", 12, 14)]
MERGED = {
    "bioframe": FOUR,
    "bioframe, first elsewhere": [("X", 1, 5), *FOUR[1:]],
    "bedtools": [("1", 10, 20), ("1", 30, 40), ("1", 40, 50), ("1", 45, 100)],
    "bedtools, the other": [("2", 10, 20), ("2", 30, 40), ("2", 42, 50), ("2", 45, 100)],
}


def test_merge_and_cluster(spark: SparkSession) -> None:
    rows = frame(spark, MERGED)
    columns = ("chrom", "start", "end", "n_merged")
    assert by_case(dovetail.interval_merge(rows, on=KEYS), *columns) == ordered(
        {
            "bioframe": [("1", 1, 10, 3), ("1", 12, 14, 1)],
            "bioframe, first elsewhere": [("1", 3, 10, 2), ("1", 12, 14, 1), ("X", 1, 5, 1)],
            "bedtools": [("1", 10, 20, 1), ("1", 30, 100, 3)],
            "bedtools, the other": [("2", 10, 20, 1), ("2", 30, 40, 1), ("2", 42, 100, 2)],
        }
    )
    apart = by_case(dovetail.interval_merge(rows, on=KEYS, gap=None), "n_merged")
    assert apart["bioframe"] == [(1,), (1,), (2,)]
    assert apart["bioframe, first elsewhere"] == [(1,)] * 4
    assert by_case(dovetail.interval_merge(rows, on=KEYS, gap=2), "n_merged")["bioframe"] == [(4,)]
    for gap, numbers in ((0, [0, 0, 0, 1]), (2, [0, 0, 0, 0]), (None, [0, 0, 1, 2])):
        found = by_case(dovetail.interval_cluster(rows, on=KEYS, gap=gap), "start", "cluster")["bioframe"]
        assert sorted(found) == sorted(zip([1, 3, 8, 12], numbers, strict=True))


def test_merge_by_more_keys_and_with_totals(spark: SparkSession) -> None:
    """bioframe's cats and dogs by animal; the strands, names and scores of bedtools."""
    animals = [("1", 3, 8, "cat"), ("1", 3, 8, "dog"), ("1", 6, 10, "cat"), ("X", 6, 10, "cat")]
    given = spark.createDataFrame(animals, "chrom string, start int, end int, animal string")
    found = dovetail.interval_merge(given, on=["chrom", "animal"])
    assert sorted(map(tuple, found.collect())) == [
        ("1", "cat", 3, 10, 2), ("1", "dog", 3, 8, 1), ("X", "cat", 6, 10, 1),
    ]  # fmt: skip
    bounds = [(10, 20), (30, 40), (40, 50), (45, 100), (10, 20), (30, 40), (42, 50), (45, 100)]
    strands = "++-++++-"
    full = [("1" if n < 4 else "2", *bound, n + 1, strands[n]) for n, bound in enumerate(bounds)]
    rows = spark.createDataFrame(full, "chrom string, start int, end int, score int, strand string")
    totals = dovetail.interval_merge(rows, on="chrom", aggregates={"total": "sum(score)"})
    assert sorted(map(tuple, totals.select("chrom", "start", "end", "total", "n_merged").collect())) == [
        ("1", 10, 20, 1, 1), ("1", 30, 100, 9, 3), ("2", 10, 20, 5, 1), ("2", 30, 40, 6, 1), ("2", 42, 100, 15, 2),
    ]  # fmt: skip
    assert dovetail.interval_merge(rows, on=["chrom", "strand"]).where("n_merged = 1").count() == 8


def test_complement(spark: SparkSession) -> None:
    covered: dict[str, Rows] = {
        "bioframe": FOUR,
        "bioframe, two chromosomes": [("X", 1, 5), *FOUR[1:]],
        "bioframe, beyond": [("1", -5, 5), ("1", 10, 20)],
        "bioframe, two regions": [("1", 5, 15)],
        "bioframe, nulls": [(None, None, None), ("1", 5, 15), (None, None, None)],
        "bedtools 1": [("1", 0, 1)],
        "bedtools 2": [("1", 0, 1), ("1", 19, 20)],
        "bedtools 3": [("1", 10, 15)],
        "bedtools 4": [("1", 0, 20)],
        "bedtools 5": [("2", 0, 20)],
        "bedtools 6": [("1", 0, 10_000)],
        "bedtools 7": [("1", 10, 20), ("2", 10, 20)],
        "bedtools 8": [("1", 0, 20), ("2", 10, 20)],
        "bedtools 9": [("1", 90, 110)],
    }
    both: Rows = [("1", 0, 100), ("X", 0, 100)]
    arms: Rows = [("1", 0, 9), ("1", 11, 20)]
    limits: dict[str, Rows] = {name: [("1", 0, 20)] for name in covered if name.startswith("bedtools")}
    limits |= {"bioframe": both, "bioframe, two chromosomes": both, "bioframe, beyond": [("1", 0, 15)]}
    limits |= {"bioframe, two regions": arms, "bioframe, nulls": arms, "bedtools 9": [("1", 0, 100)]}
    limits |= {f"bedtools {n}": [("1", 0, 20), ("2", 0, 20)] for n in (5, 7, 8)}
    limits["bedtools 6"] = [("1", 0, 249_250_621)]
    found = dovetail.interval_complement(frame(spark, covered), on=KEYS, limits=frame(spark, limits))
    assert by_case(found, "chrom", "start", "end") == ordered(
        {
            "bioframe": [("1", 0, 1), ("1", 10, 12), ("1", 14, 100), ("X", 0, 100)],
            "bioframe, two chromosomes": [("1", 0, 3), ("1", 10, 12), ("1", 14, 100), ("X", 0, 1), ("X", 5, 100)],
            "bioframe, beyond": [("1", 5, 10)],
            "bioframe, two regions": [("1", 0, 5), ("1", 15, 20)],
            "bioframe, nulls": [("1", 0, 5), ("1", 15, 20)],
            "bedtools 1": [("1", 1, 20)],
            "bedtools 2": [("1", 1, 19)],
            "bedtools 3": [("1", 0, 10), ("1", 15, 20)],
            "bedtools 5": [("1", 0, 20)],
            "bedtools 6": [("1", 10_000, 249_250_621)],
            "bedtools 7": [("1", 0, 10), ("2", 0, 10)],
            "bedtools 8": [("2", 0, 10)],
            "bedtools 9": [("1", 0, 90)],
        }
    )


STARTS = {
    "1": [0, 3, 74, 77, 92, 116, 128, 132, 143, 163],
    "2": [6, 39, 74, 77, 114, 127, 131, 137, 139, 163],
}
STRANDS = {"1": "+++-++----", "2": "-+-+--+--+"}
READS = {chrom: list(zip(starts, STRANDS[chrom], strict=True)) for chrom, starts in STARTS.items()}
GENES = [("1", 20, "+"), ("1", 50, "-"), ("1", 200, "+"), ("2", 80, "-"), ("2", 150, "+"), ("2", 180, "-")]


def test_coverage(spark: SparkSession) -> None:
    """bedtools' twenty reads of 75 positions over six genes of 50: counts, covered positions and shares."""
    left: dict[str, Rows] = {name: [("1", 3, 8)] for name in ("longer", "elsewhere", "two")}
    left["nulls"] = [("1", 10, 20), (None, None, None), ("1", 3, 8)]
    right: dict[str, Rows] = {"longer": [("1", 2, 10)], "elsewhere": [("X", 3, 8)], "two": [("1", 3, 6), ("1", 5, 8)]}
    right["nulls"] = [*right["two"], (None, None, None)]
    left["bedtools"] = [(chrom, start, start + 50) for chrom, start, _ in GENES]
    right["bedtools"] = [(chrom, start, start + 75) for chrom, reads in READS.items() for start, _ in reads]
    for strand in "+-":
        left[strand] = [(chrom, start, start + 50) for chrom, start, own in GENES if own == strand]
        right[strand] = [(c, start, start + 75) for c, reads in READS.items() for start, own in reads if own == strand]
    found = dovetail.interval_coverage(frame(spark, left), frame(spark, right), on=KEYS)
    answers = by_case(found, "start", "n_overlaps", "covered", "covered_fraction")
    assert [answers[name][0][2] for name in ("longer", "elsewhere", "two")] == [5, 0, 5]
    assert sorted(row[2] for row in answers["nulls"]) == [0, 0, 5]
    assert sorted(answers["bedtools"]) == [
        (20, 2, 50, 1.0), (50, 5, 50, 1.0), (80, 6, 50, 1.0), (150, 7, 50, 1.0), (180, 6, 50, 1.0), (200, 4, 38, 0.76),
    ]  # fmt: skip
    assert sorted(answers["+"]) == [(20, 2, 50, 1.0), (150, 3, 50, 1.0), (200, 0, 0, 0.0)]
    assert sorted(answers["-"]) == [(50, 1, 23, 0.46), (80, 4, 50, 1.0), (180, 4, 34, 0.68)]


def test_depth(spark: SparkSession) -> None:
    """bedtools genomecov -bg: blocks apart, and three that overlap."""
    blocks: dict[str, Rows] = {
        "three": [("1", 0, 10), ("1", 20, 30), ("1", 40, 50)],
        "nested": [("1", 0, 30), ("1", 0, 40), ("1", 0, 50)],
        "two": [("1", 15, 20), ("1", 17, 22)],
        "of one position": [("1", 0, 10), ("1", 11, 21)],
    }
    assert by_case(dovetail.interval_depth(frame(spark, blocks), on=KEYS), "start", "end", "depth") == ordered(
        {
            "three": [(0, 10, 1), (20, 30, 1), (40, 50, 1)],
            "nested": [(0, 30, 3), (30, 40, 2), (40, 50, 1)],
            "two": [(15, 17, 1), (17, 20, 2), (20, 22, 1)],
            "of one position": [(0, 10, 1), (11, 21, 1)],
        }
    )


def test_subtract(spark: SparkSession) -> None:
    three: Rows = [("X", 3, 8), ("1", 4, 7), ("X", 1, 5)]
    left: dict[str, Rows] = {"itself": three, "longer": three, "part": [("X", 1, 8), ("X", 2, 10)]}
    right: dict[str, Rows] = {"itself": three, "longer": [("X", 0, 18), ("1", 5, 6)], "part": [("X", 1, 8)]}
    left["bedtools"], right["bedtools"] = [("1", 10, 20), ("1", 50, 70)], [("1", 18, 25), ("1", 80, 90)]
    pair = frame(spark, left), frame(spark, right)
    assert by_case(dovetail.interval_subtract(*pair, on=KEYS), "chrom", "start", "end") == {
        "longer": [("1", 4, 5), ("1", 6, 7)],
        "part": [("X", 8, 10)],
        "bedtools": [("1", 10, 18), ("1", 50, 70)],
    }
    assert by_case(dovetail.interval_setdiff(*pair, on=KEYS), "start", "end") == {"bedtools": [(50, 70)]}


def test_nearest(spark: SparkSession) -> None:
    """bedtools counts a distance from position to position: one more than the gap that bioframe and we give."""
    left: dict[str, Rows] = {"bioframe": [("1", 1, 5)], "sides": [("1", 3, 5)], "touching": [("1", 10, 20)]}
    right: dict[str, Rows] = {"bioframe": [("1", 4, 8), ("1", 10, 11)], "touching": [("1", 20, 21)]}
    right["sides"] = [("1", 1, 2), ("1", 2, 8), ("1", 10, 11)]
    left["names"], right["names"] = [("1", 10, 20), ("1", 55, 58)], [("1", 40, 50), ("1", 60, 70)]
    left["ties"] = [("1", 100, 101), ("1", 200, 201), ("1", 300, 301), ("1", 100_000, 100_010), ("2", 1, 10)]
    right["ties"] = [("1", 100, 101), ("1", 150, 201), ("1", 175, 375), ("3", 20, 30)]
    pair = frame(spark, left), frame(spark, right)
    columns = ("start", "start_right", "end_right", "distance")
    one = by_case(dovetail.interval_nearest(*pair, on=KEYS, how="left", ties="all"), *columns)
    assert one["bioframe"] == [(1, 4, 8, 0)]
    assert one["touching"] == [(10, 20, 21, 0)]
    assert one["names"] == [(10, 40, 50, 20), (55, 60, 70, 2)]
    assert sorted(one["ties"]) == [
        (1, None, None, None), (100, 100, 101, 0), (200, 150, 201, 0), (200, 175, 375, 0), (300, 175, 375, 0),
        (100_000, 175, 375, 99_625),
    ]  # fmt: skip
    first = by_case(dovetail.interval_nearest(*pair, on=KEYS, ties="first"), *columns)["ties"]
    assert [row[1] for row in first if row[0] == 200] == [150]
    assert by_case(dovetail.interval_nearest(*pair, on=KEYS, k=2), *columns)["bioframe"] == [
        (1, 10, 11, 5),
        (1, 4, 8, 0),
    ]
    apart = {"on": KEYS, "ignore_overlaps": True}
    assert by_case(dovetail.interval_nearest(*pair, **apart), *columns)["bioframe"] == [(1, 10, 11, 5)]
    for direction, found in (("upstream", (3, 1, 2, 1)), ("downstream", (3, 10, 11, 5))):
        sides = dovetail.interval_nearest(*pair, direction=direction, **apart)  # type: ignore[arg-type]  # checked words
        assert by_case(sides, *columns)["sides"] == [found]
