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
    'substring("hello", 2, xs:double("INF"))': Difference(
        "SaxonC-HE 13 fails with an unknown exception here", items=("ello",)
    ),
}
