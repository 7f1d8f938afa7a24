"""Joins that Apache Spark does not have, each inside a memory budget that you set."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dovetail.version import __version__

if TYPE_CHECKING:
    from dovetail.interval.frame import count_overlaps as count_overlaps
    from dovetail.interval.frame import interval_count as interval_count
    from dovetail.interval.frame import interval_join as interval_join
    from dovetail.interval.frame import interval_topk as interval_topk
    from dovetail.interval.frame import plan_interval_join as plan_interval_join
    from dovetail.online.frame import online_join as online_join
    from dovetail.online.frame import plan_online_join as plan_online_join
    from dovetail.online.frame_multi import online_multijoin as online_multijoin
    from dovetail.online.frame_multi import plan_online_multijoin as plan_online_multijoin
    from dovetail.semistream.frame import enrich as enrich
    from dovetail.semistream.frame import plan_enrich as plan_enrich
    from dovetail.semistream.freshness import ttl as ttl
    from dovetail.semistream.master.store import MasterStore as MasterStore
    from dovetail.semistream.on_miss import dead_letter as dead_letter
    from dovetail.semistream.on_miss import park as park
    from dovetail.spark.session import configure as configure
    from dovetail.spark.session import session as session
    from dovetail.sql import sql as sql
    from dovetail.xquery.frame import plan_xquery as plan_xquery
    from dovetail.xquery.frame import xquery as xquery

# Public name -> module that defines it, imported when the name is first used, so that `import dovetail` is instant and
# needs no Spark. To publish a name: a line here, its twin in the TYPE_CHECKING block above, and one in __all__.
_PUBLIC = {
    "MasterStore": "dovetail.semistream.master.store",
    "configure": "dovetail.spark.session",
    "count_overlaps": "dovetail.interval.frame",
    "dead_letter": "dovetail.semistream.on_miss",
    "enrich": "dovetail.semistream.frame",
    "interval_count": "dovetail.interval.frame",
    "interval_join": "dovetail.interval.frame",
    "interval_topk": "dovetail.interval.frame",
    "online_join": "dovetail.online.frame",
    "online_multijoin": "dovetail.online.frame_multi",
    "park": "dovetail.semistream.on_miss",
    "plan_enrich": "dovetail.semistream.frame",
    "plan_interval_join": "dovetail.interval.frame",
    "plan_online_join": "dovetail.online.frame",
    "plan_online_multijoin": "dovetail.online.frame_multi",
    "plan_xquery": "dovetail.xquery.frame",
    "session": "dovetail.spark.session",
    "sql": "dovetail.sql",
    "ttl": "dovetail.semistream.freshness",
    "xquery": "dovetail.xquery.frame",
}

__all__ = [
    "MasterStore",
    "__version__",
    "configure",
    "count_overlaps",
    "dead_letter",
    "enrich",
    "interval_count",
    "interval_join",
    "interval_topk",
    "online_join",
    "online_multijoin",
    "park",
    "plan_enrich",
    "plan_interval_join",
    "plan_online_join",
    "plan_online_multijoin",
    "plan_xquery",
    "session",
    "sql",
    "ttl",
    "xquery",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dovetail' has no attribute {name!r}; it has {__all__}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Face(ModuleType):
    """`dovetail.sql` and `dovetail.xquery` are functions, though packages have the same names.

    Python binds a package in its parent whenever a part of it is imported; the public name keeps its meaning.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
