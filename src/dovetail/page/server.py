"""Serves the live page: Bokeh's web application behind the gate, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.embed.server import server_html_page_for_session
from bokeh.resources import Resources
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.session_handler import SessionHandler
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from dovetail.errors import ConfigError
from dovetail.page.board import Board
from dovetail.page.document import COMPONENTS, content_policy, new_nonce, page_template, parts_css, template_variables
from dovetail.page.gate import Gate, Refusal
from dovetail.pipeline.record.watch import Watch

EVERY_MS = 1_000
"""How often a page reads the record."""

LARGEST_MESSAGE = 2**20
"""Bytes of a message from a browser; a page sends a few hundred."""


class Refused(RequestHandler):
    """Answers a refused request, for a page, a script or the web socket, with the reason."""

    def initialize(self, refusal: Refusal) -> None:
        """Take the refusal."""
        self._refusal = refusal

    def prepare(self) -> None:
        """Answer at once, whatever the method."""
        self.set_status(self._refusal.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.finish(self._refusal.reason + "\n")


class Welcome(RequestHandler):
    """Answers a request with the right token: sets a cookie in its place, so that it leaves the address bar."""

    def get(self) -> None:
        """Set the cookie and redirect to the page."""
        gate: Gate = self.settings["gate"]
        self.set_cookie(gate.cookie, gate.pass_secret, httponly=True, samesite="Strict", path="/")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.redirect("/", status=303)


class LivePage(SessionHandler):
    """The page for one reader."""

    async def get(self) -> None:
        """The HTML; data follow over the web socket."""
        opened: Any = self.get_session()  # a coroutine behind a decorator that hides it
        session = await opened
        nonce = new_nonce()
        html = server_html_page_for_session(
            session,
            resources=self.application.resources(),
            title=session.document.title,
            template=page_template(),
            template_variables=template_variables(nonce),
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        for name, value in _headers(nonce, self.request.host).items():
            self.set_header(name, value)
        self.write(html)


class GatedApplication(BokehTornado):
    """Bokeh's application; every request passes the gate first."""

    def __init__(self, watch: Watch, gate: Gate) -> None:
        self._gate, self._watch = gate, watch
        self._boards: WeakKeyDictionary[Document, Board] = WeakKeyDictionary()
        super().__init__(
            Application(FunctionHandler(self._fill)),
            extra_websocket_origins=gate.origins,
            use_index=False,
            # Bokeh would write cookies into the page, where scripts could read them.
            include_cookies=[],
            include_headers=[],
            websocket_max_message_size_bytes=LARGEST_MESSAGE,
            gate=gate,
            log_function=lambda handler: None,  # requests are not logged: their addresses may carry the token
        )

    def find_handler(self, request: HTTPServerRequest, **kwargs: Any) -> Any:
        """The handler of an accepted request; `Refused` for any other."""
        verdict = self._gate.judge(request)
        if isinstance(verdict, Refusal):
            return self.get_handler_delegate(request, Refused, {"refusal": verdict})
        if verdict.greet:
            return self.get_handler_delegate(request, Welcome)
        if request.path == "/":
            context = {"application_context": self.applications["/"], "bokeh_websocket_path": "/ws"}
            return self.get_handler_delegate(request, LivePage, context)
        return super().find_handler(request, **kwargs)

    def resources(self, absolute_url: str | bool | None = None) -> Resources:
        """Scripts of this server, whatever Bokeh's environment variables say."""
        return Resources(mode="server", root_url="/", components=COMPONENTS, minified=True, log_level="fatal")

    def conclude(self, document: Document) -> None:
        """Show the last state in this page, and that it is final."""
        if document in self._boards:
            self._boards[document].conclude()

    def _fill(self, document: Document) -> None:
        """Make a page for one reader, which follows the record until the reader leaves."""
        board = self._boards[document] = Board(self._watch, parts_css())
        document.title = self._watch.name
        for root in board.roots:
            document.add_root(root)
        document.add_periodic_callback(board.refresh, EVERY_MS)


def _headers(nonce: str, host: str) -> dict[str, str]:
    socket = f"ws://{quote(host, safe=':[].')}"
    script = content_policy(nonce, connect=f"'self' {socket}")
    return {
        "Content-Security-Policy": f"{script}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


FLUSH_S = 0.25
"""Time in which open pages receive the last state before the server stops."""


def serve(watch: Watch, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Page:
    """The live page of the run, open until `close`; port 0 takes a free one.

    The page is read-only. A host other than loopback needs a token, which `Page.url` contains. The token is sent
    unencrypted; across networks that you do not trust, put a server with TLS in front.
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
    """A page that is being served. `url` is its address; `close` sends the last state to its readers and stops it."""

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
        """Stop the server; open pages keep the last state. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._loop.add_callback(self._finish)
        self._thread.join()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        # Bokeh warns when a reader closes a tab during a message; the terminal of the run should not show that.
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
        """Send every reader the last state, and stop the pages from reconnecting."""
        for session in self._server.get_sessions("/"):
            concluded: Any = session.with_document_locked(self._application.conclude, session.document)
            await concluded
        await asyncio.sleep(FLUSH_S)
        self._server.stop()
        await self._http.close_all_connections()
        self._loop.stop()
