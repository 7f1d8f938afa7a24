"""The PostgreSQL server of the tests: a password that URLs must quote, and statements run on it."""

from __future__ import annotations

from adbc_driver_postgresql import dbapi
from bench.rivals import postgres

PASSWORD = "s3cret p@ss/w:rd"  # noqa: S105  (of a server that lives as long as the tests)


class Server(postgres.Server):
    """A small server that gives up waiting for a lock."""

    def __init__(self) -> None:
        super().__init__("tester", PASSWORD, "-c shared_buffers=32MB -c lock_timeout=20s")

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
