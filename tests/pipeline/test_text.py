"""The text of a pipeline file: places, secrets, overrides, and keys that follow the functions."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import ConfigError, PlanError
from dovetail.pipeline.checkpoint import _refused_changes
from dovetail.pipeline.file.declared import Secrets, query_keeps_state, tables_of
from dovetail.pipeline.file.keys import JOIN_TYPES, WORKLOADS, join_shape, options_of
from dovetail.pipeline.file.problems import KeyPath, PipelineError, key_lines, nearest_line
from dovetail.pipeline.file.read import read_pipeline
from dovetail.pipeline.sinks.write import trigger_of

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "pipelines").glob("*.toml"))
TRICKY = '''
title = "a # no comment [x]"   # a comment = "x"
[ a . "b c" ]   # header
'single' = 1
dotted.key = { inline = "}", more = [1, 2, {deep = true}] }
text = """
[not.a.table]
key = "value" \\"""
more"""
after = \'\'\'raw ' \\\'\'\'
list = [
  "one", # comment ]
  ["two", 3],

  {x = 1},
]
[[many]]
n = 1
[[many]]
n = 2
[many.inner]
z = 1979-05-27T07:32:00Z
[a."b c".late]
"quo\\"ted" = -1.5e3
'''


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from paths(part, (*path, key))


def test_every_key_has_its_line() -> None:
    lines, text = key_lines(TRICKY), TRICKY.splitlines()
    for path in paths(tomllib.loads(TRICKY)):
        assert path in lines, path
    assert lines["a", "b c", "after"] == text.index("after = '''raw ' \\'''") + 1
    assert lines["a", "b c", "dotted", "key", "more", 2, "deep"] == 5
    assert text[lines["a", "b c", "list", 1] - 1].strip().startswith('["two"')
    assert text[lines["many", 1, "n"] - 1] == "n = 2"
    assert text[lines["many", 1, "inner", "z"] - 1].startswith("z =")
    assert text[lines["a", "b c", "late", 'quo"ted'] - 1].startswith('"quo')
    assert nearest_line(lines, ("many", 1, "absent")) == lines["many", 1]
    assert nearest_line(lines, ("absent",)) == 1


_names = st.from_regex(r"[a-z][a-z0-9_-]{0,4}", fullmatch=True)
_values = st.sampled_from(["1", "true", '"x"', '"a # b"', "[1, 2]", "[\n  1,\n  2\n]", '"""\nx = 1\n"""', "{ k = 1 }"])


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.dictionaries(_names, st.dictionaries(_names, _values, max_size=4), max_size=4))
def test_lines_of_any_file(tables: dict[str, dict[str, str]]) -> None:
    text = "".join(f"[{name}]\n" + "".join(f"{k} = {v}\n\n" for k, v in keys.items()) for name, keys in tables.items())
    lines, source = key_lines(text), text.splitlines()
    for name, keys in tables.items():
        assert source[lines[name,] - 1] == f"[{name}]"
        for key in keys:
            assert source[lines[name, key] - 1].startswith(f"{key} = ")
    assert set(paths(tomllib.loads(text))) <= set(lines)


def test_secrets_are_filled_in_and_never_shown() -> None:
    secrets = Secrets({"A": "p@ss/w", "B": ""})
    assert secrets.filled({"u": ["x ${A} $${A}", 1, {"v": "${B}"}]}) == {"u": ["x p@ss/w ${A}", 1, {"v": ""}]}
    assert secrets.masked("p@ss/w and p%40ss%2Fw") == "*** and ***"
    assert secrets.missing("${C} ${A} $${D}") == ["C"]
    assert "p@ss" not in repr(secrets)


@pytest.mark.parametrize("join", [name for name in JOIN_TYPES if name != "sql"])
def test_every_argument_of_a_function_is_a_key(join: str) -> None:
    assert set(inspect.signature(options_of(join)).parameters) <= set(join_shape(join).keys)


def test_every_workload_is_known() -> None:
    from dovetail.workloads.source import SOURCES

    assert {source.word for source in SOURCES} == set(WORKLOADS)


