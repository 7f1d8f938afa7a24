"""Names the functions that pipelines and SQL can call: inputs, and where options and code are.

Importing this module imports neither Spark nor a family.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Function:
    """A public function over DataFrames: its family, the class of its options, and its inputs in their order."""

    name: str
    family: str
    options_class: str
    inputs: tuple[str, ...] = ("left", "right")

    def options(self) -> Callable[..., Any]:
        """The class of its options; importing it does not import Spark."""
        found: Callable[..., Any] = getattr(
            importlib.import_module(f"dovetail.{self.family}.request"), self.options_class
        )
        return found

    def call(self) -> Callable[..., Any]:
        """The function, which gives a DataFrame."""
        found: Callable[..., Any] = getattr(importlib.import_module("dovetail"), self.name)
        return found

    def plan(self) -> Callable[..., Any] | None:
        """Its `plan_` twin; None if it has none."""
        return getattr(importlib.import_module("dovetail"), f"plan_{self.name}", None)


def _by_name(*functions: Function) -> dict[str, Function]:
    return {function.name: function for function in functions}


STREAMED = _by_name(
    Function("enrich", "joins.semistream", "EnrichOptions", ("stream", "master")),
    Function("online_join", "joins.online", "OnlineJoinOptions"),
    Function("online_multijoin", "joins.online", "MultiJoinOptions", ("inputs",)),
)
"""Functions over streams."""
FINITE = _by_name(
    Function("interval_join", "joins.interval", "JoinOptions"),
    Function("count_overlaps", "joins.interval", "CountOptions"),
    Function("interval_topk", "joins.interval", "TopOptions"),
    Function("interval_nearest", "joins.nearest", "NearestOptions"),
    Function("band_join", "joins.interval", "BandOptions"),
    Function("asof_join", "joins.asof", "AsofOptions"),
    Function("interval_merge", "joins.sets", "MergeOptions", ("rows",)),
    Function("interval_cluster", "joins.sets", "ClusterOptions", ("rows",)),
    Function("interval_complement", "joins.sets", "ComplementOptions", ("rows",)),
    Function("interval_depth", "joins.sets", "DepthOptions", ("rows",)),
    Function("make_disjoint", "joins.sets", "DisjointOptions", ("rows",)),
    Function("interval_window", "joins.sets", "WindowOptions", ("rows",)),
    Function("interval_pivot", "joins.sets", "PivotOptions", ("rows",)),
    Function("interval_coverage", "joins.sets", "PairOptions"),
    Function("interval_subtract", "joins.sets", "PairOptions"),
    Function("interval_setdiff", "joins.sets", "PairOptions"),
)
"""Functions over finite DataFrames: each is a step of a pipeline, and a table function of SQL."""
XQUERY = _by_name(Function("xquery", "xml", "XQueryOptions", ()))
"""The query is an argument of its own, beside the session."""
