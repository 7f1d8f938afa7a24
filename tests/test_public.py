"""The public names: what is there, what editors and `help` see, and examples that run."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import pytest

import dovetail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [name for name in dovetail.__all__ if name != "__version__"]
SETS = (
    "interval_merge", "interval_cluster", "interval_complement", "interval_depth", "make_disjoint", "interval_window",
    "interval_pivot",
)  # fmt: skip
TWINS = {
    **{name: f"plan_{name}" for name in (*SETS, "interval_coverage", "interval_subtract", "interval_setdiff")},
    "asof_join": "plan_asof_join",
    "band_join": "plan_band_join",
    "interval_join": "plan_interval_join",
    "interval_nearest": "plan_interval_nearest",
    "enrich": "plan_enrich",
    "online_join": "plan_online_join",
    "online_multijoin": "plan_online_multijoin",
    "xquery": "plan_xquery",
}
JOINS = [*TWINS, *TWINS.values(), "interval_count", "count_overlaps", "interval_topk"]
WORDS = {
    "how", "algorithm", "closed", "keep", "route", "invalid", "owed", "on_miss", "freshness", "mode", "tune",
    "exchange", "cache", "lookup", "as_of", "output", "on_error", "relation", "by", "direction", "ties",
}  # fmt: skip


METHODS = [name for name, one in vars(dovetail.MasterStore).items() if name[0] != "_" and callable(one)]
HELPERS = ("expand", "shift", "trim", "flank", "tile")


@pytest.mark.parametrize("name", [*NAMES, *(f"intervals.{one}" for one in HELPERS)])
def test_the_example_of_a_public_name_runs(name: str, spark: SparkSession, tmp_path: Path) -> None:
    run_example(name, {"spark": spark, "place": str(tmp_path)})


@pytest.mark.parametrize("name", METHODS)
def test_the_example_of_a_method_of_a_store_runs(name: str, spark: SparkSession, tmp_path: Path) -> None:
    names = spark.createDataFrame([(1, "Ada"), (2, "Ben")], "id int, name string")
    store = dovetail.MasterStore.build(names, f"{tmp_path}/names.pages", key="id", unique=True)
    run_example(f"MasterStore.{name}", {"spark": spark, "place": str(tmp_path), "store": store})


def run_example(name: str, given: dict[str, Any]) -> None:
    """Runs the example of a name that users have; a failure if it has none."""
    given = {"dovetail": dovetail, "Metrics": dovetail.Metrics, **given}
    found = attrgetter(name)(dovetail)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(found) or "", given, name, None, 0)
    assert examples.examples, f"{name} has no example"
    said: list[str] = []
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append).failed == 0, "".join(said)


def test_importing_dovetail_imports_no_spark() -> None:
    code = "import dovetail, sys; print([m for m in ('pyspark', 'pyarrow', 'numpy', 'numba') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", TWINS)
def test_a_function_and_its_plan_share_a_signature(name: str) -> None:
    mine, theirs = (inspect.signature(getattr(dovetail, one)) for one in (name, TWINS[name]))
    assert mine.parameters == theirs.parameters
    assert mine.return_annotation.__name__ == "DataFrame"
    assert theirs.return_annotation.__name__.endswith("Plan")


@pytest.mark.parametrize("name", JOINS)
def test_inputs_are_given_by_position_and_options_by_name(name: str) -> None:
    parameters = list(inspect.signature(getattr(dovetail, name)).parameters.values())
    by_position = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    asked = ["collections"] if "xquery" in name else []
    assert by_position in [
        [*i, *asked] for i in (["left", "right"], ["rows", "master"], ["rows"], ["inputs"], ["spark", "query"])
    ]


@pytest.mark.parametrize("name", JOINS)
def test_words_are_listed_for_editors_and_options_are_documented(name: str) -> None:
    function = getattr(dovetail, name)
    parameters = inspect.signature(function).parameters
    for word in WORDS & set(parameters) - ({"by"} if "asof" in name else set()):  # there `by` names keys
        assert _literals(parameters[word].annotation), word
    told = inspect.getdoc(getattr(dovetail, {plan: own for own, plan in TWINS.items()}.get(name, name))) or ""
    if name in TWINS or name in TWINS.values():
        assert [option for option in parameters if f"\n    {option}: " not in told] == []


def _literals(annotation: Any) -> list[Any]:
    """The words that a type allows, in any part of it."""
    if str(get_origin(annotation)) == "typing.Literal":
        return list(get_args(annotation))
    return [word for part in get_args(annotation) for word in _literals(part)]


@pytest.mark.parametrize("name", JOINS)
def test_the_budget_is_the_same_everywhere(name: str) -> None:
    assert inspect.signature(getattr(dovetail, name)).parameters["memory"].default == "64MB"


@pytest.mark.parametrize("name", JOINS)
def test_calls_that_do_not_fit_are_told_what_fits(name: str) -> None:
    function = getattr(dovetail, name)
    inputs = [None, None][: 1 if "multi" in name or name.removeprefix("plan_") in SETS else 2]
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option 'memry'; did you mean 'memory'\?"):
        function(*inputs, memry=1)
    with pytest.raises(TypeError, match=rf"{name}\(\): too many positional arguments; inputs are given by position"):
        function(*inputs, None, None)
    with pytest.raises(TypeError, match=rf"{name}\(\): missing a required argument"):
        function()
