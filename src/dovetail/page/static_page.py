"""The page as one file: everything that a reader needs, and nothing that changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.resources import INLINE, Resources

from dovetail.errors import ConfigError
from dovetail.page import template
from dovetail.page.board import Board
from dovetail.pipeline.record.watch import Watch

if TYPE_CHECKING:
    from bokeh.resources import Component

COMPONENTS: list[Component] = ["bokeh", "bokeh-widgets"]
"""The parts of BokehJS that the page uses."""


def freeze(watch: Watch, path: str | os.PathLike[str]) -> Path:
    """Write the page as it is now to one HTML file that needs neither a server nor the internet; its path.

    A file of this name is replaced. The run may go on: the file does not follow it and says so.
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
    nonce = template.new_nonce()
    document = Document()
    document.title = watch.name
    for root in Board(watch, template.parts_css(), frozen=True).roots:
        document.add_root(root)
    scripts = Resources(mode="inline", components=COMPONENTS, minified=True, log_level="fatal")
    return file_html(
        document,
        resources=INLINE,
        title=watch.name,
        template=template.template(),
        template_variables=template.variables(
            nonce, inline_js=scripts.js_raw, policy=template.policy(nonce, connect="'none'")
        ),
        suppress_callback_warning=True,
    )
