"""Points of the sources' experiments: a join in a setting, run over keys alone on a simulated disk.

Reads cost 4 ms and 0.099 us a byte, steps what the source printed of its machine (Naeem 2012, table 5.2). Small scale
divides master rows, memory, cached and pinned rows by 8 and leaves the segments of 500 rows, so that rows that wait per
segment, and with them rows per load and service rates, are the source's: h_S/n_p is 76 at 50 MB and 2 million rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from bench.context import BenchContext
from bench.simulation import MESH as MESHES
from bench.simulation import PINNED, Experiment, Rate, SourceSizes, rate_from_key, service_rate
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import MODELS, predict
from dovetail.joins.semistream.cost.setting import NoRoomError, Policy, Prediction, Setting
from dovetail.joins.semistream.master.pages import Order
from dovetail.joins.semistream.operators.operator import SemiStreamJoin
from dovetail.joins.semistream.request import OLDEST, Lookup
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads.zipf import ZipfLaw

MILLION, MB = 1_000_000, 2**20
SMALL: Final = 8
"""The divisor of sizes at small scale."""
SEGMENT_ROWS: Final = 500
MESH_ROWS: Final = int(0.93 * MB / 120)
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_INLJ_ROWS = 400  # INLJ has no queue; that many rows stand for one
_CACHING = ("optimised_x_hybridjoin", "cachejoin", "sscj")
WARM: Final = {"oldest": 10, "alternate": 20, "guarded": 20}
"""Queue lengths before a join is measured, by its look-up policy: rows of the tail wait for up to eight."""
MEASURED: Final = 10
"""Queue lengths that are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A join in a setting of the source: sizes at the source's scale, `divide` what they are divided by.

    `segment` rows are read at a time (those of MESHJOIN are divided as well, since its w is). `cached` rows are in a
    hash table, `pinned` ones, as many as a segment unless said, in X-HYBRIDJOIN's other buffer; R-MESHJOIN meets a
    segment in `parts`. `from_key`: loads begin at the key, as no join of ours reads and the source may have. `rounds`,
    by the clock only: segments are loaded in rounds and as far as needed, as the library does.
    """

    divide: int = 1
    algorithm: str = "hybridjoin"
    rows: int = 2 * MILLION
    memory_mb: float = 50
    exponent: float = 1.0
    segment: int = SEGMENT_ROWS
    cached: int = 16_000
    pinned: int | None = None
    parts: int = 2
    order: Order = "key"
    lookup: Lookup = OLDEST
    from_key: bool = False
    rounds: bool = False

    @property
    def mesh(self) -> bool:
        """Whether all master data is read in turn."""
        return self.algorithm in MESHES

    @property
    def master_rows(self) -> int:
        """Master rows that there really are."""
        return self.rows // self.divide

    @property
    def cached_rows(self) -> int:
        """Rows that are cached or pinned, really: whole pages of data in order."""
        if self.algorithm not in PINNED:
            return self.cached // self.divide if self.algorithm in _CACHING else 0
        of = self.experiment()
        per = of.pages_of(self.algorithm)
        return (of.sizes(self.algorithm, per).pinned or 0) * -(-of.rows(self.algorithm) // per)

    def experiment(self) -> Experiment:
        """The sizes as the simulation takes them."""
        own = MESH_ROWS if self.segment == SEGMENT_ROWS else self.segment
        return Experiment(
            n=self.master_rows,
            segment_rows=own // self.divide if self.mesh else None if self.algorithm == "inlj" else self.segment,
            cached=self.cached // self.divide,
            pinned_rows=(self.segment if self.pinned is None else self.pinned) // self.divide,
            parts=self.parts,
            order=self.order,
            lookup=self.lookup,
            memory=SourceSizes(memory=int(self.memory_mb * MB) // self.divide),
        )

    @property
    def queue(self) -> int:
        """Rows that can wait."""
        return self.experiment().sizes(self.algorithm).waiting or _INLJ_ROWS

    def join(self) -> SemiStreamJoin:
        """The join that runs."""
        return self.experiment().join(self.algorithm)

    def predicted(self) -> Prediction:
        """The corrected model's figures of the same sizes."""
        policy = Policy(lookup=self.lookup.kind, position=self.lookup.position, cache="random", threshold=5)
        order: Order = "frequency" if self.order == "key" else self.order
        memory, law = int(self.memory_mb * MB) // self.divide, Zipf(self.master_rows, self.exponent)
        setting = Setting(memory, law, page_bytes=120, order=order, policy=policy)
        parts = self.parts if self.algorithm == "r_meshjoin" else 1
        sizes = Sizes(per_segment=self.experiment().rows(self.algorithm), parts=parts)
        return predict(self.algorithm, setting, MODELS[self.algorithm].keeping(sizes, self.cached_rows, setting))

    def run(self, warm: float, measure: float, reaching: float = 1.0) -> Rate:
        """The join over a stream that is never short; lengths in rows that can wait, of which a share reaches it."""
        law, rng = ZipfLaw(self.master_rows, self.exponent, "integral"), np.random.default_rng(11)
        if self.from_key:
            return rate_from_key(self.experiment(), lambda n: law.ranks(rng, n) - 1, warm, measure)
        before, counted = (int(times * self.queue / reaching) for times in (warm, measure))
        return service_rate(self.join(), lambda n: law.ranks(rng, n) - 1, before, counted)


