"""Weather collections: the files hold exactly the readings, in the element structure that the queries ask for."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats
from tests.workloads.goodness import ENOUGH, chi_square_p, ks_p

from dovetail.errors import PlanError
from dovetail.workloads import Weather

SMALL = Weather(stations=3, years=2, first_year=1999, seed=5)


def parsed(home: Path) -> list[tuple[str, str, str, int]]:
    rows = []
    for path in sorted(home.iterdir()):
        root = ElementTree.parse(path).getroot()  # noqa: S314  (written by the test itself)
        assert root.tag == "dataCollection"
        assert int(root.attrib["totalCount"]) == len(root)
        for data in root.findall("data"):
            station, date, kind, value = (data.findtext(tag) for tag in ("station", "date", "dataType", "value"))
            assert station is not None
            assert date is not None
            assert kind is not None
            assert value is not None
            assert len(data.findall("attributes/attribute")) == 4
            rows.append((station, date, kind, int(value)))
    return rows


def expected(weather: Weather) -> list[tuple[str, str, str, int]]:
    return [
        (r["station"], f"{r['date']}T00:00:00.000", r["data_type"], r["value"]) for r in weather.readings().to_pylist()
    ]


@pytest.mark.parametrize("files_per_year", [1, 12])
def test_files_hold_exactly_the_readings(tmp_path: Path, files_per_year: int) -> None:
    places = SMALL.write(tmp_path, files_per_year)
    assert len(list(places["sensors"].iterdir())) == 3 * 2 * files_per_year
    rows = parsed(places["sensors"])
    assert sorted(rows) == sorted(expected(SMALL))
    assert 0.96 < len(rows) / (3 * (365 + 366) * 5) < 0.98


def test_stations_have_names_places_and_labels(tmp_path: Path) -> None:
    home = SMALL.write_stations(tmp_path)
    files = sorted(home.iterdir())
    assert [path.stem for path in files] == ["USW00012836", "USW00014771", "USW00024233"]
    states = set()
    for path in files:
        station = ElementTree.parse(path).getroot().find("station")  # noqa: S314  (written by the test itself)
        assert station is not None
        assert station.findtext("id") == f"GHCND:{path.stem}"
        assert all(station.findtext(tag) for tag in ("displayName", "latitude", "longitude", "minDate", "maxDate"))
        labels = {label.findtext("type"): label for label in station.findall("locationLabels")}
        assert labels["CNTRY"].findtext("id") == "FIPS:US"
        states.add(labels["ST"].findtext("displayName"))
    assert "Washington" in states


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    homes = [Weather(2, 1, seed=seed).write(tmp_path / str(i))["sensors"] for i, seed in enumerate((1, 1, 2))]
    one, again, other = ({p.name: p.read_bytes() for p in home.iterdir()} for home in homes)
    assert one == again
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one)


def test_a_selection_of_types_or_stations_changes_no_value() -> None:
    whole = SMALL.readings()
    lowest = Weather(3, 2, 1999, 5, types=("TMIN",)).readings()
    assert whole.filter(pc.field("data_type") == "TMIN").combine_chunks().equals(lowest.combine_chunks())
    fewer = Weather(2, 2, 1999, 5).readings()
    assert whole.slice(0, fewer.num_rows).combine_chunks().equals(fewer.combine_chunks())
    one = SMALL.readings(station=1, year=2000)
    assert set(one["station"].to_pylist()) == {"GHCND:USW00014771"}
    assert {date.year for date in one["date"].to_pylist()} == {2000}


def values(kind: str) -> tuple[np.ndarray, np.ndarray]:
    table = Weather(stations=20, years=5, first_year=2001, seed=6, types=(kind,)).readings()
    first = table["date"].cast(pa.timestamp("s")).to_numpy().astype("datetime64[Y]")
    day = (table["date"].cast(pa.timestamp("s")).to_numpy().astype("datetime64[D]") - first).astype(np.int64)
    return day, table["value"].to_numpy()


@pytest.mark.parametrize(("kind", "level"), [("TMAX", 190.0), ("TMIN", 70.0)])
def test_temperatures_are_normal_around_the_season(kind: str, level: float) -> None:
    day, value = values(kind)
    noise = value + 0.5 - level - 100 * np.sin(2 * np.pi * (day / 365.25 - 0.3))
    assert ks_p(noise[:8000] / 30.0, stats.norm.cdf) > ENOUGH


def test_wind_is_mostly_light_and_sometimes_extreme() -> None:
    _, value = values("AWND")
    gale = value >= 420
    assert chi_square_p(gale.astype(np.int64), np.array([0.998, 0.002])) > ENOUGH
    assert (value > 491.744).sum() > 5
    light = -np.diff(np.exp(-np.arange(410) / 15))  # whole parts of exponential values
    assert chi_square_p(value[~gale], light, first=10) > ENOUGH


def test_weather_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="stations must be an integer >= 1"):
        Weather(stations=0)
    with pytest.raises(PlanError, match=r"types \['TAVG'\] are unknown"):
        Weather(types=("TAVG",))
    with pytest.raises(PlanError, match="files_per_year"):
        Weather().write_sensors(tmp_path, 0)
