"""Passwords of sinks and tokens of pages are in no text that a program may print."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dovetail.cli.run import token_of
from dovetail.errors import ConfigError
from dovetail.page.gate import Gate
from dovetail.pipeline.file.declared import Step
from dovetail.pipeline.sinks.files import FileSink
from dovetail.pipeline.sinks.postgres import Target

URI = "postgresql://me:hidden@host/shop?sslpassword=hidden"


def test_the_text_of_a_sink_has_no_password() -> None:
    schema = pa.schema([("k", pa.int64())])
    target = Target(URI, "t", schema, ("k",), None, "append", False, True, "p.out", "1")
    values = {
        "uri": URI,
        "table": "t",
        "options": {"password": "hidden", "url": "jdbc:postgresql://h/d?password=hidden"},
    }
    step = Step("sink", "out", "postgres", values, values | {"path": "/x"}, ())
    sink = FileSink(None, step, "/x", "p.out", "1", True)  # type: ignore[arg-type]  # no file is looked for
    for one in (target, step, sink):
        assert "hidden" not in repr(one), one
        assert "hidden" not in str(one), one
    assert target.url == URI


def test_the_record_of_a_run_has_no_password() -> None:
    written = {"uri": URI, "table": "t", "other": "mailto:someone@example.org"}
    detail = Step("sink", "out", "postgres", written, written, ()).node().detail
    assert "hidden" not in detail
    assert "postgresql://me:***@host/shop" in detail


def test_a_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token that is long enough\n")
    assert token_of(None, file) == token_of("another", file) == "a token that is long enough"
    assert token_of("from the environment", None) == "from the environment"
    with pytest.raises(ConfigError, match=r"--token-file .* cannot be read: No such file"):
        token_of(None, tmp_path / "none")
    assert "long enough" not in repr(Gate("0.0.0.0", 0, "a token that is long enough"))  # noqa: S104  (not served)
