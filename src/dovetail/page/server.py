"""The live page on a port of this machine, served from a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from types import TracebackType
from typing import Any
from urllib.parse import quote

from bokeh.server.server import BaseServer
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop

from dovetail.errors import ConfigError
from dovetail.page.gate import Gate
from dovetail.page.handlers import GatedApplication
from dovetail.pipeline.record.watch import Watch

FLUSH_S = 0.25
"""Time that open pages have for the last state before the server goes."""


def serve(watch: Watch, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Page:
    """The live page of the run, open until `close`; port 0 takes a free one.

    The page is read-only. On a host other than loopback a token is demanded: readers open `Page.url`, which carries
    it. It is sent in clear; across networks that you do not trust, put a server with TLS in front.
    """
    Gate(host, port, token)  # refuses before a port is taken
    try:
        listening = socket.create_server((host, port), family=_family(host))
    except OSError as error:
        raise ConfigError(
            f"the live page cannot listen on {host}:{port}: {error}; choose another port, or 0 for a free one."
        ) from error
    listening.setblocking(False)
    return Page(watch, Gate(host, listening.getsockname()[1], token), listening)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class Page:
    """A page that is being served. `url` opens it; `close` sends the last state to its readers and ends it."""

    def __init__(self, watch: Watch, gate: Gate, listening: socket.socket) -> None:
        self._watch, self._gate, self._listening = watch, gate, listening
        self._loop: IOLoop
        self._server: BaseServer
        self._http: HTTPServer
        self._application: GatedApplication
        self._ready = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dovetail live page", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def url(self) -> str:
        """The address to open, with the token if there is one."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self._gate.host, self._gate.host)  # noqa: S104  (compared, not bound)
        name = f"[{host}]" if ":" in host and not host.startswith("[") else host
        query = f"?token={quote(self._gate.token, safe='')}" if self._gate.token else ""
        return f"http://{name}:{self._gate.port}/{query}"

    def close(self) -> None:
        """End the server; pages that are open keep what they show. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._loop.add_callback(self._finish)
        self._thread.join()

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        # A reader who closes a tab in the middle of a message is no news for the terminal of the run.
        logging.getLogger("bokeh.server").setLevel(logging.ERROR)
        asyncio.set_event_loop(asyncio.new_event_loop())
        self._loop = IOLoop.current()
        self._application = GatedApplication(self._watch, self._gate)
        self._http = HTTPServer(self._application)
        self._http.add_sockets([self._listening])
        self._server = BaseServer(self._loop, self._application, self._http)
        self._server.start()
        self._loop.add_callback(self._ready.set)
        try:
            self._loop.start()
        finally:
            self._loop.close(all_fds=True)

    async def _finish(self) -> None:
        """Send every reader the last state and tell the page not to look for the server again."""
        for session in self._server.get_sessions("/"):
            concluded: Any = session.with_document_locked(self._application.conclude, session.document)
            await concluded
        await asyncio.sleep(FLUSH_S)
        self._server.stop()
        await self._http.close_all_connections()
        self._loop.stop()
