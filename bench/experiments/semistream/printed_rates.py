"""Rows per iteration and rates by the equations of chapters 6 to 8 as they are printed, at the source's costs."""

from __future__ import annotations

from bench.experiments.semistream.counting import Point
from bench.experiments.semistream.printed_cached import eq_7_2, eq_7_3, eq_7_4, eq_7_6, eq_7_7, eq_7_9, eq_8_1
from bench.experiments.semistream.printed_hybridjoin import eq_6_5, eq_6_6, eq_6_9
from bench.simulation import SOURCE_DISK, SOURCE_UNITS

UNITS = {"c_h": SOURCE_UNITS.probe, "c_o": SOURCE_UNITS.emit, "c_e": SOURCE_UNITS.remove, "c_s": SOURCE_UNITS.arrive,
         "c_a": SOURCE_UNITS.admit}  # fmt: skip


def printed_x(point: Point) -> tuple[float, float]:
    """w by (6.9) and the rate by (6.5) and (6.6) of X-HYBRIDJOIN."""
    of, pinned = point.experiment(), point.cached_rows
    h_s = of.memory.waiting(point.segment + pinned)
    w = eq_6_9(h_s=h_s, d_s=point.segment, d_n=pinned, r_t=point.master_rows)
    loop = eq_6_5(c_io=SOURCE_DISK.read_s(point.segment * 120), d_s=point.segment, d_n=pinned, w=w, **UNITS)
    return w, eq_6_6(w=w, c_loop=loop)


def printed_cached(point: Point, rows_per_iteration: float) -> tuple[float, float, float]:
    """w_S by (7.9), w_N by (7.6) and the rate of Optimised X-HYBRIDJOIN or CACHEJOIN.

    (7.6) wants the rows per iteration of a whole run, which are what it is to give; the source measured them.
    """
    of = point.experiment()
    h_r, r_t, d = max(2, of.cached), point.master_rows, point.segment
    w_s = eq_7_9(h_s=of.memory.waiting(d, of.cached), p_s=eq_7_7(d=d, h_r=h_r, r_t=r_t))
    w_n = eq_7_6(p_n=eq_7_4(h_r=h_r, r_t=r_t), tuples=rows_per_iteration, iterations=1)
    costs = {"c_io": SOURCE_DISK.read_s(d * 120), "d": float(d), "w_s": w_s, "w_n": w_n, **UNITS}
    loop = eq_8_1(c_f=SOURCE_UNITS.compare, **costs) if point.algorithm == "cachejoin" else eq_7_2(**costs)
    return w_s, w_n, eq_7_3(w_n=w_n, w_s=w_s, c_loop=loop)
