"""Every case and every experiment by name, and the choice among them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeAlias

from bench import cases as case_package
from bench import experiments as experiment_package
from bench.case import Case
from bench.experiment import Experiment
from dovetail.errors import PlanError

Entry: TypeAlias = "Case | Experiment"


def load_cases() -> dict[str, Case]:
    """Every case by name: the CASE of each module in `bench.cases`."""
    found: dict[str, Case] = {}
    for module in pkgutil.iter_modules(case_package.__path__):
        case = importlib.import_module(f"{case_package.__name__}.{module.name}").CASE
        found[case.name] = case
    return dict(sorted(found.items()))


def load_experiments() -> dict[str, Experiment]:
    """Every experiment by name: the EXPERIMENTS of each module below `bench.experiments`."""
    found: dict[str, Experiment] = {}
    for module in pkgutil.walk_packages(experiment_package.__path__, f"{experiment_package.__name__}."):
        if module.ispkg:
            continue
        for experiment in getattr(importlib.import_module(module.name), "EXPERIMENTS", ()):
            if experiment.name in found:
                raise PlanError(f"two experiments are named {experiment.name!r}.")
            found[experiment.name] = experiment
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
