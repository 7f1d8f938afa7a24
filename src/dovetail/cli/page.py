"""`dovetail page`: shows the page of a finished run from its saved record."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli.run import token_of
from dovetail.page import freeze, serve
from dovetail.pipeline.record.watch import Watch

app = typer.Typer()


@app.command()
def page(
    record: Annotated[str, typer.Argument(metavar="FILE", help="The record of a run, such as its watch.json.")],
    to: Annotated[
        Path | None, typer.Option(help="Write one self-contained HTML file here instead of serving the page.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 0,
    token: Annotated[
        str | None,
        typer.Option(envvar="DOVETAIL_TOKEN", help="What readers must know; others see it in a command."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the token.")] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show the saved record of a run again: served until Ctrl-C, or written to one HTML file."""
    watch = Watch.load(record)
    if to is not None:
        written = freeze(watch, to)
        typer.echo(f"{written} ({written.stat().st_size / 2**20:.1f} MiB)")
        if show:
            webbrowser.open(written.resolve().as_uri())
        return
    with serve(watch, host, port, token_of(token, token_file)) as served:
        typer.echo(f"{watch.name}: {served.url}\nCtrl-C ends the page.")
        if show:
            webbrowser.open(served.url)
        _wait()


def _wait() -> None:
    """Wait for Ctrl-C; the server runs in its own thread."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo("closed")
