"""SIGKILL of running queries: every row once, from the version logged for its micro-batch, whatever else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semistream.frame.kills import FILES, MODES, check, check_changes, run_killed, run_killed_changes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_queries_answer_every_row_once(tmp_path: Path) -> None:
    files = FILES + 2 * 3
    assert run_killed(tmp_path, 3, MODES, seed=1, files=files) == 3
    assert all(check(tmp_path, mode, files) > 1 for mode in MODES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_streams_of_changes_apply_every_micro_batch_once(tmp_path: Path) -> None:
    found = run_killed_changes(tmp_path, 3, seed=2, files=FILES)
    check_changes(tmp_path, found, FILES)
