"""Service rates over master data, memory and skew: chapters 5 to 8 of Naeem 2012, and Naeem 2014, figure 5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.experiment import Findings, Part, judged, listed, over
from bench.experiments.semistream.media import DISK, ClockRunner, ClockWork, Runner, Swept, counted, on_stores, rates
from bench.experiments.semistream.points import (
    CACHE,
    DOUBLE,
    FROM_KEY,
    GUARDED,
    HYBRID,
    INLJ,
    JOINS,
    MESH,
    MILLION,
    OPTIMISED,
    OURS,
    R_MESH,
    SECOND,
    SECOND_CACHE,
    SORTED_CACHE,
    X,
)

CHAPTER_5 = (INLJ, MESH, FROM_KEY, HYBRID)
CHAPTER_7 = (OPTIMISED, X, HYBRID, R_MESH, MESH)
CHAPTER_8 = (OPTIMISED, CACHE, HYBRID, R_MESH, MESH)
POSITIONS = (HYBRID, SECOND, GUARDED, SORTED_CACHE, SECOND_CACHE)
BOTH_AXES = {"rows": "50 MB", "memory_mb": "2 million rows"}


def _above(found: Swept) -> list[Part]:
    gains, plain = found.gain(HYBRID, MESH), found.gain(MESH, INLJ)
    return [
        (f"HYBRIDJOIN has {listed(gains)} times MESHJOIN's rate", min(gains) > 1),
        (f"MESHJOIN has at least {min(plain):.0f} times INLJ's", min(plain) > 1),
        (f"HYBRIDJOIN is much faster than MESHJOIN, which we take as 1.5 times; it is {max(gains):.2f} times at most",
         min(gains) > 1.5),
    ]  # fmt: skip


def _hybrid_by_skew(runner: Runner) -> Findings:
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
    chart, table = found.shown("Service rate", log_y=True)
    return judged(parts, note, [chart], [table])


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
    others = [max(rates) for rates in zip(*(found.of(name) for name in found.found if name != OPTIMISED), strict=True)]
    gains = over(found.of(OPTIMISED), others)
    return [(f"{OPTIMISED} has {listed(gains)} times the rate of the next best", min(gains) > 1)]


def _little_behind(found: Swept) -> list[Part]:
    near, far = found.gain(CACHE, OPTIMISED), found.gain(CACHE, HYBRID)
    return [
        (f"CACHEJOIN reaches {listed(near)} of Optimised X-HYBRIDJOIN's rate", 0.9 < min(near) <= max(near) < 1.01),
        (f"and has {listed(far)} times HYBRIDJOIN's", min(far) > 1.3),
    ]


def _cache_by_skew(found: Swept) -> list[Part]:
    near, mesh = found.gain(CACHE, OPTIMISED), found.gain(CACHE, MESH)
    rest = [max(rates) for rates in zip(*(found.of(name) for name in (HYBRID, R_MESH, MESH)), strict=True)]
    ahead = over(found.of(CACHE), rest)
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


def _position_by_skew(runner: Runner) -> Findings:
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
    chart, table = found.shown("50 MB, 2 million rows")
    return judged(parts, note, [chart], [table])


_ORDER = ((HYBRID, MESH), (MESH, INLJ), (X, HYBRID), (OPTIMISED, X), (CACHE, HYBRID), (SECOND, HYBRID))
CLOCKED = (INLJ, MESH, R_MESH, HYBRID, SECOND, X, OPTIMISED, CACHE, OURS)


def _in_order(axis: str, values: Sequence[float]) -> ClockWork:
    """By the clock: every join faster than the one before."""

    def work(runner: ClockRunner) -> Findings:
        found = runner.swept(CLOCKED, axis, values if runner.medium is DISK else values[:: len(values) - 1])
        gains = {pair: found.gain(*pair) for pair in _ORDER}
        parts = [(f"{a} has {listed(gain)} times the rate of {b}", min(gain) > 1) for (a, b), gain in gains.items()]
        ours = listed(found.gain(OURS, HYBRID))
        note = f"Loaded in rounds, as the library does, HYBRIDJOIN has {ours} times its rate. {runner.note}"
        chart, table = found.shown("Service rate", log_y=True)
        return judged(parts, note, [chart], [table])

    return work


def _clock_by_skew(runner: ClockRunner) -> Findings:
    found = runner.swept((MESH, HYBRID, SECOND, OPTIMISED, CACHE, OURS), "exponent", (0.0, 0.5, 1.0))
    hybrid, second, cache = found.gain(HYBRID, MESH), found.gain(SECOND, HYBRID), found.gain(CACHE, HYBRID)
    parts = [
        (f"HYBRIDJOIN is below MESHJOIN for uniform keys: {hybrid[0]:.2f} times its rate", hybrid[0] < 1),
        (f"HYBRIDJOIN's advantage grows with skew: {listed(hybrid)}", hybrid[-1] > 1.1 * hybrid[0]),
        (f"the gain of a second position grows with skew: {listed(second)}", second[-1] > 1.1 * second[0]),
        (f"and it is no loss for uniform keys: {second[0]:.2f}", second[0] > 0.97),
        (f"CACHEJOIN's gain over HYBRIDJOIN grows with skew: {listed(cache)}", cache[-1] > 1.1 * cache[0]),
    ]
    chart, table = found.shown("Service rate", log_y=True)
    return judged(parts, runner.note, [chart], [table])


_FASTER = (
    "INLJ, MESHJOIN, HYBRIDJOIN, X-HYBRIDJOIN and Optimised X-HYBRIDJOIN are each faster than the one before, "
    "CACHEJOIN and a second look-up position faster than HYBRIDJOIN, {what} (exponent 1)."
)
EXPERIMENTS = (
    counted(
        "hybrid-master-rate",
        ("figure 5.7 (c)", "Naeem 2011 figure 7 (c)"),
        "HYBRIDJOIN is much faster than MESHJOIN and INLJ for every size of the master data (exponent 1, 50 MB).",
        rates(CHAPTER_5, {"rows": "Service rate"}, _above),
    ),
    counted(
        "hybrid-memory-rate",
        ("figure 5.7 (d)", "Naeem 2011 figure 7 (d)"),
        "HYBRIDJOIN is much faster than MESHJOIN and INLJ with any memory (exponent 1, 2 million rows).",
        rates(CHAPTER_5, {"memory_mb": "Service rate"}, _above),
    ),
    counted(
        "hybrid-skew-rate",
        ("figure 5.7 (e)", "Naeem 2011 figure 7 (e)"),
        "HYBRIDJOIN is slower than MESHJOIN for "
        "uniform keys only, and its advantage grows with skew (50 MB, 2 million rows).",
        _hybrid_by_skew,
    ),
    counted(
        "x-master-rate",
        ("figure 6.3 (a)",),
        "X-HYBRIDJOIN beats HYBRIDJOIN, which reaches 70 % of its rate at 0.5 "
        "million rows and 50 % at 8 million; a double buffer makes HYBRIDJOIN slower.",
        rates(
            (HYBRID, DOUBLE, X),
            {"rows": "Exponent 1, 50 MB"},
            _x_by_rows,
            "A disk with a seek wants larger segments than 60 kB, so that double ones help.",
        ),
    ),
    counted(
        "x-memory-rate",
        ("figure 6.3 (b)",),
        "X-HYBRIDJOIN beats HYBRIDJOIN with any memory and saves about a third of the reads.",
        rates(
            (HYBRID, DOUBLE, X),
            {"memory_mb": "Exponent 1, 2 million rows"},
            _x_by_memory,
            "It saves more than the source says.",
        ),
    ),
    counted(
        "optimised-rate",
        ("figure 7.4 (a)", "figure 7.4 (b)"),
        "Optimised X-HYBRIDJOIN is the fastest of all for every size of the master data and with any memory.",
        rates(CHAPTER_7, BOTH_AXES, _best, "Exponent 1."),
    ),
    counted(
        "cache-rate",
        ("figure 8.3 (a)", "figure 8.3 (b)"),
        "CACHEJOIN, which needs no order, is a little slower "
        "than Optimised X-HYBRIDJOIN and far faster than HYBRIDJOIN and the MESHJOINs.",
        rates(CHAPTER_8, BOTH_AXES, _little_behind, "Exponent 1."),
    ),
    counted(
        "cache-skew-rate",
        ("figure 8.3 (c)",),
        "CACHEJOIN keeps up with Optimised X-HYBRIDJOIN and is ahead of the "
        "rest from moderate skew on; for uniform keys it is slower than MESHJOIN.",
        rates(
            CHAPTER_8,
            {"exponent": "50 MB, 2 million rows"},
            _cache_by_skew,
            "A load in any order costs less than twice one in turn on this disk, as the source says of its own; below "
            "MESHJOIN it would have to cost 2.15 times as much.",
        ),
    ),
    counted(
        "cache-little",
        ("section 8.2.1",),
        "A remarkably small stream-probing phase delivers a substantial gain.",
        rates((CACHE,), {"cached": "Exponent 1"}, _little_cache, values=(0, 2000, 8000, 16_000, 64_000)),
    ),
    counted(
        "position-memory",
        ("figure 5 (a)",),
        "With a second look-up position HYBRIDJOIN is three times as fast with any memory; CACHEJOIN gains less.",
        rates(
            POSITIONS,
            {"memory_mb": "Exponent 1, 2 million rows"},
            _position_by_memory,
            "What is left of an iteration are the steps, which no look-up saves.",
        ),
        "Naeem 2014",
    ),
    counted(
        "position-master",
        ("figure 5 (b)",),
        "It is more than twice as fast for every size of the master data.",
        rates(POSITIONS, {"rows": "Exponent 1, 50 MB"}, _position_by_rows),
        "Naeem 2014",
    ),
    counted(
        "position-skew",
        ("figure 5 (c)",),
        "The gain grows with skew to about three at exponent 1, and there is no loss for uniform keys.",
        _position_by_skew,
        "Naeem 2014",
    ),
    *on_stores(
        "master-rate",
        ("figure 5.7 (c)", "figure 6.3 (a)", "figure 7.4 (a)", "figure 8.3 (a)", "Naeem 2014 figure 5 (b)"),
        _FASTER.format(what="for any size of the master data"),
        _in_order("rows", (MILLION // 2, 2 * MILLION, 4 * MILLION)),
    ),
    *on_stores(
        "memory-rate",
        ("figure 5.7 (d)", "figure 6.3 (b)", "figure 7.4 (b)", "figure 8.3 (b)", "Naeem 2014 figure 5 (a)"),
        _FASTER.format(what="with any memory"),
        _in_order("memory_mb", (50, 150, 250)),
    ),
    *on_stores(
        "skew-rate",
        ("figure 5.7 (e)", "figure 8.3 (c)", "Naeem 2014 figure 5 (c)"),
        "HYBRIDJOIN is below MESHJOIN for uniform keys only and its advantage grows with skew, as the gains of "
        "CACHEJOIN and of a second look-up position do, the latter without a loss for uniform keys.",
        _clock_by_skew,
    ),
)
