"""The arguments that all joins share: what they mean, and what is said of those that cannot be right."""

from __future__ import annotations

import doctest
import importlib
import pickle

import pytest

from dovetail.engine.rows.layout import HOWS
from dovetail.errors import PlanError
from dovetail.request import (
    HowName,
    Key,
    known_column,
    nearest,
    one_of,
    output_names,
    parse_columns,
    parse_count,
    parse_flag,
    parse_how,
    parse_keys,
    parse_ms,
    parse_partitions,
    parse_seconds,
    parse_size,
    parse_suffixes,
    wanted_columns,
)


def test_examples_run() -> None:
    found = doctest.testmod(importlib.import_module("dovetail.request"))
    assert (found.failed, found.attempted > 5) == (0, True)


def test_an_error_keeps_its_argument_when_it_is_copied() -> None:
    copied = pickle.loads(pickle.dumps(PlanError("how='x' is not known.", argument="how")))  # noqa: S301  (our own)
    assert (str(copied), copied.argument, type(copied)) == ("how='x' is not known.", "how", PlanError)
    assert PlanError("no argument").argument is None


def test_a_word_is_one_of_those_allowed() -> None:
    assert one_of("keep", "first", ("all", "first")) == "first"
    with pytest.raises(
        PlanError, match=r"keep='frist' is not known; did you mean 'first'\? Known: all, first\."
    ) as told:
        one_of("keep", "frist", ("all", "first"))
    assert told.value.argument == "keep"
    for wrong in (None, 3, ["first"], {"first": 1}):
        with pytest.raises(PlanError, match=r"is not known.* Known: all, first\."):
            one_of("keep", wrong, ("all", "first"))
    assert (nearest("memry", ["memory", "mode"]), nearest("x", ["memory"])) == ("memory", None)


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "inner": ["inner", "INNER"],
        "left": ["left", "leftouter", "left_outer", "LeftOuter"],
        "right": ["right", "rightouter", "right_outer"],
        "full": ["full", "outer", "fullouter", "full_outer"],
        "left_semi": ["left_semi", "semi", "leftsemi"],
        "left_anti": ["left_anti", "anti", "leftanti"],
    }.items(),
)
def test_how_takes_the_names_of_spark(kind: str, names: list[str]) -> None:
    assert {parse_how(name) for name in names} == {kind}
    assert kind in HOWS


def test_every_name_of_how_that_editors_offer_is_known() -> None:
    assert {parse_how(name) for name in HowName.__args__} == set(HOWS)  # type: ignore[attr-defined]


def test_how_that_a_join_does_not_have() -> None:
    with pytest.raises(PlanError, match="how='outer' is not possible here; use one of inner, left") as told:
        parse_how("outer", ("inner", "left"))
    assert told.value.argument == "how"
    for wrong in ("outter", "cross", None, 7):
        with pytest.raises(PlanError, match=r"how=.* is not known.* Known: inner, left, right, full"):
            parse_how(wrong)


def test_sizes() -> None:
    assert [parse_size("memory", given) for given in ("64MB", "1.5 KiB", 4096)] == [64 << 20, 1536, 4096]
    for wrong in ("lots", "", None, 2.5, True, -1, 0):
        with pytest.raises(PlanError, match="memory=") as told:
            parse_size("memory", wrong)  # type: ignore[arg-type]
        assert told.value.argument == "memory"
    with pytest.raises(PlanError, match="page='1KB' is 1024 bytes; this join needs at least 1 MiB per task") as told:
        parse_size("page", "1KB", least=1 << 20)
    assert told.value.argument == "page"


def test_lengths_of_time() -> None:
    given: list[str | float] = ["5s", "10 min", "250ms", "1.5 hours", "2 days", "3 seconds", 7]
    assert [parse_seconds("x", text) for text in given] == [5, 600, 0.25, 5400, 172_800, 3, 7]
    assert [parse_ms("t", text) for text in ("25 ms", "1 s", "2 hours", 0.5, 1e-9)] == [25, 1000, 7_200_000, 500, 1]
    for wrong in ("soon", "5 apples", 0, -1, "0s", True, float("inf"), None):
        with pytest.raises(PlanError, match=r"wait=.*not a length of time") as told:
            parse_seconds("wait", wrong)  # type: ignore[arg-type]
        assert told.value.argument == "wait"


