"""Connections to MySQL and MariaDB over PyMySQL, with errors that are ours and never show a password."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from dovetail.engine.storage.secrets import censored, check_escaped, shown
from dovetail.errors import ConfigError, PlanError
from dovetail.joins.semistream.master.snapshots import Connections

PLACE = "\0"  # of a value in a statement: a character that no name has
_CONNECT_S = 10
_SECONDS = ("connect_timeout", "read_timeout")
_OPTIONS = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket", *_SECONDS)
# Names are quoted as in standard SQL, text and times have one meaning, and a transaction sees one version.
_SESSION = (
    "SET SESSION sql_mode = 'ANSI_QUOTES'",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


def check_url(url: str) -> str:
    """The URL; a `PlanError` if it is none of MySQL or MariaDB, names no database, or has an unknown option."""
    is_ours = url.partition("://")[0] in ("mysql", "mariadb")
    if is_ours:
        check_escaped(url)
    parts = urlsplit(url) if is_ours else None
    if parts is None or not parts.path.strip("/"):
        raise PlanError(
            "the url is not of the form mysql://user:password@host:port/database; give it so, or with mariadb://.",
            argument="uri",
        )
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise PlanError(f"the url has the option {name!r}; known are {', '.join(_OPTIONS)}.", argument="uri")
        if name in _SECONDS and not value.isdecimal():
            raise PlanError(f"the url has {name}={value}; give whole seconds, such as {name}=10.", argument="uri")
    return url


def connect(url: str) -> Any:
    """A new connection that leaves transactions to us."""
    try:
        import pymysql
    except ImportError as error:
        raise ConfigError("MySQL and MariaDB need the package PyMySQL: pip install 'dovetail[mysql]'.") from error
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in _SECONDS:
        if name in options:
            options[name] = int(options[name])
    options.setdefault("connect_timeout", _CONNECT_S)
    with as_config_errors(url, "cannot connect to"):
        made = pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.strip("/")),
            charset="utf8mb4",
            autocommit=True,
            **options,
        )
        for statement in _SESSION:
            query(made, statement)
        return made


def query(connection: Any, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of one statement, whose values stand at `PLACE` and are sent as literals that the driver escapes."""
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("%", "%%").replace(PLACE, "%s"), tuple(values))
        return list(cursor.fetchall())


class MixedCharactersError(ConfigError):
    """A text that was sent has characters that the column's character set does not have."""


_MIXED = (1267, 1270, 1271)  # codes of the server


@contextmanager
def as_config_errors(url: str, doing: str) -> Iterator[None]:
    """Errors of server and driver become `ConfigError`, with what they say but no password."""
    import pymysql

    try:
        yield
    except (pymysql.MySQLError, OSError) as error:
        if error.args and error.args[0] in _MIXED:
            raise MixedCharactersError(
                f"{doing} {shown(url)}: a value does not fit the column's character set."
            ) from None
        hint = "check that the server runs and that the user may read the table"
        reason = censored(" ".join(map(str, error.args)) or type(error).__name__, [url])
        # The driver's own error is not kept as the cause: its text may show what is hidden here.
        raise ConfigError(f"{doing} {shown(url)}: {reason}; {hint}.") from None


def _reset(connection: Any) -> None:
    query(connection, "ROLLBACK")


CONNECTIONS = Connections(connect, as_config_errors, _reset)
