"""XML weather collections: daily readings of stations in the element structure of the GHCN-Daily web service."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dovetail.workloads.blocks import F64, I64, generator, require, require_count, require_seed, uniforms, whole

TYPES = ("AWND", "PRCP", "SNOW", "TMAX", "TMIN")
"""Average wind (tenths of m/s), rain (tenths of mm), snow (mm), highest and lowest temperature (tenths of a degree)."""

_PLACES = (
    ("KEY WEST INTERNATIONAL AIRPORT", "Florida", "FL", "US", "UNITED STATES"),
    ("SYRACUSE HANCOCK INTERNATIONAL AIRPORT", "New York", "NY", "US", "UNITED STATES"),
    ("SEATTLE TACOMA AIRPORT", "Washington", "WA", "US", "UNITED STATES"),
    ("HAMBURG FUHLSBUETTEL", "Hamburg", "HH", "GM", "GERMANY"),
    ("AUCKLAND AERO", "Auckland", "AU", "NZ", "NEW ZEALAND"),
    ("LOS ANGELES DOWNTOWN", "California", "CA", "US", "UNITED STATES"),
    ("TORONTO ISLAND", "Ontario", "ON", "CA", "CANADA"),
    ("DENVER STAPLETON", "Colorado", "CO", "US", "UNITED STATES"),
)
_KNOWN_IDS = ("USW00012836", "USW00014771", "USW00024233")  # the queries of the sources ask for the first two

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_READING = pa.schema(
    [("station", pa.string()), ("date", pa.date32()), ("data_type", pa.string()), ("value", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Weather:
    """Readings of `stations` over `years`, about 97 of 100 possible ones present; each value depends on the seed alone.

    `types` selects the kinds of reading (their values do not change with the selection), so that a collection of TMIN
    and one of TMAX can be written apart. A wind above 49 m/s occurs about once in a thousand AWND readings.
    """

    stations: int = 8
    years: int = 1
    first_year: int = 2000
    seed: int = 0
    types: tuple[str, ...] = TYPES

    def __post_init__(self) -> None:
        require_count("stations", self.stations, 1)
        require_count("years", self.years, 1)
        require(1 <= self.first_year <= 9999 - self.years, f"first_year {self.first_year} is out of range.")
        require_seed(self.seed)
        unknown = sorted(set(self.types) - set(TYPES))
        require(not unknown and len(self.types) > 0, f"types {unknown} are unknown; allowed: {', '.join(TYPES)}.")

    def station_table(self) -> pa.Table:
        """One row a station: id, name, state, state_code, country_code, country, latitude, longitude, elevation."""
        numbers = range(self.stations)
        rows = [(_station_id(i), *_PLACES[i % len(_PLACES)]) for i in numbers]
        columns: list[list[object]] = [list(column) for column in zip(*rows, strict=True)]
        columns[1] = [f"{name} {i // len(_PLACES) + 1}" for i, name in enumerate(columns[1])]
        where = generator(self.seed, "station place").random((self.stations, 3))
        places = (where * [120.0, 360.0, 20_000.0] + [-60.0, -180.0, 0.0]).round(3)
        names = ["id", "name", "state", "state_code", "country_code", "country", "latitude", "longitude", "elevation"]
        return pa.table([*columns, *places.T], names=names)

    def readings(self, station: int | None = None, year: int | None = None) -> pa.Table:
        """The content of the files (of one station or year if given): station, date, data_type, value, in this
        order."""
        stations = range(self.stations) if station is None else [station]
        years = range(self.first_year, self.first_year + self.years) if year is None else [year]
        return pa.concat_tables([self._station_year(s, y) for s in stations for y in years])

    def write(self, directory: str | Path, files_per_year: int = 1) -> dict[str, Path]:
        """Two collections of XML files: `sensors` (stations x years x files_per_year) and `stations` (one each)."""
        root = Path(directory)
        return {
            "sensors": self.write_sensors(root / "sensors", files_per_year),
            "stations": self.write_stations(root / "stations"),
        }

    def write_sensors(self, directory: str | Path, files_per_year: int = 1) -> Path:
        """One collection of readings: dataCollection/data with date, dataType, station, value and attributes."""
        require(1 <= files_per_year <= 365, f"files_per_year must be from 1 to 365, not {files_per_year}.")
        home = _made(directory)
        for station in range(self.stations):
            for year in range(self.first_year, self.first_year + self.years):
                table = self._station_year(station, year)
                for part, piece in enumerate(_parts(table, files_per_year)):
                    path = home / f"{_station_id(station)}_{year}_{part:03d}.xml"
                    path.write_text(_sensor_document(piece), encoding="utf-8")
        return home

    def write_stations(self, directory: str | Path) -> Path:
        """One collection of stations: stationCollection/station with id, displayName, place and locationLabels."""
        home = _made(directory)
        dates = {
            "min_date": f"{self.first_year:04d}-01-01",
            "max_date": f"{self.first_year + self.years - 1:04d}-12-31",
        }
        for row in self.station_table().to_pylist():
            (home / f"{row['id']}.xml").write_text(_station_document(row | dates), encoding="utf-8")
        return home

    def _station_year(self, station: int, year: int) -> pa.Table:
        days = np.arange(np.datetime64(f"{year:04d}-01-01"), np.datetime64(f"{year + 1:04d}-01-01"))
        pieces = []
        for kind in sorted(self.types):
            purpose, block = f"weather {kind} of {year}", station
            present = uniforms(self.seed, f"{purpose} present", block, days.size) < 0.97
            values = _values(kind, generator(self.seed, purpose, block), days.size)
            shown, count = days[present], int(present.sum())
            columns = [pa.repeat(pa.scalar(f"GHCND:{_station_id(station)}"), count), pa.array(shown, pa.date32())]
            columns += [pa.repeat(pa.scalar(kind), count), pa.array(values[present])]
            pieces.append(pa.table(columns, schema=_READING))
        return pa.concat_tables(pieces).sort_by([("date", "ascending"), ("data_type", "ascending")]).combine_chunks()


def _station_id(number: int) -> str:
    if number < len(_KNOWN_IDS):
        return _KNOWN_IDS[number]
    return f"{_PLACES[number % len(_PLACES)][3]}X{number:08d}"


def _values(kind: str, rng: np.random.Generator, days: int) -> I64:
    season: F64 = 100.0 * np.sin(2 * np.pi * (np.arange(days) / 365.25 - 0.3))
    z, u = rng.standard_normal(days), rng.random(days)
    if kind in ("TMAX", "TMIN"):
        return whole((190.0 if kind == "TMAX" else 70.0) + season + 30.0 * z)
    if kind == "AWND":
        gale = rng.random(days) < 0.002
        return whole(np.where(gale, 420.0 + 200.0 * u, -15.0 * np.log1p(-u) + 10.0))
    wet = rng.random(days) < (0.3 if kind == "PRCP" else 0.05)
    return whole(np.where(wet, -60.0 * np.log1p(-u), 0.0))


def _made(directory: str | Path) -> Path:
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    return home


def _parts(table: pa.Table, n: int) -> Iterator[pa.Table]:
    edges = table.num_rows * np.arange(n + 1) // n
    for first, last in pairwise(edges.tolist()):
        yield table.slice(first, last - first)


def _sensor_document(readings: pa.Table) -> str:
    """Readings are formatted column by column, so that a large collection takes no Python step per reading."""
    none = "<attribute></attribute>"
    flags = f"<attributes>{none}{none}<attribute>W</attribute>{none}</attributes>"
    data = pc.binary_join_element_wise(
        "<data><date>",
        readings["date"].cast(pa.string()),
        "T00:00:00.000</date><dataType>",
        readings["data_type"],
        "</dataType><station>",
        readings["station"],
        "</station><value>",
        readings["value"].cast(pa.string()),
        f"</value>{flags}</data>",
        "",
    )
    body = "".join(data.to_pylist())
    return f'{_HEAD}<dataCollection pageCount="1" totalCount="{readings.num_rows}">{body}</dataCollection>\n'


def _station_document(row: dict[str, object]) -> str:
    labels = "".join(
        f"<locationLabels><type>{kind}</type><id>FIPS:{code}</id><displayName>{name}</displayName></locationLabels>"
        for kind, code, name in (
            ("ST", row["state_code"], row["state"]),
            ("CNTRY", row["country_code"], row["country"]),
        )
    )
    body = (
        f"<id>GHCND:{row['id']}</id><displayName>{row['name']}, {row['state_code']} {row['country_code']}</displayName>"
        f"<latitude>{row['latitude']}</latitude><longitude>{row['longitude']}</longitude>"
        f"<elevation>{row['elevation']}</elevation><minDate>{row['min_date']}</minDate><maxDate>{row['max_date']}</maxDate>"
        f"{labels}"
    )
    root = '<stationCollection pageSize="100" pageCount="1" totalCount="1">'
    return f"{_HEAD}{root}<station>{body}</station></stationCollection>\n"