def test_whole_numbers_and_flags() -> None:
    assert (parse_count("k", 3), parse_partitions(None), parse_partitions(8), parse_flag("strict", True)) == (
        3, None, 8, True,
    )  # fmt: skip
    for wrong in (0, -1, 2.0, True, "3", None):
        with pytest.raises(PlanError, match=r"k=.* is not possible; give a whole number from 1\.") as told:
            parse_count("k", wrong)
        assert told.value.argument == "k"
    with pytest.raises(PlanError, match=r"partitions=100001 is not possible; give a whole number from 1 to 100,000\."):
        parse_partitions(100_001)
    with pytest.raises(PlanError, match="strict=1 must be True or False") as told:
        parse_flag("strict", 1)
    assert told.value.argument == "strict"


def test_keys() -> None:
    assert parse_keys(None) == parse_keys([]) == ()
    assert parse_keys("k") == parse_keys(["k"]) == (Key("k", "k", True),)
    assert parse_keys(["k", ("a", "b"), ["c", "c"]]) == (
        Key("k", "k", True),
        Key("a", "b", False),
        Key("c", "c", False),
    )
    assert [key.name for key in parse_keys(["k", ("a", "b")])] == ["k", ("a", "b")]
    for wrong in ([1], [("a", "b", "c")], [("a", 1)], 5, [None]):
        with pytest.raises(PlanError, match=r"on=.*: each key is a column name or a \(left name, right name\)") as told:
            parse_keys(wrong)
        assert told.value.argument == "on"
    with pytest.raises(PlanError, match=r"on=.* names no key"):
        parse_keys([], required=True)


def test_columns_and_suffixes() -> None:
    assert (parse_columns(None), parse_columns(["a", "b"]), parse_columns(("a",))) == (None, ("a", "b"), ("a",))
    for wrong in ("text", [], [1], 5):
        with pytest.raises(PlanError, match=r"columns=.* must be a list of output column names") as told:
            parse_columns(wrong)  # type: ignore[arg-type]
        assert told.value.argument == "columns"
    with pytest.raises(PlanError, match="has a name twice"):
        parse_columns(["a", "b", "a"])
    assert parse_suffixes(("", "_r")) == parse_suffixes(["", "_r"]) == ("", "_r")
    for wrong in ("_r", ("",), ("", None), None, 5):
        with pytest.raises(PlanError, match=r"suffixes=.* must be two strings") as told:
            parse_suffixes(wrong)  # type: ignore[arg-type]
        assert told.value.argument == "suffixes"


def test_columns_of_the_result() -> None:
    assert wanted_columns(None, ["a", "b"]) == ("a", "b")
    assert wanted_columns(("b",), ["a", "b"]) == ("b",)
    with pytest.raises(
        PlanError, match=r"the result has no column 'amonut'; it has .*\. Did you mean 'amount'\?"
    ) as told:
        wanted_columns(("amonut",), ["amount", "b"])
    assert told.value.argument == "columns"
    with pytest.raises(PlanError, match=r"left input has no column 'x'; it has \['k'\]\.$") as told:
        known_column("left input", "x", ["k"], "on")
    assert told.value.argument == "on"


def test_names_that_both_inputs_have_get_the_suffixes() -> None:
    assert output_names(["k", "v"], ["k", "w"], {"k"}, ("", "_r")) == ({"k": "k", "v": "v"}, {"w": "w"})
    assert output_names(["v"], ["V"], set(), ("_l", "_r")) == ({"v": "v_l"}, {"V": "V_r"})
    for left, right in ((["v"], ["v"]), (["v", "V"], [])):
        with pytest.raises(PlanError, match="would appear twice in the result with suffixes=") as told:
            output_names(left, right, set(), ("", ""))
        assert told.value.argument == "suffixes"
