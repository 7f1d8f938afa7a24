"""Service rates over master data, memory and skew: chapters 5 to 8 of Naeem 2012, and Naeem 2014, figure 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bench.experiment import Chart, Findings, Grid, Part, judged, listed
from bench.experiment import over as over_each
from bench.experiments.semistream.media import DISK, ClockRunner, Runner, Swept
from bench.experiments.semistream.points import (
    CACHE,
    DOUBLE,
    FROM_KEY,
    GUARDED,
    HYBRID,
    INLJ,
    JOINS,
    MESH,
    OPTIMISED,
    OURS,
    R_MESH,
    SECOND,
    SECOND_CACHE,
    SORTED_CACHE,
    X,
)

CHAPTER_5 = (INLJ, MESH, FROM_KEY, HYBRID)
POSITIONS = (HYBRID, SECOND, GUARDED, SORTED_CACHE, SECOND_CACHE)


def swept(
    runner: Runner,
    joins: Sequence[str],
    over: Mapping[str, str],
    states: str,
    note: str = "",
    values: Sequence[float] = (),
) -> Findings:
    """Rates of some joins over one or more axes, each with the title of its chart; the same statements about each."""
    parts, shown = list[Part](), list[Chart | Grid]()
    for axis, title in over.items():
        found = runner.swept(joins, axis, values)
        parts += STATEMENTS[states](found)
        shown += found.shown(title, log_x=axis == "rows", log_y=axis == "rows")
    return judged(parts, f"{note} {runner.note}".strip(), *shown)


def _above(found: Swept) -> list[Part]:
    gains, plain = found.gain(HYBRID, MESH), found.gain(MESH, INLJ)
    return [
        (f"HYBRIDJOIN has {listed(gains)} times MESHJOIN's rate", min(gains) > 1),
        (f"MESHJOIN has at least {min(plain):.0f} times INLJ's", min(plain) > 1),
        (f"HYBRIDJOIN is much faster than MESHJOIN, which we take as 1.5 times; it is {max(gains):.2f} times at most",
         min(gains) > 1.5),
    ]  # fmt: skip


def hybrid_by_skew(runner: Runner) -> Findings:
    """Figure 5.7 (e)."""
    found = runner.swept(CHAPTER_5, "exponent")
    gains, mesh, from_key = found.gain(HYBRID, MESH), found.of(MESH), found.of(FROM_KEY)
    parts = [
        (f"at exponent 0 HYBRIDJOIN is below MESHJOIN: {gains[0]:.2f} times its rate", gains[0] < 1),
        (f"its advantage grows with skew: {listed(gains)} times MESHJOIN's rate", gains[-1] > 1.1 * gains[0]),
        (f"above exponent 0 it is faster, {min(gains[1:]):.2f} times at least", min(gains[1:]) > 1),
    ]
    shape = "do" if from_key[0] < mesh[0] and from_key[-1] > 1.2 * from_key[0] else "do not"
    note = (
        f"Every segment is asked for several times a window, so that skew spares no reads. Loads that begin at the key "
        f"{shape} show the printed shape ({from_key[0]:,.0f} rows/s at exponent 0, {from_key[-1]:,.0f} at 1), but are "
        f"slower throughout. {runner.note}"
    )
    return judged(parts, note, *found.shown("Service rate", log_y=True))


def _x_by_rows(found: Swept) -> list[Part]:
    shares, halves = found.gain(HYBRID, X), found.gain(DOUBLE, HYBRID)
    return [
        (f"HYBRIDJOIN reaches {listed(shares)} of X-HYBRIDJOIN's rate from 0.5 to 8 million rows", max(shares) < 1),
        (f"that is about 70 % at 0.5 million: {shares[0]:.0%}", abs(shares[0] - 0.7) <= 0.1),
        (f"and about 50 % at 8 million: {shares[-1]:.0%}", abs(shares[-1] - 0.5) <= 0.1),
        (f"a double buffer makes HYBRIDJOIN slower: {listed(halves)} times its rate", max(halves) < 1),
    ]


def _x_by_memory(found: Swept) -> list[Part]:
    gains, saved = found.gain(X, HYBRID), [1 - part for part in found.gain(HYBRID, X, "rows_per_load")]
    return [
        (f"X-HYBRIDJOIN has {listed(gains)} times HYBRIDJOIN's rate", min(gains) > 1),
        (f"it saves about 33 % of the reads: {min(saved):.0%} to {max(saved):.0%}",
         min(saved) >= 0.28 and max(saved) <= 0.38),
    ]  # fmt: skip


def _best(found: Swept) -> list[Part]:
    gains = over_each(found.of(OPTIMISED), found.best([name for name in found.found if name != OPTIMISED]))
    return [(f"{OPTIMISED} has {listed(gains)} times the rate of the next best", min(gains) > 1)]


def _little_behind(found: Swept) -> list[Part]:
    near, far = found.gain(CACHE, OPTIMISED), found.gain(CACHE, HYBRID)
    return [
        (f"CACHEJOIN reaches {listed(near)} of Optimised X-HYBRIDJOIN's rate", 0.9 < min(near) <= max(near) < 1.01),
        (f"and has {listed(far)} times HYBRIDJOIN's", min(far) > 1.3),
    ]


def _cache_by_skew(found: Swept) -> list[Part]:
    near, mesh = found.gain(CACHE, OPTIMISED), found.gain(CACHE, MESH)
    ahead = over_each(found.of(CACHE), found.best((HYBRID, R_MESH, MESH)))
    return [
        (f"CACHEJOIN is about as fast as Optimised X-HYBRIDJOIN: {listed(near)} of its rate", min(near) > 0.9),
        (f"from exponent 0.75 on it is ahead of the others: {listed(ahead[3:])} times", min(ahead[3:]) > 1),
        (f"at exponent 0 it is below MESHJOIN: {mesh[0]:.2f} times its rate", mesh[0] < 1),
    ]


def _little_cache(found: Swept) -> list[Part]:
    rate = found.of(CACHE)
    share, gain = 2000 * 260 / (50 * 2**20), rate[1] / rate[0]
    return [(f"a cache of {share:.1%} of memory gives {gain:.2f} times the rate without one", gain > 1.4)]


def _position_by_memory(found: Swept) -> list[Part]:
    load, rate = found.gain(SECOND, HYBRID, "rows_per_load"), found.gain(SECOND, HYBRID)
    cache = found.gain(SECOND_CACHE, SORTED_CACHE)
    return [
        (f"it needs about a third of the loads: {listed(load)} times the rows per load", min(load) > 2.5),
        (f"its rate is about three times HYBRIDJOIN's: {listed(rate)} times", min(rate) > 2.5),
        (f"CACHEJOIN gains less: {listed(cache)} times", min(cache) > 1 and max(cache) < min(rate)),
    ]


def _position_by_rows(found: Swept) -> list[Part]:
    load, rate = found.gain(SECOND, HYBRID, "rows_per_load"), found.gain(SECOND, HYBRID)
    cache = found.gain(SECOND_CACHE, SORTED_CACHE)
    return [
        (f"it has more than twice the rows per load: {listed(load)} times", min(load) > 2),
        (f"and more than twice the rate: {listed(rate)} times", min(rate) > 2),
        (f"CACHEJOIN gains as well: {listed(cache)} times", min(cache) > 1),
    ]


def position_by_skew(runner: Runner) -> Findings:
    """Naeem 2014, figure 5 (c)."""
    found = runner.swept(POSITIONS, "exponent")
    load, rate = found.gain(SECOND, HYBRID, "rows_per_load"), found.gain(SECOND, HYBRID)
    unsorted = runner.point(CACHE)
    worse = runner.rate(replace(unsorted, lookup=JOINS[SECOND].lookup)) / runner.rate(unsorted)
    parts = [
        (f"the gain grows with skew: {listed(load)} times the rows per load, {listed(rate)} times the rate",
         load[-1] > load[2] > load[0]),
        (f"it is about three at exponent 1: {load[-1]:.2f} in loads", load[-1] > 2.5),
        (f"and it is never worse: {rate[0]:.2f} at exponent 0", min(rate) > 0.99),
    ]  # fmt: skip
    note = (
        f"Our guarded look-up is never worse: {listed(found.gain(GUARDED, HYBRID))} times. CACHEJOIN gains "
        f"{listed(found.gain(SECOND_CACHE, SORTED_CACHE))}; over master data in any order it has {worse:.2f} times its "
        f"rate at exponent 1. {runner.note}"
    )
    return judged(parts, note, *found.shown("50 MB, 2 million rows"))


STATEMENTS: dict[str, Callable[[Swept], list[Part]]] = {
    "above": _above,
    "x by rows": _x_by_rows,
    "x by memory": _x_by_memory,
    "best": _best,
    "little behind": _little_behind,
    "cache by skew": _cache_by_skew,
    "little cache": _little_cache,
    "position by memory": _position_by_memory,
    "position by rows": _position_by_rows,
}
"""What is said of the joins of an experiment, by the name that its data has."""
_ORDER = ((HYBRID, MESH), (MESH, INLJ), (X, HYBRID), (OPTIMISED, X), (CACHE, HYBRID), (SECOND, HYBRID))
CLOCKED = (INLJ, MESH, R_MESH, HYBRID, SECOND, X, OPTIMISED, CACHE, OURS)


def in_order(runner: ClockRunner, over: str, values: Sequence[float]) -> Findings:
    """By the clock: every join faster than the one before."""
    found = runner.swept(CLOCKED, over, values if runner.medium is DISK else values[:: len(values) - 1])
    gains = {pair: found.gain(*pair) for pair in _ORDER}
    parts = [(f"{a} has {listed(gain)} times the rate of {b}", min(gain) > 1) for (a, b), gain in gains.items()]
    ours = listed(found.gain(OURS, HYBRID))
    note = f"Loaded in rounds, as the library does, HYBRIDJOIN has {ours} times its rate. {runner.note}"
    return judged(parts, note, *found.shown("Service rate", log_y=True))


def clock_by_skew(runner: ClockRunner) -> Findings:
    """By the clock: what skew gives."""
    found = runner.swept((MESH, HYBRID, SECOND, OPTIMISED, CACHE, OURS), "exponent", (0.0, 0.5, 1.0))
    hybrid, second, cache = found.gain(HYBRID, MESH), found.gain(SECOND, HYBRID), found.gain(CACHE, HYBRID)
    parts = [
        (f"HYBRIDJOIN is below MESHJOIN for uniform keys: {hybrid[0]:.2f} times its rate", hybrid[0] < 1),
        (f"HYBRIDJOIN's advantage grows with skew: {listed(hybrid)}", hybrid[-1] > 1.1 * hybrid[0]),
        (f"the gain of a second position grows with skew: {listed(second)}", second[-1] > 1.1 * second[0]),
        (f"and it is no loss for uniform keys: {second[0]:.2f}", second[0] > 0.97),
        (f"CACHEJOIN's gain over HYBRIDJOIN grows with skew: {listed(cache)}", cache[-1] > 1.1 * cache[0]),
    ]
    return judged(parts, runner.note, *found.shown("Service rate", log_y=True))
