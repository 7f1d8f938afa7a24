"""Tuning: never far from the best of a whole grid, by the model and by measuring."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dovetail.errors import PlanError
from dovetail.joins.semistream.cost.choose import by_model, most_pages, neighbours, tune
from dovetail.joins.semistream.cost.distribution import Zipf
from dovetail.joins.semistream.cost.models import MODELS, Model, predict
from dovetail.joins.semistream.cost.setting import EntryBytes, NoRoomError, Policy, Setting
from dovetail.joins.semistream.sizes import Sizes

OLDEST = Policy(lookup="oldest")


def setting(rows: int = 500_000, exponent: float = 1.0, megabytes: int = 16, **changes: object) -> Setting:
    plain = Setting(megabytes * 2**20, Zipf(rows, exponent), order="frequency", policy=OLDEST)
    return replace(plain, **changes)  # type: ignore[arg-type]  # by name


def grid(model: Model, setting: Setting, factor: float = 2.0) -> Iterator[Sizes]:
    """All sizes of a grid over the model's axes: (d), (d_S, d_N), (d, h_R) or (b, l), segments in whole pages."""
    for pages in _powers(1, most_pages(model, setting), factor):
        base = Sizes(per_segment=pages)
        if "parts" in model.axes:
            yield from (replace(base, parts=n) for n in _powers(1, pages, factor))
        elif model.kept is not None:
            most = min(setting.master_rows, int(setting.memory / setting.cached_bytes))
            yield from (model.keeping(base, n, setting) for n in (0, *_powers(1, most, factor)))
        else:
            yield base


def _powers(least: int, most: int, factor: float) -> list[int]:
    steps = int(math.log(max(most / least, 1.0)) / math.log(factor))
    return sorted({min(most, round(least * factor**i)) for i in range(steps + 1)} | {most})


@pytest.mark.parametrize("algorithm", list(MODELS))
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_the_best_of_a_whole_grid_is_not_better_by_a_percent(algorithm: str, exponent: float) -> None:
    here = setting(exponent=exponent)
    rate = by_model(MODELS[algorithm], here)
    best = max(rate(sizes) for sizes in grid(MODELS[algorithm], here))
    found = tune(algorithm, here)
    assert found.rate >= 0.99 * best
    assert found.rate == rate(found.sizes)
    assert len(found.trials) < 200


@pytest.mark.parametrize("algorithm", ["hybridjoin", "cachejoin"])
def test_in_batches_too(algorithm: str) -> None:
    here = setting(batch_rows=20_000, entries=EntryBytes(waiting=56, chunked=48, cached_extra=32, per_segment=16))
    best = max(by_model(MODELS[algorithm], here)(sizes) for sizes in grid(MODELS[algorithm], here))
    assert tune(algorithm, here).rate >= 0.98 * best


def test_guarded_lookups_are_tuned_from_the_plain_ones() -> None:
    here = setting(policy=Policy())
    rate = by_model(MODELS["hybridjoin"], here)
    best = max(rate(sizes) for sizes in grid(MODELS["hybridjoin"], here))
    assert tune("hybridjoin", here).rate >= 0.99 * best


# Near sqrt(a M), 0.96 MB, where 60 KB loses a quarter. Reference: docs/algorithms/semistream.md, 3.4.
def test_hybridjoins_buffer_without_skew_follows_the_closed_form() -> None:
    here = setting(2_000_000, 0.0, 50)
    found = tune("hybridjoin", here)
    assert here.segment_rows(found.sizes) * 120 == pytest.approx(0.96 * 2**20, rel=0.25)
    assert by_model(MODELS["hybridjoin"], here)(Sizes(per_segment=7)) == pytest.approx(0.74 * found.rate, rel=0.04)


# Segments of about 8,000 rows and a third of the memory for the cache; at 0.5 it is worth 3 %.
# Reference: docs/algorithms/semistream.md, 3.8.
def test_the_cache_takes_a_large_part_with_skew_and_little_without() -> None:
    perfect = Policy(lookup="oldest", cache="perfect")
    here = setting(2_000_000, 1.0, 50, policy=perfect)
    skewed = tune("cachejoin", here).sizes
    assert here.segment_rows(skewed) == pytest.approx(8000, rel=0.3)
    assert 40_000 <= (skewed.cached or 0) <= 80_000
    mild = setting(2_000_000, 0.5, 50, policy=perfect)
    gain = tune("cachejoin", mild).rate / by_model(MODELS["cachejoin"], mild)(Sizes(per_segment=111))
    assert 1.0 <= gain < 1.08


def test_joins_that_keep_segments_are_given_some() -> None:
    for algorithm in ("ssij", "partitioned"):
        found = tune(algorithm, setting()).sizes
        assert found.resident
        assert (found.pinned, found.cached) == (None, None)


def test_segments_are_whole_pages() -> None:
    here = setting(page_bytes=65_536)
    for algorithm in MODELS:
        found = predict(algorithm, here, tune(algorithm, here).sizes)
        assert found.segment_rows >= here.page_rows
        assert found.segment_rows % here.page_rows == 0


def test_a_measured_rate_decides_over_the_model() -> None:
    wanted = Sizes(per_segment=4, cached=1000)
    asked: list[Sizes] = []

    def measure(sizes: Sizes) -> float:
        asked.append(sizes)
        apart = 68 * abs((sizes.per_segment or 0) - 4) + abs((sizes.cached or 0) - 1000)
        return 1 / (1 + apart)

    found = tune("cachejoin", setting(), measure=measure)
    assert found.sizes.per_segment == wanted.per_segment
    assert found.sizes.cached == pytest.approx(1000, rel=0.1)
    assert asked[0] == tune("cachejoin", setting()).sizes
    assert len(asked) == len(set(asked)) == len(found.trials)


def test_trials_are_limited() -> None:
    calls: list[Sizes] = []

    def measure(sizes: Sizes) -> float:
        calls.append(sizes)
        return float(sizes.per_segment or 0)

    assert len(tune("hybridjoin", setting(), measure=measure, trials=4).trials) == len(calls) == 4
    with pytest.raises(PlanError, match="at least 1"):
        tune("hybridjoin", setting(), trials=0)


def test_neighbours_differ_and_keep_their_unit() -> None:
    here = setting()
    for model in MODELS.values():
        sizes = model.keeping(Sizes(per_segment=8), here.page_rows * 16, here)
        found = neighbours(model, here, sizes, 2.0)
        assert sizes not in found
        assert bool(found) == bool(model.axes)
        assert len({str(other) for other in found}) == len(set(found))


def test_what_fits_nowhere_says_so() -> None:
    for algorithm in MODELS:
        with pytest.raises(NoRoomError, match=algorithm):
            tune(algorithm, replace(setting(), memory=500))


def test_the_smallest_memory_that_holds_a_page_and_a_tuple_is_enough() -> None:
    page = setting().page_rows * 120
    assert tune("hybridjoin", replace(setting(), memory=page + 172)).rate > 0
    assert tune("cachejoin", replace(setting(), memory=page + 172)).sizes.cached == 0
