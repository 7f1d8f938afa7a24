"""Python blocks in README.md and docs, and the examples, run as they stand."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def blocks() -> list[object]:
    """Each block with the place it stands at, which is also the name that a traceback shows."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in BLOCK.finditer(text):
            line = text[: block.start(1)].count("\n")
            place = f"{page.relative_to(ROOT)}:{line + 1}"
            found.append(pytest.param("\n" * line + block[1], page, id=place))
    return found


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("code", "page"), blocks())
def test_a_block_runs(code: str, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # noqa: S102  (our own documentation)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    shown = [f"{path.stem}.svg"] if f"](images/{path.stem}.svg)" in (ROOT / "docs/examples.md").read_text() else []
    assert [drawn.name for drawn in tmp_path.glob("*.svg")] == shown


def test_there_is_something_to_run() -> None:
    assert len(blocks()) >= 5
    assert EXAMPLES


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert missing == []


def test_every_command_is_in_the_readme() -> None:
    from dovetail.cli.main import COMMANDS

    text = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"`dovetail {name}" not in text] == []
