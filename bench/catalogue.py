"""Every case and every experiment by name, and the choice among them.

Cases and experiments are tables of TOML files, cases in `bench/cases`:

    [interval-keyed]
    question = "What does an overlap join within 24 keys cost, when few rows have a match?"
    answer = "interval.KEYED.pairs"                         # the function of a module there that knows the right answer
    small = [{rows = 20_000, others = [1_000, 44_000]}]     # points: all combinations; `full` as well
    rivals.dovetail = {way = "interval.keyed"}              # how each is prepared; the first is ours, and the baseline
    rivals."bins of 10" = {way = ["interval.keyed_bins", 10], rests = [["takes too long", "others > 10_000"]]}
    claims = [{name = "no slower", at_most = 1.0, against = "bins of 10"}]  # of full scale; or scale = "any"

A rival `rests` where a condition on the point holds, `requires` modules, and `may_fail` for a reason. A claim is a
`Bound`; where its rival, what it is against or a place is a list, it is one claim for each. Further fields are those of
`Case`.

Experiments are in `bench/experiments`, one file a family:

    [online-stocks-over-time]
    places = ["figure 7"]                                   # what it repeats of its source
    claim = "While stock trades come, DINER has given ..."  # what the source says, in our words
    run = "recorded.over_time"                              # the function that runs it, in a module of the family
    with = {stand_in = "csco", real = "MSFT"}               # arguments of that function: joins, what is varied, notes
    requires = ["bokeh_sampledata"]                         # modules that it needs

`let`, `states`, `fault`, `untested`, `note` and `shows` say what is derived from the figures that the function returns,
claimed and shown of them (`bench/judge.py`). `like` names an experiment that is run, judged and shown alike, but for
what is said here.
`ground = "measured"` says that it looks at a clock, `source` names another source than the usual one of the family.
`on` lists where a semi-stream experiment runs: "simulated" disk, page file ("disk"), table of a "database"; its `fault`
may be one on the simulated disk and another by the `clock`.
"""

from __future__ import annotations

import importlib
import importlib.util
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from bench.case import SCALES, Bound, Case, Params, Rival, Scale
from bench.context import BenchContext
from bench.experiment import FAMILIES, Experiment, Findings
from bench.expression import text_of, value_of
from bench.judge import Figures, Judge
from bench.rivals.postgres import NEEDED
from dovetail.errors import PlanError

_JUDGED = ("let", "states", "fault", "untested", "note", "shows")
Entry: TypeAlias = "Case | Experiment"
_FURTHER = {"speed": ("scale-online",)}
"""The benchmarks of a group beside those that its name begins."""
_HOME = Path(__file__).with_name("experiments")
LONG = ("models-interval-exam", "scale-out", "speed-grid")
"""Benchmarks that take long at any scale: they run where they are named, or with all at full scale."""


def load_cases() -> dict[str, Case]:
    """Every case by name."""
    files = sorted(Path(__file__).with_name("cases").glob("*.toml"))
    return _by_name(
        case_of(name, **table, table=f"bench/cases/{file.name}#{name}")
        for file in files
        for name, table in tomllib.loads(file.read_text()).items()
    )


def points(crosses: Iterable[Mapping[str, Any]]) -> list[Params]:
    """Every combination of the values of each cross, of which any may be a list."""
    return [one for cross in crosses for one in _combined(cross)]


