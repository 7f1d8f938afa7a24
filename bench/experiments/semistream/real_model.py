"""What the models say of a join over a store of this machine, by costs that were measured here."""

from __future__ import annotations

from dataclasses import replace

from bench.experiments.semistream.counting import Point
from bench.experiments.semistream.timing import built
from dovetail.engine.profile import load_profile
from dovetail.joins.semistream.cost import MODELS, Policy, Prediction, Setting, UnitCosts, Zipf, from_profile, predict
from dovetail.joins.semistream.cost.reads import measured_reads
from dovetail.joins.semistream.master.pages import Pages
from dovetail.joins.semistream.sizes import Sizes


def units_of(pages: Pages) -> UnitCosts:
    """This machine's costs: reads of this store as they were just timed; rows come from an array, not from the JVM."""
    return replace(from_profile(load_profile(), read=measured_reads(pages)), receive=0.0)


def calculated(of: Point, pages: Pages, costs: UnitCosts) -> Prediction:
    """What the model says of the join that is built for this point."""
    join = built(of, pages)
    rows, n_pages = int(pages.starts[-1]), len(pages.starts) - 1
    each = rows / n_pages
    segment = max(1, round((join.sizes.per_segment or 1) * each))
    kept = join.sizes.cached or round((join.sizes.pinned or 0) * each)
    policy = Policy(lookup="oldest", cache="random", threshold=5)
    order = "none" if of.order == "none" else "frequency"
    stored = pages.stored_bytes(0, n_pages) / rows
    law = Zipf(rows, of.exponent)
    setting = Setting(2**40, law, page_bytes=120, costs=costs, order=order, policy=policy, stored_row_bytes=stored)  # type: ignore[arg-type]  # an order
    waiting = None if of.algorithm == "inlj" else join.sizes.waiting
    sizes = Sizes(per_segment=segment, parts=join.sizes.parts or 1, waiting=waiting)
    return predict(of.algorithm, setting, MODELS[of.algorithm].keeping(sizes, kept, setting))
