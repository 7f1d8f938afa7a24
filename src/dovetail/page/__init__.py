"""Shows a pipeline in the browser, while it runs and after it has ended: the live page.

In the order in which a request passes them:

* `server`: serves the page; `gate` decides which requests it answers.
* `document`: the HTML around the page, and the page as one file.
* `board`: the page of one reader, which follows the record of the run.
* `charts`: the charts of a step and their data. `graph`: the graph of the pipeline. `markup`: pieces of HTML.
* `units` and `theme`: numbers as text; colours and fonts.

Needs the extra `ui` (Bokeh). Everything that the page loads comes from this machine.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import ConfigError

if TYPE_CHECKING:
    from dovetail.page.server import Page as Page
    from dovetail.pipeline.record.watch import Watch

__all__ = ["freeze", "serve"]


def serve(watch: Watch, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Page:
    """The live page of the run, served from a thread until `Page.close()`; port 0 takes a free one.

    The page is read-only. A host other than loopback demands a token of at least 16 characters (`ConfigError`), which
    `Page.url` carries. `ConfigError` too if the port is taken or Bokeh is not installed.
    """
    _need_bokeh()
    from dovetail.page.server import serve as start

    return start(watch, host, port, token)


def freeze(watch: Watch, path: str | os.PathLike[str]) -> Path:
    """Write the page as it is now to one HTML file that needs neither a server nor the internet; its path."""
    _need_bokeh()
    from dovetail.page.document import freeze as write

    return write(watch, path)


def _need_bokeh() -> None:
    try:
        import bokeh  # noqa: F401  (only whether it is there)
    except ImportError as error:
        raise ConfigError("the live page needs Bokeh; install it with: pip install 'dovetail[ui]'") from error
