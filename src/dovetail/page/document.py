"""Makes the HTML of the page: the template around its parts, its content policy, and the page as one file."""

from __future__ import annotations

import os
import secrets
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.resources import INLINE, Resources
from jinja2 import Environment, Template

from dovetail.errors import ConfigError
from dovetail.page.board import Board
from dovetail.pipeline.record.watch import Watch
from dovetail.version import __version__

if TYPE_CHECKING:
    from bokeh.resources import Component


def read(name: str) -> str:
    """The text of a file of this package."""
    return (files("dovetail.page") / name).read_text(encoding="utf-8")


@cache
def parts_css() -> str:
    """The style sheet of the parts of the page."""
    return read("parts.css")


@cache
def page_template() -> Template:
    """The template of the page."""
    # Bokeh hands over finished HTML; what is text in this template passes through the filter `e`.
    return Environment(autoescape=False).from_string(read("page.html"))  # noqa: S701


def content_policy(nonce: str, connect: str) -> str:
    """The content security policy: the page loads its own scripts, which carry the nonce, and nothing else.

    No script is made from text (`unsafe-eval`); styles are set by Bokeh at run time, so they cannot be marked.
    """
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"font-src 'none'; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def new_nonce() -> str:
    """A random nonce for one response."""
    return secrets.token_urlsafe(18)


def template_variables(nonce: str, **more: Any) -> dict[str, Any]:
    """Variables of the template beside those that Bokeh adds."""
    return {"nonce": nonce, "version": __version__, "page_css": read("page.css"), "inline_js": [], "policy": "", **more}


COMPONENTS: list[Component] = ["bokeh", "bokeh-widgets"]
"""The parts of BokehJS that the page uses."""


def freeze(watch: Watch, path: str | os.PathLike[str]) -> Path:
    """Write the page as it is now to one HTML file that needs neither a server nor the internet; its path.

    An existing file is replaced. The file does not follow a run that is still active, and says so.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        partial.write_text(_page(watch), encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise ConfigError(f"the page cannot be written to {target}: {error}; name a file that can be.") from error
    return target


def _page(watch: Watch) -> str:
    nonce = new_nonce()
    document = Document()
    document.title = watch.name
    for root in Board(watch, parts_css(), final=True).roots:
        document.add_root(root)
    scripts = Resources(mode="inline", components=COMPONENTS, minified=True, log_level="fatal")
    return file_html(
        document,
        resources=INLINE,
        title=watch.name,
        template=page_template(),
        template_variables=template_variables(
            nonce, inline_js=scripts.js_raw, policy=content_policy(nonce, connect="'none'")
        ),
        suppress_callback_warning=True,
    )
