"""SIGKILL of a running online join: every pair once in the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.online.frame.kills import run_killed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_query_gives_every_pair_once(tmp_path: Path) -> None:
    assert run_killed(tmp_path, 1, phases=["arriving"], lives=1, seed=1)["arriving"] >= 1
