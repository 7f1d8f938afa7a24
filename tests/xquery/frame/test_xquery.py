"""`xquery` on Spark: answers, order, errors, skipped files, typed columns, explanations."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from xml.etree.ElementTree import canonicalize

import pytest
from bench.rivals.saxon import Saxon, located
from pyspark.sql import SparkSession
from tests.xquery.conformance.suite import features
from tests.xquery.rules.sample import QUERIES
from tests.xquery.run import direct

import dovetail
from dovetail.errors import BudgetExceeded, ConfigError, DataError, PlanError, XQueryError
from dovetail.workloads.weather import Weather
from dovetail.xml.api import hadoop_paths, plan_xquery
from dovetail.xml.evaluate.compiler import Context
from dovetail.xml.execute.tasks import CollectionFiles
from dovetail.xml.scan import open_chunks
from dovetail.xml.scan.files import collection_of, local_paths
from dovetail.xml.syntax.parser import parse
from dovetail.xml.xdm.markup import serialise

WEATHER = {path.stem: path.read_text().replace("1976-07-04", "1999-07-04") for path in sorted(QUERIES.glob("*.xq"))}
READINGS = 'collection("/sensors")/dataCollection/data'
ALL = f"for $r in {READINGS} return $r/value"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Readings of three stations over the years that the queries ask for; few for the one that compares all pairs."""
    home = tmp_path_factory.mktemp("weather")
    Weather(stations=3, first_year=1999, years=5).write(home)
    for kind in ("TMIN", "TMAX"):
        Weather(stations=1, types=(kind,)).write_sensors(home / kind, files_per_year=3)
    return {
        "/sensors": str(home / "sensors"),
        "/stations": str(home / "stations"),
        "/sensors_min": str(home / "TMIN"),
        "/sensors_max": str(home / "TMAX"),
    }


def evaluated(query: str, places: dict[str, str]) -> list[str]:
    """What direct evaluation gives."""
    from dovetail.engine.metrics import Metrics

    found = {name: collection_of(name, place, local_paths(place) or []) for name, place in places.items()}
    documents = CollectionFiles(found, False, Metrics())
    return [serialise(item) for item in direct(parse(query), Context(documents=documents))]


def items(frame) -> list[str]:
    return [row.item for row in frame.collect()]


@pytest.fixture(scope="module")
def saxon() -> Iterator[Saxon]:
    with Saxon() as process:
        yield process


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WEATHER)
def test_the_weather_queries(spark: SparkSession, places: dict[str, str], saxon: Saxon, name: str):
    query = WEATHER[name]
    found = items(dovetail.xquery(spark, query, places))
    assert len(found) > 0
    expected = saxon.items(located(query, {name: Path(place) for name, place in places.items()}))
    assert sorted(canonical(found)) == sorted(canonical(expected))  # Saxon reads files in the order of the directory
    if name != "q8_daily_difference":  # one item, and our evaluator would compare all pairs too
        assert found == evaluated(query, places)


def canonical(given: list[str]) -> list[str]:
    """Elements in one form, whichever library wrote them."""
    return [canonicalize(item, strip_text=True) if item.startswith("<") else item for item in given]


def test_joins_by_general_comparisons_and_numbers(spark: SparkSession, tmp_path: Path):
    rows = {"a": ["1 2 3", "2", "", "7 07", "x"], "b": ["3 2", "2 2", "9 7", "07 7", ""]}
    for name, lists in rows.items():
        body = "".join(f"<e i='{n}'>{''.join(f'<v>{v}</v>' for v in one.split())}</e>" for n, one in enumerate(lists))
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.xml").write_text(f"<r>{body}</r>")
    places = {name: str(tmp_path / name) for name in rows}
    body = 'for $a in collection("a")/r/e for $b in collection("b")/r/e where'
    for test, keys in (
        ("$a/v = $b/v", 1),
        ("($a/v, $a/none) = $b/v", 1),
        ("$a/v = $b/v and $a/@i = $b/@i", 2),
        ("xs:integer($a/@i) eq xs:double($b/@i)", 1),
        ("xs:integer($a/@i) = $b/v", 1),
    ):
        query = f"{body} {test} return (data($a/@i), data($b/@i))"
        plan = plan_xquery(spark, query, places)
        text = plan.explain()
        assert f"join on {keys} key(s): Spark" in text
        assert "0 further condition(s)" in text
        assert items(plan.frame()) == evaluated(query, places) != []


