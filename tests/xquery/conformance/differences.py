"""Queries where Dovetail's answer is meant to differ from Saxon's, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What Dovetail answers (the code of an error, or items), and why."""

    reason: str
    code: str = ""
    items: tuple[str, ...] = ()


NO_CODE = "Saxon raises the error too, but its message names no code"
DIFFERENCES: dict[str, Difference] = {
    'xs:dayTimeDuration("P1D") div 0': Difference(
        "the standard names FODT0002 for durations; Saxon divides by an integer zero", code="FODT0002"
    ),
    "validate { <a/> }": Difference("the code of a processor without validation is XQST0075", code="XQST0075"),
    'import module namespace m = "urn:m"; 1': Difference(
        "modules are not supported, which XQST0016 says; Saxon tries to read the address", code="XQST0016"
    ),
    "()()": Difference("function items are not part of the supported language", code="XPST0003"),
    "//book/year/string()/upper-case(.)": Difference(
        "XPTY0019 is the standard's code for a step from an atomic value", code="XPTY0019"
    ),
    "declare function local:f($x) as xs:string { $x }; local:f(1)": Difference(NO_CODE, code="XPTY0004"),
    "declare function local:f($x as element(a)) { name($x) }; local:f((//book)[1])": Difference(
        NO_CODE, code="XPTY0004"
    ),
    "declare function local:f() { . }; local:f()": Difference(NO_CODE, code="XPDY0002"),
    'let $x := <q:a xmlns:q="u" q:k="1"/> return <b xmlns:q="other">{$x/@*}</b>': Difference(
        "the prefix is taken, and a processor chooses another one",
        items=('<b xmlns:ns0="u" xmlns:q="other" ns0:k="1"/>',),
    ),
    **dict.fromkeys(
        (
            'xs:double(" 1 "), xs:double("1."), xs:double(".1"), xs:double("1e")',
            'xs:boolean(" true "), xs:boolean("TRUE")',
            'xs:dateTime("2001-02-03T04:05"), 1',
            'xs:time("04:05:06.789Z"), xs:time("04:05:60")',
            'xs:hexBinary("0"), 1',
            'xs:integer(true()), xs:decimal("1e1")',
        ),
        Difference("Saxon's message starts with the code of a warning that the error is certain", code="FORG0001"),
    ),
    'xs:dayTimeDuration("PT10S") div 3': Difference(
        "digits of a quotient that does not end are the processor's choice: 18, as of any other decimal",
        items=("PT3.333333333333333333S",),
    ),
    "<a:b:c/>": Difference("two mistakes: the prefix is not declared, and no name has two colons", code="XPST0081"),
    "<a></a b>": Difference("not what the grammar allows after the name of an end tag", code="XPST0003"),
    'substring("hello", 2, xs:double("INF"))': Difference(
        "SaxonC-HE 13 fails with an unknown exception here", items=("ello",)
    ),
}
