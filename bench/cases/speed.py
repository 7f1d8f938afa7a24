"""The rows of the speed goals (`speed.toml`), each a case: points, rivals by the ways below, and goals as claims.

`python -m bench run speed` runs them all. Cold ones run in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from bench import enrichment
from bench.case import SCALES, Bound, Case, Outcome, Params, Prepare, Rival, Run, prepared
from bench.cases import enrich, everyday, first_query, interval, online
from bench.child import run_child
from bench.context import BenchContext
from bench.experiments.rivals import interval_pairs, interval_sides
from bench.intervals import overlap_counts
from dovetail.errors import PlanError

_PATIENCE_S = 900.0
TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_REUSED = {case.name: case for module in (enrich, interval, online) for case in module.CASES}
Expected = Callable[[BenchContext, Params], int]


def cold(function: str, kind: str) -> Prepare:
    """A function of `first_query` in a new process, with Spark as it is or as our session sets it up."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        subprocess.run([sys.executable, "-m", "dovetail.spark.warm"], check=True, capture_output=True)

        def run() -> Outcome:
            child = run_child(
                getattr(first_query, function), kind, dict(params), scratch=bench.scratch, patience_s=_PATIENCE_S
            )
            figures = dict(child.answered())
            return Outcome(int(figures.pop("answer")), figures.pop("seconds"), figures)

        return run

    return prepare


def short(name: str) -> Prepare:
    """A contestant with little memory, from its start to its end; `resident_mib` is the most of all its processes."""

    @prepared
    def prepare(bench: BenchContext, params: Params) -> Run:
        def run() -> Outcome:
            given = (name, params["mib"], str(bench.fresh()), params["rows"])
            child = run_child(interval_pairs, *given, scratch=bench.scratch, patience_s=_PATIENCE_S)
            return Outcome(int(child.answered()), child.seconds, {"resident_mib": child.peak / 2**20})

        return run

    return prepare


def reused(case: str, rival: str) -> Prepare:
    """A rival of another case."""
    (found,) = (one.prepare for one in _REUSED[case].rivals if one.name == rival)
    return found


def duckdb_in(memory: str) -> Prepare:
    """The self-join of DuckDB within a limit."""
    return interval.SELF.duckdb(interval.sums, f"set memory_limit = '{memory}'")


@prepared
def demo(bench: BenchContext, params: Params) -> Run:
    """`dovetail demo` as it is installed, or `make demo` in a new copy of the repository that has nothing yet."""
    home = Path(__file__).parents[2]

    def run() -> int:
        if params["set_up"] == "installed":
            command, place = [sys.executable, "-m", "dovetail", "demo"], bench.fresh()
            env = dict(os.environ)
        else:
            place = bench.fresh() / "dovetail"
            subprocess.run(["git", "clone", "-q", str(home), str(place)], check=True)  # noqa: S603, S607  (our own)
            command, env = ["make", "demo"], os.environ | {"DOVETAIL_CACHE": str(bench.fresh())}
        done = subprocess.run(command, cwd=place, env=env, check=False, capture_output=True)  # noqa: S603  (as above)
        return int(done.returncode == 0)

    return run


WAYS: Mapping[str, Callable[..., Prepare]] = {
    "cold": cold,
    "short": short,
    "reused": reused,
    "duckdb_in": duckdb_in,
    "demo": lambda: demo,
    "spark": lambda join: everyday.on_spark(getattr(everyday, join)),
    "everyday": lambda way: getattr(everyday, way),
    "enrich": lambda: enrichment.dovetail(enrichment.master_store),
    "streamed": lambda join: enrichment.streamed(getattr(enrichment, join), warm_rows=0),
    "everyday streams": lambda join: online.LONG.joined(getattr(online, join)),
    "fleeting streams": lambda retain: online.FLEETING.joined(partial(online.retained, retain)),
}
"""How rivals are made, by the first word of what `speed.toml` says of them."""
ANSWERS: Mapping[str, Expected] = {
    "one": lambda bench, params: 1,
    "rows": lambda bench, params: int(params["rows"]),
    "first micro-batch": lambda bench, params: first_query.online_answer(params),
    "first count": lambda bench, params: first_query.count_answer(params),
    "uniform": interval.UNIFORM.pairs,
    "self": interval.SELF.pairs,
    "everyday": everyday.expected,
    "short memory": lambda bench, params: int(overlap_counts(*interval_sides(params["rows"]), keyed=True).sum()),
    "enriched": lambda bench, params: enrichment.matched(enrichment.batches(bench, params) * int(params["batch_rows"])),
    "streams": online.matches,
    "everyday streams": online.LONG.matches,
    "fleeting streams": online.FLEETING.matches,
}
"""The right answer at a point, by the name that `speed.toml` has for it."""
_RESTS = {"own plan": everyday.tests_all_pairs, "heap": online.fits_in_java}
"""Why a rival sits a point out."""


def points(crosses: Iterable[Mapping[str, Any]]) -> list[Params]:
    """Every combination of the values of each cross."""
    listed = ({k: v if isinstance(v, list) else [v] for k, v in cross.items()} for cross in crosses)
    return [dict(zip(cross, values, strict=True)) for cross in listed for values in product(*cross.values())]


def _rival(
    name: str, way: Sequence[str], rests: str = "", requires: Iterable[str] = (), only: Params | None = None
) -> Rival:
    def sits_out(params: Params) -> str | None:
        if only and any(params[key] not in values for key, values in only.items()):
            return "is another way of something else"
        return _RESTS[rests](params) if rests else None

    return Rival(name, WAYS[way[0]](*way[1:]), tuple(requires), sits_out)


def case_of(name: str, table: Mapping[str, Any], at: Mapping[str, Any] | None = None) -> Case:
    """The case that a table describes; `at` gives other points."""
    crosses = at or {scale: points(table[scale]) for scale in SCALES}
    rivals = tuple(_rival(rival, **told) for rival, told in table["rivals"].items())
    goals = (Bound(**{"rival": rivals[0].name, "scale": "full", **goal}) for goal in table.get("goals", ()))
    if table["answer"] not in ANSWERS:
        raise PlanError(f"{name} wants the answer {table['answer']!r}; there are {list(ANSWERS)}.")
    return Case(
        name=f"speed-{name}",
        question=table["question"],
        varies=tuple(crosses["full"][0]),
        points=crosses,
        rivals=rivals,
        expected=ANSWERS[table["answer"]],
        baseline=rivals[0].name,
        bounds=tuple(goals) if at is None else (),
        rounds=table.get("rounds", 5),
        small_rounds=table.get("small_rounds", 2),
        warms_up=table.get("warms_up", True),
        measures=tuple(table["measures"]),
    )


CASES = tuple(case_of(name, table) for name, table in TABLES.items())
