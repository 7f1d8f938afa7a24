"""SIGKILL of a running query, master data changing meanwhile: every row once, each batch from its logged version."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.semistream.frame.kills import check, run_killed


@pytest.mark.parametrize("mode", ["per_batch", "carry"])
@pytest.mark.timeout(600)
def test_a_killed_query_answers_every_row_once(tmp_path: Path, mode: str) -> None:
    assert run_killed(tmp_path, 1, mode, seed=1) == 1
    assert check(tmp_path) > 1
