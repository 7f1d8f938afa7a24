"""XQuery over collections of XML files: language, plans, and their execution in parallel."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """`dovetail.xquery` names this package and the function; Python binds the package when a part is imported."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from dovetail.xquery.frame import xquery

        return xquery(*arguments, **named)


sys.modules[__name__].__class__ = _CallableModule
