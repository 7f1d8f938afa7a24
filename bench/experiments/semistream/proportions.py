"""Appendices A to C of Naeem 2012: what the rows of an iteration are in proportion to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench.experiment import Chart, Findings, Part, judged, slope
from bench.experiments.semistream.media import Runner
from bench.experiments.semistream.points import HYBRID, OPTIMISED, Point, X, at, master_rows, memories

_SEGMENTS = (125, 250, 500, 1000)
_PINNED = (500, 1000, 2000, 4000)
_CACHED = (8000, 16_000, 32_000, 64_000)
_CACHED_WHERE_DIVIDED = (32_000, 64_000, 128_000)  # so that there are whole segments of them
_NEAR = 0.12  # of an exponent


def _w(runner: Runner, plain: Point, axis: str, values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Rows per iteration through the segment, and through the pinned part."""
    found = [runner.count(at(plain, **{axis: value})) for value in values]
    hot = [of.rows_per_load * of.cached_share for of in found]
    return [of.rows_per_load - n for of, n in zip(found, hot, strict=True)], hot


def _axes(runner: Runner) -> tuple[Sequence[int], Sequence[int]]:
    """Master rows, and megabytes of memory."""
    sizes, rooms = master_rows(runner.bench), memories(runner.bench)
    return (sizes[:-1], rooms[::2]) if runner.few else (sizes, rooms)


def _power(name: str, by: str, xs: Sequence[float], ys: Sequence[float], due: float) -> Part:
    found = slope(xs, ys)
    return f"{name} goes with {by} to the power {found:.2f}, claimed {due:g}", abs(found - due) <= _NEAR


def _chart(title: str, axis: str, xs: Sequence[float], **lines: Sequence[float]) -> Chart:
    points = {name: list(zip(xs, ys, strict=True)) for name, ys in lines.items()}
    return Chart(title, axis, "rows per iteration", points, log_x=True, log_y=True)


def hybrid(runner: Runner) -> Findings:
    """Figure A.1."""
    sizes, rooms = _axes(runner)
    plain = runner.point(HYBRID)
    by_rows, by_room, by_d = (_w(runner, plain, axis, values)[0] for axis, values in
                              (("rows", sizes), ("memory_mb", rooms), ("segment", _SEGMENTS)))  # fmt: skip
    checks = [
        _power("w", "R_t", sizes, by_rows, -1),
        _power("w", "h_S", rooms, by_room, 1),
        _power("w", "d", _SEGMENTS, by_d, 1),
    ]
    charts = [_chart("(a)", "R_t", sizes, w=by_rows), _chart("(b) by h_S", "memory, MB", rooms, w=by_room),
              _chart("(c)", "d", _SEGMENTS, w=by_d)]  # fmt: skip
    return judged(checks, f"Exponent 1; powers may be off by {_NEAR}. {runner.note}", *charts)


def x(runner: Runner) -> Findings:
    """Figure B.1."""
    sizes, rooms = _axes(runner)
    plain = runner.point(X)
    cold, hot = _w(runner, plain, "pinned", _PINNED)
    by_pinned = [a + b for a, b in zip(cold, hot, strict=True)]
    cold_d, hot_d = _w(runner, replace(plain, pinned=1000), "segment", _SEGMENTS)
    by_d = [a + b for a, b in zip(cold_d, hot_d, strict=True)]
    cold_rows, hot_rows = _w(runner, plain, "rows", sizes)
    cold_m, hot_m = _w(runner, plain, "memory_mb", rooms)
    by_room = [a + b for a, b in zip(cold_m, hot_m, strict=True)]
    power = slope(_PINNED, by_pinned)
    falls = slope(sizes, cold_rows), slope(sizes, hot_rows)
    checks = [
        (f"(a) w grows with d_N to the power {power:.2f}, between 0 and 1", 0.02 < power < 0.9),
        _power("(b) w", "d_S", _SEGMENTS, by_d, 1),
        (f"(c) w falls with R_t, alike in both parts: powers {falls[0]:.2f} and {falls[1]:.2f}",
              max(falls) < 0 and abs(falls[0] - falls[1]) <= _NEAR),
        _power("(d) w", "h_S", rooms, by_room, 1),
    ]  # fmt: skip
    charts = [_chart("(a)", "d_N", _PINNED, w=by_pinned), _chart("(b)", "d_S", _SEGMENTS, w=by_d),
              _chart("(c)", "R_t", sizes, swappable=cold_rows, pinned=hot_rows),
              _chart("(d) by h_S", "memory, MB", rooms, w=by_room)]  # fmt: skip
    return judged(checks, f"Exponent 1; powers may be off by {_NEAR}. {runner.note}", *charts)


def optimised(runner: Runner) -> Findings:
    """Figure C.1."""
    sizes, rooms = _axes(runner)
    caches, cached = (_CACHED_WHERE_DIVIDED, 64_000) if runner.few else (_CACHED, 16_000)
    plain = runner.point(OPTIMISED, cached=cached)
    cold, hot = _w(runner, plain, "cached", caches)
    cold_rows, hot_rows = _w(runner, plain, "rows", sizes)
    cold_d, hot_d = _w(runner, plain, "segment", _SEGMENTS)
    cold_m, _ = _w(runner, plain, "memory_mb", rooms)
    slower = slope(sizes, hot_rows), slope(sizes, cold_rows)
    early, late = hot[1] / hot[0], hot[-1] / hot[-2]
    checks = [
        (f"(a) w_N grows with h_R ({hot[0]:,.0f} to {hot[-1]:,.0f}), less and less: {early:.2f} then {late:.2f} "
              "times for a doubling", hot == sorted(hot) and late < early),
        (f"(b) w_S falls with h_R, {cold[0]:,.0f} to {cold[-1]:,.0f}", cold == sorted(cold, reverse=True)),
        _power("(d) w_S", "R_t", sizes, cold_rows, -1),
        (f"(c) w_N falls more slowly with R_t: powers {slower[0]:.2f} and {slower[1]:.2f}",
              abs(slower[0]) < abs(slower[1]) - 0.03),
        _power("(e) w_S", "d", _SEGMENTS, cold_d, 1),
        (f"(e) d does not touch w_N: it goes with the power {slope(_SEGMENTS, hot_d):.2f}",
              abs(slope(_SEGMENTS, hot_d)) <= _NEAR),
        _power("(f) w_S", "h_S", rooms, cold_m, 1),
    ]  # fmt: skip
    charts = [_chart("(a), (b)", "h_R", caches, w_N=hot, w_S=cold),
              _chart("(c), (d)", "R_t", sizes, w_N=hot_rows, w_S=cold_rows),
              _chart("(e)", "d", _SEGMENTS, w_N=hot_d, w_S=cold_d),
              _chart("(f) by h_S", "memory, MB", rooms, w_S=cold_m)]  # fmt: skip
    note = "What enters the table of waiting rows must leave it, so that w_N = w_S p_N / (1 - p_N): both go with d."
    return judged(checks, f"{note} Powers may be off by {_NEAR}. {runner.note}", *charts)
