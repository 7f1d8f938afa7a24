"""Skipped tests fail where nothing may be skipped, and only there."""

from __future__ import annotations

from typing import Literal

import pytest
from tests import conftest

Outcome = Literal["passed", "failed", "skipped"]


@pytest.mark.parametrize(
    ("setting", "given", "expected"),
    [("fail", "skipped", "failed"), ("fail", "passed", "passed"), ("", "skipped", "skipped")],
)
def test_a_skipped_test_fails_where_nothing_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch, setting: str, given: Outcome, expected: Outcome
) -> None:
    monkeypatch.setenv("DOVETAIL_SKIPS", setting)
    report = pytest.TestReport("test", ("test.py", 1, "test"), {}, given, "no server", "setup")
    hook = conftest.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)
    assert end.value.value.outcome == expected
    assert ("DOVETAIL_SKIPS=fail" in str(report.longrepr)) == (given != expected)