def _combined(cross: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lists = (value if isinstance(value, list) else [value] for value in cross.values())
    return (dict(zip(cross, values, strict=True)) for values in product(*lists))


def case_of(
    name: str,
    *,
    answer: str,
    counts: str = "rows",
    rivals: Mapping[str, Any],
    claims: Iterable[Any] = (),
    table: str = "",
    **fields: Any,
) -> Case:
    """The case that a `table` (file.toml#name) describes."""
    crosses: dict[Scale, list[Params]] = {scale: points(fields.pop(scale)) for scale in SCALES}
    fields.pop("tiny", None)  # points for tests
    contestants = tuple(_rival(rival, **told) for rival, told in rivals.items())
    first = contestants[0].name
    bounds = tuple(bound for claim in claims for bound in _bounds({"rival": first, "scale": "full", **claim}))
    ways = [answer, *(way if isinstance(way, str) else way[0] for way in (one["way"] for one in rivals.values()))]
    modules = dict.fromkeys(f"bench.cases.{way.partition('.')[0]}:measured" for way in ways)
    found: dict[str, Any] = {
        "points": crosses,
        "varies": tuple(crosses["full"][0]),
        "rivals": contestants,
        "bounds": bounds,
        "measures": tuple(filter(None, (*modules, table))),
    }
    return Case(name, expected=_named(answer), answer=counts, **found, **{"baseline": first, **fields})


def _named(place: str) -> Any:
    """The value that a module of `bench/cases` has under this name: `interval.UNIFORM.pairs`."""
    module, *names = place.split(".")
    return reduce(getattr, names, importlib.import_module(f"bench.cases.{module}"))


def _rival(name: str, way: str | Sequence[Any], rests: Sequence[Sequence[str]] = (), **table: Any) -> Rival:
    def sits_out(params: Params) -> str | None:
        reasons = (reason for reason, condition in rests if value_of(condition, params))
        found = next(reasons, None)
        return None if found is None else text_of(found, params)

    prepare = _named(way) if isinstance(way, str) else _named(way[0])(*way[1:])
    return Rival(name, prepare, tuple(table.pop("requires", ())), sits_out, **table)


def _bounds(claim: Mapping[str, Any]) -> Iterator[Bound]:
    """One claim for each rival, each that it is compared with, and each place, where there are several."""
    for one in _combined({key: value for key, value in claim.items() if key != "where"}):
        for where in _combined(claim.get("where", {})):
            scale = None if one["scale"] == "any" else one["scale"]
            yield Bound(**one | {"name": one["name"].format(**where), "scale": scale}, where=where)


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
    """The run of an experiment: a function that is imported when it is called, and its arguments."""

    function: str
    told: Mapping[str, Any] = field(default_factory=dict)
    medium: str | None = None
    judge: Judge = field(default_factory=Judge)

    def __call__(self, bench: BenchContext) -> Findings:
        """The findings of the function, judged."""
        module, _, name = self.function.rpartition(".")
        function = partial(getattr(importlib.import_module(module), name), **self.told)
        if self.medium is None:
            return self._judged(function(bench), bench)
        from bench.experiments.semistream.media import Runner, run_on

        def judged(runner: Runner) -> Findings:
            found = function(runner)
            return self._judged(found, bench, **runner.told)

        return run_on(self.medium, judged, bench)

    def _judged(self, found: Figures | Sequence[Figures], bench: BenchContext, **told: Any) -> Findings:
        """With what every expression may name: whether these are the source's sizes, and what is `told`."""
        given = {"full": bench.scale == "full", **told}
        some = [found] if isinstance(found, Figures) else found
        return self.judge.findings(*(replace(one, named=given | dict(one.named)) for one in some))


def _described(name: str, *, run: str, on: Iterable[str] = (), **table: Any) -> Iterator[Experiment]:
    """The experiments of one table: one, or one a medium."""
    family, _, word = name.partition("-")
    on = on or FAMILIES[family].on
    told = {name: table.pop(name) for name in _JUDGED if name in table}
    judge, fault = Judge(**told | {"fault": ""}), told.get("fault", "")
    call = Called(f"bench.experiments.{family}.{run}", table.pop("with", {}), judge=judge)
    table["module"] = call.function.rpartition(".")[0]
    table["table"] = f"bench/experiments/{family}.toml#{name}"
    table["places"], requires = tuple(table.get("places", ())), tuple(table.pop("requires", ()))
    if not on:
        yield Experiment(name, run=replace(call, judge=replace(judge, fault=fault)), requires=requires, **table)
    for medium in on:
        simulated = medium == "simulated"
        whose = fault["simulated" if simulated else "clock"] if isinstance(fault, dict) else fault
        judged = replace(call, medium=medium, judge=replace(judge, fault=whose))
        grounds: dict[str, Any] = {"ground": "measured"}
        if simulated:
            grounds = {"ground": "counted"}
        full = name if simulated else f"{family}-{medium}-{word}"
        needed = (*NEEDED, *requires) if medium == "database" else requires
        yield Experiment(full, run=judged, requires=needed, **grounds | table)


def load_all() -> dict[str, Entry]:
    """Cases first, then experiments."""
    cases, experiments = load_cases(), load_experiments()
    if twice := cases.keys() & experiments.keys():
        raise PlanError(f"a case and an experiment share the names {sorted(twice)}.")
    return {**cases, **experiments}


def choose(names: Iterable[str], everything: bool = False, scale: Scale = "full") -> list[Entry]:
    """The named cases and experiments, or all; `online-*` names all that begin so, and so does a
    name that is a group's (`speed`). All at small scale are those that are not LONG. PlanError for an unknown name."""
    known = load_all()
    everyone = [name for name in known if scale == "full" or name not in LONG]
    chosen = everyone if everything else [one for name in names for one in _matching(name, known)]
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
