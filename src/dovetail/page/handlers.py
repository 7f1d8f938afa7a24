"""The web application: Bokeh's, behind the gate, with a page of ours and resources from this server only."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from bokeh.application import Application
from bokeh.application.handlers.function import FunctionHandler
from bokeh.document import Document
from bokeh.embed.server import server_html_page_for_session
from bokeh.resources import Resources
from bokeh.server.tornado import BokehTornado
from bokeh.server.views.session_handler import SessionHandler
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from dovetail.page import template
from dovetail.page.board import Board
from dovetail.page.gate import Gate, Refusal
from dovetail.page.static_page import COMPONENTS
from dovetail.pipeline.record.watch import Watch

EVERY_MS = 1_000
"""How often a page follows the record."""

LARGEST_MESSAGE = 2**20
"""Bytes of a message from a browser; a page sends a few hundred."""


class Refused(RequestHandler):
    """An answer that says why there is none; the same for pages, scripts and the web socket."""

    def initialize(self, refusal: Refusal) -> None:
        """Take what to say."""
        self._refusal = refusal

    def prepare(self) -> None:
        """Answer at once, whatever the method."""
        self.set_status(self._refusal.status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.finish(self._refusal.reason + "\n")


class Welcome(RequestHandler):
    """The token was right: from here on a cookie stands for it, and it leaves the address bar."""

    def get(self) -> None:
        """Set the cookie and lead to the page."""
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
        nonce = template.new_nonce()
        html = server_html_page_for_session(
            session,
            resources=self.application.resources(),
            title=session.document.title,
            template=template.template(),
            template_variables=template.variables(nonce),
        )
        self.set_header("Content-Type", "text/html; charset=utf-8")
        for name, value in _headers(nonce, self.request.host).items():
            self.set_header(name, value)
        self.write(html)


class GatedApplication(BokehTornado):
    """Bokeh's application, where every request passes the gate first."""

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
        """The handler of a request that may be served; otherwise one that refuses."""
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
        """Scripts of this server, whatever the environment says of Bokeh's resources."""
        return Resources(mode="server", root_url="/", components=COMPONENTS, minified=True, log_level="fatal")

    def conclude(self, document: Document) -> None:
        """Show the last state in this page, and that no other will follow."""
        if document in self._boards:
            self._boards[document].freeze()

    def _fill(self, document: Document) -> None:
        """A page of its own for each reader, that follows the record until the reader leaves."""
        board = self._boards[document] = Board(self._watch, template.parts_css())
        document.title = self._watch.name
        for root in board.roots:
            document.add_root(root)
        document.add_periodic_callback(board.refresh, EVERY_MS)


def _headers(nonce: str, host: str) -> dict[str, str]:
    socket = f"ws://{quote(host, safe=':[].')}"
    script = template.policy(nonce, connect=f"'self' {socket}")
    return {
        "Content-Security-Policy": f"{script}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
