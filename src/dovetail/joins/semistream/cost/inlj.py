"""Index nested loop join: one page is read for every stream tuple."""

from __future__ import annotations

from dataclasses import replace

from dovetail.joins.semistream.cost.prediction import NoRoomError, Prediction, Sizes
from dovetail.joins.semistream.cost.setting import Setting


def predict_inlj(setting: Setting, sizes: Sizes) -> Prediction:
    """mu = 1 / (c_IO(page) + c_S + c_H + c_O); `sizes.segment_rows` is what one look-up reads, a page as a rule.

    Reference: Naeem 2012, 5.1.2, which only plots it; docs/algorithms/semistream.md, 3.3.
    """
    costs = setting.costs
    page = setting.buffer_bytes(sizes.segment_rows)
    if page + setting.index_bytes > setting.memory:
        raise NoRoomError(f"a page of {page:,.0f} bytes does not fit in {setting.memory:,}; give more memory.")
    return Prediction(
        algorithm="inlj",
        sizes=replace(sizes, waiting_rows=1),
        w_n=0.0,
        w_s=1.0,
        step_s=costs.find_s(setting.read_bytes(sizes.segment_rows)),
        miss_s=costs.receive + costs.probe + setting.matched * costs.emit + costs.each_found_s,
        hit_s=0.0,
        window=0.0,
        waiting=1.0,
        asked=1.0,
        bound_steps=1.0,
        memory=(("disk buffer", page), ("index", setting.index_bytes)),
    )


def inlj_delay(prediction: Prediction, arrival: float) -> float:
    """Mean seconds from arrival to answer for tuples that come at random: (1/mu)(1 + rho / (2 (1 - rho))).

    Infinite when more tuples arrive than can be answered.
    """
    load = arrival / prediction.mu
    return (1 + load / (2 * (1 - load))) / prediction.mu if load < 1 else float("inf")
