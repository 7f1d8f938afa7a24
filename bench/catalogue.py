"""Every case and every experiment by name, and the choice among them.

Cases are the `CASES` of the modules in `bench/cases`. Experiments are the tables of the TOML files in
`bench/experiments`, one file a family:

    [online-stocks-over-time]
    places = ["figure 7"]                                   # what it repeats of its source
    claim = "While stock trades come, DINER has given ..."  # what the source says, in our words
    run = "recorded.over_time"                              # the function that runs it, in a module of the family
    with = {stand_in = "csco", real = "MSFT"}               # what that function is told: joins, what is varied, notes
    requires = ["bokeh_sampledata"]                         # modules that it needs

`let`, `states`, `note` and `shows` say what is derived from the figures that the function returns, claimed and shown of
them (`bench/judge.py`). `like` names an experiment that is run, judged and shown alike, but for what is said here.
`ground = "measured"` says that it looks at a clock, `source` names another source than the usual one of the family.
`on` lists where a semi-stream experiment runs: "simulated" disk, page file ("disk"), table of a "database".
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from bench import cases as case_package
from bench.case import Case
from bench.context import BenchContext
from bench.experiment import FAMILIES, Experiment, Findings
from bench.judge import Figures, Judge
from bench.postgres import NEEDED
from dovetail.errors import PlanError

_JUDGED = ("let", "states", "note", "shows")
Entry: TypeAlias = "Case | Experiment"
_FURTHER = {"speed": ("scale-online",)}
"""What belongs to a group of benchmarks beside those that its name begins."""
_HOME = Path(__file__).with_name("experiments")


def load_cases() -> dict[str, Case]:
    """Every case by name."""
    modules = pkgutil.iter_modules(case_package.__path__, f"{case_package.__name__}.")
    return _by_name(case for each in modules for case in getattr(importlib.import_module(each.name), "CASES", ()))


def load_experiments() -> dict[str, Experiment]:
    """Every experiment by name; its code is imported when it runs."""
    tables = {name: t for file in _HOME.glob("*.toml") for name, t in tomllib.loads(file.read_text()).items()}
    return _by_name(one for name in tables for one in _described(name, **_whole(tables, name)))


def _whole(tables: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """A table with what it takes over from the one that it is `like`: how it is run, judged and shown."""
    own = tables[name]
    other = tables[own["like"]] if "like" in own else {}
    taken = {key: other[key] for key in ("run", "with", *_JUDGED) if key in other}
    return {key: value for key, value in {**taken, **own}.items() if key != "like"}


def _by_name(entries: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in entries:
        if entry.name in found:
            raise PlanError(f"two benchmarks are named {entry.name!r}.")
        found[entry.name] = entry
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Called:
    """The run of an experiment: a function that is imported when it is called, and what it is told."""

    function: str
    told: Mapping[str, Any] = field(default_factory=dict)
    medium: str | None = None
    judge: Judge = field(default_factory=Judge)

    def __call__(self, bench: BenchContext) -> Findings:
        """What the function finds, judged."""
        module, _, name = self.function.rpartition(".")
        function = partial(getattr(importlib.import_module(module), name), **self.told)
        if self.medium is None:
            return self._judged(function(bench))
        from bench.experiments.semistream.media import run_on

        return run_on(self.medium, lambda runner: self._judged(function(runner)), bench)

    def _judged(self, found: Findings | Figures | Sequence[Figures]) -> Findings:
        if isinstance(found, Findings):
            return found
        return self.judge.findings(*([found] if isinstance(found, Figures) else found))


def _described(name: str, *, run: str, on: Iterable[str] = (), **table: Any) -> Iterator[Experiment]:
    """The experiments of one table: one, or one a medium."""
    family, _, word = name.partition("-")
    on = on or FAMILIES[family].on
    judge = Judge(**{name: table.pop(name) for name in _JUDGED if name in table})
    call = Called(f"bench.experiments.{family}.{run}", table.pop("with", {}), judge=judge)
    table["places"], requires = tuple(table.get("places", ())), tuple(table.pop("requires", ()))
    if not on:
        yield Experiment(name, run=call, requires=requires, **table)
    for medium in on:
        simulated = medium == "simulated"
        grounds = {"ground": "counted"} if simulated else {"ground": "measured"}
        full = name if simulated else f"{family}-{medium}-{word}"
        needed = (*NEEDED, *requires) if medium == "database" else requires
        yield Experiment(full, run=replace(call, medium=medium), requires=needed, **grounds | table)


def load_all() -> dict[str, Entry]:
    """Cases first, then experiments."""
    cases, experiments = load_cases(), load_experiments()
    if twice := cases.keys() & experiments.keys():
        raise PlanError(f"a case and an experiment share the names {sorted(twice)}.")
    return {**cases, **experiments}


def choose(names: Iterable[str], everything: bool = False) -> list[Entry]:
    """The named cases and experiments, or all; `online-*` names all that begin so, and so does a
    name that is a group's (`speed`). PlanError for a name nobody has."""
    known = load_all()
    chosen = list(known) if everything else [one for name in names for one in _matching(name, known)]
    if not chosen:
        raise PlanError(f"no benchmark was named; name some of {list(known)}, or use --all.")
    return [known[name] for name in dict.fromkeys(chosen)]


def _matching(name: str, known: dict[str, Entry]) -> list[str]:
    group = name[:-1] if name.endswith("*") else f"{name}-"
    found = [name] if name in known else [one for one in known if one.startswith(group)]
    found += _FURTHER.get(name, ())
    if not found or found[0] not in known:
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise PlanError(f"there is no benchmark {name!r}; there are {list(known)}.{hint}")
    return found


def missing(requires: Iterable[str]) -> str | None:
    """Why something that needs these modules cannot run here; None if it can."""
    absent = [module for module in requires if importlib.util.find_spec(module) is None]
    return f"not installed: {', '.join(absent)}" if absent else None
