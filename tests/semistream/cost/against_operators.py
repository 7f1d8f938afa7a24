"""Running operators over simulated master data, and what the models say of the same sizes.

As a program it prints the whole grid: `python -m tests.semistream.cost.against_operators`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bench.simulation import Keys, Rate, SimulatedPages, service_rate

from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import predict
from dovetail.joins.semistream.cost.setting import Policy, Prediction, Setting
from dovetail.joins.semistream.operators import ALGORITHMS
from dovetail.joins.semistream.operators.operator import SemiStreamJoin
from dovetail.joins.semistream.request import CachePolicy, Lookup
from dovetail.joins.semistream.sizes import Sizes
from dovetail.workloads.zipf import ZipfLaw

AMPLE = 2**40  # bytes: sizes are given, memory decides nothing
MASTER_ROW = 120


@dataclass(frozen=True)
class Case:
    """One run: an algorithm, its sizes, and the stream."""

    algorithm: str
    rows: int = 10_000
    segment_rows: int = 50
    waiting: int = 2000
    exponent: float = 1.0
    order: str = "frequency"
    cached: int = 0
    parts: int = 1
    policy: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        policy = "".join(f" {value}" for value in self.policy.values())
        return (
            f"{self.algorithm} {self.rows}/{self.segment_rows} h_S={self.waiting} e={self.exponent} {self.order} "
            f"h_R={self.cached} l={self.parts}{policy}"
        )

    def model(self) -> Prediction:
        """What the model says."""
        policy = Policy(**{"lookup": "oldest", "cache": "random", "threshold": 5, **self.policy})
        law, page = Zipf(self.rows, self.exponent), MASTER_ROW * (self.segment_rows // self.parts)
        setting = Setting(AMPLE, law, page_bytes=page, order=self.order, policy=policy)  # type: ignore[arg-type]  # a literal
        return predict(self.algorithm, setting, self._sizes())

    def run(self, seed: int = 1, warm: int = 14, measured: int = 10) -> Rate:
        """What the operator counts, over a stream of a multiple of the waiting rows."""
        per_row = 1 if self.algorithm == "inlj" else self.waiting
        length = (2000, 6000) if self.algorithm == "inlj" else (warm * per_row, measured * per_row)
        return service_rate(self.join(), self.stream(seed), *length)

    def stream(self, seed: int) -> Keys:
        """Keys of the stream; the most frequent master row is number 0."""
        law, rng = ZipfLaw(self.rows, self.exponent, "integral"), np.random.default_rng(seed)
        return lambda n: law.ranks(rng, n) - 1

    def join(self) -> SemiStreamJoin:
        """The operator's specification: one page a segment."""
        pages = SimulatedPages(self.rows, self.segment_rows // self.parts, MASTER_ROW, self.order, seed=3)  # type: ignore[arg-type]  # a literal
        options: dict[str, Any] = {"pages": pages, "on": ("key",), "how": "left_semi"}
        if self.algorithm != "inlj":
            options["sizes"] = self._sizes()
        if self.algorithm in ("hybridjoin", "x_hybridjoin", "optimised_x_hybridjoin", "cachejoin", "sscj"):
            options["lookup"] = Lookup(self.policy.get("lookup", "oldest"))
        if self.algorithm == "cachejoin":
            options["cache"] = CachePolicy(self.policy.get("cache", "random"), self.policy.get("threshold", 5))
        return ALGORITHMS[self.algorithm](**options)

    def _sizes(self) -> Sizes:
        """The sizes that model and operator get."""
        if self.algorithm == "inlj":
            return Sizes(per_segment=1)
        kept = self.cached // self.segment_rows
        part = {
            "r_meshjoin": {"parts": self.parts},
            "x_hybridjoin": {"pinned": kept},
            "optimised_x_hybridjoin": {"pinned": kept},
            "cachejoin": {"cached": self.cached},
            "sscj": {"cached": self.cached},
            "ssij": {"resident": kept},
            "partitioned": {"resident": kept},
        }.get(self.algorithm, {})
        return Sizes(waiting=self.waiting, per_segment=self.parts, **part)


def grid() -> Iterator[Case]:
    """At least 24 settings of each algorithm."""
    shapes = ((40_000, 6000), (80_000, 20_000))
    for (rows, waiting), exponent in itertools.product(shapes, (0.0, 0.5, 0.8, 1.0)):
        here: dict[str, Any] = {"rows": rows, "segment_rows": 100, "waiting": waiting, "exponent": exponent}
        for lookup in ("oldest", "alternate", "guarded"):
            policy = {"lookup": lookup}
            yield from (Case("hybridjoin", **here, order=order, policy=policy) for order in ("frequency", "none"))
            for cached in (200, 800, 2000):
                yield Case("x_hybridjoin", **here, cached=cached, policy=policy)
                yield Case("optimised_x_hybridjoin", **here, cached=cached, policy=policy)
            for cache, order in itertools.product(("random", "adaptive"), ("frequency", "none")):
                learned = {**policy, "cache": cache, "threshold": 5 if cache == "random" else 2}
                yield Case("cachejoin", **here, order=order, cached=800, policy=learned)
            yield Case("sscj", **here, order="none", cached=800, policy=policy)
        for cached, order in itertools.product((0, 400, 1600), ("frequency", "none")):
            yield Case("ssij", **here, order=order, cached=cached)
            yield Case("partitioned", **here, order=order, cached=cached)
        yield from (Case("inlj", **here | {"segment_rows": page}) for page in (20, 100, 500))
    for rows, segment, waiting in itertools.product((5000, 20_000), (50, 100, 200), (2000, 4000, 8000, 16_000)):
        yield Case("meshjoin", rows, segment, waiting)
        yield Case("r_meshjoin", rows, segment, waiting, parts=2)


def main() -> None:
    """Print every case with the operator's and the model's tuples per load and rate."""
    found: dict[str, list[tuple[float, float]]] = {}
    for case in grid():
        counted, predicted = case.run(), case.model()
        per_load = 1 / (predicted.loads_per_tuple * counted.rows_per_load) - 1
        rate = predicted.mu / counted.per_second - 1
        found.setdefault(case.algorithm, []).append((per_load, rate))
        counts = f"{counted.rows_per_load:8.1f} {per_load:+7.1%} {counted.per_second:10,.0f} {rate:+7.1%}"
        print(f"{case!s:90} {counts}", flush=True)
    for name, errors in found.items():
        off = np.abs(errors)
        per_load, rates = (f"mean {off[:, at].mean():.1%}, worst {off[:, at].max():.1%}" for at in (0, 1))
        print(f"{name:24} {len(off):3} settings; tuples per load: {per_load}; rate: {rates}")


if __name__ == "__main__":
    main()
