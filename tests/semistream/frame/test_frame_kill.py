"""SIGKILL of running queries: every row once, from the version logged for its micro-batch, whatever else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semistream.frame.kills import FILES, MODES, check, run_killed


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_queries_answer_every_row_once(tmp_path: Path) -> None:
    files = FILES + 2 * 3
    assert run_killed(tmp_path, 3, MODES, seed=1, files=files) == 3
    assert all(check(tmp_path, mode, files) > 1 for mode in MODES)