INLJ, MESH, R_MESH, HYBRID = "INLJ", "MESHJOIN", "R-MESHJOIN", "HYBRIDJOIN"
X, OPTIMISED, CACHE = "X-HYBRIDJOIN", "Optimised X-HYBRIDJOIN", "CACHEJOIN, unsorted"
FROM_KEY, DOUBLE = "HYBRIDJOIN, loads from the key", "HYBRIDJOIN, double buffer"
SECOND, GUARDED, OURS = "HYBRIDJOIN, second position", "HYBRIDJOIN, guarded (ours)", "HYBRIDJOIN in rounds (ours)"
SORTED_CACHE, SECOND_CACHE = "CACHEJOIN", "CACHEJOIN, second position"
ANY_ORDER = "HYBRIDJOIN, master data in any order"
ALTERNATE, GUARD = Lookup("alternate", 0.3), Lookup("guarded", 0.3)
JOINS: dict[str, Point] = {
    INLJ: Point(algorithm="inlj"),
    MESH: Point(algorithm="meshjoin"),
    R_MESH: Point(algorithm="r_meshjoin"),
    FROM_KEY: Point(from_key=True),
    HYBRID: Point(),
    ANY_ORDER: Point(order="none"),
    DOUBLE: Point(segment=2 * SEGMENT_ROWS),
    SECOND: Point(lookup=ALTERNATE),
    GUARDED: Point(lookup=GUARD),
    X: Point(algorithm="x_hybridjoin"),
    OPTIMISED: Point(algorithm="optimised_x_hybridjoin"),
    CACHE: Point(algorithm="cachejoin", order="none"),
    SORTED_CACHE: Point(algorithm="cachejoin"),
    SECOND_CACHE: Point(algorithm="cachejoin", lookup=ALTERNATE),
    OURS: Point(lookup=GUARD, rounds=True),
}
"""The joins that are compared, at 50 MB, 2 million master rows and exponent 1."""
NAMES: Final = {name: value for name, value in globals().items() if isinstance(value, str) and value in JOINS}
"""How the tables of experiments call them."""


def divisor(bench: BenchContext, small: int = SMALL) -> int:
    """The divisor of sizes at this scale."""
    return 1 if bench.scale == "full" else small


def master_rows(bench: BenchContext) -> tuple[int, ...]:
    """Master rows of the source's figures; small scale has both ends and the middle."""
    millions = (0.5, 1, 2, 4, 8) if bench.scale == "full" else (0.5, 2, 8)
    return tuple(int(n * MILLION) for n in millions)


def memories(bench: BenchContext) -> tuple[int, ...]:
    """Megabytes of the source's figures; small scale has both ends and the middle."""
    return (50, 100, 150, 200, 250) if bench.scale == "full" else (50, 150, 250)


@lru_cache(maxsize=4096)
def count(point: Point) -> Rate:
    """Counts of the join over a stream that is never short, after it has settled; once in a process."""
    rounds = point.mesh or point.algorithm == "inlj"
    lengths: tuple[float, float] = (1.1, 1.0) if rounds else (WARM[point.lookup.kind], MEASURED)
    law = ZipfLaw(point.master_rows, point.exponent, "integral")
    return point.run(*lengths, 1.0 if point.mesh else 1 - law.share(point.cached_rows))


def best_by_model(points: Iterable[Point]) -> Point:
    """The point whose model promises the highest rate; points that do not fit in memory are passed over."""
    fitting: list[tuple[float, Point]] = []
    for point in points:
        try:
            fitting.append((point.predicted().mu, point))
        except NoRoomError:
            continue
    return max(fitting, key=lambda found: found[0])[1]


def at(point: Point, **fields: float) -> Point:
    """The point with some of its fields changed, or with a second `position` of the queue that is looked up."""
    lookup = {"lookup": Lookup("alternate", fields.pop("position"))} if "position" in fields else {}
    return replace(point, **lookup, **fields)  # type: ignore[arg-type]  # fields of numbers