def test_a_function_that_uses_a_variable_read_from_a_collection(spark: SparkSession, places: dict[str, str]):
    query = f"""declare variable $known := collection("/stations")/stationCollection/station[1]/id;
                declare function local:is-known($id) {{ if ($id = $known) then "yes" else "no" }};
                distinct-values(for $r in {READINGS} where $r/dataType eq "SNOW" return local:is-known($r/station))"""
    assert items(dovetail.xquery(spark, query, places)) == evaluated(query, places)


def test_what_one_task_does_is_said_and_bounded(spark: SparkSession, places: dict[str, str]):
    query = f"for $r in {READINGS} order by $r/value return $r/date"
    plan = plan_xquery(spark, query, places, memory="1MB")
    assert "runs the rest of the plan: order by, over at most 1 MiB of rows" in plan.explain()
    with pytest.raises(BudgetExceeded, match=r"the last task .* memory=1 MiB is the limit"):
        plan.frame().collect()


@pytest.mark.parametrize("name", ["q2_extreme_wind", "q7_lowest_of_2001_in_the_us"])
def test_every_way_gives_the_same(spark: SparkSession, places: dict[str, str], name: str):
    expected = evaluated(WEATHER[name], places)
    for way in ("tuples", "one_task"):
        assert items(plan_xquery(spark, WEATHER[name], places, route=way).frame()) == expected


def test_collection_queries_of_the_conformance_suite(spark: SparkSession):
    data = Path(__file__).parents[1] / "conformance" / "data" / "weather"
    name = "weather?select=*.xml"
    queries = [q for group in features().values() for q in group if f'collection("{name}")' in q and "doc(" not in q]
    assert len(queries) >= 8
    answered = 0
    for query in queries:
        try:
            expected = evaluated(query, {name: str(data)})
        except XQueryError:
            continue
        assert items(dovetail.xquery(spark, query, {name: data})) == expected, query
        answered += 1
    assert answered >= 6


def test_items_come_in_the_order_of_the_query(spark: SparkSession, places: dict[str, str]):
    for partitions in (1, 3):
        found = items(dovetail.xquery(spark, ALL, places, partitions=partitions))
        assert found == evaluated(ALL, places)


