"""The listings of the source, literally: the files in `listings` are as printed, blanks and slips included.

Two things are allowed for, and nothing else. The listings disagree about blanks beside parentheses and commas, so
those blanks do not count. The two listings of the join return $$27, a title, where the query returns the book ($$13),
and they name a scan by its `for` variable ($$13, $$26), where all other listings keep the variable of the scan ($$4).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.xquery.algebra.reader import parse_plan

from dovetail.xml.algebra.normalise import normalise
from dovetail.xml.algebra.operators import Operator
from dovetail.xml.algebra.printer import print_plan
from dovetail.xml.rules.order import GROUPS, Rewriting, rewrite
from dovetail.xml.syntax.parser import parse

HERE = Path(__file__).parent / "listings"
PATH = 'doc("books.xml")/bookstore/book'
SCAN = 'collection("/books")/bookstore/book'
COUNT = """
count(
  for $x in collection("/books")/bookstore/book
  return $x
)
"""
JOIN = """
for $r in collection("/ann-books")/bookstore/book
for $s in collection("/joe-books")/bookstore/book
where $r/title eq $s/title
return $r
"""


def after(rewriting: Rewriting, group: str) -> Operator:
    """The plan as it was when this group of rules had finished."""
    names = [name for name, _ in GROUPS]
    done = set(names[: names.index(group) + 1])
    return next((step.plan for step in reversed(rewriting.trace) if step.group in done), rewriting.before)


def listing(name: str) -> str:
    return (HERE / f"{name}.txt").read_text()


def same_blanks(text: str) -> str:
    """Blanks beside parentheses and commas removed; lines and their indentation stay."""
    return re.sub(r" *([(),]) *", r"\1", text)


def shown(plan: Operator) -> str:
    return same_blanks(print_plan(plan))


def done(query: str) -> Rewriting:
    return rewrite(normalise(parse(query)))


def after_rule(rewriting: Rewriting, rule: str) -> Operator:
    return [step.plan for step in rewriting.trace if step.rule == rule][-1]


def test_the_first_plan_of_a_path():
    assert shown(normalise(parse(PATH))) == same_blanks(listing("path_before"))


def test_a_path_after_the_path_rules():
    rewriting = done(PATH)
    assert shown(after(rewriting, "paths")) == same_blanks(listing("path_after"))
    assert rewriting.plan == after(rewriting, "paths")


def test_a_path_over_a_collection_after_the_path_rules():
    assert shown(after(done(SCAN), "paths")) == same_blanks(listing("scan_paths"))


@pytest.mark.parametrize("rule", ["introduce_scan", "push_steps"])
def test_a_path_over_a_collection_after_each_scan_rule(rule: str):
    assert shown(after_rule(done(SCAN), rule)) == same_blanks(listing(f"scan_{rule}"))


def test_partitions_are_not_shown_in_the_plan():
    rewriting = done(SCAN)
    assert rewriting.trace[-1].rule == "partition_scan"
    assert shown(rewriting.plan) == same_blanks(listing("scan_push_steps"))


def test_an_aggregate_before_and_after():
    rewriting = done(COUNT)
    assert shown(after(rewriting, "scans")) == same_blanks(listing("aggregate_before"))
    assert shown(after_rule(rewriting, "aggregate_incrementally")) == same_blanks(listing("aggregate_after"))


def corrected(name: str) -> str:
    """The listing with the book as result, and each scan named by the variable of its scan."""
    text = listing(name).replace("$$32:iterate($$27)", "$$32:iterate($$13)")
    return re.sub(r"\$\$(13|26)\b", lambda found: {"13": "$$4", "26": "$$17"}[found[1]], text)


def test_a_join_before_and_after():
    rewriting = done(JOIN)
    assert shown(after(rewriting, "aggregates")) == same_blanks(corrected("join_before"))
    assert shown(rewriting.plan) == same_blanks(corrected("join_after"))


def test_the_first_plan_of_the_join_has_the_numbers_of_the_listing():
    first = print_plan(normalise(parse(JOIN)))
    for text in (
        "UNNEST( $$13:",
        "UNNEST( $$26:",
        "ASSIGN( $$27:data(",
        "ASSIGN( $$28:data(",
        "DISTRIBUTE-RESULT( $$32 )",
    ):
        assert text in first


def test_our_join():
    assert (
        print_plan(done(JOIN).plan, annotations=True)
        == """\
DISTRIBUTE-RESULT( $$32 )
UNNEST( $$32:iterate($$4) )
JOIN( boolean(value-eq($$27, $$28)) ) [equal($$28, $$27) as string]
{
  ASSIGN( $$28:data(child($$17, "title")) )
  DATASCAN( collection("/joe-books"), $$17, "/bookstore/book" ) [partitioned by document]
  EMPTY-TUPLE-SOURCE
} {
  ASSIGN( $$27:data(child($$4, "title")) )
  DATASCAN( collection("/ann-books"), $$4, "/bookstore/book" ) [partitioned by document]
  EMPTY-TUPLE-SOURCE
}
"""
    )


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_every_listing_can_be_read_back(path: Path):
    assert shown(parse_plan(path.read_text())) == same_blanks(path.read_text())
