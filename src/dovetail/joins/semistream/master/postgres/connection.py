"""Connections to PostgreSQL over ADBC, with errors that are ours and never show a password."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from dovetail.engine.storage.secrets import censored, check_escaped, shown
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.snapshots import Connections

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection


_CONNECT_S = 10


def check_url(url: str) -> str:
    """The URL, with a limit on how long connecting may take; a `PlanError` if it is no PostgreSQL URL."""
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise PlanError(
            "the url does not begin with postgresql://; give postgresql://user:password@host:port/database.",
            argument="uri",
        )
    check_escaped(url)
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options.setdefault("connect_timeout", str(_CONNECT_S))
    return urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))


def connect(url: str) -> Connection:
    """A new connection that leaves transactions to us."""
    try:
        from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # ships no type information
    except ImportError as error:
        raise ConfigError(
            "PostgreSQL needs the package adbc-driver-postgresql: pip install 'dovetail[postgres]'."
        ) from error
    with as_config_errors(url, "cannot connect to"):
        made: Connection = dbapi.connect(url, autocommit=True)
        return made


def query(connection: Connection, sql: str, values: Sequence[str] | pa.RecordBatch = ()) -> pa.Table:
    """The rows of one query, whose values, some texts or one row of a batch, are sent apart from its text."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values if isinstance(values, pa.RecordBatch) else tuple(values) or None)
        return cursor.fetch_arrow_table()


def scalars(connection: Connection, sql: str, values: Sequence[str] = ()) -> list[Any]:
    """The values of the first row."""
    return [column[0].as_py() for column in query(connection, sql, values).columns]


@contextmanager
def as_config_errors(url: str, doing: str) -> Iterator[None]:
    """Errors of server and driver become `ConfigError`, with what they say but no password."""
    import adbc_driver_manager

    try:
        yield
    except adbc_driver_manager.Error as error:
        hint = "check that the server runs and that the user may read the table"
        reason = censored(" ".join(str(error).split(". SQLSTATE")[0].split("Query was:")[0].split()), [url])
        # The driver's own error is not kept as the cause: its text may show what is hidden here.
        raise ConfigError(f"{doing} {shown(url)}: {reason}; {hint}.") from None


def _reset(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


CONNECTIONS = Connections(connect, as_config_errors, _reset)
