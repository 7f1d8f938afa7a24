"""The page as a file, and the command that shows a record again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.ui.hostile import HOSTILE, hostile_watch
from tests.ui.play import recorded
from typer.testing import CliRunner

from dovetail.cli.main import app
from dovetail.errors import ConfigError
from dovetail.page import freeze

LOADING = ("src", "href", "srcset", "data", "action", "poster", "background")


class References(HTMLParser):
    """All that an HTML file asks for, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = self.images = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in LOADING]
        self.scripts += tag == "script"
        self.images += tag == "img"


def test_a_page_file_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    path = freeze(recorded(20), tmp_path / "deep" / "page.html")
    text = path.read_text()
    assert References(text).found == ["data:,"]
    head = unescape(text.partition("<script")[0])
    assert "connect-src 'none'" in head
    assert not re.search(r"url\((?!data:)|@import|https?:", head)
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


def test_names_in_a_page_file_are_escaped(tmp_path: Path) -> None:
    plain = References(freeze(recorded(2), tmp_path / "plain.html").read_text())
    text = freeze(hostile_watch(), tmp_path / "hostile.html").read_text()
    hostile = References(text)
    assert (hostile.scripts, hostile.images) == (plain.scripts, 0)
    assert HOSTILE not in text


def test_a_place_that_cannot_be_written_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name a file that can be"):
        freeze(recorded(2), tmp_path / "file" / "page.html")


def test_the_command_writes_the_page_of_a_record(tmp_path: Path) -> None:
    record = recorded(3).save(tmp_path / "watch.json")
    result = CliRunner().invoke(app, ["page", str(record), "--to", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    assert "retail-warehouse" in (tmp_path / "page.html").read_text()


def test_the_command_refuses_what_is_no_record_and_an_open_host(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    record = recorded(3).save(tmp_path / "watch.json")
    assert CliRunner().invoke(app, ["page", str(tmp_path / "x.json")]).exit_code == 2
    assert CliRunner().invoke(app, ["page", str(record), "--host", "0.0.0.0"]).exit_code == 2  # noqa: S104  (refused)


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    record = recorded(3).save(tmp_path / "watch.json")
    start = [sys.executable, "-c", "from dovetail.cli.main import run; run()", "page", str(record)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with urlopen(url, timeout=10) as answer:  # noqa: S310  (an address of loopback)
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
