"""The exam of the interval chooser: settings in which no constant answer passes, and settings drawn at random."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

from bench.experiments.models.choices import ChoiceSetting
from bench.experiments.models.interval import Mix, Pair
from dovetail.joins.interval.relation import RelationName

_SHORT: Final = 5


def _rare(share: float, long: int, rate: float = 1.0) -> Mix:
    """Short rows, and a few that last `long` instants."""
    return Mix(rate, ((1 - share, _SHORT), (share, long)))


def _few_long() -> Iterator[ChoiceSetting]:
    """A few long rows on one side, which sort-merge keeps where it holds that side, or on both (time sweep)."""
    for share, long, payload in product((0.0003, 0.002), (6_000, 15_000), (0, 4)):
        tail, short, both = _rare(share, long), Mix.even(1.0, 2), _rare(share / 2, long)
        yield ChoiceSetting(Pair(tail, short, 15_000), payload, "1MB")
        yield ChoiceSetting(Pair(short, tail, 15_000), payload, "1MB")
        yield ChoiceSetting(Pair(both, both, 15_000), payload, "1MB")
    for rate, memory in product((0.5, 2.0), ("2MB", "4MB")):
        yield ChoiceSetting(Pair(_rare(0.0005, 20_000, rate), Mix.even(2.0, 2), 20_000), 4, memory)
        yield ChoiceSetting(Pair(_rare(0.0005, 20_000, rate), _rare(0.0005, 20_000, 2.0), 20_000), 4, memory)


def _in_memory() -> Iterator[ChoiceSetting]:
    """Everything fits: sparse to dense, alike and not, and relations that one side always starts."""
    mixes = (Mix.even(1.0, 1), Mix.even(1.0, 12), Mix(0.5, ((0.5, 4), (0.3, 40), (0.2, 100))))
    for left, right in product(mixes, mixes):
        yield ChoiceSetting(Pair(left, right, 8_000), 0, "64MB")
    relations: tuple[RelationName, ...] = ("covers", "covered_by", "overlaps")
    for relation, mix in product(relations, mixes[1:]):
        yield ChoiceSetting(Pair(mix, Mix.even(0.5, 10), 15_000), 0, "16MB", relation)
    for rate, length in product((0.01, 0.02), (50, 300)):
        yield ChoiceSetting(Pair(Mix.even(rate, length), Mix.even(2.0, 2), 15_000), 4, "8MB")
        yield ChoiceSetting(Pair(Mix.even(2.0, 2), Mix.even(rate, length), 15_000), 4, "8MB")


def _all_long() -> Iterator[ChoiceSetting]:
    """More rows are active than memory holds: every sweep spills, as partitioned joins do in any case."""
    for rate, length, payload in product((0.1, 0.4), (2_000, 6_000), (12, 40)):
        yield ChoiceSetting(Pair(Mix.even(rate, length), Mix.even(0.004, length), 6_000), payload, "1MB")
    for rate, length in product((0.5, 1.0), (1_500, 4_000)):
        yield ChoiceSetting(Pair(Mix.even(rate, length), Mix.even(0.004, 5), 12_000), 12, "1MB")
        yield ChoiceSetting(Pair(Mix.even(0.004, 5), Mix.even(rate, length), 12_000), 12, "1MB")


def in_turn() -> Iterator[tuple[bool, ChoiceSetting]]:
    """All settings, those drawn at random among the others, so that a run that is cut short has both kinds; and
    whether each was drawn."""
    made, held_out = list(exam_grid()), list(drawn())
    places = [(at / len(some), some is held_out, one) for some in (made, held_out) for at, one in enumerate(some)]
    return ((is_drawn, one) for _, is_drawn, one in sorted(places, key=lambda place: place[:2]))


def exam_grid() -> Iterator[ChoiceSetting]:
    """Settings made so that sort-merge, time sweep and forward scan each have theirs."""
    yield from _few_long()
    yield from _in_memory()
    yield from _all_long()


_MOST_PAIRS: Final = 60_000
_RANDOM: Final = 48
_RELATIONS: Final[tuple[RelationName, ...]] = ("overlapping", "overlapping", "overlapping", "covers", "overlaps")


HELD_OUT: Final = 4_711
"""The seed of the settings that are reported. Models are fitted on settings of other seeds."""


def drawn(seed: int = HELD_OUT, settings: int = _RANDOM) -> Iterator[ChoiceSetting]:
    """Settings drawn at random, on which nothing was fitted."""
    rng, given = np.random.default_rng(seed), 0
    while given < settings:
        span = int(rng.integers(5_000, 25_000))
        pair = Pair(_drawn_mix(rng, span), _drawn_mix(rng, span), span)
        memory, payload = rng.choice(["1MB", "1MB", "2MB", "4MB", "32MB"]), int(rng.choice([0, 4, 12]))
        relation = _RELATIONS[int(rng.integers(len(_RELATIONS)))]
        if 100 < pair.pairs() < _MOST_PAIRS:
            given += 1
            yield ChoiceSetting(pair, payload, str(memory), relation)


def _drawn_mix(rng: np.random.Generator, span: int) -> Mix:
    rate = float(round(10 ** rng.uniform(-1.5, 0.3), 3))
    short, long = int(10 ** rng.uniform(0, 1.5)), int(10 ** rng.uniform(1.5, np.log10(span)))
    share = float(rng.choice([0.0, 0.0, 0.001, 0.02, 0.2]))
    return Mix.even(rate, short) if share == 0 else Mix(rate, ((1 - share, short), (share, long)))
