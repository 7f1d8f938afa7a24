"""A real PostgreSQL server for the sinks, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.semistream.master.server import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with Server() as server:
        yield server
