"""The sizes that serve a join best: by its model, or by measuring, over the same grids."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.meshjoin import best_buffer_bytes, seek_equivalent_bytes
from dovetail.joins.semistream.cost.models import Model, model_of, service_rate
from dovetail.joins.semistream.cost.prediction import NoRoomError
from dovetail.joins.semistream.cost.setting import Setting
from dovetail.joins.semistream.sizes import Sizes

Measure = Callable[[Sizes], float]
"""Tuples per second with these sizes, from a model or from a run."""

_LARGEST_SHARE: Final = 0.5  # of memory: no disk buffer is larger
_NO_RATE: Final = -math.inf


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best sizes that were tried, their rate, and every trial in order."""

    sizes: Sizes
    rate: float
    trials: tuple[tuple[Sizes, float], ...]


def tune(algorithm: str, setting: Setting, *, measure: Measure | None = None, trials: int = 400) -> Tuned:
    """The sizes with the highest service rate for `algorithm` in this setting.

    By its model, unless `measure` runs the join and says its rate; then the model only says where to begin. Starts at
    the closed form for the buffer (F5), walks on a grid in which neighbours differ by a factor 2, then 2^(1/2) and
    2^(1/4), and stops where no neighbour is better or after `trials` trials. Sizes that do not fit are passed over; if
    none fits, a `NoRoomError` says so.
    Reference: docs/algorithms/semistream.md, 3.1 (F5).
    """
    if trials < 1:
        raise PlanError(f"{trials} trials were allowed; tuning takes at least 1.")
    model = model_of(algorithm)
    climb = _Climb(model, setting, measure or by_model(model, setting), trials)
    near = _near(algorithm, setting, measured=measure is not None)
    if near is not None and measure is None and _waits_at_once(model, setting, near):
        climb.visit([near])
        return climb.result()
    climb.visit(starts(model, setting) if near is None else [near])
    for factor in (2.0, 2**0.5, 2**0.25):
        climb.walk(factor)
    return climb.result()


def _near(algorithm: str, setting: Setting, *, measured: bool) -> Sizes | None:
    """Sizes that a cheaper judge finds best: the model for measurements, the plain look-up for the costly models."""
    if measured:
        return tune(algorithm, setting).sizes
    if setting.policy.lookup == "oldest":
        return None
    return tune(algorithm, _looking_up_the_oldest(setting)).sizes


def _waits_at_once(model: Model, setting: Setting, sizes: Sizes) -> bool:
    """Whether all of a micro-batch that reaches storage finds slots, so that it does not matter what is looked up."""
    if setting.batch_rows is None:
        return False
    try:
        found = model.predict(_looking_up_the_oldest(setting), sizes)
    except NoRoomError:
        return False
    return setting.batch_rows * (1 - found.p_n) <= (found.sizes.waiting or 1)


def _looking_up_the_oldest(setting: Setting) -> Setting:
    return replace(setting, policy=replace(setting.policy, lookup="oldest"))


def by_model(model: Model, setting: Setting) -> Measure:
    """The rate that the model predicts; minus infinity where the sizes do not fit."""

    def rate(sizes: Sizes) -> float:
        try:
            return service_rate(model.predict(setting, sizes), setting)
        except NoRoomError:
            return _NO_RATE

    return rate


def grid(model: Model, setting: Setting, factor: float = 2.0) -> Iterator[Sizes]:
    """All sizes of a grid over the model's axes: (d), (d_S, d_N), (d, h_R) or (b, l), segments in whole pages."""
    for pages in _powers(1, _most_pages(model, setting), factor):
        base = Sizes(per_segment=pages)
        if "parts" in model.axes:
            yield from (replace(base, parts=n) for n in _powers(1, pages, factor))
        elif model.kept is not None:
            most = min(setting.master_rows, int(setting.memory / setting.cached_bytes))
            yield from (model.keeping(base, n, setting) for n in (0, *_powers(1, most, factor)))
        else:
            yield base