def test_packed_files_and_globs(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v>1</v></r>")
    (tmp_path / "b.xml.gz").write_bytes(gzip.compress(b"<r><v>2</v><v>3</v></r>"))
    (tmp_path / "c.txt").write_text("no xml")
    query = 'sum(collection("c")/r/v)'
    assert items(dovetail.xquery(spark, query, {"c": tmp_path})) == ["6"]
    assert items(dovetail.xquery(spark, query, {"c": str(tmp_path / "*.gz")})) == ["5"]


def test_files_that_hadoop_lists(spark: SparkSession, tmp_path: Path):
    (tmp_path / "below").mkdir()
    for name, text in {"b.xml": "<r>2</r>", "below/a.xml": "<r>1</r>", "c.txt": "none"}.items():
        (tmp_path / name).write_text(text)
    found = hadoop_paths(spark, tmp_path.as_uri())
    assert [(Path(uri).name, size) for uri, size in found] == [("b.xml", 8), ("a.xml", 8)]
    assert [b"".join(open_chunks(uri)) for uri, _ in found] == [b"<r>2</r>", b"<r>1</r>"]
    with pytest.raises(PlanError, match="cannot be listed"):
        hadoop_paths(spark, "nosuchsystem://somewhere/files")


def test_a_malformed_file_is_an_error_or_skipped(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v>1</v></r>")
    (tmp_path / "b.xml").write_text("<r>\n<v>2</v>\n<v>3</r>")
    query = 'for $v in collection("c")/r/v return $v'
    with pytest.raises(DataError, match=r"b\.xml, line 3"):
        items(dovetail.xquery(spark, query, {"c": tmp_path}))
    (tmp_path / "c.xml.gz").write_bytes(gzip.compress(b"<r><v>4</v></r>" * 9)[:-12])
    (tmp_path / "d.xml").write_bytes(b"<?xml version='1.0' encoding='us-ascii'?><r><v>\xe4</v></r>")
    whole = 'for $d in collection("c") return $d//v'
    for asked, way in ((query, "auto"), (query, "one_task"), (whole, "auto")):
        plan = plan_xquery(spark, asked, {"c": tmp_path}, on_error="skip", route=way)
        assert items(plan.frame()) == ["<v>1</v>"]
        measured = plan.metrics().as_dict()
        assert (measured["files"], measured["skipped files"]) == (1, 3)


def test_a_file_that_cannot_be_read_is_never_skipped(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v>1</v></r>")
    for way in ("auto", "one_task"):
        (tmp_path / "b.xml").write_text("<r><v>2</v></r>")
        frame = plan_xquery(spark, 'collection("c")/r/v', {"c": tmp_path}, on_error="skip", route=way).frame()
        (tmp_path / "b.xml").unlink()
        with pytest.raises(ConfigError, match=r"b\.xml cannot be read: .*No such file"):
            frame.collect()


def test_errors_in_tasks_have_their_codes(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v>1</v><v>x</v><w><v>1</v><v>2</v></w></r>")
    wrong = {
        'for $v in collection("c")/r/v where xs:decimal($v) gt 0 return $v': "FORG0001",
        'sum(collection("c")/r/v)': "FORG0001",
        'for $w in collection("c")/r/w where $w/v eq "1" return 1': "XPTY0004",
        'for $v in collection("c")/r/v for $w in collection("c")/r/w where $v eq $w/v return 1': "XPTY0004",
        'sum(for $v in collection("c")/r/v for $w in collection("c")/r/v where $v eq $w return $v - $w)': "FORG0001",
    }
    for query, code in wrong.items():
        with pytest.raises(XQueryError) as caught:
            items(dovetail.xquery(spark, query, {"c": tmp_path}))
        assert caught.value.code == code, query


def test_doubles_in_spark_are_those_of_xquery(spark: SparkSession, tmp_path: Path):
    for name, values in {"a": ["1", " 2.5 ", "-INF"], "b": ["3e2", ".5", "1."], "n": ["NaN", "4"]}.items():
        body = "".join(f"<v><k>{k}</k><x>{x}</x></v>" for k, x in enumerate(values))
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.xml").write_text(f"<r>{body}</r>")
    collections = {name: str(tmp_path / name) for name in "abn"}
    for function, other in (("max", "b"), ("min", "n"), ("avg", "b")):
        query = f"""{function}(for $a in collection("a")/r/v for $b in collection("{other}")/r/v
                    where $a/k eq $b/k return $a/x - $b/x)"""
        plan = plan_xquery(spark, query, collections)
        assert "as Spark expressions" in plan.explain()
        assert items(plan.frame()) == evaluated(query, collections)


def test_typed_columns(spark: SparkSession, places: dict[str, str]):
    query = f"""for $r in {READINGS} where $r/dataType eq "TMAX"
                return (data($r/station), xs:dateTime(data($r/date)), xs:integer($r/value), $r/value > 250,
                        xs:decimal($r/value) , xs:double($r/value), data($r/nothing))"""
    frame = dovetail.xquery(spark, query, places, output="columns")
    kinds = ["string", "timestamp", "bigint", "boolean", "decimal(38,18)", "double", "string"]
    assert [kind for _, kind in frame.dtypes] == kinds
    assert frame.columns == ["station", "date", "c3", "c4", "c5", "c6", "nothing"]
    first = frame.first()
    one = f'(for $r in {READINGS} where $r/dataType eq "TMAX" return $r)[1]'
    date, value = evaluated(f"{one}/(date, value)/string()", places)
    assert (first.c3, first.c5, first.c6) == (int(value), Decimal(value), float(value))
    assert (first.date, first.nothing) == (datetime.datetime.fromisoformat(date), None)
    with pytest.raises(PlanError, match=r"write data\(\.\.\.\)"):
        dovetail.xquery(spark, f"for $r in {READINGS} return $r", places, output="columns")


def test_decimals_in_columns_have_all_their_digits(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v>12345678901234567890.123456789012345678</v><v>-123456789012.5</v></r>")
    query = 'for $v in collection("c")/r/v return xs:decimal($v)'
    found = dovetail.xquery(spark, query, {"c": tmp_path}, output="columns").collect()
    assert [row[0] for row in found] == [Decimal("12345678901234567890.123456789012345678"), Decimal("-123456789012.5")]
    larger = query.replace("($v)", "(10 * xs:decimal($v))")
    with pytest.raises(XQueryError, match=r"FOCA0001.*does not fit into column"):
        dovetail.xquery(spark, larger, {"c": tmp_path}, output="columns").collect()


def test_typed_columns_of_joins_and_of_one_task(spark: SparkSession, places: dict[str, str]):
    body = f"""for $s in collection("/stations")/stationCollection/station for $r in {READINGS}
               where $s/id eq $r/station and $r/dataType eq "AWND" and xs:integer($r/value) gt 480"""
    query = f"{body} return (string($s/displayName), xs:integer($r/value))"
    expected = evaluated(query, places)
    pairs = [tuple(row) for row in dovetail.xquery(spark, query, places, output="columns").collect()]
    assert [str(cell) for pair in pairs for cell in pair] == expected
    ordered = f"{body} order by xs:integer($r/value) return (string($s/displayName), xs:integer($r/value))"
    found = [row[1] for row in dovetail.xquery(spark, ordered, places, output="columns").collect()]
    assert found == sorted(pair[1] for pair in pairs)


def test_variables(spark: SparkSession, places: dict[str, str]):
    query = f"""declare variable $kind external; declare variable $least as xs:integer external;
                count(for $r in {READINGS} where $r/dataType = $kind and xs:integer($r/value) ge $least return $r)"""
    given = {"kind": ["TMAX", "TMIN"], "least": 200}
    written = query.replace("$kind external", '$kind := ("TMAX", "TMIN")').replace("external", ":= 200")
    assert items(dovetail.xquery(spark, query, places, variables=given)) == evaluated(written, places)
    with pytest.raises(PlanError, match=r"\$least has no value"):
        dovetail.xquery(spark, query, places, variables={"kind": "TMAX"})
    with pytest.raises(PlanError, match=r"no such external variable"):
        dovetail.xquery(spark, "1", variables={"x": 1})


def test_wrong_requests_are_errors_at_once(spark: SparkSession, places: dict[str, str], tmp_path: Path):
    with pytest.raises(XQueryError, match=r"\[XPST0003\].*line 1"):
        dovetail.xquery(spark, "for $x in", places)
    with pytest.raises(PlanError, match="'/nowhere', which is not given"):
        dovetail.xquery(spark, 'collection("/nowhere")/a', places)
    with pytest.raises(PlanError, match="has no files"):
        dovetail.xquery(spark, 'collection("c")/a', {"c": tmp_path / "*.xml"})
    for wrong in ({"output": "rows"}, {"on_error": "ignore"}, {"partitions": 0}, {"memory": "no"}):
        with pytest.raises(PlanError):
            dovetail.xquery(spark, "1", **wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_the_explanation(spark: SparkSession, places: dict[str, str]):
    text = plan_xquery(spark, WEATHER["q6_daily_highs_of_2000"], places).explain()
    for part in (
        "plan before the rules", "plan after the rules", "rules: ", "JOIN(", "on columns", "streaming scan",
        "2 condition(s) tested on texts in the scan task, 1 of them while files are scanned",
        "join on 1 key(s): Spark, broadcast of the outer side",
        "MapInArrow",
    ):  # fmt: skip
        assert part in text, part
    upward = plan_xquery(spark, f"{READINGS}/../@totalCount", places).explain()
    assert "one task runs the whole plan, documents are read one by one" in upward


def test_without_any_collection(spark: SparkSession):
    assert items(dovetail.xquery(spark, '(1 to 3) ! (. * 2), <a b="{1 + 1}"/>')) == ["2", "4", "6", '<a b="2"/>']


def test_rows_for_the_last_task_do_not_carry_their_ancestors(spark: SparkSession, tmp_path: Path):
    body = "".join(f"<g><i>{n * 7919 % 2000}</i></g>" for n in range(2000))
    (tmp_path / "a.xml").write_text(f"<r><t>{'x' * 20_000}</t>{body}</r>")
    for query in (
        'for $i in collection("c")//i order by xs:integer($i) return data($i)',
        'for $d in collection("c") for $i in $d/r/g/i order by xs:integer($i) return data($i)',
    ):
        found = items(dovetail.xquery(spark, query, {"c": tmp_path}, memory="1MB"))
        assert found == [str(n) for n in range(2000)]


def test_texts_of_any_size_are_read_whole_and_streamed(spark: SparkSession, tmp_path: Path):
    size = 10_500_000
    (tmp_path / "a.xml").write_text(f"<r><t>{'x' * size}</t></r>")
    for path in ('collection("c")/r/t', 'collection("c")//t'):
        query = f"for $t in {path} return string-length($t)"
        for way in ("auto", "tuples", "one_task"):
            assert items(plan_xquery(spark, query, {"c": tmp_path}, route=way).frame()) == [str(size)]
    with pytest.raises(BudgetExceeded, match="give more memory"):
        items(dovetail.xquery(spark, 'collection("c")/r/t', {"c": tmp_path}, memory="8MB"))


def test_an_xml_id_is_an_attribute_like_others_however_a_file_is_read(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><v xml:id='1'/><v xml:id='1'/><v xml:id=' a  b '/></r>")
    (tmp_path / "b.xml").write_text("<!DOCTYPE r><r xml:id='no name'><v xml:id=''/></r>")
    for path in ('collection("c")/r/v', 'collection("c")//v'):
        for way in ("auto", "tuples", "one_task"):
            plan = plan_xquery(spark, f"for $v in {path} return data($v/@xml:id)", {"c": tmp_path}, route=way)
            assert items(plan.frame()) == ["1", "1", " a  b ", ""]


def test_the_context_item(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text("<r><k>1</k><k>3</k></r>")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "0.xml").write_text("<r><e><k>1</k></e><e><k>2</k></e><e><k>3</k></e></r>")
    for query, answer in {
        "/r/k": ["<k>1</k>", "<k>3</k>"],
        "count(//k), name(*), ./r/k[2]/string()": ["2", "r", "3"],
        "for $k in //k order by $k descending return data($k)": ["3", "1"],
        'for $e in collection("c")/r/e where $e/k = /r/k return data($e/k)': ["1", "3"],
        'count(collection("c")/r/e[k = "2"])': ["1"],
        "declare variable $all := //k; declare function local:f($k) { $k = $all }; /r/k/local:f(.)": ["true", "true"],
        "declare variable $first := (//k)[1]; declare function local:f() { $first }; local:f() is /r/k[1]": ["true"],
    }.items():
        found = dovetail.xquery(spark, query, {"c": tmp_path / "c"}, context=tmp_path / "a.xml")
        assert items(found) == answer, query
    parallel = plan_xquery(
        spark, 'count(collection("c")/r/e[k = "2"])', {"c": tmp_path / "c"}, context=tmp_path / "a.xml"
    )
    assert "streaming scan" in parallel.explain()
    with pytest.raises(XQueryError, match="XPDY0002"):
        items(dovetail.xquery(spark, "/r/k"))
    with pytest.raises(XQueryError, match="XPDY0002"):
        items(dovetail.xquery(spark, "declare function local:f() { /r }; local:f()", context=tmp_path / "a.xml"))
    with pytest.raises(PlanError, match="0 files; give the place of one XML file"):
        dovetail.xquery(spark, "/r", context=tmp_path / "none.xml")


def test_a_path_of_many_steps(spark: SparkSession, tmp_path: Path):
    (tmp_path / "a.xml").write_text(f"{'<a>' * 150}1{'</a>' * 150}")
    assert items(dovetail.xquery(spark, f'collection("c"){"/a" * 150}/string()', {"c": tmp_path})) == ["1"]
    query = f'for $a in collection("c")/a return string($a{"/a" * 149})'
    assert items(dovetail.xquery(spark, query, {"c": tmp_path})) == ["1"]