def test_overrides_come_before_the_check(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text((EXAMPLES[0].parent / "orders.toml").read_text())
    changed = read_pipeline(file, ["join.enriched.memory=20MB", "source.orders.options.rows=7", 'pipeline.name="x y"'])
    assert changed.steps["enriched"].values["memory"] == "20MB"
    assert changed.steps["orders"].values["options"]["rows"] == 7
    assert changed.name == "x y"
    assert changed.steps["warehouse"].values["path"] == str(tmp_path / "work" / "warehouse")
    with pytest.raises(PipelineError, match=r"memory of .join.enriched. does not fit: it is 'much'"):
        read_pipeline(file, ["join.enriched.memory=much"])
    with pytest.raises(PlanError, match="not key=value"):
        read_pipeline(file, ["memory"])
    with pytest.raises(PlanError, match="is a value, not a table"):
        read_pipeline(file, ["pipeline.name.x=1"])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_pipeline(tmp_path / "absent.toml")


def test_what_a_join_may_be_told_later() -> None:
    """A checkpoint bears another end of input, budget and retention, and no other keys of the join."""
    join = {"kind": "join", "type": "online_join", "on": "a", "end_of_input": "a = 1"}
    for change, changed in (
        ({"end_of_input": "a = 2"}, False),
        ({"memory": "8MB"}, False),
        ({"retain": "1 hour"}, False),
        ({"on": "b"}, True),
    ):
        assert bool(list(_refused_changes("j", {"j": join}, {"j": join | change}, is_sink=False))) == changed


def test_triggers(tmp_path: Path) -> None:
    """A time, all that is there, or one micro-batch after another; anything else is refused."""
    file = tmp_path / "p.toml"
    file.write_text((EXAMPLES[0].parent / "orders.toml").read_text())
    for text, wanted in (
        ("2 seconds", {"processingTime": "2000 milliseconds"}),
        ("0 seconds", {"processingTime": "0 seconds"}),
        ("availableNow", {"availableNow": True}),
    ):
        changed = read_pipeline(file, [f"pipeline.trigger={text}"])
        assert trigger_of(changed, changed.steps["warehouse"], once=False) == wanted
    with pytest.raises(PipelineError, match=r"trigger of .pipeline. does not fit"):
        read_pipeline(file, ["pipeline.trigger=-1 second"])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_text_of_the_examples_is_right(file: Path) -> None:
    environment = {"SHOP_URI": "postgresql://me@localhost/shop"}
    assert read_pipeline(file, environment=environment).of("sink")


def test_tables_of_a_query() -> None:
    steps = frozenset({"orders", "items"})
    found = tables_of("with x as (select * from Orders) select * from x join items using (id)", steps)
    assert found == ["orders", "items"]
    assert tables_of("select from where orders ((", steps) == ["orders"]


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("select * from a union all select * from b union all select * from c", "abc"),
        ("select * from c union all (select * from a union all select * from b)", "cab"),
        ("with x as (select * from a) select * from b union all select * from x union all select * from c", "bac"),
        ("with x as (select * from a), y as (select * from x) select * from c union all select * from y", "ca"),
        ("select * from a where k in (select k from b)", "ab"),
        ("with a as (select * from a) select * from b union all select * from a", "ba"),
    ],
)
def test_tables_are_in_the_order_in_which_spark_reads_them(query: str, order: str) -> None:
    assert tables_of(query, frozenset("abc")) == list(order)


@pytest.mark.parametrize(
    ("query", "keeps"),
    [
        ("select k, count(*) from a group by k", True),
        ("select k from a where v > 1", False),
        ("select k from a union all select k from b", False),
        ("select k from a union select k from b", True),
        ("select k from a where k in (1, 2)", False),
        ("select k from a where k in (select k from b)", True),
        ("select k from a where exists (select 1 from b where b.k = a.k)", True),
        ("select k from a limit 5", True),
    ],
)
def test_queries_that_keep_state(query: str, keeps: bool) -> None:
    assert query_keeps_state(query) == keeps


_LIVE = """
[pipeline]
name = "shop"
[source.orders]
type = "rate"
[join.pairs]
type = "online_join"
{0}
[sink.out]
type = "console"
from = "pairs"
trigger = "availableNow"
"""


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('left = 1.5\nright = "orders"\non = "value"', "left"),
        ('left = 1979-05-27\nright = true\non = "value"', "right"),
        ('left = "orders"\nright = "orders"\non = "value"\nmaster = "orders"', "master"),
    ],
)
def test_a_value_or_key_that_cannot_be_is_told_with_its_line(tmp_path: Path, keys: str, told: str) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(_LIVE.format(keys))
    with pytest.raises(PipelineError) as caught:
        read_pipeline(file)
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if text.startswith(f"{told} ="))
    assert any(f":{line}:" in each and told in each for each in str(caught.value).splitlines()), str(caught.value)


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_pipeline_over_spark_connect_is_refused_before_a_session_starts(tmp_path: Path, command: str) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[pipeline]\nname = "p"\nspark = { "spark.remote" = "sc://nowhere" }\n'
        '[source.a]\ntype = "parquet"\npath = "in"\n[sink.b]\ntype = "parquet"\nfrom = "a"\npath = "out"\n'
    )
    dovetail = Path(sys.executable).with_name("dovetail")
    done = subprocess.run([dovetail, command, file], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "does not work over Spark Connect; give spark.master in place of spark.remote" in said
    assert "Traceback" not in said
