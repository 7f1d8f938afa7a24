"""The frame of the page: its HTML and style sheets, kept as files beside this one, and what scripts may do in it."""

from __future__ import annotations

import secrets
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, Template

from dovetail.version import __version__


def read(name: str) -> str:
    """The text of a file of this package."""
    return (files("dovetail.page") / name).read_text(encoding="utf-8")


@cache
def parts_css() -> str:
    """The style of the parts of the page."""
    return read("parts.css")


@cache
def template() -> Template:
    """The page around its parts."""
    # Bokeh hands over finished HTML; what is text in this template passes through the filter `e`.
    return Environment(autoescape=False).from_string(read("page.html"))  # noqa: S701


def policy(nonce: str, connect: str) -> str:
    """What the page may load: its own scripts, marked with the nonce, and nothing from elsewhere.

    No script is made from text (`unsafe-eval`); styles are set by Bokeh at run time, so they cannot be marked.
    """
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"font-src 'none'; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def new_nonce() -> str:
    """A mark that no one can guess."""
    return secrets.token_urlsafe(18)


def variables(nonce: str, **more: Any) -> dict[str, Any]:
    """What the template needs besides that which Bokeh gives it."""
    return {"nonce": nonce, "version": __version__, "page_css": read("page.css"), "inline_js": [], "policy": "", **more}
