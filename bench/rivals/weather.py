"""Weather collections on disk, the queries of the source over them, and what they must answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from bench.case import Params
from bench.context import BenchContext
from dovetail.workloads.weather import Weather

FIRST_YEAR = 1995
_READINGS = 'collection("/sensors")/dataCollection/data'
QUERIES = {
    "7.2": f"""for $r in {_READINGS}
where $r/dataType eq "AWND" and xs:decimal(data($r/value)) gt 491.744
return $r""",
    "7.4": f"""max(for $r in {_READINGS} where $r/dataType eq "TMAX" return $r/value) div 10""",
    "7.6": f"""for $s in collection("/stations")/stationCollection/station
for $r in {_READINGS}
where $s/id eq $r/station and $r/dataType eq "TMAX"
  and year-from-dateTime(xs:dateTime(data($r/date))) eq 2000
return ($s/displayName, $r/date, $r/value)""",
    "7.8": """avg(
  for $r_min in collection("/sensors_min")/dataCollection/data
  for $r_max in collection("/sensors_max")/dataCollection/data
  where $r_min/station eq $r_max/station and $r_min/date eq $r_max/date
    and $r_min/dataType eq "TMIN" and $r_max/dataType eq "TMAX"
  return $r_max/value - $r_min/value
) div 10""",
}


def weather(params: Params, part: int = 1) -> Weather:
    """The readings of a point, or those of a part of its stations; of few stations, a part of the years."""
    few = params["stations"] < part
    stations, years = (1, part) if few else (part, 1)
    return Weather(params["stations"] // stations, params["years"] // years, FIRST_YEAR)


def places(bench: BenchContext, params: Params, part: int = 1) -> dict[str, Path]:
    """Where the collections of a point lie; they are written when first asked for."""
    source = weather(params, part)
    home = bench.scratch / f"weather-{source.stations}-{source.years}"
    if params["query"] != "7.8":
        found = {"/sensors": home / "sensors", "/stations": home / "stations"}
        if not found["/sensors"].exists():
            source.write(home)
        return found
    found = {"/sensors_min": home / "TMIN", "/sensors_max": home / "TMAX"}
    for place in found.values():
        if not place.exists():
            Weather(source.stations, source.years, FIRST_YEAR, types=(place.name,)).write_sensors(place)
    return found


def megabytes(found: dict[str, Path]) -> float:
    """Size of the collections."""
    return sum(file.stat().st_size for place in found.values() for file in place.iterdir()) / 1e6


def expected(params: Params, part: int = 1) -> int:
    """The number of items; of an aggregate its value in millionths. Computed from the readings themselves."""
    readings = weather(params, part).readings()
    if params["query"] == "7.2":
        rows = pc.and_(pc.equal(readings["data_type"], "AWND"), pc.greater(readings["value"], 491))
        return int(pc.sum(rows).as_py())
    high = readings.filter(pc.equal(readings["data_type"], "TMAX"))
    if params["query"] == "7.4":
        return int(pc.max(high["value"]).as_py()) * 100_000
    if params["query"] == "7.6":
        return 3 * int(pc.sum(pc.equal(pc.year(high["date"]), 2000)).as_py())
    low = readings.filter(pc.equal(readings["data_type"], "TMIN")).select(["station", "date", "value"])
    both = high.join(low, ["station", "date"], join_type="inner", right_suffix="_low")
    difference = np.asarray(both["value"]) - np.asarray(both["value_low"])
    return round(float(difference.mean()) / 10 * 1e6)


def answer(query: str, items: list[str]) -> int:
    """A rival's answer, in the form of `expected`."""
    return len(items) if query in ("7.2", "7.6") else round(float(items[0]) * 1e6)
