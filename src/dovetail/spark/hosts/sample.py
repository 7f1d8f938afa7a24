"""Draws samples of key hashes and positions, from which tasks of equal size are planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame

from dovetail.spark.frames import RESERVED
from dovetail.spark.inputs import UNKNOWN_BYTES, known_bytes, rows_at_most

SAMPLE_ROWS = 4096  # of each input
SMALL_BYTES = 4 << 20  # inputs that Spark estimates smaller are read whole, or not sampled
_SAMPLED_BYTES = 64 << 20  # bytes of a larger input that are read for a sample
_ROOM = 4  # rows that are drawn for each row of a sample, where the number of rows is known
SEED = 20  # fixed: the same inputs give the same plan, and Spark finds the code it compiled for it
_RANDOM = f"{RESERVED}random"


class Source(NamedTuple):
    """Rows to sample: SQL for whether a row counts, for the hash of its keys, and for its positions as doubles."""

    frame: DataFrame
    usable: str
    key_hash: str
    positions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Key hashes and positions of a uniform sample of the rows that count, and how many of these there are."""

    hashes: npt.NDArray[np.int64]
    positions: npt.NDArray[np.float64]
    rows: int


def draw(*sources: Source) -> list[Sample]:
    """A sample of each source, all from one job: the rows with the smallest random numbers, which also give the count.

    The k-th smallest of n uniform numbers is about k / n, so that n is known to some two percent. Of large inputs only
    a share is read; where the number of rows is known, no more than fill the sample.
    """
    largest = max(known_bytes(source.frame) for source in sources)
    share = min(1.0, _SAMPLED_BYTES / max(1, largest)) if largest < UNKNOWN_BYTES else 1.0
    shares = [min(share, _enough(source.frame)) for source in sources]
    found = _drawn(sources, shares)
    few = [
        len(sample.hashes) < SAMPLE_ROWS // 4 and part < share for sample, part in zip(found, shares, strict=True)
    ]  # most rows do not count
    return _drawn(sources, [share] * len(sources)) if any(few) else found


def _enough(frame: DataFrame) -> float:
    """The share of the rows that fills a sample; 1 if their number is unknown."""
    rows = rows_at_most(frame)
    return 1.0 if not rows else min(1.0, _ROOM * SAMPLE_ROWS / rows)


def _drawn(sources: Sequence[Source], shares: Sequence[float]) -> list[Sample]:
    parts = []
    for number, (source, share) in enumerate(zip(sources, shares, strict=True)):
        each = f"explode(array({', '.join(source.positions)})) as p"
        chosen = source.frame.selectExpr("*", f"rand({SEED + number}) as {_RANDOM}").where(
            f"{_RANDOM} < {double_literal(share)}"
        )
        kept = chosen.where(source.usable).orderBy(_RANDOM).limit(SAMPLE_ROWS)
        parts.append(kept.selectExpr(f"{number} as side", f"{source.key_hash} as h", f"{_RANDOM} as u", each))
    drawn = reduce(DataFrame.union, parts).toArrow()
    columns = {name: np.asarray(drawn[name].to_numpy()) for name in drawn.column_names}
    found = []
    for number, (source, share) in enumerate(zip(sources, shares, strict=True)):
        own = columns["side"] == number
        n, largest = int(own.sum()) // len(source.positions), columns["u"][own].max(initial=0.0)
        rows = round(n / share) if n < SAMPLE_ROWS else int((n - 1) / max(largest, 1e-300))
        found.append(Sample(columns["h"][own].astype(np.int64), columns["p"][own].astype(np.float64), rows))
    return found


def long_literal(number: int) -> str:
    """SQL: the number as a bigint."""
    return "cast('-9223372036854775808' as bigint)" if number == -(2**63) else f"{number}L"


def double_literal(value: float) -> str:
    """SQL: the number as a double."""
    return f"double('{value!r}')" if value in (inf, -inf) else f"{value!r}D"


def reached(points: Sequence[str]) -> str:
    """SQL: how many of the conditions hold, of which each holds only if the one before it does."""

    def search(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        return f"if({points[middle]}, {search(middle + 1, high)}, {search(low, middle)})"

    return search(0, len(points))
