"""Joins that Apache Spark does not have, each inside a memory budget that you set."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dovetail.version import __version__

if TYPE_CHECKING:
    from dovetail.engine.metrics import Metrics as Metrics
    from dovetail.errors import BudgetExceeded as BudgetExceeded
    from dovetail.errors import ConfigError as ConfigError
    from dovetail.errors import DataError as DataError
    from dovetail.errors import DovetailError as DovetailError
    from dovetail.errors import PlanError as PlanError
    from dovetail.errors import UnsupportedError as UnsupportedError
    from dovetail.errors import XQueryError as XQueryError
    from dovetail.joins.asof.api import AsofPlan as AsofPlan
    from dovetail.joins.asof.api import asof_join as asof_join
    from dovetail.joins.asof.api import plan_asof_join as plan_asof_join
    from dovetail.joins.interval.api import IntervalPlan as IntervalPlan
    from dovetail.joins.interval.api import count_overlaps as count_overlaps
    from dovetail.joins.interval.api import interval_count as interval_count
    from dovetail.joins.interval.api import interval_join as interval_join
    from dovetail.joins.interval.api import interval_topk as interval_topk
    from dovetail.joins.interval.api import plan_interval_join as plan_interval_join
    from dovetail.joins.interval.plan.band import BandPlan as BandPlan
    from dovetail.joins.interval.plan.band import band_join as band_join
    from dovetail.joins.interval.plan.band import plan_band_join as plan_band_join
    from dovetail.joins.nearest.api import NearestPlan as NearestPlan
    from dovetail.joins.nearest.api import interval_nearest as interval_nearest
    from dovetail.joins.nearest.api import plan_interval_nearest as plan_interval_nearest
    from dovetail.joins.online.api import online_join as online_join
    from dovetail.joins.online.api import online_multijoin as online_multijoin
    from dovetail.joins.online.api import plan_online_join as plan_online_join
    from dovetail.joins.online.api import plan_online_multijoin as plan_online_multijoin
    from dovetail.joins.online.plan.plan import OnlinePlan as OnlinePlan
    from dovetail.joins.semistream.api import enrich as enrich
    from dovetail.joins.semistream.api import plan_enrich as plan_enrich
    from dovetail.joins.semistream.master.store import MasterStore as MasterStore
    from dovetail.joins.semistream.plan.plan import EnrichPlan as EnrichPlan
    from dovetail.joins.semistream.request import dead_letter as dead_letter
    from dovetail.joins.semistream.request import park as park
    from dovetail.joins.semistream.request import ttl as ttl
    from dovetail.joins.sets.api import intervals as intervals
    from dovetail.joins.sets.api.clusters import interval_cluster as interval_cluster
    from dovetail.joins.sets.api.clusters import interval_complement as interval_complement
    from dovetail.joins.sets.api.clusters import interval_merge as interval_merge
    from dovetail.joins.sets.api.clusters import plan_interval_cluster as plan_interval_cluster
    from dovetail.joins.sets.api.clusters import plan_interval_complement as plan_interval_complement
    from dovetail.joins.sets.api.clusters import plan_interval_merge as plan_interval_merge
    from dovetail.joins.sets.api.cover import interval_coverage as interval_coverage
    from dovetail.joins.sets.api.cover import interval_setdiff as interval_setdiff
    from dovetail.joins.sets.api.cover import interval_subtract as interval_subtract
    from dovetail.joins.sets.api.cover import plan_interval_coverage as plan_interval_coverage
    from dovetail.joins.sets.api.cover import plan_interval_setdiff as plan_interval_setdiff
    from dovetail.joins.sets.api.cover import plan_interval_subtract as plan_interval_subtract
    from dovetail.joins.sets.api.depth import interval_depth as interval_depth
    from dovetail.joins.sets.api.depth import make_disjoint as make_disjoint
    from dovetail.joins.sets.api.depth import plan_interval_depth as plan_interval_depth
    from dovetail.joins.sets.api.depth import plan_make_disjoint as plan_make_disjoint
    from dovetail.joins.sets.api.plan import SetPlan as SetPlan
    from dovetail.joins.sets.api.windows import interval_pivot as interval_pivot
    from dovetail.joins.sets.api.windows import interval_window as interval_window
    from dovetail.joins.sets.api.windows import plan_interval_pivot as plan_interval_pivot
    from dovetail.joins.sets.api.windows import plan_interval_window as plan_interval_window
    from dovetail.rewrite import install as install
    from dovetail.rewrite import sql as sql
    from dovetail.rewrite import uninstall as uninstall
    from dovetail.spark.catalyst import explain_joins as explain_joins
    from dovetail.spark.session import configure as configure
    from dovetail.spark.session import session as session
    from dovetail.xml.api import plan_xquery as plan_xquery
    from dovetail.xml.api import xquery as xquery
    from dovetail.xml.plan import XQueryPlan as XQueryPlan

# Public name -> module that defines it, imported when the name is first used, so that `import dovetail` is instant and
# needs no Spark. To publish a name: a line here and its twin in the TYPE_CHECKING block above.
_PUBLIC = {
    "AsofPlan": "dovetail.joins.asof.api",
    "BandPlan": "dovetail.joins.interval.plan.band",
    "BudgetExceeded": "dovetail.errors",
    "ConfigError": "dovetail.errors",
    "DataError": "dovetail.errors",
    "DovetailError": "dovetail.errors",
    "EnrichPlan": "dovetail.joins.semistream.plan.plan",
    "IntervalPlan": "dovetail.joins.interval.api",
    "MasterStore": "dovetail.joins.semistream.master.store",
    "Metrics": "dovetail.engine.metrics",
    "NearestPlan": "dovetail.joins.nearest.api",
    "OnlinePlan": "dovetail.joins.online.plan.plan",
    "PlanError": "dovetail.errors",
    "SetPlan": "dovetail.joins.sets.api.plan",
    "UnsupportedError": "dovetail.errors",
    "XQueryError": "dovetail.errors",
    "XQueryPlan": "dovetail.xml.plan",
    "asof_join": "dovetail.joins.asof.api",
    "band_join": "dovetail.joins.interval.plan.band",
    "configure": "dovetail.spark.session",
    "count_overlaps": "dovetail.joins.interval.api",
    "dead_letter": "dovetail.joins.semistream.request",
    "enrich": "dovetail.joins.semistream.api",
    "explain_joins": "dovetail.spark.catalyst",
    "install": "dovetail.rewrite",
    "interval_cluster": "dovetail.joins.sets.api.clusters",
    "interval_complement": "dovetail.joins.sets.api.clusters",
    "interval_count": "dovetail.joins.interval.api",
    "interval_coverage": "dovetail.joins.sets.api.cover",
    "interval_depth": "dovetail.joins.sets.api.depth",
    "interval_join": "dovetail.joins.interval.api",
    "interval_nearest": "dovetail.joins.nearest.api",
    "interval_merge": "dovetail.joins.sets.api.clusters",
    "interval_pivot": "dovetail.joins.sets.api.windows",
    "interval_setdiff": "dovetail.joins.sets.api.cover",
    "interval_subtract": "dovetail.joins.sets.api.cover",
    "interval_topk": "dovetail.joins.interval.api",
    "interval_window": "dovetail.joins.sets.api.windows",
    "intervals": "dovetail.joins.sets.api",
    "make_disjoint": "dovetail.joins.sets.api.depth",
    "online_join": "dovetail.joins.online.api",
    "online_multijoin": "dovetail.joins.online.api",
    "park": "dovetail.joins.semistream.request",
    "plan_asof_join": "dovetail.joins.asof.api",
    "plan_band_join": "dovetail.joins.interval.plan.band",
    "plan_enrich": "dovetail.joins.semistream.api",
    "plan_interval_cluster": "dovetail.joins.sets.api.clusters",
    "plan_interval_complement": "dovetail.joins.sets.api.clusters",
    "plan_interval_coverage": "dovetail.joins.sets.api.cover",
    "plan_interval_depth": "dovetail.joins.sets.api.depth",
    "plan_interval_join": "dovetail.joins.interval.api",
    "plan_interval_nearest": "dovetail.joins.nearest.api",
    "plan_interval_merge": "dovetail.joins.sets.api.clusters",
    "plan_interval_pivot": "dovetail.joins.sets.api.windows",
    "plan_interval_setdiff": "dovetail.joins.sets.api.cover",
    "plan_interval_subtract": "dovetail.joins.sets.api.cover",
    "plan_interval_window": "dovetail.joins.sets.api.windows",
    "plan_make_disjoint": "dovetail.joins.sets.api.depth",
    "plan_online_join": "dovetail.joins.online.api",
    "plan_online_multijoin": "dovetail.joins.online.api",
    "plan_xquery": "dovetail.xml.api",
    "session": "dovetail.spark.session",
    "sql": "dovetail.rewrite",
    "ttl": "dovetail.joins.semistream.request",
    "uninstall": "dovetail.rewrite",
    "xquery": "dovetail.xml.api",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}; it has {__all__}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