def starts(model: Model, setting: Setting) -> list[Sizes]:
    """Where tuning begins: one page, the closed form for the buffer, and both with small and large caches."""
    if not model.axes:
        return [Sizes(per_segment=1)]
    a = seek_equivalent_bytes(setting, sequential=not model.needs_index)
    best = best_buffer_bytes(setting.memory, a) / (setting.page_rows * setting.row_bytes)
    pages = sorted({1, max(1, min(round(best), _most_pages(model, setting)))})
    bases = [Sizes(per_segment=n) for n in pages]
    if model.kept is None:
        return bases
    shares = (0.0, 0.01, 0.1, 0.33, 0.8)
    rows = [min(setting.master_rows, int(share * setting.memory / setting.cached_bytes)) for share in shares]
    found = [model.keeping(base, n, setting) for base in bases for n in rows]
    if setting.batch_rows is None or model.kept == "resident":
        return found
    return [*found, *(_all_but(model, setting, base) for base in bases)]


def _all_but(model: Model, setting: Setting, base: Sizes) -> Sizes:
    """A cache of all that a micro-batch leaves which finds slots at once."""
    try:
        room = model.predict(_looking_up_the_oldest(setting), base).sizes.waiting or 0
    except NoRoomError:
        return base
    entries = (setting.keyed if model.looks_up(setting) else None) or setting.entries
    spare = (room - (setting.batch_rows or 0)) * entries.waiting
    each = setting.row_bytes + entries.cached_extra + entries.cached_counter
    return model.keeping(base, max(0, min(setting.master_rows, int(spare / each))), setting)


class _Climb:
    """Trials so far, and steps from the best of them to its neighbours."""

    def __init__(self, model: Model, setting: Setting, measure: Measure, limit: int) -> None:
        self.model, self.setting, self.measure, self.limit = model, setting, measure, limit
        self.tried: dict[Sizes, float] = {}

    def visit(self, candidates: Iterable[Sizes]) -> None:
        for sizes in candidates:
            if sizes not in self.tried and len(self.tried) < self.limit:
                self.tried[sizes] = self.measure(sizes)

    def best(self) -> Sizes:
        return max(self.tried, key=lambda sizes: self.tried[sizes])

    def walk(self, factor: float) -> None:
        before = None
        while before != (before := self.best()) and len(self.tried) < self.limit:
            self.visit(neighbours(self.model, self.setting, before, factor))

    def result(self) -> Tuned:
        best = self.best()
        if self.tried[best] == _NO_RATE:
            raise NoRoomError(
                f"{self.model.name} does not fit in {self.setting.memory:,} bytes with pages of "
                f"{self.setting.page_bytes:,}; give more memory or smaller pages."
            )
        return Tuned(best, self.tried[best], tuple(self.tried.items()))


def neighbours(model: Model, setting: Setting, sizes: Sizes, factor: float) -> list[Sizes]:
    """Sizes one step away on each axis and on pairs of axes, never without a page or a part."""
    pages = sizes.per_segment or 1
    found = []
    for n_pages in _around(pages, factor, 1, _most_pages(model, setting)) if model.axes else [pages]:
        base = replace(sizes, per_segment=n_pages)
        if "parts" in model.axes:
            found += [replace(base, parts=n) for n in _around(min(sizes.parts or 1, n_pages), factor, 1, n_pages)]
        elif model.kept is not None:
            found += [replace(base, **{model.kept: n}) for n in _kept_around(model, setting, sizes, base, factor)]
        else:
            found.append(base)
    return [other for other in found if other != sizes]


def _kept_around(model: Model, setting: Setting, sizes: Sizes, base: Sizes, factor: float) -> list[int]:
    """Numbers to keep one step from those of `sizes`, and as many rows with the segments of `base`."""
    name = model.kept or ""
    each = {"cached": 1, "pinned": setting.page_rows, "resident": setting.segment_rows(base)}[name]
    before = {"resident": setting.segment_rows(sizes)}.get(name, each)
    rows = (getattr(sizes, name) or 0) * before
    around = _around(max(rows, each), factor, 0, setting.master_rows)
    return sorted({n // each for n in (*around, rows)})


def _most_pages(model: Model, setting: Setting) -> int:
    if model.looks_up(setting):
        return 1
    pages = int(setting.memory * _LARGEST_SHARE // (setting.page_rows * setting.row_bytes))
    return max(1, min(pages, -(-setting.master_rows // setting.page_rows)))


def _around(n: int, factor: float, least: int, most: int) -> list[int]:
    wanted = {math.floor(n / factor), n, math.ceil(n * factor)}
    return sorted({min(max(value, least), most) for value in wanted})


def _powers(least: int, most: int, factor: float) -> list[int]:
    steps = int(math.log(max(most / least, 1.0)) / math.log(factor))
    return sorted({min(most, round(least * factor**i)) for i in range(steps + 1)} | {most})
