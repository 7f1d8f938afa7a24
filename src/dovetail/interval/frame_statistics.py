"""What planning needs to know of the inputs, gathered from both in two small Spark jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame, Row

from dovetail.interval.bins import Sample
from dovetail.interval.frame_sides import Side, raise_inverted

SAMPLE_ROWS = 4096


@dataclass(frozen=True, slots=True)
class SideStatistics:
    """Row counts of one side, the range and lengths of its intervals, and a uniform sample of its usable rows.

    Positions are doubles that grow with the bounds; `row_bytes` is the width of a row in Arrow form by its types.
    """

    rows: int
    usable: int
    inverted: int
    low: float
    last_start: float
    high: float
    mean_length: float
    max_length: float
    row_bytes: float
    sample: Sample


def collect_statistics(left: Side, right: Side, invalid: str) -> tuple[SideStatistics, SideStatistics]:
    """Statistics of both sides; a `DataError` if there are inverted intervals and they are an error."""
    # Two plain jobs beat one: an aggregate that also collects rows would leave Spark's compiled path.
    summaries = {row["side"]: row for row in _summary(left).union(_summary(right)).collect()}
    for side in (left, right):
        if summaries[side.name]["inverted"] and invalid == "error":
            raise_inverted(side, summaries[side.name]["inverted"])
    sampled = _draw(left, summaries["left"]["usable"]).union(_draw(right, summaries["right"]["usable"])).toArrow()
    sides = np.asarray(sampled["side"].to_numpy())
    columns = [np.asarray(sampled[name].to_numpy()) for name in ("p0", "p1", "kh")]
    found = []
    for number, side in enumerate((left, right)):
        chosen = sides == number
        start, end, key = (column[chosen] for column in columns)
        usable = summaries[side.name]["usable"]
        found.append(_statistics(side, summaries[side.name], Sample(start, end, key.astype(np.int64), usable)))
    return found[0], found[1]


def _statistics(side: Side, row: Row, sample: Sample) -> SideStatistics:
    low, last_start, high, mean, longest = (
        float(row[name] or 0.0) for name in ("low", "last_start", "high", "mean_length", "max_length")
    )
    width = float(sum(_width(field.dataType.typeName()) for field in side.frame.schema.fields))
    counts = row["rows"], row["usable"], row["inverted"]
    return SideStatistics(*counts, low, last_start, high, mean, longest, width, sample)


def _summary(side: Side) -> DataFrame:
    return _points(side).selectExpr(
        f"'{side.name}' as side",
        "count(*) as rows",
        "count_if(ok) as usable",
        "count_if(inverted) as inverted",
        "min(if(ok, p0, null)) as low",
        "max(if(ok, p0, null)) as last_start",
        "max(if(ok, p1, null)) as high",
        "avg(if(ok, p1 - p0, null)) as mean_length",
        "max(if(ok, p1 - p0, null)) as max_length",
    )


def _draw(side: Side, usable: int) -> DataFrame:
    points = _points(side).where("ok")
    if usable > SAMPLE_ROWS:
        points = points.where(f"rand() < {SAMPLE_ROWS / usable!r}D")
    return points.selectExpr(f"{0 if side.name == 'left' else 1} as side", "p0", "p1", "kh")


def _points(side: Side) -> DataFrame:
    key = f"xxhash64({', '.join(side.keys)})" if side.keys else "0L"
    return side.frame.selectExpr(
        f"{side.position(side.start)} as p0",
        f"{side.position(side.end)} as p1",
        f"{key} as kh",
        f"{side.usable} as ok",
        f"{side.inverted} as inverted",
    )


def _width(kind: str) -> int:
    """Bytes of a value in Arrow form; strings and nested values are taken at 32."""
    widths = {"boolean": 1, "byte": 1, "tinyint": 1, "short": 2, "smallint": 2, "integer": 4, "int": 4, "float": 4}
    widths |= {"date": 4, "long": 8, "bigint": 8, "double": 8, "timestamp": 8, "timestamp_ntz": 8, "decimal": 16}
    return widths.get(kind.split("(", maxsplit=1)[0], 8 if kind.startswith("interval") else 32)
