"""SIGKILL of running queries: every row once, from the version logged for its micro-batch, whatever else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semistream.frame.kills import FILES, MODES, check, repeated, run_killed


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_queries_answer_every_row_once(tmp_path: Path) -> None:
    files = FILES + 2 * 20
    assert run_killed(tmp_path, 20, MODES, seed=1, files=files) == 20
    assert all(check(tmp_path, mode, files) > 1 for mode in MODES)
    assert all(repeated(tmp_path, mode) for mode in MODES), "no kill came between a sink and Spark's commit"
