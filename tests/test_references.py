"""Citations: every source is in the list of sources, every cited section of the reference exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "algorithms"
PAGES = sorted(page for page in REFERENCE.glob("*.md") if page.name != "README.md")
PLACES = ("src", "bench", "tests", "docs", "examples", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile")
SUFFIXES = {".py", ".md", ".html", ".json", ".toml", ".yml", ".sql", ""}

SECTION = r"\d+(?:\.\d+)*"
SECTIONS = rf"{SECTION}(?:(?:, | and |, and | to ){SECTION}(?![\d%]))*"
CITED_PAGE = re.compile(rf"docs/algorithms/(\w+)\.md(?:, (?P<sections>{SECTIONS}))?")
CITED_PLACE = r"(?:\d|chapter|section|algorithm|equation|table|figure|theorem|appendi|query)"
CITED_SOURCE = re.compile(rf"\b([A-Z]\w+ (?:19|20)\d\d), (?={CITED_PLACE})")
OLD_FORMS = re.compile(r"seed 0\d\d|specs/\w+\.md|[Ss]pecification (?:section )?\d")


@cache
def texts() -> dict[str, str]:
    """The text of every other file, by path, on one line: without line ends, indentation and marks of comments."""
    places = [ROOT / place for place in PLACES]
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place])]
    wanted = [file for file in files if file.is_file() and file.suffix in SUFFIXES and file != Path(__file__)]
    return {str(f.relative_to(ROOT)): re.sub(r"\s*\n[ \t]*(?:# )?", " ", f.read_text()) for f in wanted}


@cache
def headings(page: str) -> frozenset[str]:
    """The numbers of the sections of a page of the reference."""
    return frozenset(re.findall(rf"^#{{2,3}} ({SECTION}) ", (REFERENCE / f"{page}.md").read_text(), re.MULTILINE))


@cache
def sources() -> frozenset[str]:
    """The names by which sources are cited: the first column of the tables of sources."""
    listed = (REFERENCE / "README.md").read_text().split("## Sources")[1].split("## Citations")[0]
    return frozenset(re.findall(r"^\| (\w+ \d{4}) \|", listed, re.MULTILINE))


def cited_sections(text: str) -> set[tuple[str, str]]:
    """Page and number of every section that a text cites."""
    found = ((cited[1], cited["sections"] or "") for cited in CITED_PAGE.finditer(text))
    return {(page, number) for page, numbers in found for number in re.findall(SECTION, numbers)}


def test_citations_are_found_across_lines_and_in_lists() -> None:
    text = "docs/algorithms/online.md, 2.2 to 2.7, 3 and 6.4. docs/algorithms/interval.md, 10, with"
    expected = {("online", "2.2"), ("online", "2.7"), ("online", "3"), ("online", "6.4"), ("interval", "10")}
    assert cited_sections(text) == expected
    assert CITED_SOURCE.findall("Carman 2020, 3.3.1; Naeem 2012, algorithm 3; in June 2020 it") == [
        "Carman 2020",
        "Naeem 2012",
    ]
    assert not OLD_FORMS.search("seed 1000, seed 07 and a specification in one line")
    assert len(headings("interval")) > 20
    assert {"Carman 2020", "Dignös 2014"} < sources()


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_cited_sections_exist(page: str) -> None:
    cited = {(path, number) for path, text in texts().items() for name, number in cited_sections(text) if name == page}
    assert any(path.startswith("src/") for path, _ in cited)
    missing = sorted((path, number) for path, number in cited if number not in headings(page))
    assert not missing


def test_cited_pages_exist() -> None:
    cited = {(path, name) for path, text in texts().items() for name in re.findall(r"docs/algorithms/(\w+)\.md", text)}
    assert not {(path, name) for path, name in cited if not (REFERENCE / f"{name}.md").is_file()}


def test_cited_sources_are_listed() -> None:
    authors = "|".join(sorted({source.split()[0] for source in sources()}))
    known = re.compile(rf"\b((?:{authors}) (?:19|20)\d\d)\b")
    cited = {(path, s) for path, text in texts().items() for s in (*CITED_SOURCE.findall(text), *known.findall(text))}
    assert len(cited) > 100
    assert not sorted((path, source) for path, source in cited if source not in sources())


def test_no_other_form_of_citation_is_left() -> None:
    assert not {(path, old) for path, text in texts().items() for old in OLD_FORMS.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_in_the_reference_exist(page: Path) -> None:
    code = "\n".join(file.read_text() for place in ("src", "bench") for file in (ROOT / place).rglob("*.py"))
    defined = re.findall(r"^ *(?:class|def) (\w+)|^([A-Z_]+)(?:: .*)? = ", code, re.MULTILINE)
    text = page.read_text().replace("\n", " ")
    named = {name for said in re.findall(r"Implemented by ([^.]*)\.", text) for name in re.findall(r"`(\w+)`", said)}
    assert named
    assert named <= {name for either in defined for name in either}
    assert set(re.findall(r"`(\w+)`", text)) <= set(re.findall(r"\w+", code))


def test_every_line_of_the_comparison_names_a_test_of_its_functions() -> None:
    """Our column has names and options, the last one a test, by its node id, in a file that uses them."""
    lines = [line for line in (ROOT / "docs" / "compare.md").read_text().splitlines() if line.startswith("| ")]
    ours = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| |")]
    assert len(ours) > 40
    for what, mine, *_, node in ours:
        if mine == "–":
            assert not node, what
            continue
        text = text_of(node.strip("`"))
        for word in re.findall(r"\b[a-z_]{2,}\b", " ".join(re.findall("`([^`]*)`", mine))):
            assert re.search(rf"\b{word}\b", text), f"{what}: the file of {node} does not use {word}"


def text_of(node: str) -> str:
    """The text of the file of a test that pytest collects under this node id."""
    place, _, name = node.partition("::")
    assert place.startswith("tests/"), node
    assert Path(place).name.startswith("test_"), node
    text = (ROOT / place).read_text()
    defined = {item.name for item in ast.parse(text).body if isinstance(item, ast.FunctionDef)}
    assert name.startswith("test_"), f"{node} names no test"
    assert name in defined, f"{node} is not there"
    return text
