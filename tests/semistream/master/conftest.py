"""Real servers for the tests, run as the same user: PostgreSQL from a PyPI package, others from Debian."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.semistream.master.debian_servers import MariaDb, Redis
from tests.semistream.master.server import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    with MariaDb() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with Redis() as server:
        yield server
