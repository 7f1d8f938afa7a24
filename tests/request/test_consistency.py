"""One name, one meaning and one message for an argument, whatever function it is given to; no Spark is needed."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import pytest

import dovetail
from dovetail.errors import DovetailError, PlanError
from dovetail.joins.interval.operators import OPERATORS
from dovetail.joins.interval.relation import ALIASES, RELATIONS, RelationName
from dovetail.joins.interval.request import Algorithm as IntervalAlgorithm
from dovetail.joins.online.operators import ALGORITHMS as ONLINE
from dovetail.joins.online.operators import MULTIWAY
from dovetail.joins.online.request import Algorithm as OnlineAlgorithm
from dovetail.joins.online.request import MultiAlgorithm, MultiJoinOptions, OnlineJoinOptions
from dovetail.joins.semistream.operators import ALGORITHMS as SEMISTREAM
from dovetail.joins.semistream.request import Algorithm as EnrichAlgorithm

SWEEPS = ("interval_merge", "interval_cluster", "interval_complement", "interval_depth", "make_disjoint")
PAIRS = ("interval_coverage", "interval_subtract", "interval_setdiff")
WINDOWS = ("interval_window", "interval_pivot")
NEEDED: dict[str, dict[str, Any]] = {
    **{f"{plan}{name}": {} for name in (*SWEEPS, *PAIRS) for plan in ("", "plan_")},
    **{f"{plan}{name}": {"width": 5} for name in WINDOWS for plan in ("", "plan_")},
    **{f"{plan}band_join": {"within": ("t", "t", 0, 5)} for plan in ("", "plan_")},
    **{f"{plan}interval_nearest": {} for plan in ("", "plan_")},
    "asof_join": {"on": "t"},
    "plan_asof_join": {"on": "t"},
    "interval_join": {},
    "plan_interval_join": {},
    "interval_count": {},
    "count_overlaps": {},
    "interval_topk": {},
    "enrich": {"on": "k"},
    "plan_enrich": {"on": "k"},
    "online_join": {"on": "k"},
    "plan_online_join": {"on": "k"},
    "online_multijoin": {"on": [("a.k", "b.k")]},
    "plan_online_multijoin": {"on": [("a.k", "b.k")]},
    "xquery": {},
    "plan_xquery": {},
}
WRONG: list[tuple[str, Any, str]] = [
    ("how", "outter", "how='outter' is not known; did you mean 'outer'? Known: inner, left, right, full, left_semi, "
     "left_anti."),
    ("how", 3, "how=3 is not known. Known: inner, left, right, full, left_semi, left_anti."),
    ("on", [3], "on=[3]: each key is a column name or a (left name, right name) pair, not 3."),
    ("memory", "lots", "memory='lots' is not a size; write bytes as an int, or text such as \"64MB\" or \"1.5 GiB\"."),
    ("memory", True, "memory=True is not a size; write bytes as an int, or text such as \"64MB\" or \"1.5 GiB\"."),
    ("memory", 0, "memory=0 is out of range; it must be from 1 byte to 2^63-1 bytes."),
    ("partitions", 0, "partitions=0 is not possible; give a whole number from 1 to 100,000."),
    ("partitions", "8", "partitions='8' is not possible; give a whole number from 1 to 100,000."),
    ("columns", "k", "columns='k' must be a list of output column names."),
    ("columns", ["k", "k"], "columns=['k', 'k'] has a name twice; give each once."),
    ("suffixes", ("_l",), "suffixes=('_l',) must be two strings: one for the first input's names that both have, one "
     "for the second's."),
    ("wait", "soon", "wait='soon' is not a length of time; write seconds, or text such as \"5s\" or \"10 min\"."),
    ("retain", 0, "retain=0 is not a length of time; write seconds, or text such as \"5s\" or \"10 min\"."),
    ("max_wait", -1, "max_wait=-1 is not a length of time; write seconds, or text such as \"5s\" or \"10 min\"."),
    ("with_phase", 1, "with_phase=1 must be True or False."),
    ("null_safe", None, "null_safe=None must be True or False."),
    ("strict", "yes", "strict='yes' must be True or False."),
]  # fmt: skip
CHOICES = ("algorithm", "route", "keep", "invalid", "owed", "mode", "tune", "exchange", "as_of", "cache", "output",
           "on_error", "by", "closed", "relation", "direction", "ties")  # fmt: skip


def call(name: str, **options: Any) -> Any:
    """The function on inputs that are none: an argument that cannot be right is refused before they are looked at."""
    one = "multijoin" in name or name.removeprefix("plan_") in (*SWEEPS, *WINDOWS)
    inputs = [None] if one else [None, "1"]
    return getattr(dovetail, name)(*inputs, **(NEEDED[name] | options))


def takers(argument: str) -> list[str]:
    found = [name for name in NEEDED if argument in inspect.signature(getattr(dovetail, name)).parameters]
    many = ("on", "suffixes")  # many inputs have other keys and suffixes
    other = ("on", "by")  # an as-of join has a time and its keys there
    return [n for n in found if not (("multijoin" in n and argument in many) or ("asof" in n and argument in other))]


def test_every_function_is_here() -> None:
    planned = [name for name in dovetail.__all__ if hasattr(getattr(dovetail, name), "__wrapped__")]
    assert sorted(planned) == sorted(NEEDED)


@pytest.mark.parametrize(
    ("name", "argument", "given", "message"),
    [(name, argument, given, message) for argument, given, message in WRONG for name in takers(argument)],
)
def test_the_same_wrong_argument_is_told_in_the_same_words(name: str, argument: str, given: Any, message: str) -> None:
    if argument == "partitions" and name.removeprefix("plan_") in ("asof_join", "interval_nearest"):
        message = message.replace("100,000", "1,000")  # the bounds of all their cells stand in one plan
    with pytest.raises(PlanError) as told:
        call(name, **{argument: given})
    assert (str(told.value), told.value.argument) == (message, argument)


@pytest.mark.parametrize(("name", "argument"), [(name, argument) for argument in CHOICES for name in takers(argument)])
def test_a_word_that_is_not_known_is_told_with_those_that_are(name: str, argument: str) -> None:
    with pytest.raises(PlanError) as told:
        call(name, **{argument: "nonsense"})
    assert str(told.value).startswith(f"{argument}='nonsense' is not known")
    assert " Known: " in str(told.value)
    assert told.value.argument == argument


@pytest.mark.parametrize(
    ("name", "options", "argument"),
    [
        ("interval_join", {"left_interval": ("a", "b", "c")}, "left_interval"),
        ("interval_join", {"relation": []}, "relation"),
        ("interval_join", {"closed": ("left", "right", "both")}, "closed"),
        ("interval_join", {"keep": "first", "how": "full"}, "keep"),
        ("interval_join", {"route": "native", "algorithm": "dip"}, "algorithm"),
        ("interval_join", {"split_points": [1, 2], "partitions": 2}, "partitions"),
        ("interval_join", {"split_points": [None]}, "split_points"),
        ("interval_join", {"memory": "1KB"}, "memory"),
        ("interval_topk", {"k": 0}, "k"),
        ("interval_nearest", {"memory": "1KB"}, "memory"),
        ("interval_depth", {"memory": "1KB"}, "memory"),
        ("asof_join", {"on": ["t", 3]}, "on"),
        ("asof_join", {"by": [3]}, "by"),
        ("asof_join", {"how": "right"}, "how"),
        ("asof_join", {"ties": "first"}, "ties"),
        ("asof_join", {"tolerance": float("nan")}, "tolerance"),
        ("asof_join", {"memory": "1KB"}, "memory"),
        ("enrich", {"how": "right"}, "how"),
        ("enrich", {"lookup": "newest"}, "lookup"),
        ("enrich", {"lookup": 1.5}, "lookup"),
        ("enrich", {"on": []}, "on"),
        ("enrich", {"on_miss": "keep"}, "on_miss"),
        ("enrich", {"on_miss": dovetail.park()}, "on_miss"),
        ("enrich", {"freshness": "daily"}, "freshness"),
        ("enrich", {"tune": {"waitng": 1}}, "tune"),
        ("enrich", {"tune": {"waiting": 0}}, "tune"),
        ("enrich", {"as_of": "admitted"}, "as_of"),
        ("enrich", {"condition": " "}, "condition"),
        ("enrich", {"versions": "gs://bucket"}, "versions"),
        ("online_join", {"closed": "left"}, "closed"),
        ("online_join", {"on": None}, "on"),
        ("online_join", {"within": ("x",)}, "within"),
        ("online_join", {"within": ("x", "y", 3, 1)}, "within"),
        ("online_join", {"on": None, "within": ("x", 1), "algorithm": "xjoin"}, "algorithm"),
        ("online_multijoin", {"on": "a.k = b.k"}, "on"),
        ("xquery", {"variables": ["x"]}, "variables"),
        ("xquery", {"memory": "1KB"}, "memory"),
    ],
)
def test_errors_name_their_argument(name: str, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(DovetailError) as told:
        call(name, **options)
    assert told.value.argument == argument


def test_algorithms_that_editors_offer_are_those_that_there_are() -> None:
    assert set(get_args(IntervalAlgorithm)) == {"auto", "native", "bins", "nested_loop", *OPERATORS}
    assert set(get_args(EnrichAlgorithm)) == {"auto", *SEMISTREAM}
    assert set(get_args(OnlineAlgorithm)) == {"auto", *ONLINE}
    assert set(get_args(MultiAlgorithm)) == {"auto", *MULTIWAY}
    assert set(get_args(RelationName)) == {*RELATIONS, *ALIASES}


def test_algorithms_are_chosen_unless_one_is_named() -> None:
    for name in takers("algorithm"):
        assert inspect.signature(getattr(dovetail, name)).parameters["algorithm"].default == "auto"
    assert OnlineJoinOptions(on="k").request().terms.algorithm == "diner"
    assert MultiJoinOptions(on=[("a.k", "b.k")]).request().terms.algorithm == "miner"
