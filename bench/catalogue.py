"""Every case and every experiment by name, and the choice among them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType
from typing import Any, TypeAlias

from bench import cases as case_package
from bench import experiments as experiment_package
from bench.case import Case
from bench.experiment import Experiment
from dovetail.errors import PlanError

Entry: TypeAlias = "Case | Experiment"


def load_cases() -> dict[str, Case]:
    """Every case by name: the CASES of the modules in `bench.cases`."""
    return _load(case_package, "CASES")


def load_experiments() -> dict[str, Experiment]:
    """Every experiment by name: the EXPERIMENTS of the modules below `bench.experiments`."""
    return _load(experiment_package, "EXPERIMENTS")


def _load(package: ModuleType, attribute: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for entry in getattr(importlib.import_module(module.name), attribute, ()):
            if entry.name in found:
                raise PlanError(f"two benchmarks are named {entry.name!r}.")
            found[entry.name] = entry
    return dict(sorted(found.items()))


def load_all() -> dict[str, Entry]:
    """Cases first, then experiments."""
    cases, experiments = load_cases(), load_experiments()
    if twice := cases.keys() & experiments.keys():
        raise PlanError(f"a case and an experiment share the names {sorted(twice)}.")
    return {**cases, **experiments}


def choose(names: Iterable[str], everything: bool = False) -> list[Entry]:
    """The named cases and experiments, or all; `online-*` names all that begin so. PlanError for a name nobody has."""
    known = load_all()
    chosen = list(known) if everything else [one for name in names for one in _matching(name, known)]
    if not chosen:
        raise PlanError(f"no benchmark was named; name some of {list(known)}, or use --all.")
    return [known[name] for name in dict.fromkeys(chosen)]


def _matching(name: str, known: dict[str, Entry]) -> list[str]:
    found = [one for one in known if one.startswith(name[:-1])] if name.endswith("*") else [name]
    if not found or found[0] not in known:
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PlanError(f"there is no benchmark {name!r}; there are {list(known)}.{hint}")
    return found


def missing(requires: Iterable[str]) -> str | None:
    """Why something that needs these modules cannot run here; None if it can."""
    absent = [module for module in requires if importlib.util.find_spec(module) is None]
    return f"not installed: {', '.join(absent)}" if absent else None
