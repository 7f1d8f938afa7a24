"""Decides which requests are answered: those from this machine, or those with the token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

from dovetail.errors import ConfigError

SHORTEST_TOKEN = 16
OPEN_PATHS = frozenset({"/", "/ws", "/static/js/bokeh.min.js", "/static/js/bokeh-widgets.min.js"})
"""All paths that are served; Bokeh's other paths are for embedding in other pages."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The request is accepted; `greet` if it carries the token and should get the cookie."""

    greet: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """The request is refused, with this status and sentence."""

    status: int
    reason: str


@dataclass(frozen=True)
class Gate:
    """The rules of one server. The token is accepted in the address of the page only; afterwards a cookie replaces it.

    The cookie is a secret of this server and not the token. Both are compared in constant time. A page of another
    site can neither open the web socket (its origin is not ours) nor reach a loopback server under a name of its own.
    """

    host: str
    port: int
    token: str | None = field(repr=False)
    pass_secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise ConfigError(
                f"the token of the live page has {len(self.token)} characters; it needs at least {SHORTEST_TOKEN}. "
                'Make one with: python -c "import secrets; print(secrets.token_urlsafe(24))"'
            )
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"the live page would be open to the network on host {self.host!r}; give a token, "
                "or leave the host at 127.0.0.1."
            )

    @property
    def cookie(self) -> str:
        """Name of the cookie; it contains the port, because browsers share cookies between ports."""
        return f"dovetail-{self.port}"

    @property
    def origins(self) -> list[str]:
        """Hosts that may open the web socket, for Bokeh's own check; `judge` is stricter."""
        return [f"{name}:{self.port}" for name in self._names()] if is_loopback(self.host) else ["*"]

    def judge(self, request: HTTPServerRequest) -> Pass | Refusal:
        """Whether the request may be served."""
        if request.method not in ("GET", "HEAD"):
            return Refusal(405, "The page is read-only.")
        if not self._is_ours(request):
            return Refusal(403, "This page answers only under its own address.")
        greet = request.path == "/" and self._shows_token(request)
        if self.token is not None and not greet and not self._has_cookie(request):
            return Refusal(403, "This page needs its token: open the address that the run printed.")
        return Pass(greet) if request.path in OPEN_PATHS else Refusal(404, "There is nothing here.")

    def _is_ours(self, request: HTTPServerRequest) -> bool:
        """Whether origin and host are this server's, and not those of another site or of a name that resolves to it."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != request.host.lower():
            return False
        return not is_loopback(self.host) or request.host.lower() in {f"{name}:{self.port}" for name in self._names()}

    def _names(self) -> list[str]:
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        return sorted({"127.0.0.1", "localhost", "[::1]", own})

    def _shows_token(self, request: HTTPServerRequest) -> bool:
        given = request.query_arguments.get("token", [])
        return self.token is not None and len(given) == 1 and hmac.compare_digest(given[0], self.token.encode())

    def _has_cookie(self, request: HTTPServerRequest) -> bool:
        given = request.cookies.get(self.cookie)
        return given is not None and hmac.compare_digest(given.value.encode(), self.pass_secret.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
