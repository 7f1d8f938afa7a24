"""Conditions and keys on whole columns say what the evaluator says, of plain texts and of odd ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.xquery.frame.local import Local

from dovetail.errors import BudgetExceeded, XQueryError
from dovetail.xml.execute.columns import Texts
from dovetail.xml.kernels.plain import SECONDS, plain_integers, plain_moments
from dovetail.xml.scan.files import Collection, collection_of, local_paths
from dovetail.xml.xdm.temporal import Date, DateTime

NUMBERS = ["1", "-1", "007", "-0", "0", "1.5", "-2.0", " 3 ", "+4", "999999999999999", "9999999999999999", "492", "491"]
DOUBLES = [*NUMBERS, "1e2", "INF", "-INF", "NaN", ".5", "5."]
MOMENTS = [
    *("2000-02-29T00:00:00", "2000-02-29T00:00:00.000", "1999-12-31T24:00:00", "2000-12-25T23:59:59.5"),
    *("2000-01-01T00:00:00Z", "2000-01-01T02:00:00+02:00", "-0044-03-15T12:00:00", "12000-01-01T00:00:00"),
    *("1976-07-04T00:00:00", "0001-01-01T00:00:00"),
]
DATES = ["2000-02-29", "1900-03-01", "2004-12-31", "2000-01-01Z", "9999-12-31", "0001-01-01", "1976-07-04"]
WRONG = ["", "x", "1 2", "2001-02-29", "2000-13-01T00:00:00", "2000-01-01T25:00:00", "2000-01-01T00:00:60", "20000-1-1"]
CONSTANTS = ("0", "1", "-1", "491.744", "1.5", "492", "1e2", "999999999999999.5", "1.0")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _collection(home: Path, name: str, rows: list[str]) -> Collection:
    place = home / name
    place.mkdir()
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        (place / f"{number}.xml").write_text(f"<r>{''.join(part)}</r>")
    return collection_of(name, str(place), local_paths(str(place)) or [])


def _rows(texts: list[str]) -> list[str]:
    """A row for each text, one without it, and two texts side by side."""
    pairs = zip(texts, [*texts[1:], *texts[:1]], strict=True)
    return [f"<e i='{n}'><v>{v}</v><w>{w}</w></e>" for n, (v, w) in enumerate(pairs)] + ["<e i='none'><w>1</w></e>"]


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Collection]:
    home = tmp_path_factory.mktemp("plain")
    found = {"n": NUMBERS, "d": DOUBLES, "t": MOMENTS, "y": DATES}
    made = {name: _collection(home, name, _rows(texts)) for name, texts in found.items()}
    made["many"] = _collection(
        home, "many", [*_rows(DOUBLES), "<e i='two'><v>1</v><v>x</v></e>", "<e i='x'><v>x</v></e>"]
    )
    return made


def same(collections: dict[str, Collection], query: str) -> list[str]:
    """The answer on columns, which must be that of one task."""
    local = Local(collections)
    found = local.items(query)
    assert "columns" in local.used, query
    assert found == Local(collections, "one task").items(query), query
    return found


def condition(name: str, test: str) -> str:
    return f'for $e in collection("{name}")/r/e where {test} return data($e/@i)'


def test_numbers_are_compared_as_xquery_says(collections: dict[str, Collection]):
    given = 0
    for place, op in enumerate(COMPARISONS):
        for constant in (CONSTANTS[(place + 2 * k) % len(CONSTANTS)] for k in range(4)):
            given += len(same(collections, condition("n", f"xs:decimal($e/v) {op} {constant}")))
            given += len(same(collections, condition("d", f"xs:double($e/v) {op} {constant}")))
        given += len(same(collections, condition("d", f"491.744 {op} xs:double($e/v)")))
    assert given > 200


def test_untyped_texts_are_compared_as_xquery_says(collections: dict[str, Collection]):
    for op in ("=", "!=", "<", "<=", ">", ">="):
        for constant in ("1", "1.5", '"1"', "1e2"):
            same(collections, condition("d", f"not($e/v {op} {constant}) or $e/w {op} {constant}"))
        same(collections, condition("d", f"$e/v {op} $e/w"))
        same(collections, condition("d", f"$e/v - $e/w {op} 1"))
        same(collections, condition("d", f"($e/v * 2 + $e/w {op} 3) and $e/v ne $e/w"))
    assert same(collections, condition("many", '$e/v = "x"')) == ["two", "x"]
    assert "two" in same(collections, condition("many", '$e/v = "1"'))


def test_dates_are_compared_as_xquery_says(collections: dict[str, Collection]):
    parts = [("year", 2000), ("month", 2), ("day", 29), ("hours", 0), ("minutes", 59)]
    for op in COMPARISONS:
        for part, number in parts:
            same(collections, condition("t", f"{part}-from-dateTime(xs:dateTime($e/v)) {op} {number}"))
            if part not in ("hours", "minutes"):
                same(collections, condition("y", f"{part}-from-date(xs:date($e/v)) {op} {number}"))
        same(collections, condition("t", f'xs:dateTime($e/v) {op} xs:dateTime("2000-01-01T00:00:00.000")'))
        same(collections, condition("t", f'xs:dateTime($e/v) {op} xs:dateTime("2000-01-01T00:00:00+01:00")'))
        same(collections, condition("y", f'xs:date($e/v) {op} xs:date("2000-01-01")'))


@pytest.mark.parametrize(
    ("test", "code"),
    [
        ("xs:double($e/v) gt 0", "FORG0001|XPTY0004"),
        ('$e/v eq "1"', "XPTY0004"),
        ("xs:dateTime($e/v) eq xs:dateTime('2000-01-01T00:00:00')", "FORG0001|XPTY0004"),
        ("$e/v eq 1", "XPTY0004"),
        ("$e/w > xs:date('x')", "FORG0001"),
    ],
)
def test_errors_are_raised_by_the_evaluator(test: str, code: str, collections: dict[str, Collection]):
    with pytest.raises(XQueryError, match=code):
        Local(collections).items(condition("many", test))


def test_aggregates_of_plain_and_odd_numbers(collections: dict[str, Collection]):
    for function in ("max", "min", "sum", "avg", "count"):
        for test in ("$e/v < 1000 and $e/v > -10", "$e/w = 1", "xs:double($e/v) eq -0"):
            same(collections, f'{function}(for $e in collection("d")/r/e where {test} return $e/v)')
    same(collections, 'max(for $e in collection("n")/r/e return $e/v)')


def test_items_and_variables_go_on_as_columns(collections: dict[str, Collection]):
    for name in ("d", "many"):
        every = f'for $e in collection("{name}")/r/e'
        for answer in ("$e/v", "data($e/v)", "($e/w, $e/v)", "(data($e/@i), $e/v, data($e/w))", "($e, $e/w)"):
            same(collections, f"{every} return {answer}")


@pytest.mark.parametrize(
    "test",
    [
        "$a/v = $b/v", "$a/v = $b/w and $a/@i = $b/@i", "xs:decimal($a/v) eq xs:integer(xs:double($b/w))",
        "xs:double($a/v) eq xs:double($b/w)", "$a/v = xs:double($b/w)",
        "($a/v, $a/w) = ($b/v, $b/w)", "($a/v, $a/w) = ($b/v, $b/w) and ($a/@i, $a/w) = ($b/@i, $b/v)",
    ],
)  # fmt: skip
def test_joins_by_equalities_of_any_kind(test: str, collections: dict[str, Collection]):
    query = f'for $a in collection("n")/r/e for $b in collection("d")/r/e where {test} return <p>{{$a/@i, $b/v}}</p>'
    if "xs:integer(xs:double" in test:
        query = query.replace('collection("d")', 'collection("n")')
    local = Local(collections)
    assert local.items(query) == Local(collections, "one task").items(query)
    assert "join" in local.used


def test_joins_by_dates(collections: dict[str, Collection]):
    body = 'for $a in collection("y")/r/e for $b in collection("y")/r/e where'
    local = Local(collections)
    query = f"{body} xs:date($a/v) eq xs:date($b/v) return data($a/@i)"
    assert local.items(query) == Local(collections, "one task").items(query)
    assert "join" in local.used


def test_the_last_task_holds_no_more_than_its_memory(tmp_path: Path):
    big = {"big": _collection(tmp_path, "big", [f"<e><v>{n:0100}</v></e>" for n in range(4000)])}
    query = 'for $e in collection("big")/r/e order by $e/v return $e'
    assert len(Local(big, memory=2 << 20).items(query)) == 4000
    with pytest.raises(BudgetExceeded, match=r"last task.*memory=\d+ KiB is the limit.*order by"):
        Local(big, memory=256 << 10).items(query)


def _texts(texts: list[str]) -> Texts:
    here = np.ones(len(texts), np.bool_)
    return Texts(pa.array(texts, pa.string()), here, here)


def test_what_is_plain():
    texts = [*DOUBLES, *MOMENTS, *DATES, *WRONG]
    values, known = plain_integers(*_texts(texts).buffers())
    plain = {text: value for text, value, one in zip(texts, values.tolist(), known, strict=True) if one}
    assert plain == {text: int(text) for text in ("1", "-1", "007", "0", "999999999999999", "492", "491")}


@pytest.mark.parametrize(("kind", "number"), [(DateTime, 4), (Date, 6)])
def test_which_moments_are_plain(kind: type[DateTime | Date], number: int):
    texts = [*DOUBLES, *MOMENTS, *DATES, *WRONG]
    moments, known = plain_moments(*_texts(texts).buffers(), timed=kind is DateTime)
    plain = {text: parts for text, parts, one in zip(texts, moments.T.tolist(), known, strict=True) if one}
    assert len(plain) == number
    first = kind.parse("0001-01-01T00:00:00" if kind is DateTime else "0001-01-01").instant()
    for text, parts in plain.items():
        value = kind.parse(text)
        assert parts[:3] == [value.year, value.month, value.day]
        assert parts[SECONDS] == value.instant() - first


def test_every_day_is_a_day():
    days = np.arange(np.datetime64("1999-12-31"), np.datetime64("2004-03-02")).astype(str).tolist()
    moments, known = plain_moments(*_texts(days).buffers(), timed=False)
    assert known.all()
    assert (np.diff(moments[SECONDS]) == 86400).all()
    wrong = [
        "1900-02-29",
        "2001-02-29",
        "2000-02-30",
        "2000-04-31",
        "2000-00-10",
        "2000-01-00",
        "2000-01-32",
        "0000-01-01",
    ]
    assert not plain_moments(*_texts(wrong).buffers(), timed=False)[1].any()
