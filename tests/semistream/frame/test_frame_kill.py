"""SIGKILL of running queries, master data changing meanwhile: every row once, from the version logged for its batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semistream.frame.kills import MODES, check, run_killed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_queries_answer_every_row_once(tmp_path: Path) -> None:
    assert run_killed(tmp_path, 1, MODES, seed=1) == 1
    assert all(check(tmp_path, mode) > 1 for mode in MODES)
